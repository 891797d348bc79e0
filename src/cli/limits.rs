//! Open files: many children at once need more of them than a shell allows at first.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io,
    sync::{Arc, Barrier},
    thread,
};

/// What the program itself has open.
const OURS: u64 = 64;
/// What one child needs while it starts; afterwards it is about half.
const PER_CHILD: u64 = 8;

/// Raises the soft limit on open files as far as `jobs` children and `others` need it, and the hard limit allows. No further:
/// the children inherit it, and some programs walk over every number up to it.
pub(crate) fn make_room(jobs: usize, others: usize) {
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = raised(limit.current, limit.maximum, jobs as u64, others as u64) {
        // Where it is refused, a start that finds no room says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

/// What the program starts of its own beside the runtime's workers.
const OUR_THREADS: usize = 4;

/// Whether there is room for the program's threads. The runtime starts its own as if there always were.
pub(crate) fn room_for_threads() -> io::Result<()> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let gate = Arc::new(Barrier::new(workers + OUR_THREADS + 1));
    let (mut threads, mut refused) = (Vec::new(), None);
    for _ in 0..workers + OUR_THREADS {
        let waiting = gate.clone();
        // They are alive at once, or it would say nothing.
        match thread::Builder::new().stack_size(64 * 1024).spawn(move || waiting.wait()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    if let Some(error) = refused {
        let advice = "there is no room for its threads; end other programs, or raise ulimit -u";
        // Those that wait for the others end with the program.
        return Err(io::Error::new(error.kind(), format!("{error}: {advice}")));
    }
    gate.wait();
    for thread in threads {
        // They do nothing that could fail.
        let _ = thread.join();
    }
    Ok(())
}

/// The soft limit that is wanted, where it is not what there is. `None` in a limit is none at all.
fn raised(soft: Option<u64>, hard: Option<u64>, jobs: u64, others: u64) -> Option<u64> {
    let wanted = OURS + PER_CHILD * jobs + others;
    let wanted = hard.map_or(wanted, |hard| wanted.min(hard));
    soft.is_some_and(|soft| soft < wanted).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::raised;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_allowed() {
        assert_eq!(raised(Some(1_024), Some(4_096), 4, 0), None);
        assert_eq!(raised(Some(1_024), Some(4_096), 400, 0), Some(3_264));
        assert_eq!(raised(Some(1_024), Some(4_096), 4, 2_000), Some(2_096));
        assert_eq!(raised(Some(1_024), Some(2_000), 400, 0), Some(2_000));
        assert_eq!(raised(Some(1_024), Some(1_024), 400, 0), None);
        assert_eq!(raised(Some(1_024), None, 400, 0), Some(3_264));
        assert_eq!(raised(None, None, 400, 0), None);
    }
}
