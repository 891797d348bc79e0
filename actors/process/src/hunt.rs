//! How all that descends from one child is ended, step by step. Pure: what is seen goes in, what to do comes out.
//!
//! Stop them first, until two looks find nobody new, so that nobody forks while the others are killed; then kill, until
//! nobody is left. Who forks and ends before it can be stopped is *chased*: each newly made process of the system is
//! looked at by itself, at once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::table::Key;

/// Looks without anybody new, after which all are stopped.
const CLEAN_LOOKS: u32 = 2;
/// Looks in a row with somebody new, after which they are chased.
const RESTLESS_LOOKS: u32 = 3;
/// Complete looks that find nobody, after which nobody is left where somebody was.
const QUIET_LOOKS: u32 = 2;
/// The same where none is complete and nobody was ever seen.
const QUIET_LOOKS_IN_A_CROWD: u32 = 5;
/// The same where somebody was: each look followed by a chase, which who is left would have had to escape.
const QUIET_CHASES: u32 = 8;

/// One hunt.
#[derive(Debug)]
pub(crate) struct Hunt {
    known: HashSet<Key>,
    /// Until when they are stopped at most; then they are killed, stopped or not.
    stop_until: Instant,
    deadline: Instant,
    killing: bool,
    clean: u32,
    restless: u32,
    quiet: u32,
    caught: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again.
    Look,
    /// Stop all that were seen, and look again.
    Stop,
    /// Kill all that were seen, and look again.
    Kill,
    /// Stop all that were seen, kill what is newly made for a while, and look again.
    Chase,
    /// It is over.
    Done(End),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody is left.
    Gone,
    /// Some are alive, and the time is up.
    Left,
    /// Nobody is seen, and that is no proof: they come and go faster than they can be seen, or the table cannot be read;
    /// and the time is up.
    Unknown,
}

/// What a look is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Who was not seen is not there.
    Complete,
    /// Somebody may have been overlooked: processes come and go too fast.
    Crowded,
    /// The table could not be read.
    Blind,
}

impl Hunt {
    pub(crate) fn new(now: Instant, budget: Duration) -> Self {
        Self {
            known: HashSet::new(),
            stop_until: now + budget / 2,
            deadline: now + budget,
            killing: false,
            clean: 0,
            restless: 0,
            quiet: 0,
            caught: false,
        }
    }

    /// Those of ours that are alive and may be signalled.
    pub(crate) fn see(&mut self, alive: impl IntoIterator<Item = Key>, view: View, now: Instant) -> Step {
        let (mut all, mut new) = (0, 0);
        for key in alive {
            all += 1;
            new += usize::from(self.known.insert(key));
        }
        let late = now >= self.deadline;
        if all > 0 {
            self.quiet = 0;
            if late {
                return Step::Done(End::Left);
            }
            (self.clean, self.restless) = if new == 0 { (self.clean + 1, 0) } else { (0, self.restless + 1) };
            if self.restless >= RESTLESS_LOOKS {
                return Step::Chase;
            }
            self.killing |= self.clean >= CLEAN_LOOKS || now >= self.stop_until;
            return if self.killing { Step::Kill } else { Step::Stop };
        }
        self.quiet += 1;
        let never_seen = self.known.is_empty() && !self.caught;
        let enough = match (view, never_seen) {
            (View::Complete, true) => true,
            (View::Complete, false) => self.quiet >= QUIET_LOOKS || late,
            (View::Crowded, true) => self.quiet >= QUIET_LOOKS_IN_A_CROWD || late,
            // Each of them after a chase that caught nobody.
            (View::Crowded, false) => self.quiet >= QUIET_CHASES,
            (View::Blind, _) => false,
        };
        match (enough, late) {
            (true, _) => Step::Done(End::Gone),
            (false, true) => Step::Done(End::Unknown),
            (false, false) if view == View::Crowded && !never_seen => Step::Chase,
            (false, false) => Step::Look,
        }
    }

    /// What came of a chase: how many were killed in it.
    pub(crate) fn chased(&mut self, caught: usize) {
        self.restless = 0;
        if caught > 0 {
            (self.caught, self.quiet) = (true, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_secs(2);

    fn keys(ids: &[i32]) -> Vec<Key> {
        ids.iter().map(|id| Key { id: *id, start: 1 }).collect()
    }

    struct Scene {
        hunt: Hunt,
        begun: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let begun = Instant::now();
            Self { hunt: Hunt::new(begun, BUDGET), begun }
        }

        fn see(&mut self, ids: &[i32], complete: bool, after_ms: u64) -> Step {
            let view = if complete { View::Complete } else { View::Crowded };
            self.hunt.see(keys(ids), view, self.begun + Duration::from_millis(after_ms))
        }
    }

    #[test]
    fn where_nobody_is_one_complete_look_tells_or_five_others() {
        assert_eq!(Scene::new().see(&[], true, 0), Step::Done(End::Gone));
        let mut scene = Scene::new();
        for _ in 1..QUIET_LOOKS_IN_A_CROWD {
            assert_eq!(scene.see(&[], false, 0), Step::Look);
        }
        assert_eq!(scene.see(&[], false, 1), Step::Done(End::Gone));
    }

    #[test]
    fn all_are_stopped_before_any_is_killed() {
        let mut scene = Scene::new();
        for (ids, step) in [
            (&[1, 2][..], Step::Stop),
            (&[1, 2, 3], Step::Stop),
            (&[1, 2, 3], Step::Stop),
            (&[1, 2, 3], Step::Kill),
            (&[1, 4], Step::Kill),
            (&[], Step::Look),
            (&[], Step::Done(End::Gone)),
        ] {
            assert_eq!(scene.see(ids, true, 0), step, "{ids:?}");
        }
    }

    #[test]
    fn who_cannot_be_stopped_is_killed_and_reported_when_that_does_not_help() {
        let mut scene = Scene::new();
        assert_eq!(scene.see(&[1], true, 999), Step::Stop);
        assert_eq!(scene.see(&[1, 2], true, 1_000), Step::Kill);
        assert_eq!(scene.see(&[1, 2], true, 1_999), Step::Kill);
        assert_eq!(scene.see(&[1, 2], true, 2_000), Step::Done(End::Left));
    }

    #[test]
    fn a_chain_is_chased_and_gone_after_two_complete_looks() {
        let mut scene = Scene::new();
        for round in 0..3 {
            let id = 10 * round;
            assert_eq!(scene.see(&[id], true, 0), Step::Stop);
            assert_eq!(scene.see(&[id + 1], true, 0), Step::Stop);
            assert_eq!(scene.see(&[id + 2], true, 0), Step::Chase);
            scene.hunt.chased(3);
        }
        assert_eq!(scene.see(&[], true, 20), Step::Look);
        assert_eq!(scene.see(&[], true, 20), Step::Done(End::Gone));
    }

    #[test]
    fn who_was_seen_and_may_be_overlooked_is_chased_and_as_long_as_it_is_caught_that_is_no_success() {
        let mut scene = Scene::new();
        scene.see(&[1], false, 0);
        for ms in [1, 500, 1_000, 1_999] {
            assert_eq!(scene.see(&[], false, ms), Step::Chase);
            scene.hunt.chased(1);
        }
        assert_eq!(scene.see(&[], false, 2_000), Step::Done(End::Unknown));
        let mut scene = Scene::new();
        scene.see(&[1], false, 0);
        for _ in 1..QUIET_CHASES {
            assert_eq!(scene.see(&[], false, 1), Step::Chase);
            scene.hunt.chased(0);
        }
        assert_eq!(scene.see(&[], false, 1), Step::Done(End::Gone));
    }

    #[test]
    fn who_cannot_look_knows_nothing() {
        let mut scene = Scene::new();
        let mut blind = |ms| scene.hunt.see([], View::Blind, scene.begun + Duration::from_millis(ms));
        for ms in 0..20 {
            assert_eq!(blind(ms), Step::Look);
        }
        assert_eq!(blind(2_000), Step::Done(End::Unknown));
        let mut scene = Scene::new();
        scene.see(&[1], true, 0);
        assert_eq!(scene.see(&[], true, 2_000), Step::Done(End::Gone), "late, and yet seen");
    }
}
