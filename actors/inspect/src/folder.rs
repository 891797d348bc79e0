//! Where the sockets are.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

/// A folder of sockets, which only its user may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// That of the user: `subagents` in `$XDG_RUNTIME_DIR`, or else `subagents-UID` in the folder for temporary files.
    ///
    /// The variable counts where it names a folder by its whole path that is the effective user's and that nobody else may
    /// write in.
    pub fn of_user() -> Self {
        Self::in_runtime_dir(std::env::var_os("XDG_RUNTIME_DIR"))
    }

    /// That of the user, with this in place of the variable's value: for a program whose environment was cleared, and that
    /// knows from elsewhere what it was. The same conditions hold for it.
    pub fn in_runtime_dir(runtime: Option<OsString>) -> Self {
        Self::of(runtime, &std::env::temp_dir())
    }

    fn of(runtime: Option<OsString>, temporary: &Path) -> Self {
        let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute() && is_own(path));
        Self(match runtime {
            Some(runtime) => runtime.join("subagents"),
            None => temporary.join(format!("subagents-{}", user())),
        })
    }

    /// Another one, for a host that has its own. Its parent has to be there.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it where it is not there, and opens it.
    pub(crate) fn make(&self) -> io::Result<OpenFolder> {
        match fs::DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.open()
    }

    /// Opens it, where nobody else can have put anything into it: it is no link, it is ours, and nobody else may enter.
    pub(crate) fn open(&self) -> io::Result<OpenFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = match rustix::fs::open(&self.0, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => return Err(wrong("it is no folder")),
            opened => OpenFolder { folder: opened?, path: self.0.clone() },
        };
        let data = rustix::fs::fstat(&open.folder)?;
        if data.st_uid != user() {
            return Err(wrong("it belongs to somebody else"));
        }
        if Mode::from_raw_mode(data.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            return Err(wrong("others may enter it; its mode has to be 0700"));
        }
        Ok(open)
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether nobody else can put anything into it or take anything out.
fn is_own(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == user() && data.mode() & 0o022 == 0)
}

/// The folder, open: what is done here is done in it, wherever its path leads by then.
#[derive(Debug)]
pub(crate) struct OpenFolder {
    folder: OwnedFd,
    path: PathBuf,
}

impl OpenFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path still leads here. A socket is bound and connected by its path: this has to be asked afterwards.
    pub(crate) fn stands(&self) -> io::Result<()> {
        match rustix::fs::lstat(&self.path) {
            Ok(there) if is_same(&there, &rustix::fs::fstat(&self.folder)?) => Ok(()),
            Ok(_) | Err(_) => Err(wrong("another one was put in its place")),
        }
    }

    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&self.folder)?;
        let names =
            entries.map(|entry| Ok(entry?.file_name().to_str().map(str::to_owned).unwrap_or_default()));
        names.collect()
    }

    /// The socket of this name, and no file of another kind.
    pub(crate) fn socket(&self, name: &str) -> io::Result<Stat> {
        let data = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_socket = FileType::from_raw_mode(data.st_mode) == FileType::Socket;
        if is_socket { Ok(data) } else { Err(wrong("it is no socket")) }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }
}

/// Whether both are the same file.
pub(crate) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    #[test]
    fn it_is_where_the_user_has_its_own() {
        let temp = tempfile::tempdir().expect("a folder");
        let of = |runtime: Option<&str>| Folder::of(runtime.map(OsString::from), Path::new("/tmp")).0;
        let there = temp.path().to_str().expect("a plain path");
        set_mode(temp.path(), 0o700);
        assert_eq!(of(Some(there)), temp.path().join("subagents"));
        let own = PathBuf::from(format!("/tmp/subagents-{}", user()));
        for runtime in [None, Some(""), Some("relative"), Some("/no/such/folder"), Some("/dev/null")] {
            assert_eq!(of(runtime), own, "{runtime:?}");
        }
        // Where others can write they can put another folder in the place of ours; that they can look does no harm.
        for (mode, trusted) in [(0o770, false), (0o702, false), (0o1777, false), (0o755, true), (0o700, true)]
        {
            set_mode(temp.path(), mode);
            assert_eq!(of(Some(there)) == temp.path().join("subagents"), trusted, "{mode:o}");
        }
        // Somebody else's.
        if user() == 0 {
            std::os::unix::fs::chown(temp.path(), Some(1), None).expect("root may");
            assert_eq!(of(Some(there)), own);
        } else {
            assert_eq!(of(Some("/")), own);
        }
    }

    #[test]
    fn one_that_others_may_enter_or_have_put_there_is_refused() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(temp.path().join("one"));
        folder.make().expect("it is made");
        assert_eq!(fs::metadata(folder.path()).expect("it is there").mode() & 0o777, 0o700);
        folder.make().expect("it is there already");
        set_mode(folder.path(), 0o755);
        assert!(folder.make().expect_err("others may enter").to_string().contains("0700"));
        let link = Folder::at(temp.path().join("link"));
        symlink("/tmp", link.path()).expect("a link");
        assert!(link.make().expect_err("a link").to_string().contains("no folder"));
        let file = Folder::at(temp.path().join("file"));
        fs::write(file.path(), "x").expect("a file");
        assert!(file.make().expect_err("a file").to_string().contains("no folder"));
        assert!(Folder::at("/no/such/parent/x").make().is_err());
    }

    #[test]
    fn one_that_is_put_in_its_place_is_noticed_and_left_alone() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(temp.path().join("one"));
        let open = folder.make().expect("it is made");
        open.stands().expect("it is where it was");
        let _one = UnixListener::bind(folder.path().join("x.sock")).expect("a socket");
        fs::rename(folder.path(), temp.path().join("moved")).expect("it is moved");
        assert!(open.stands().is_err(), "nothing is there");
        let other = folder.make().expect("another");
        let _other = UnixListener::bind(folder.path().join("x.sock")).expect("a socket");
        assert!(open.stands().expect_err("another is there").to_string().contains("another one"));
        let (ours, theirs) = (open.socket("x.sock").expect("ours"), other.socket("x.sock").expect("theirs"));
        assert!(!is_same(&ours, &theirs) && is_same(&ours, &open.socket("x.sock").expect("ours")));
        open.rename("x.sock", "y.sock").expect("ours is there");
        open.remove("y.sock").expect("ours is there");
        assert!(folder.path().join("x.sock").exists());
        fs::write(folder.path().join("file.sock"), "x").expect("a file");
        assert!(other.socket("file.sock").is_err());
    }
}
