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

/// Writes a file under a temporary name in the same folder, brings it to the disk and renames it. A link stays and what
/// it leads to is replaced; a device or a pipe, such as `/dev/stdout`, is written to as it is.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), ArtefactError> {
    let path = &followed(path);
    if let Some(file) = stream(path)? {
        let mut buffered = BufWriter::with_capacity(1 << 18, &file);
        return write(&mut buffered).and_then(|()| buffered.flush()).map_err(failed("write", path));
    }
    let folder = parent(path);
    remove_left_behind(folder, &temporary_prefix(path)?);
    let (part, file) = loop {
        let create = |part: &Path| File::options().write(true).create_new(true).open(part);
        let (part, file) = create_unique(path, create)?;
        if held(&file, &part) {
            break (part, file);
        }
    };
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

/// Where a path leads: through links to what they name, be it there or not.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many links as Linux follows; what goes round in a circle is refused when it is opened.
    for _ in 0..40 {
        match fs::read_link(&path) {
            // A relative link starts at the folder in which it lies.
            Ok(next) => path = parent(&path).join(next),
            Err(_) => break,
        }
    }
    path
}

/// Opens what is neither a plain file nor a folder, and must not be replaced by a file; `None` for anything else.
fn stream(path: &Path) -> Result<Option<File>, ArtefactError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            File::options().write(true).open(path).map(Some).map_err(failed("open", path))
        }
        _ => Ok(None),
    }
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
    /// Makes an empty folder for `place`, with the folders above it. Where `place` is a link, it stays, and the place is
    /// where it leads.
    pub fn new(place: &Path) -> Result<Self, ArtefactError> {
        let place = &followed(place);
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
            if held(&lock, &part) {
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

/// Takes the lock that says that somebody works on `part`. `false` if another program has taken it for left behind before
/// the lock was there; where locks are not supported nobody takes anything.
fn held(lock: &File, part: &Path) -> bool {
    !matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)) && part.exists()
}

/// Removes files and folders in progress that nobody fills any more. What cannot be removed is left alone: it is in nobody's way.
fn remove_left_behind(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // The only copy of an old folder may lie under such a name; see `replace`.
        if !name.starts_with(prefix) || name.ends_with(".replaced") {
            continue;
        }
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_ok() {
            tracing::info!(path = %path.display(), "removing what an interrupted run left behind");
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
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

    #[cfg(unix)]
    #[test]
    fn links_stay_and_devices_are_written_to() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("data")).unwrap();
        symlink("data/real", at("link")).unwrap();
        for text in ["first", "second"] {
            write_file(&at("link"), |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(at("data/real")).unwrap(), text);
        }
        symlink(at("data/index"), at("index")).unwrap();
        for round in ["1", "2"] {
            let part = FolderInProgress::new(&at("index")).unwrap();
            fs::write(part.path().join("round"), round).unwrap();
            part.replace().unwrap();
            assert_eq!(fs::read_to_string(at("data/index/round")).unwrap(), round);
        }
        assert!(at("link").is_symlink() && at("index").is_symlink());
        assert_eq!(names(&at("data")), ["index", "real"]);

        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
        write_file(&at("pipe"), |file| file.write_all(b"through")).unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
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
        fs::write(folder.path().join(".index.part-dead-file"), "half").unwrap();
        write_file(&place, |file| {
            assert_eq!(names(folder.path()).len(), 2, "its own and that of another place");
            // What is being written is not taken for left behind.
            write_file(&place, |inner| inner.write_all(b"inner"))
                .map_err(io::Error::other)
                .and_then(|()| file.write_all(b"outer"))
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "outer");
        fs::remove_file(&place).unwrap();

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
