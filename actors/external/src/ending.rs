//! The end of a program, as a caller hears of it.

use subagents_process::Teardown;
use subagents_seam::Closed;

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
    fn only_what_is_seen_to_be_gone_is_clean() {
        let gone = Teardown::Gone { stage: Stage::Eof, exit: Exit::Code(0), escaped: 1 };
        assert_eq!(closed("x", gone), Closed::Clean);
        let leaked =
            |members: &[u32]| closed("x", Teardown::Leaked { pid: 7, members: members.to_vec(), exit: None });
        assert_eq!(leaked(&[8, 9]), Closed::Leaked("of x (process 7), these are alive: [8, 9]".into()));
        assert!(matches!(leaked(&[]), Closed::Leaked(what) if what.contains("could not be seen in time")));
    }
}
