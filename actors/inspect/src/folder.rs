//! Where the sockets are.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A folder of sockets, which only its user may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// That of the user: `subagents` in `$XDG_RUNTIME_DIR`, or else `subagents-UID` in the folder for temporary files.
    pub fn of_user() -> Self {
        Self::of(std::env::var_os("XDG_RUNTIME_DIR"), &std::env::temp_dir())
    }

    fn of(runtime: Option<OsString>, temporary: &Path) -> Self {
        let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
        Self(match runtime {
            Some(runtime) => runtime.join("subagents"),
            None => temporary.join(format!("subagents-{}", rustix::process::geteuid().as_raw())),
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

    /// Makes it where it is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.check()
    }

    /// Whether nobody else can have put anything into it: it is no link, it is ours, and nobody else may enter.
    pub(crate) fn check(&self) -> io::Result<()> {
        let data = fs::symlink_metadata(&self.0)?;
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if !data.is_dir() {
            return wrong("it is no folder");
        }
        if data.uid() != rustix::process::geteuid().as_raw() {
            return wrong("it belongs to somebody else");
        }
        if data.mode() & 0o077 != 0 {
            return wrong("others may enter it; its mode has to be 0700");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn it_is_where_the_user_has_its_own() {
        let temp = tempfile::tempdir().expect("a folder");
        let of = |runtime: Option<&str>| Folder::of(runtime.map(OsString::from), Path::new("/tmp")).0;
        let there = temp.path().to_str().expect("a plain path");
        assert_eq!(of(Some(there)), temp.path().join("subagents"));
        let own = format!("/tmp/subagents-{}", rustix::process::geteuid().as_raw());
        for runtime in [None, Some(""), Some("relative"), Some("/no/such/folder")] {
            assert_eq!(of(runtime), PathBuf::from(&own), "{runtime:?}");
        }
    }

    #[test]
    fn one_that_others_may_enter_or_have_put_there_is_refused() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(temp.path().join("one"));
        folder.make().expect("it is made");
        assert_eq!(fs::metadata(folder.path()).expect("it is there").mode() & 0o777, 0o700);
        folder.make().expect("it is there already");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        assert!(folder.make().expect_err("others may enter").to_string().contains("0700"));
        let link = Folder::at(temp.path().join("link"));
        symlink("/tmp", link.path()).expect("a link");
        assert!(link.make().is_err());
        assert!(Folder::at("/no/such/parent/x").make().is_err());
    }
}
