//! Files that are either whole or absent.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

/// Writes `bytes` under a temporary name in the same folder, syncs, renames, syncs the folder; returns the blake3
/// hash in hex.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(blake3::hash(bytes).to_hex().to_string())
}

/// One JSON value a line.
pub(crate) fn json_lines<'a, T: Serialize + 'a>(
    values: impl IntoIterator<Item = &'a T>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, value)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
