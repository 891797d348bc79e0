//! `subagents tree` and `subagents kill`: what runs, looked at from outside.

use crate::cli::{
    EXIT_CLOSED, EXIT_FAILED,
    args::{KillArgs, TreeArgs},
    output::{line, one_line},
    plan::UsageError,
};
use console::Term;
use serde::Serialize;
use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};
use subagents::{
    Node, NodeKind, RunId,
    inspect::{CancelOutcome, Folder, HostInfo, HostSocket, InspectError, Seen, hosts},
};

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of a run may take: the host itself gives up before.
const END: Duration = Duration::from_secs(30);
/// How often it is looked again.
const AGAIN: Duration = Duration::from_millis(500);
/// As many digits tell a run.
const DIGITS: usize = 8;
/// So many have to be named at least.
const LEAST: usize = 4;

/// Prints the trees of what runs, once or again and again; gives the exit code.
///
/// # Errors
/// Where nobody can be asked.
pub(crate) fn tell(args: &TreeArgs) -> Result<u8, UsageError> {
    let mut screen = Screen::new(args);
    loop {
        let (seen, failed) = look(args.pid)?;
        let seen: Vec<_> = seen.into_iter().map(|(_, seen)| seen).collect();
        let code = if failed { EXIT_FAILED } else { 0 };
        match screen.show(&seen, failed) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(EXIT_CLOSED),
            Err(error) => {
                tell_line(&format!("subagents: stdout cannot be written: {error}"));
                return Ok(EXIT_FAILED);
            }
            Ok(()) => {}
        }
        if !args.watch {
            return Ok(code);
        }
        thread::sleep(AGAIN);
    }
}

/// Ends one run; gives the exit code.
///
/// # Errors
/// Where it cannot be told which run is meant.
pub(crate) fn kill(args: &KillArgs) -> Result<u8, UsageError> {
    let wanted = args.run.to_ascii_lowercase();
    let plain: String = wanted.chars().filter(|c| *c != '-').collect();
    if plain.len() < LEAST || !plain.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(UsageError(format!(
            "`{}` is no run: give its id, or the end of it, as `subagents tree` shows it, of {LEAST} digits at least",
            one_line(&args.run)
        )));
    }
    let (seen, failed) = look(args.pid)?;
    let found: Vec<_> = seen
        .iter()
        .flat_map(|(host, seen)| runs(seen, &plain).into_iter().map(move |run| (host, run)))
        .collect();
    match &*found {
        [] => {
            tell_line(&format!(
                "subagents: no run that is alive has an id that ends with `{plain}`; `subagents tree` shows them"
            ));
            Ok(EXIT_FAILED)
        }
        [(host, run)] => Ok(match host.cancel(*run, END) {
            Ok(CancelOutcome::Gone) => u8::from(failed),
            Ok(outcome) => {
                tell_line(&format!("subagents: run {run} {}", became(&outcome)));
                EXIT_FAILED
            }
            Err(error) => {
                tell_error(&error);
                EXIT_FAILED
            }
        }),
        several => {
            let ids: Vec<_> = several.iter().map(|(_, run)| run.to_string()).collect();
            Err(UsageError(format!(
                "`{plain}` is the end of several runs: {}; give more of it",
                ids.join(", ")
            )))
        }
    }
}

/// What is said of a run of which it is not sure that nothing is left.
fn became(outcome: &CancelOutcome) -> String {
    match outcome {
        CancelOutcome::NoSuchRun => "has just ended by itself".to_owned(),
        CancelOutcome::MayBeLeft { what } => {
            format!("was cancelled, and may have left something behind: {}", one_line(what))
        }
        CancelOutcome::Ending => {
            "was cancelled, and has not ended yet; `subagents tree` says what it waits for".to_owned()
        }
        CancelOutcome::Gone | _ => "was cancelled; `subagents tree` says whether anything is left".to_owned(),
    }
}

/// The live runs whose id ends so.
fn runs(seen: &Seen, end: &str) -> Vec<RunId> {
    let nodes = seen.tree.nodes.iter().filter(|node| node.kind == NodeKind::Run);
    let ids = nodes.map(|node| node.id.to_string()).filter(|id| id.replace('-', "").ends_with(end));
    ids.filter_map(|id| id.parse().ok()).collect()
}

fn asked(folder: &Folder, pid: Option<u32>) -> Result<Vec<HostSocket>, UsageError> {
    let mut found = hosts(folder).map_err(|error| UsageError(format!("{}: {error}", error.code())))?;
    if let Some(pid) = pid {
        found.retain(|host| host.pid() == pid);
        if found.is_empty() {
            return Err(UsageError(format!(
                "process {pid} is no host of subagents that runs here; `subagents tree` without --pid shows those that are"
            )));
        }
    }
    Ok(found)
}

/// What there is to see, and whether somebody did not answer.
fn look(pid: Option<u32>) -> Result<(Vec<(HostSocket, Seen)>, bool), UsageError> {
    let (mut seen, mut failed) = (Vec::new(), false);
    for host in asked(&crate::cli::sockets(), pid)? {
        match host.look(PATIENCE) {
            Ok(one) => seen.push((host, one)),
            // Nothing runs there any more, and that is no fault.
            Err(InspectError::Ended { .. }) => {}
            Err(error) => {
                failed = true;
                tell_error(&error);
            }
        }
    }
    Ok((seen, failed))
}

fn tell_error(error: &InspectError) {
    tell_line(&format!("subagents: {}: {}", error.code(), one_line(&error.to_string())));
}

fn tell_line(line: &str) {
    // Nobody is left to tell where it cannot be written.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Where it is shown.
struct Screen {
    json: bool,
    watch: bool,
    /// Where it is drawn again in place.
    terminal: Option<Term>,
    /// How many lines were drawn.
    drawn: usize,
    /// What was printed last, where something was.
    last: Option<String>,
}

#[derive(Serialize)]
struct HostLine<'a> {
    r#type: &'static str,
    host: &'a HostInfo,
    tree: &'a subagents::Tree,
}

impl Screen {
    fn new(args: &TreeArgs) -> Self {
        let terminal = args.watch && !args.json && io::stdout().is_terminal();
        Self {
            json: args.json,
            watch: args.watch,
            terminal: terminal.then(Term::stdout),
            drawn: 0,
            last: None,
        }
    }

    fn show(&mut self, seen: &[Seen], failed: bool) -> io::Result<()> {
        let text = if self.json { json(seen) } else { drawn(seen, failed) };
        if let Some(terminal) = &self.terminal {
            let rows = usize::from(terminal.size().0).saturating_sub(1).max(1);
            let columns = usize::from(terminal.size().1).max(20);
            let lines: Vec<_> =
                text.lines().take(rows).map(|line| console::truncate_str(line, columns, "…")).collect();
            terminal.clear_last_lines(self.drawn)?;
            for line in &lines {
                terminal.write_line(line)?;
            }
            self.drawn = lines.len();
            return Ok(());
        }
        // In a pipe what has not changed but for its ages is not said again.
        if self.watch {
            let key = format!("{failed} {}", revisions(seen));
            if self.last.as_ref() == Some(&key) {
                return Ok(());
            }
            self.last = Some(key);
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

fn json(seen: &[Seen]) -> String {
    seen.iter().map(|seen| line(&HostLine { r#type: "host", host: &seen.host, tree: &seen.tree })).collect()
}

/// What tells whether something has happened.
fn revisions(seen: &[Seen]) -> String {
    let revisions = seen.iter().map(|seen| {
        let mut nodes: Vec<_> = seen.tree.nodes.iter().map(|node| (node.id, node.revision)).collect();
        nodes.sort_unstable();
        format!("{} {nodes:?}\n", seen.host.pid)
    });
    revisions.collect()
}

/// Where somebody could not be asked, nobody knows whether nothing runs.
fn drawn(seen: &[Seen], failed: bool) -> String {
    if seen.is_empty() && !failed {
        return "nothing of subagents runs here; `subagents run` and `subagents mcp` are seen while they do\n".to_owned();
    }
    let hosts = seen.iter().map(|Seen { host, tree, .. }| {
        format!("{} (process {})\n{}", host.name, host.pid, tree.drawn_tagged(tag))
    });
    hosts.collect::<Vec<_>>().join("\n")
}

/// The end of a run's id, which `subagents kill` takes.
fn tag(node: &Node) -> Option<String> {
    let id = (node.kind == NodeKind::Run).then(|| node.id.to_string())?;
    Some(id.get(id.len() - DIGITS..)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_run_is_told_with_what_is_left() {
        let left = CancelOutcome::MayBeLeft { what: "a process\u{1b}[31m\n42".to_owned() };
        for (outcome, told) in [
            (CancelOutcome::NoSuchRun, "has just ended by itself"),
            (left, "was cancelled, and may have left something behind: a process | 42"),
            (
                CancelOutcome::Ending,
                "was cancelled, and has not ended yet; `subagents tree` says what it waits for",
            ),
        ] {
            assert_eq!(became(&outcome), told);
        }
    }
}
