//! Files and folders that appear under their name when they are whole, and never before.
//!
//! Whatever kills the program, what stood under the name until then still stands there, or its successor does.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that the file system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}", path = path.display())]
pub struct ArtefactError {
    /// What was tried: `create`, `write`, `sync`, `rename`, `remove`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's own word.
    pub source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArtefactError {
    let path = path.to_owned();
    move |source| ArtefactError { action, path, source }
}

/// Writes a file under a temporary name in the same folder, brings it to the disk and renames it.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), ArtefactError> {
    let folder = parent(path);
    let (part, file) = create_unique(path, |part| File::options().write(true).create_new(true).open(part))?;
    let written = (|| {
        let mut buffered = BufWriter::with_capacity(1 << 18, &file);
        write(&mut buffered).and_then(|()| buffered.flush()).map_err(failed("write", path))?;
        drop(buffered);
        file.sync_all().map_err(failed("sync", path))?;
        fs::rename(&part, path).map_err(failed("rename to", path))
    })();
    if written.is_err() {
        // A full disk must not stay full because of what did not fit. The error to tell is the first one.
        let _ = fs::remove_file(&part);
    }
    written?;
    sync_folder(folder)
}

/// What temporary names begin with, for whoever may remove what a killed program left.
pub fn temporary_prefix(path: &Path) -> Result<String, ArtefactError> {
    let unnamed = || io::Error::new(io::ErrorKind::InvalidInput, "it does not end with a name");
    let name = path.file_name().ok_or_else(|| failed("create", path)(unnamed()))?;
    Ok(format!(".{}.part-", name.to_string_lossy()))
}

/// Creates something under a temporary name beside `path`, with the permissions that the user's umask gives.
fn create_unique<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
) -> Result<(PathBuf, T), ArtefactError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder, prefix) = (parent(path), temporary_prefix(path)?);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{prefix}{}-{number}", std::process::id()));
        match create(&part) {
            Ok(made) => return Ok((part, made)),
            // Left by a killed process of the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create", &part)(error)),
        }
    }
}

/// Whether nothing but plain files for which `known` holds would be lost with this folder. An empty folder holds nothing;
/// what cannot be listed is not known.
pub fn holds_only(folder: &Path, known: impl Fn(&str) -> bool) -> bool {
    let Ok(mut entries) = fs::read_dir(folder) else { return false };
    entries.all(|entry| {
        entry.is_ok_and(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file())
                && entry.file_name().to_str().is_some_and(&known)
        })
    })
}

/// Brings the entries of a folder to the disk.
pub fn sync_folder(path: &Path) -> Result<(), ArtefactError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed("sync", path))
}

/// A folder that is being filled under a temporary name beside its place. Dropped before it was placed, it is removed.
///
/// A killed program leaves it behind; the next one that makes a folder for the same place removes it. A lock tells
/// what is left behind from what another program is filling at this moment.
#[derive(Debug)]
pub struct FolderInProgress {
    /// Some until it was placed.
    path: Option<PathBuf>,
    place: PathBuf,
    /// Held while the folder is being filled.
    _lock: File,
}

impl FolderInProgress {
    /// Makes an empty folder for `place`, with the folders above it.
    pub fn new(place: &Path) -> Result<Self, ArtefactError> {
        let folder = parent(place);
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        remove_left_behind(folder, &temporary_prefix(place)?);
        loop {
            let (part, ()) = create_unique(place, |part| fs::create_dir(part))?;
            let lock = match File::open(&part) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("open", &part)(error)),
            };
            // Another program may have taken the new folder for one left behind before the lock was there. Where locks
            // are not supported nobody takes anything.
            let taken = matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)) || !part.exists();
            if !taken {
                return Ok(Self { path: Some(part), place: place.to_owned(), _lock: lock });
            }
        }
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(&self.place)
    }

    /// Brings the folder to its place, where nothing may lie but an empty folder.
    ///
    /// The files in it must have reached the disk already.
    pub fn place(mut self) -> Result<(), ArtefactError> {
        sync_folder(self.path())?;
        fs::rename(self.path(), &self.place).map_err(failed("rename to", &self.place))?;
        self.path = None;
        sync_folder(parent(&self.place))
    }

    /// Brings the folder to its place in exchange for what lies there, which is then removed.
    ///
    /// On Linux and macOS the exchange is a single step of the file system. Where that does not know it (some network
    /// file systems), two renames stand in for it; a kill just between them leaves the old folder beside the place, under
    /// a temporary name that ends in `.replaced`.
    pub fn replace(self) -> Result<(), ArtefactError> {
        if !self.place.exists() {
            return self.place();
        }
        sync_folder(self.path())?;
        exchange(self.path(), &self.place).map_err(failed("replace", &self.place))?;
        sync_folder(parent(&self.place))?;
        // What now bears the temporary name is the old folder, and dropping removes it.
        Ok(())
    }
}

impl Drop for FolderInProgress {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The next program that makes a folder for the same place tries again.
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes folders in progress that nobody fills any more. What cannot be removed is left alone: it is in nobody's way.
fn remove_left_behind(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // The only copy of an old folder may lie under such a name; see `replace`.
        if !name.starts_with(prefix) || name.ends_with(".replaced") || !path.is_dir() {
            continue;
        }
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_ok() {
            tracing::info!(path = %path.display(), "removing what an interrupted run left behind");
            let _ = fs::remove_dir_all(&path);
        }
        // Held until the folder is gone: a program that made it just now sees that it was taken.
        drop(lock);
    }
}

/// Exchanges two folders.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return Ok(done?),
        }
    }
    let mut aside = new.as_os_str().to_owned();
    aside.push(".replaced");
    let aside = PathBuf::from(aside);
    fs::rename(old, &aside)?;
    match fs::rename(new, old) {
        Ok(()) => fs::rename(&aside, new),
        Err(error) => {
            fs::rename(&aside, old)?;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        write_file(&path, |file| file.write_all(b"old")).unwrap();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = write_file(&path, |file| file.write_all(b"half").and(Err(full()))).unwrap_err();
        assert_eq!(error.action, "write");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["results.json"]);
    }

    #[test]
    fn a_folder_appears_when_it_is_placed_and_goes_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/index");
        let part = FolderInProgress::new(&place).unwrap();
        fs::write(part.path().join("file"), "1").unwrap();
        assert!(!place.exists());
        drop(part);
        assert_eq!(names(&folder.path().join("deep")), [""; 0]);

        let part = FolderInProgress::new(&place).unwrap();
        fs::write(part.path().join("file"), "1").unwrap();
        part.place().unwrap();
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "1");
        // What is there is neither mixed with the new nor lost.
        let part = FolderInProgress::new(&place).unwrap();
        assert_eq!(part.place().unwrap_err().action, "rename to");
        assert_eq!(names(&folder.path().join("deep")), ["index"]);
    }

    #[test]
    fn a_replaced_folder_is_never_missing() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("index");
        let fill = |text: &str| {
            let part = FolderInProgress::new(&place).unwrap();
            fs::write(part.path().join(text), text).unwrap();
            part
        };
        fill("first").replace().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watched = scope.spawn(|| {
                let mut looks = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(place.is_dir(), "missing after {looks} looks");
                    looks += 1;
                }
                looks
            });
            for round in 0..50 {
                fill(&format!("round{round}")).replace().unwrap();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(watched.join().unwrap() > 0);
        });
        assert_eq!(names(&place), ["round49"]);
        assert_eq!(names(folder.path()), ["index"]);
    }

    #[test]
    fn what_a_killed_program_left_is_removed_and_what_another_fills_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("index");
        fs::create_dir(folder.path().join(".index.part-dead")).unwrap();
        fs::write(folder.path().join(".index.part-dead/vectors"), "half").unwrap();
        fs::create_dir(folder.path().join(".other.part-dead")).unwrap();
        let alive = FolderInProgress::new(&place).unwrap();
        let second = FolderInProgress::new(&place).unwrap();
        assert!(alive.path().is_dir() && second.path().is_dir());
        drop((alive, second));
        assert_eq!(names(folder.path()), [".other.part-dead"]);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (plain, plain_folder) = (folder.path().join("plain"), folder.path().join("plain-folder"));
        fs::write(&plain, "").unwrap();
        fs::create_dir(&plain_folder).unwrap();
        write_file(&folder.path().join("file"), |_| Ok(())).unwrap();
        FolderInProgress::new(&folder.path().join("place")).unwrap().place().unwrap();
        assert_eq!(mode(&folder.path().join("file")), mode(&plain));
        assert_eq!(mode(&folder.path().join("place")), mode(&plain_folder));
    }

    #[test]
    fn a_place_without_a_name_is_an_error() {
        assert_eq!(FolderInProgress::new(Path::new("..")).unwrap_err().action, "create");
    }
}
