//! Where a configuration is looked for, and how its file is read.

use super::{Config, error::ConfigError};
use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::{self, File},
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The name of the file.
pub const FILE_NAME: &str = "subagents.toml";

/// The longest file: what is longer is most likely no configuration.
const LONGEST: u64 = 64 * 1024;

/// Where to look for a configuration.
///
/// The file that was [named](Self::file); else `subagents.toml` in the directory or the nearest one above it; else
/// `subagents/subagents.toml` in the user's configuration folder, `$XDG_CONFIG_HOME` or `$HOME/.config`. The first that
/// is found is all that is read. The variables `SUBAGENTS__SECTION__KEY` override what it says, and need no file.
#[derive(Clone, Default)]
pub struct Lookup {
    file: Option<PathBuf>,
    directory: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
}

// Names only: a value may be a secret.
impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<_> = self.variables.iter().map(|(name, _)| name).collect();
        f.debug_struct("Lookup")
            .field("file", &self.file)
            .field("directory", &self.directory)
            .field("variables", &variables)
            .finish()
    }
}

impl Lookup {
    /// In this directory, without an environment.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()), ..Self::default() }
    }

    /// In the working directory and the environment of this process, as they are now. Where there is no working
    /// directory any more, nothing is looked for in it.
    pub fn here() -> Self {
        Self { file: None, directory: std::env::current_dir().ok(), variables: std::env::vars_os().collect() }
    }

    /// Reads this file, and looks for no other. A relative path is relative to the directory.
    #[must_use]
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// The environment to look at.
    #[must_use]
    pub fn variables(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        self.variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_os_str())
    }

    /// `$XDG_CONFIG_HOME`, where it is absolute, as its specification says; else `$HOME/.config`.
    fn users(&self) -> Option<PathBuf> {
        let absolute = |name| Some(PathBuf::from(self.variable(name)?)).filter(|path| path.is_absolute());
        absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))
    }

    /// The file and its text.
    fn text(&self) -> Result<Option<(PathBuf, String)>, ConfigError> {
        if let Some(file) = &self.file {
            let path = self.directory.as_ref().map_or_else(|| file.clone(), |directory| directory.join(file));
            let opened = File::open(path).map_err(|error| {
                ConfigError::unreadable(file, format!("it cannot be read: {}", reason(&error)))
            })?;
            return text(file, opened).map(|text| Some((file.clone(), text)));
        }
        for folder in self.directory.iter().flat_map(|directory| directory.ancestors()) {
            let path = folder.join(FILE_NAME);
            // What is above may be closed to us: nobody can say that there is one.
            if let Some(file) = present(&path).unwrap_or(Ok(None))? {
                ours(&path, &file)?;
                let text = text(&path, file)?;
                return Ok(Some((path, text)));
            }
        }
        let Some(folder) = self.users() else { return Ok(None) };
        let path = folder.join("subagents").join(FILE_NAME);
        let closed = |error: io::Error| {
            let why =
                format!("it cannot be looked for: {}; allow it, or set XDG_CONFIG_HOME", reason(&error));
            ConfigError::unreadable(&path, why)
        };
        let Some(file) = present(&path).map_err(closed)?? else { return Ok(None) };
        let text = text(&path, file)?;
        Ok(Some((path, text)))
    }
}

impl Config {
    /// Looks for a configuration and reads it. Where none is found, the variables say all there is.
    ///
    /// # Errors
    /// A file that is there and cannot be read, and everything that is wrong in it or in the variables.
    pub fn load(lookup: &Lookup) -> Result<Self, ConfigError> {
        let found = lookup.text()?;
        let file = found.as_ref().map(|(path, text)| (&**path, &**text));
        Self::from_parts(file, lookup.directory.as_deref(), lookup.variables.iter().cloned())
    }
}

/// Opens a file that may not be there. One that is there and is no plain file is refused: a pipe would be waited for. The
/// outer error says that nobody can say whether it is there.
fn present(path: &Path) -> io::Result<Result<Option<File>, ConfigError>> {
    let refused = |why| Ok(Err(ConfigError::unreadable(path, why)));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(metadata) => return refused(special(metadata.is_dir())),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(_) => return refused(format!("it leads nowhere: {}; correct or remove it", reason(&error))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Ok(None));
            }
            Err(error) => return Err(error),
        },
    }
    let why = |error| format!("it cannot be read: {}; allow it, or remove the file", reason(&error));
    Ok(File::open(path).map(Some).map_err(|error| ConfigError::unreadable(path, why(error))))
}

/// A file that somebody else has put above us, as anybody may in /tmp, must not say what is run.
fn ours(path: &Path, file: &File) -> Result<(), ConfigError> {
    let us = fs::metadata("/proc/self").map(|metadata| metadata.uid());
    let owner = file.metadata().map(|metadata| metadata.uid());
    match (us, owner) {
        (Ok(us), Ok(owner)) if owner != us && owner != 0 => Err(ConfigError::unreadable(
            path,
            format!(
                "it belongs to another user ({owner}); name it with --config if it is to be trusted, or another one \
                 (/dev/null) if not"
            ),
        )),
        _ => Ok(()),
    }
}

fn text(path: &Path, mut file: File) -> Result<String, ConfigError> {
    let unreadable = |why: String| ConfigError::unreadable(path, why);
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(unreadable(special(true)));
    }
    let mut bytes = Vec::new();
    let read = file.by_ref().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(format!("it cannot be read: {}", reason(&error))))?;
    if bytes.len() as u64 > LONGEST {
        return Err(unreadable(format!(
            "it is longer than {} KiB, which is no configuration",
            LONGEST >> 10
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(format!("it is not UTF-8 (at byte {at}); convert it, for example with iconv"))
    })
}

fn special(directory: bool) -> String {
    let what = if directory { "it is a directory" } else { "it is no plain file" };
    format!("{what}; name a TOML file")
}

fn reason(error: &io::Error) -> String {
    let missing = error.kind() == ErrorKind::NotFound;
    if missing { "there is no such file".to_owned() } else { error.to_string() }
}
