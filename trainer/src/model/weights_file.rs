//! Files of tensors: safetensors, whole or in shards.
#![expect(unsafe_code, reason = "maps files of weights into memory; see `map_file`")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde_json::Value;
use tch::{Kind, Tensor};

use super::ModelError;
use super::error::{TensorMismatch, io_error};

/// The tensors of a folder, mapped into memory and read when asked for.
#[derive(Debug)]
pub(super) struct WeightsFiles {
    files: Vec<(PathBuf, Mmap)>,
    /// Index into `files` for each tensor.
    places: BTreeMap<String, usize>,
}

impl WeightsFiles {
    /// Opens `model.safetensors`, or else the shards that `model.safetensors.index.json` names.
    pub(super) fn open_folder(dir: &Path) -> Result<Self, ModelError> {
        let single = dir.join("model.safetensors");
        let index = dir.join("model.safetensors.index.json");
        if single.exists() {
            Self::open(vec![single])
        } else if index.exists() {
            let shards = read_shard_names(&index)?;
            Self::open(shards.into_iter().map(|shard| dir.join(shard)).collect())
        } else {
            Err(ModelError::NoWeights { path: dir.to_owned() })
        }
    }

    /// Opens the files given; no tensor may stand in two of them.
    pub(super) fn open(paths: Vec<PathBuf>) -> Result<Self, ModelError> {
        let mut files = Vec::with_capacity(paths.len());
        let mut places = BTreeMap::new();
        for path in paths {
            let map = map_file(&path)?;
            let parsed = parse(&path, &map)?;
            for name in parsed.names() {
                if let Some(other) = places.insert(name.to_owned(), files.len()) {
                    let (other, _): &(PathBuf, Mmap) = files.get(other).unwrap_or(&files[0]);
                    let reason = format!("the tensor {name} stands in {} already", other.display());
                    return Err(ModelError::BrokenWeights { path, reason });
                }
            }
            files.push((path, map));
        }
        Ok(Self { files, places })
    }

    /// Name, shape and element type of every tensor.
    pub(super) fn describe(&self) -> Result<Vec<(String, Vec<i64>, Dtype)>, ModelError> {
        let mut described = Vec::with_capacity(self.places.len());
        for (path, map) in &self.files {
            for (name, view) in parse(path, map)?.iter() {
                let shape = view.shape().iter().map(|&size| size as i64).collect();
                described.push((name.to_owned(), shape, view.dtype()));
            }
        }
        Ok(described)
    }

    /// Reads a tensor to the CPU, in the kind in which it is stored.
    pub(super) fn read(&self, name: &str) -> Result<Tensor, ModelError> {
        let missing = || ModelError::TensorMismatch {
            path: self.files.first().map(|(path, _)| path.clone()).unwrap_or_default(),
            mismatch: Box::new(TensorMismatch {
                missing: vec![name.to_owned()],
                ..TensorMismatch::default()
            }),
        };
        let (path, map) = &self.files[*self.places.get(name).ok_or_else(missing)?];
        let parsed = parse(path, map)?;
        let view = parsed.tensor(name).map_err(|_| missing())?;
        let kind = kind_of(view.dtype()).ok_or_else(|| ModelError::TensorMismatch {
            path: path.clone(),
            mismatch: Box::new(TensorMismatch {
                mistyped: vec![(name.to_owned(), format!("{:?}", view.dtype()))],
                ..TensorMismatch::default()
            }),
        })?;
        let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
        Ok(Tensor::f_from_data_size(view.data(), &shape, kind)?)
    }
}

/// The kind of a stored element type, for those that weights may have.
pub(super) fn kind_of(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F32 => Some(Kind::Float),
        Dtype::F16 => Some(Kind::Half),
        Dtype::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}

/// Writes tensors in the given kind (Float, BFloat16 or Half) with the metadata that PyTorch readers ask for, and
/// syncs the file.
pub(crate) fn write_safetensors<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (String, &'a Tensor)>,
    kind: Kind,
) -> Result<(), ModelError> {
    let dtype = match kind {
        Kind::Float => Dtype::F32,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Half => Dtype::F16,
        other => return Err(ModelError::Request(format!("cannot write weights as {other:?}"))),
    };
    let views: Vec<(String, StoredView<'a>)> = tensors
        .map(|(name, tensor)| {
            let shape = tensor.size().iter().map(|&size| size as usize).collect();
            (name, StoredView { tensor, shape, dtype, kind })
        })
        .collect();
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let io = |source| ModelError::Io { action: "write", path: path.to_owned(), source };
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|error| io(std::io::Error::other(error.to_string())))?;
    let file = File::open(path).map_err(io)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(io)?;
    file.sync_all().map_err(io)
}

/// A tensor that is converted and brought to the CPU only while it is written.
struct StoredView<'a> {
    tensor: &'a Tensor,
    shape: Vec<usize>,
    dtype: Dtype,
    kind: Kind,
}

impl View for StoredView<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let tensor = self.tensor.detach().to_device(tch::Device::Cpu).to_kind(self.kind).contiguous();
        let mut bytes = vec![0u8; self.data_len()];
        tensor.copy_data_u8(&mut bytes, tensor.numel());
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.elt_size_in_bytes()
    }
}

/// Maps a file into memory for reading.
pub(crate) fn map_file(path: &Path) -> Result<Mmap, ModelError> {
    let file = File::open(path).map_err(io_error("read", path))?;
    // SAFETY: the map is read-only and private to this process's reading. Model files are written under a temporary
    // name and renamed, so a file under its final name never changes or shrinks by our hand; whoever truncates one
    // from outside while it is read gets a bus error, as with every program that maps weights.
    unsafe { Mmap::map(&file) }.map_err(io_error("map", path))
}

fn parse<'a>(path: &Path, map: &'a Mmap) -> Result<SafeTensors<'a>, ModelError> {
    SafeTensors::deserialize(map).map_err(|error| ModelError::BrokenWeights {
        path: path.to_owned(),
        reason: format!("{error} (the file has {} bytes)", map.len()),
    })
}

fn read_shard_names(index: &Path) -> Result<BTreeSet<String>, ModelError> {
    let wrong =
        |reason: String| ModelError::Config { path: index.to_owned(), field: "weight_map".into(), reason };
    let text = std::fs::read_to_string(index).map_err(io_error("read", index))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let map = value
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| wrong("expected an object from tensor name to file name".into()))?;
    let mut shards = BTreeSet::new();
    for (tensor, shard) in map {
        let shard =
            shard.as_str().ok_or_else(|| wrong(format!("{tensor}: expected a file name, found {shard}")))?;
        if Path::new(shard).file_name() != Some(shard.as_ref()) {
            return Err(wrong(format!("{tensor}: {shard:?} is no plain file name")));
        }
        shards.insert(shard.to_owned());
    }
    Ok(shards)
}
