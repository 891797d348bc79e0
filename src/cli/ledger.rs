//! The program's ledger: kept unless it is told otherwise, and read at the start for what an earlier run left.

use crate::cli::plan::UsageError;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::Write as _,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};
use subagents::{
    bounded,
    config::LedgerConfig,
    process::{Ledger, Leftover, Reaped},
    sanitised,
};
use tokio::time::timeout;

/// How long the start waits for what earlier runs left.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many delegations are told one by one.
const TOLD: usize = 5;

/// Opens the ledger, and tells what an earlier run left.
///
/// # Errors
/// Where one was asked for and there is no place for it. One that nobody asked for keeps nobody from working, and is told
/// where somebody watches.
pub(crate) async fn open(
    choice: &LedgerConfig,
    variable: impl Fn(&str) -> Option<OsString>,
    watched: bool,
    tell: impl Fn(&str),
) -> Result<Option<Ledger>, UsageError> {
    let asked = *choice != LedgerConfig::Default;
    let folder = match choice {
        LedgerConfig::Folder(folder) => folder.clone(),
        LedgerConfig::Off => return Ok(None),
        LedgerConfig::On | LedgerConfig::Default | _ => match state_folder(variable) {
            Some(folder) => folder.join("subagents").join("ledger"),
            None if asked => {
                let why =
                    "`ledger = true`: neither XDG_STATE_HOME nor HOME names a folder; set `ledger` to one";
                return Err(UsageError(why.to_owned()));
            }
            None => return Ok(None),
        },
    };
    let ledger = match Ledger::open(folder) {
        Ok(ledger) => ledger,
        Err(error) => {
            let told =
                format!("{}: {error}; `ledger` in subagents.toml names a folder, or is false", error.code());
            if asked {
                return Err(UsageError(told));
            }
            if watched {
                tell(&format!("subagents: {told}"));
            }
            return Ok(None);
        }
    };
    match timeout(PATIENCE, ledger.reap()).await {
        Ok(Ok(reaped)) => report(&reaped).lines().for_each(tell),
        Ok(Err(error)) => tell(&format!("subagents: {}: {error}", error.code())),
        Err(_) => tell("subagents: what earlier runs left was not ended in time; the next run tries again"),
    }
    Ok(Some(ledger))
}

/// Says what could not be recorded.
pub(crate) fn close(ledger: Option<Ledger>, tell: impl Fn(&str)) {
    if let Some(fault) = ledger.and_then(|ledger| ledger.fault()) {
        tell(&format!("subagents: {}: {fault}", fault.code()));
    }
}

/// Where a user's programs keep what has to outlive them.
fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local").join("state")))
}

fn report(reaped: &Reaped) -> String {
    let mut text = String::new();
    let mut hosts: BTreeMap<(u32, bool), Vec<&Leftover>> = BTreeMap::new();
    for left in &reaped.interrupted {
        hosts.entry((left.host, left.killed)).or_default().push(left);
    }
    for ((host, killed), mut left) in hosts {
        left.sort_by_key(|left| left.started);
        let (what, under_way) =
            if killed { ("was killed with", " under way") } else { ("could not end all of", "") };
        let (count, noun) = (left.len(), if left.len() == 1 { "delegation" } else { "delegations" });
        let _ =
            writeln!(text, "subagents: an earlier run (process {host}) {what} {count} {noun}{under_way}:");
        for left in left.iter().take(TOLD) {
            let _ = writeln!(text, "  {}", described(left));
        }
        if count > TOLD {
            let _ = writeln!(text, "  and {} more", count - TOLD);
        }
    }
    if reaped.ended > 0 {
        let (count, are) = if reaped.ended == 1 {
            ("1 process".to_owned(), "was")
        } else {
            (format!("{} processes", reaped.ended), "were")
        };
        let _ = writeln!(text, "subagents: {count} of earlier runs {are} alive still, and {are} ended");
    }
    if !reaped.alive.is_empty() {
        let _ = writeln!(text, "subagents: of earlier runs, these could not be ended: {:?}", reaped.alive);
    }
    for fault in &reaped.faults {
        let _ = writeln!(text, "subagents: the ledger: {}", sanitised(fault).replace('\n', " "));
    }
    text
}

fn described(left: &Leftover) -> String {
    let clean = |text: &str| bounded(&sanitised(text).replace(['\n', '\t'], " "), 120);
    let program = if left.program.is_empty() { "a program".to_owned() } else { clean(&left.program) };
    let note = left.note.as_deref().map(|note| format!("{}: ", clean(note))).unwrap_or_default();
    let ago = left.started.elapsed().ok().filter(|_| left.started > UNIX_EPOCH);
    let ago = ago.map(|ago| format!(", started {} ago", duration(ago))).unwrap_or_default();
    format!("{note}{program}{ago}")
}

fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7_200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::state_folder;
    use std::{ffi::OsString, path::Path};

    #[test]
    fn the_folder_for_state_is_absolute_or_none() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            state_folder(|name| if name == "HOME" { home } else { xdg }.map(OsString::from))
        };
        assert_eq!(of(Some("/s"), Some("/h")).as_deref(), Some(Path::new("/s")));
        assert_eq!(of(Some("s"), Some("/h")).as_deref(), Some(Path::new("/h/.local/state")));
        assert_eq!(of(None, Some("/h")).as_deref(), Some(Path::new("/h/.local/state")));
        assert_eq!(of(None, Some("")), None);
        assert_eq!(of(None, None), None);
    }
}
