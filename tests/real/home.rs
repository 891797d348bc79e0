//! The private home of a program: all that it may look for in somebody's home is in there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Copies what is in a folder, each file as `filled` makes it.
pub(crate) fn copy(from: &Path, to: &Path, filled: &dyn Fn(&str) -> String) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let from = entry?.path();
        let to = to.join(from.file_name().unwrap_or_default());
        if from.is_dir() {
            fs::create_dir(&to)?;
            copy(&from, &to, filled)?;
        } else {
            fs::write(&to, filled(&fs::read_to_string(&from)?))?;
        }
    }
    Ok(())
}

/// The variables by which it is found. Its folder `tmp` has to be there.
pub(crate) fn variables(home: &Path) -> [(&'static str, PathBuf); 6] {
    [
        ("HOME", home.to_owned()),
        ("TMPDIR", home.join("tmp")),
        ("XDG_CACHE_HOME", home.join(".cache")),
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_DATA_HOME", home.join(".local/share")),
        ("XDG_STATE_HOME", home.join(".local/state")),
    ]
}
