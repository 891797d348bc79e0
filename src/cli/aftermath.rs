//! After a kill: the signal is sent, and nobody waited for it to do its work.

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process_group},
};
use std::{collections::HashSet, fs, time::Duration};
use subagents::{NodeKind, Tree, process::Host};
use tokio::time::{Instant, sleep, timeout};

/// How long is waited for what was killed.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The process groups of children, as the tree shows them: each child leads its own.
pub(crate) fn groups(tree: &Tree) -> HashSet<Pid> {
    let processes = tree.nodes.iter().filter(|node| node.kind == NodeKind::Process);
    processes.filter_map(|node| Pid::from_raw(i32::try_from(node.pid?).ok()?)).collect()
}

/// Waits, not for long, until nobody in these groups is alive, and nobody that had left them; says whether that is so.
pub(crate) async fn gone(mut groups: HashSet<Pid>, host: &Host) -> bool {
    let begun = Instant::now();
    loop {
        groups.retain(|group| test_kill_process_group(*group) != Err(Errno::SRCH));
        // A zombie that nobody has reaped still counts for the kernel, not for us.
        if !groups.is_empty()
            && let Some(alive) = alive()
        {
            groups.retain(|group| alive.contains(&group.as_raw_nonzero().get()));
        }
        if groups.is_empty() {
            return timeout(PATIENCE, host.idle()).await.is_ok();
        }
        if begun.elapsed() > PATIENCE {
            return false;
        }
        sleep(PAUSE).await;
    }
}

/// The groups with a member that is no zombie; `None` where `/proc` does not tell.
fn alive() -> Option<HashSet<i32>> {
    // Without our own entry this is no `/proc` to trust.
    fs::read("/proc/self/stat").ok()?;
    let stats = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read(entry.path().join("stat")).ok()
    });
    Some(stats.filter_map(|stat| living_member(&stat)).collect())
}

/// The group of a process that is no zombie, from `/proc/PID/stat`, whose second field, the name, may hold anything.
fn living_member(stat: &[u8]) -> Option<i32> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace();
    let living = !matches!(fields.next()?, "Z" | "X");
    let group = fields.nth(1)?.parse().ok()?;
    living.then_some(group)
}

#[cfg(test)]
mod tests {
    use super::living_member;

    #[test]
    fn a_zombie_is_no_living_member() {
        assert_eq!(living_member(b"7 (a) Z 1 2 (b)) S 3 77 9 0"), Some(77));
        assert_eq!(living_member(b"7 (sh) Z 3 78 9 0"), None);
        assert_eq!(living_member(b""), None);
    }
}
