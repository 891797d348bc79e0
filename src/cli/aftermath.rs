//! After a kill: the signal is sent, and nobody waited for it to do its work.

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process_group},
};
use std::time::Duration;
use subagents::{NodeKind, Tree};
use tokio::time::{Instant, sleep};

/// How long is waited for what was killed.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// The process groups of children, as the tree shows them: each child leads its own.
pub(crate) fn groups(tree: &Tree) -> Vec<Pid> {
    let processes = tree.nodes.iter().filter(|node| node.kind == NodeKind::Process);
    processes.filter_map(|node| Pid::from_raw(i32::try_from(node.pid?).ok()?)).collect()
}

/// Waits until these groups are gone; not for long, since a zombie that nobody reaps still counts.
pub(crate) async fn gone(mut groups: Vec<Pid>) {
    let begun = Instant::now();
    loop {
        groups.retain(|group| test_kill_process_group(*group) != Err(Errno::SRCH));
        if groups.is_empty() || begun.elapsed() > PATIENCE {
            return;
        }
        sleep(PAUSE).await;
    }
}
