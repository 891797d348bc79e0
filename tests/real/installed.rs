//! What `tests/peers/install.sh` has installed, and whether that is what was asked for.

use super::arguments::Arguments;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where all of them are.
pub(crate) fn installed_in() -> PathBuf {
    std::env::var_os("SUBAGENTS_PEERS").filter(|folder| !folder.is_empty()).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers"),
        |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
    )
}

/// What the program in `folder` is installed from: what `install.sh` leaves in `.pins`.
pub(crate) fn pins(folder: &Path) -> String {
    let files = ["package.json", "package-lock.json", "requirements.txt"].map(|file| folder.join(file));
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Whether a program is installed, at its pin.
pub(crate) enum Installed {
    Here(PathBuf),
    AtAnotherPin,
    No,
}

impl Installed {
    pub(crate) fn look(name: &str, pins: &str, program: &str) -> Self {
        let folder = installed_in().join(name);
        match fs::read_to_string(folder.join(".pins")) {
            Ok(found) if found == pins && folder.join(program).exists() => Self::Here(folder),
            Ok(_) => Self::AtAnotherPin,
            Err(_) => Self::No,
        }
    }
}

/// Those of `all` that are asked for and installed, each with its folder; or the exit status, where there is nothing to play.
pub(crate) fn present<T>(
    suite: &str,
    all: Vec<T>,
    arguments: &Arguments,
    name: impl Fn(&T) -> String,
    look: impl Fn(&T) -> Installed,
) -> Result<Vec<(T, PathBuf)>, ExitCode> {
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    for one in all {
        let called = name(&one);
        if !arguments.only.is_empty() && !arguments.only.contains(&called) {
            continue;
        }
        let required = arguments.require.contains(&called);
        match look(&one) {
            Installed::Here(folder) => here.push((one, folder)),
            Installed::AtAnotherPin => {
                missing.push((format!("{called} (installed at another pin)"), required));
            }
            Installed::No => missing.push((called, required)),
        }
    }
    let names = missing.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
    let folder = installed_in();
    if missing.iter().any(|(_, required)| *required) {
        eprintln!("not installed in {}: {names}; tests/peers/install.sh installs them", folder.display());
        return Err(ExitCode::FAILURE);
    }
    if here.is_empty() && !arguments.only.is_empty() {
        eprintln!(
            "not installed in {}: {names}; tests/peers/install.sh --only NAME installs one",
            folder.display()
        );
        return Err(ExitCode::FAILURE);
    }
    if here.is_empty() {
        println!("{suite}: none is installed in {}; tests/peers/install.sh installs them", folder.display());
        return Err(ExitCode::SUCCESS);
    }
    if !missing.is_empty() {
        println!("{suite}: not installed, and passed over: {names}");
    }
    Ok(here)
}
