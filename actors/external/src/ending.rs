//! The end of a program, and how a caller hears of it.

use std::time::Duration;

use subagents_process::{Ladder, Process, Stdout, Teardown};
use subagents_seam::{Closed, Instant};

/// Ends a program and all that descends from it, by `deadline`. Its stdout, where it is given back, is read until then: a
/// program that still has something to say must not find its pipe closed.
pub async fn end(process: &mut Process, stdout: Option<Stdout>, deadline: Instant) -> Teardown {
    // A little less than there is, so that a leak can still be told.
    let left = deadline.saturating_duration_since(Instant::now()).mul_f64(0.9);
    if let Some(stdout) = stdout {
        process.give_back_stdout(stdout);
    }
    process.terminate(ladder(left)).await
}

/// The usual ladder, with all the time that is left for its last step: on a busy machine even a kill takes its time, and
/// nothing is left behind before the time is up.
fn ladder(left: Duration) -> Ladder {
    let mut ladder = Ladder::within(left);
    ladder.kill = ladder.kill.max(left.saturating_sub(ladder.eof + ladder.term));
    ladder
}

/// What came of the teardown of `program`, for [`Child::close`](subagents_seam::Child::close).
pub fn closed(program: &str, teardown: Teardown) -> Closed {
    match teardown {
        Teardown::Gone { .. } => Closed::Clean,
        Teardown::Leaked { members, .. } if members.is_empty() => Closed::Leaked(
            format!("whether all that {program} started is gone could not be seen in time").into(),
        ),
        Teardown::Leaked { pid, members, .. } => {
            Closed::Leaked(format!("of {program} (process {pid}), these are alive: {members:?}").into())
        }
        other => Closed::Leaked(format!("{program}: {other:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use subagents_process::{Exit, Stage};

    use super::*;

    #[test]
    fn the_last_step_has_all_the_time_that_is_left() {
        let whole = ladder(Duration::from_secs(13));
        let seconds = |step: Duration| step.as_secs();
        assert_eq!((seconds(whole.eof), seconds(whole.term), seconds(whole.kill)), (1, 2, 10));
        let short = ladder(Duration::from_millis(500));
        assert_eq!(short.eof + short.term + short.kill, Duration::from_millis(500));
    }

    #[test]
    fn only_what_is_seen_to_be_gone_is_clean() {
        let gone = Teardown::Gone { stage: Stage::Eof, exit: Exit::Code(0), escaped: 1 };
        assert_eq!(closed("x", gone), Closed::Clean);
        let leaked =
            |members: &[u32]| closed("x", Teardown::Leaked { pid: 7, members: members.to_vec(), exit: None });
        assert_eq!(leaked(&[8, 9]), Closed::Leaked("of x (process 7), these are alive: [8, 9]".into()));
        assert!(matches!(leaked(&[]), Closed::Leaked(what) if what.contains("could not be seen in time")));
    }
}
