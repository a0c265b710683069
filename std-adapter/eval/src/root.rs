//! The folder that the clients of a server may name files in.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The largest file that is read, in bytes: 4 MiB.
pub const FILE_LIMIT: u64 = 4 << 20;

/// The root folder of a server. Its clients may read and run only files below it. A link that leads
/// out of the folder is refused.
#[derive(Debug, Clone)]
pub struct Root(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// Opened once, so that it stays the same folder whatever becomes of its name.
    #[cfg(target_os = "linux")]
    handle: File,
}

/// The error for a path that leads out of the root folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is outside the folder that this server may read, {} (see --root)", .path.display(), .root.display())]
pub struct OutsideRoot {
    /// The path, as the client wrote it.
    pub path: PathBuf,
    /// The root folder.
    pub root: PathBuf,
}

thread_local! {
    /// The folder that must contain the files that this thread reads.
    static CURRENT: RefCell<Option<Root>> = const { RefCell::new(None) };
}

impl Root {
    /// Opens `folder` as the root.
    ///
    /// # Errors
    /// The path cannot be opened, or is not a folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        if !folder.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self(Arc::new(Inner {
            #[cfg(target_os = "linux")]
            handle: File::open(&folder)?,
            folder,
        })))
    }

    /// Returns the path of the root folder, without links.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Resolves the links in a client's path. A relative path begins at the root folder. If the end
    /// of the path does not exist, only the existing part is resolved; opening the file then fails
    /// with the usual error.
    ///
    /// # Errors
    /// The path leads out of the root folder. It does not matter whether the file exists.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, OutsideRoot> {
        let outside = || OutsideRoot { path: path.to_owned(), root: self.0.folder.clone() };
        let whole = self.0.folder.join(path);
        let mut existing = whole.as_path();
        let mut missing: Vec<Component<'_>> = Vec::new();
        let found = loop {
            match existing.canonicalize() {
                Ok(found) => break found,
                Err(_) => match (existing.parent(), existing.components().next_back()) {
                    (Some(parent), Some(last)) => {
                        missing.push(last);
                        existing = parent;
                    }
                    _ => return Err(outside()),
                },
            }
        };
        let leads_up = missing.iter().any(|part| matches!(part, Component::ParentDir));
        if leads_up || !found.starts_with(&self.0.folder) {
            return Err(outside());
        }
        Ok(missing.into_iter().rev().fold(found, |path, part| path.join(part)))
    }

    /// Calls `read`. During the call, this thread cannot read a file outside the root folder.
    pub fn confine<T>(&self, read: impl FnOnce() -> T) -> T {
        confine(Some(self.clone()), read)
    }

    /// Opens a file below the root. Should a part of its path become a link meanwhile, it is not followed.
    fn open(&self, path: &Path) -> io::Result<File> {
        let path = std::path::absolute(path)?;
        let outside = |error: OutsideRoot| io::Error::new(io::ErrorKind::PermissionDenied, error);
        let path = self.resolve(&path).map_err(outside)?;
        self.open_resolved(&path)
    }

    #[cfg(target_os = "linux")]
    fn open_resolved(&self, path: &Path) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
        let below = path.strip_prefix(&self.0.folder).map_err(io::Error::other)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.0.handle, below, flags, Mode::empty(), resolve) {
            Ok(file) => Ok(file.into()),
            // Kernels before 5.6, and sandboxes.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => open_file(path),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "only Linux opens below a folder in one step")]
    fn open_resolved(&self, path: &Path) -> io::Result<File> {
        open_file(path)
    }
}

/// The root that holds on this thread, to be [enforced](confine) on another.
pub(super) fn current() -> Option<Root> {
    CURRENT.with_borrow(Clone::clone)
}

/// Lets `read` read no file outside `root`, if there is one, on this thread.
pub(super) fn confine<T>(root: Option<Root>, read: impl FnOnce() -> T) -> T {
    struct Restore(Option<Root>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(root));
    read()
}

/// Opens a file to be read, below the root that holds on this thread, if there is one. It does not wait for a writer, as opening
/// a FIFO does.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match current() {
        Some(root) => root.open(path),
        None => open_file(path),
    }
}

/// Whether a link leads out of the root that holds on this thread.
pub(super) fn leads_out(link: &Path) -> bool {
    let Some(root) = current() else { return false };
    std::path::absolute(link).is_ok_and(|link| root.resolve(&link).is_err())
}

fn open_file(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    options.open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_and_links_out_of_the_root_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        for folder in [&root, &other] {
            fs::create_dir_all(folder.join("sub")).unwrap();
            fs::write(folder.join("sub/file"), folder.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
        symlink("sub/file", root.join("in")).unwrap();
        symlink(root.join("sub"), root.join("in-folder")).unwrap();
        symlink(other.join("sub/file"), root.join("out")).unwrap();
        symlink("../other", root.join("out-folder")).unwrap();
        symlink("../other/nothing", root.join("dangling")).unwrap();
        symlink(&root, folder.path().join("alias")).unwrap();
        let alias = Root::new(&folder.path().join("alias")).unwrap();
        for path in ["sub/file", "in", "in-folder/file", "./sub/../sub/file", "sub/../in"] {
            for path in [PathBuf::from(path), root.join(path), folder.path().join("alias").join(path)] {
                assert_eq!(alias.resolve(&path).unwrap(), root.join("sub/file").canonicalize().unwrap(), "{path:?}");
                let mut text = String::new();
                alias.open(&alias.folder().join(&path)).unwrap().read_to_string(&mut text).unwrap();
                assert_eq!(text, "root");
            }
        }
        for path in [
            "out",
            "out-folder/sub/file",
            "out-folder",
            "..",
            "../other/sub/file",
            "sub/../../other/sub/file",
            "/etc/shadow",
            "/nothing/at/all",
            "../nothing",
            "out-folder/nothing",
            "nothing/../../other/sub/file",
            "/proc/self/environ",
            "/proc/self/root/etc/passwd",
            "/",
        ] {
            assert!(alias.resolve(Path::new(path)).is_err(), "{path}");
            let refused = alias.open(&alias.folder().join(path)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{path}");
        }
        for path in ["nothing", "sub/nothing/at/all", "sub/file/below"] {
            assert!(alias.resolve(Path::new(path)).unwrap().starts_with(alias.folder()), "{path}");
            assert_ne!(alias.open(&alias.folder().join(path)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        // What is not there is not made out there, nor read.
        assert!(alias.open(&root.join("dangling")).is_err());
    }

    #[test]
    fn a_link_that_takes_a_folders_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        for folder in [&root, &other] {
            fs::create_dir_all(folder.join("sub")).unwrap();
            fs::write(folder.join("sub/file"), "text").unwrap();
        }
        let root_folder = Root::new(&root).unwrap();
        let path = root_folder.resolve(Path::new("sub/file")).unwrap();
        fs::rename(root.join("sub"), root.join("was")).unwrap();
        symlink("../other/sub", root.join("sub")).unwrap();
        if cfg!(target_os = "linux") {
            assert!(root_folder.open_resolved(&path).is_err(), "between looking and opening");
        }
    }

    #[test]
    fn what_holds_on_a_thread_ends_with_its_call() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let root = Root::new(folder.path()).unwrap();
        root.confine(|| {
            assert!(open(Path::new("/etc/passwd")).is_err());
            assert!(open(&folder.path().join("file")).is_ok());
            let inherited = current();
            std::thread::scope(|scope| {
                scope.spawn(|| confine(inherited, || assert!(open(Path::new("/etc/passwd")).is_err())));
            });
        });
        assert!(open(Path::new("/etc/passwd")).is_ok());
    }
}
