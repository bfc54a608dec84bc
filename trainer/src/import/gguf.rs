//! Files in the GGUF format, versions 2 and 3 (the specification is part of the ggml project).
//!
//! Layout, little-endian: magic `GGUF`, version u32, tensor count u64, metadata count u64, metadata (key, type u32,
//! value), tensor table (name, dimensions innermost first, type u32, offset u64), padding, tensor data.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::ImportError;
use super::dequantise::StoredType;
use crate::model::weights_file::map_file;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// Any integer type.
    Integer(i128),
    /// Any floating-point type.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// UTF-8 text.
    Text(String),
    /// Values of one type.
    Array(Vec<MetadataValue>),
}

/// A tensor's entry in the table.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its shape, outermost first, as PyTorch has it.
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub stored: StoredType,
    /// Where its data lie in the file, in bytes.
    data: std::ops::Range<usize>,
}

/// An open GGUF file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    map: Mmap,
    metadata: HashMap<String, MetadataValue>,
    tensors: Vec<TensorEntry>,
}

impl GgufFile {
    /// Maps the file and reads its header; every tensor's data are checked to lie within the file.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let map = map_file(path)?;
        let mut reader = Reader { path, bytes: &map, at: 0 };
        if reader.take(4)? != b"GGUF" {
            return Err(reader.wrong(0, "expected the magic GGUF: this is no GGUF file".into()));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(reader.wrong(4, format!("expected GGUF version 2 or 3, found {version}")));
        }
        let tensor_count = reader.count()?;
        let metadata_count = reader.count()?;
        let mut metadata = HashMap::new();
        for _ in 0..metadata_count {
            let key = reader.text()?;
            let kind = reader.u32()?;
            let value = reader.value(kind, 0)?;
            metadata.insert(key, value);
        }
        let mut entries = Vec::new();
        for _ in 0..tensor_count {
            entries.push(reader.tensor_entry()?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(MetadataValue::Integer(alignment)) if *alignment > 0 && *alignment <= 1 << 20 => {
                *alignment as usize
            }
            Some(other) => {
                return Err(reader.wrong(reader.at, format!("general.alignment is {other:?}")));
            }
        };
        let start = reader.at.next_multiple_of(alignment);
        let mut tensors = Vec::with_capacity(entries.len());
        for (at, mut entry) in entries {
            let whole = entry.data.start.checked_add(start).zip(entry.data.end.checked_add(start));
            match whole {
                Some((from, to)) if to <= map.len() => entry.data = from..to,
                _ => {
                    let reason = format!(
                        "the data of {} would end at byte {} of the data section; the file is truncated: it has {} \
                         bytes",
                        entry.name,
                        entry.data.end,
                        map.len()
                    );
                    return Err(reader.wrong(at, reason));
                }
            }
            tensors.push(entry);
        }
        Ok(Self { path: path.to_owned(), metadata, tensors, map })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// blake3 of the whole file, in hex.
    pub fn hash(&self) -> String {
        blake3::hash(&self.map).to_hex().to_string()
    }

    /// The table of tensors.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// The numbers of a tensor, row by row.
    pub fn read(&self, entry: &TensorEntry) -> Vec<f32> {
        entry.stored.dequantise(&self.map[entry.data.clone()])
    }

    /// A value of the metadata.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.metadata.get(key)
    }

    /// Text that may be absent.
    pub fn optional_text(&self, key: &str) -> Result<Option<&str>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "expected text")),
        }
    }

    /// Text that must be there.
    pub fn text(&self, key: &str) -> Result<&str, ImportError> {
        self.optional_text(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    /// A whole number that may be absent.
    pub fn optional_count(&self, key: &str) -> Result<Option<usize>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Integer(number)) => match u32::try_from(*number) {
                Ok(number) => Ok(Some(number as usize)),
                Err(_) => Err(self.wrong(key, &format!("expected a number from 0 to 2^32, found {number}"))),
            },
            Some(_) => Err(self.wrong(key, "expected a whole number")),
        }
    }

    /// A whole number that must be there.
    pub fn count(&self, key: &str) -> Result<usize, ImportError> {
        self.optional_count(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    /// A number that may be absent.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Float(number)) => Ok(Some(*number)),
            Some(MetadataValue::Integer(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(self.wrong(key, "expected a number")),
        }
    }

    /// A truth value, false where it is absent.
    pub fn flag(&self, key: &str) -> Result<bool, ImportError> {
        match self.get(key) {
            None => Ok(false),
            Some(MetadataValue::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "expected a truth value")),
        }
    }

    /// A list of texts that must be there.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, ImportError> {
        let Some(MetadataValue::Array(values)) = self.get(key) else {
            return Err(self.wrong(key, "expected a list of texts"));
        };
        values
            .iter()
            .map(|value| match value {
                MetadataValue::Text(text) => Ok(text.as_str()),
                _ => Err(self.wrong(key, "expected a list of texts")),
            })
            .collect()
    }

    /// A list of whole numbers, empty where it is absent.
    pub fn integers(&self, key: &str) -> Result<Vec<i128>, ImportError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(MetadataValue::Array(values)) => values
                .iter()
                .map(|value| match value {
                    MetadataValue::Integer(number) => Ok(*number),
                    _ => Err(self.wrong(key, "expected a list of whole numbers")),
                })
                .collect(),
            Some(_) => Err(self.wrong(key, "expected a list of whole numbers")),
        }
    }

    /// An error about a metadata key.
    pub(super) fn wrong(&self, key: &str, reason: &str) -> ImportError {
        ImportError::Metadata { path: self.path.clone(), key: key.to_owned(), reason: reason.to_owned() }
    }

    /// An error about something that cannot be imported.
    pub(super) fn unsupported(&self, what: &str, found: &str, supported: &str) -> ImportError {
        ImportError::Unsupported {
            path: self.path.clone(),
            what: what.to_owned(),
            found: found.to_owned(),
            supported: supported.to_owned(),
        }
    }
}

/// Reads the header; every read is checked against the end of the file.
struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong(&self, offset: usize, reason: String) -> ImportError {
        ImportError::Malformed { path: self.path.to_owned(), offset, reason }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ImportError> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            let reason =
                format!("expected {count} more bytes; the file is truncated: it has {}", self.bytes.len());
            return Err(self.wrong(self.at, reason));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let mut fixed = [0; N];
        fixed.copy_from_slice(self.take(N)?);
        Ok(fixed)
    }

    fn u32(&mut self) -> Result<u32, ImportError> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    fn u64(&mut self) -> Result<u64, ImportError> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    /// A count of things that take at least one byte each, so it cannot exceed the file.
    fn count(&mut self) -> Result<usize, ImportError> {
        let at = self.at;
        let count = self.u64()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.bytes.len() => Ok(count),
            _ => {
                Err(self
                    .wrong(at, format!("a count of {count} exceeds the file's {} bytes", self.bytes.len())))
            }
        }
    }

    fn text(&mut self) -> Result<String, ImportError> {
        let length = self.count()?;
        let at = self.at;
        let bytes = self.take(length)?;
        String::from_utf8(bytes.to_vec())
            .map_err(|error| self.wrong(at, format!("expected UTF-8 text: {error}")))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<MetadataValue, ImportError> {
        use MetadataValue::{Array, Bool, Float, Integer, Text};
        const DEEPEST: usize = 4;
        Ok(match kind {
            0 => Integer(u8::from_le_bytes(self.fixed()?).into()),
            1 => Integer(i8::from_le_bytes(self.fixed()?).into()),
            2 => Integer(u16::from_le_bytes(self.fixed()?).into()),
            3 => Integer(i16::from_le_bytes(self.fixed()?).into()),
            4 => Integer(self.u32()?.into()),
            5 => Integer(i32::from_le_bytes(self.fixed()?).into()),
            6 => Float(f32::from_le_bytes(self.fixed()?).into()),
            7 => Bool(self.take(1)?[0] != 0),
            8 => Text(self.text()?),
            9 if depth < DEEPEST => {
                let kind = self.u32()?;
                let count = self.count()?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(kind, depth + 1)?);
                }
                Array(values)
            }
            10 => Integer(self.u64()?.into()),
            11 => Integer(i64::from_le_bytes(self.fixed()?).into()),
            12 => Float(f64::from_le_bytes(self.fixed()?)),
            other => return Err(self.wrong(self.at, format!("unknown type {other} of a metadata value"))),
        })
    }

    /// An entry of the tensor table with its data range relative to the data section, and where the entry stands.
    fn tensor_entry(&mut self) -> Result<(usize, TensorEntry), ImportError> {
        let at = self.at;
        let name = self.text()?;
        let dimensions = self.u32()?;
        if dimensions == 0 || dimensions > 4 {
            return Err(self.wrong(at, format!("{name}: expected 1 to 4 dimensions, found {dimensions}")));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let size = self.u64()?;
            let Some(size) = u32::try_from(size).ok().filter(|&size| size > 0) else {
                return Err(self.wrong(at, format!("{name}: a dimension is {size}, not from 1 to 2^32")));
            };
            shape.push(size as usize);
        }
        let row = shape[0];
        shape.reverse();
        let code = self.u32()?;
        let stored = StoredType::from_code(code).ok_or_else(|| ImportError::Unsupported {
            path: self.path.to_owned(),
            what: format!("the type of tensor {name}"),
            found: format!("ggml type {code}"),
            supported: StoredType::names(),
        })?;
        let (block, block_bytes) = stored.block();
        if row % block != 0 {
            let reason =
                format!("{name}: rows of {row} numbers are no multiple of {}'s {block}", stored.name());
            return Err(self.wrong(at, reason));
        }
        let bytes = shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size))
            .and_then(|count| (count / block).checked_mul(block_bytes));
        let offset = usize::try_from(self.u64()?).ok();
        let data = offset.zip(bytes).and_then(|(offset, bytes)| Some(offset..offset.checked_add(bytes)?));
        let data = data.ok_or_else(|| self.wrong(at, format!("{name}: its size exceeds every file")))?;
        Ok((at, TensorEntry { name, shape, stored, data }))
    }
}
