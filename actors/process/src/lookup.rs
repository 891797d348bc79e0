//! Looking before the leap: `exec` answers "not found" alike for a missing program, a missing directory and a
//! missing interpreter, so each is looked at by itself, and the error can name what is wrong.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::error::SpawnError;

/// Where a bare name is looked for when the child has no `PATH`, as the C library does it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Checks that a child can start in `cwd` (`SPEC 17.2`).
pub(crate) fn check_cwd(cwd: &Path) -> Result<(), SpawnError> {
    let unusable =
        |reason: &str| Err(SpawnError::CwdNotUsable { cwd: cwd.to_owned(), reason: reason.to_owned() });
    if !cwd.is_absolute() {
        return unusable("it is not absolute; give the full path");
    }
    match std::fs::metadata(cwd) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return unusable("it does not exist; create it or choose another");
        }
        Err(error) => return unusable(&format!("{error}; choose another")),
        Ok(metadata) if !metadata.is_dir() => return unusable("it is not a directory; choose another"),
        Ok(_) => {}
    }
    if access(cwd, Access::EXEC_OK).is_err() {
        return unusable("it may not be entered; allow it to be searched or choose another");
    }
    Ok(())
}

/// The file behind `program`: a path against `cwd`, or a bare name against `path`.
pub(crate) fn find_program(program: &OsStr, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    if program.as_bytes().contains(&b'/') {
        let file = cwd.join(program);
        return match runnable(&file) {
            Ok(()) => Ok(file),
            Err(None) => Err(SpawnError::ProgramNotFound { program: file }),
            Err(Some(reason)) => Err(SpawnError::NotExecutable { program: file, reason }),
        };
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut refused = None;
    if !program.is_empty() {
        for directory in std::env::split_paths(path).filter(|directory| directory.is_absolute()) {
            let file = directory.join(program);
            match runnable(&file) {
                Ok(()) => return Ok(file),
                // Whether it is in a directory that is closed to us cannot be known, and does not matter.
                Err(None | Some(CLOSED)) => {}
                Err(Some(reason)) => {
                    refused.get_or_insert(SpawnError::NotExecutable { program: file, reason });
                }
            }
        }
    }
    Err(refused.unwrap_or_else(|| SpawnError::NotOnPath {
        name: program.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
    }))
}

const CLOSED: &str = "a directory on the way to it may not be entered; check its permissions";

/// Whether the file can be run; `Err(None)` says that there is none.
fn runnable(file: &Path) -> Result<(), Option<&'static str>> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Some(CLOSED)),
        Err(_) => Err(None),
        Ok(metadata) if metadata.is_dir() => Err(Some("it is a directory; name the program in it")),
        Ok(metadata) if !metadata.is_file() => Err(Some("it is not a regular file; name a program")),
        Ok(_) => match access(file, Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(Errno::ACCESS) => Err(Some("it is not executable by this user; `chmod +x` it")),
            Err(_) => Err(Some("it is not accessible; check its file system and permissions")),
        },
    }
}

/// Checks that the interpreter of a script is there, also the one that it asks `env` for, where a start would
/// succeed and the child end with code 127.
pub(crate) fn check_interpreter(file: &Path, path: Option<&OsStr>) -> Result<(), SpawnError> {
    let Some(words) = shebang(file) else { return Ok(()) };
    let Some(interpreter) = words.first() else { return Ok(()) };
    let missing = |interpreter: &str| {
        Err(SpawnError::InterpreterNotFound { program: file.to_owned(), interpreter: interpreter.to_owned() })
    };
    let interpreter_path = Path::new(interpreter);
    // A relative one depends on the directory; the kernel decides.
    if interpreter_path.is_absolute() && !interpreter_path.exists() {
        return missing(interpreter);
    }
    if interpreter_path.file_name() == Some(OsStr::new("env"))
        && let Some(wanted) = asked_of_env(&words[1..])
    {
        let found = find_program(OsStr::new(wanted), Path::new("/"), path);
        if matches!(found, Err(SpawnError::NotOnPath { .. } | SpawnError::ProgramNotFound { .. })) {
            return missing(wanted);
        }
    }
    Ok(())
}

/// The program that `env` is to run, as far as that is plain: what has options of its own, quotes or variables is left to
/// `env` to make out.
fn asked_of_env(words: &[String]) -> Option<&str> {
    let words = if words.first().is_some_and(|word| word == "-S") { &words[1..] } else { words };
    let wanted = words.first()?;
    let plain = !wanted.starts_with('-') && !wanted.contains(['=', '\'', '"', '\\', '$']);
    plain.then_some(wanted)
}

/// The words of a script's first line, without the `#!`.
fn shebang(file: &Path) -> Option<Vec<String>> {
    let mut head = [0; 256];
    let length = File::open(file).ok()?.read(&mut head).ok()?;
    let line = head.get(..length)?.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect())
}

/// What a failed `exec` means, after the checks above have passed.
pub(crate) fn explain(program: &Path, args: usize, error: std::io::Error) -> SpawnError {
    let program = program.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::TOOBIG) => SpawnError::PromptTooLong { bytes: args },
        Some(Errno::NOEXEC) => SpawnError::NotExecutable {
            program,
            reason: "it is neither a program for this machine nor a script with a #! line; add one",
        },
        Some(Errno::ACCESS) => SpawnError::NotExecutable {
            program,
            reason: "the system refused to run it; check for a file system mounted noexec",
        },
        // The file was there a moment ago: what is missing is what it names as its loader.
        Some(Errno::NOENT) if program.exists() => SpawnError::InterpreterNotFound {
            program,
            interpreter: "the loader that it was built for".to_owned(),
        },
        Some(Errno::NOENT) => SpawnError::ProgramNotFound { program },
        _ => SpawnError::SpawnFailed { program, source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::asked_of_env;

    #[test]
    fn only_what_is_plain_is_asked_of_env() {
        for (line, wanted) in [
            ("python3", Some("python3")),
            ("python3 -u", Some("python3")),
            ("-S python3 -u", Some("python3")),
            ("-S", None),
            ("", None),
            ("-u NAME python3", None),
            ("-S -u NAME python3", None),
            ("-S PATH=/x python3", None),
            ("-S ${HOME}/bin/x", None),
            ("-S 'my python'", None),
            ("--split-string=python3", None),
        ] {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(asked_of_env(&words), wanted, "{line}");
        }
    }
}
