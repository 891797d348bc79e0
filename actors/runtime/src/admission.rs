//! Who may start now, who waits, and who runs in a slot that its parent lent. Pure: the registry owns one and asks it.
//!
//! There is one overall limit and one per provider (a *lane*). A run that holds or borrows a slot may lend to one of
//! its children at a time, past every limit; that child goes ahead of the queue. So a parent that waits for its child
//! never deadlocks, also across providers.

use crate::index::IdHasher;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::BuildHasherDefault,
    num::NonZeroUsize,
};
use subagents_seam::RunId;

/// A provider's place among the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId(usize);

/// What becomes of a start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// No limit applies: nothing is recorded, and `leave` needs no call.
    Free,
    /// It holds a slot, or borrows its parent's.
    Admitted { borrowed: bool },
    /// It waits; of two with the same lane the lower ticket is served first.
    Queued { ticket: u64 },
    /// The queue is full.
    Full { queued: usize, active: usize },
}

/// One whose wait is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) run: RunId,
    pub(crate) borrowed: bool,
}

#[derive(Debug)]
pub(crate) struct Admission {
    overall: Pool,
    lanes: Vec<Lane>,
    /// How many may wait.
    bound: usize,
    queued: usize,
    next_ticket: u64,
    runs: HashMap<RunId, Entry, BuildHasherDefault<IdHasher>>,
}

#[derive(Debug)]
struct Lane {
    pool: Pool,
    waiting: BTreeMap<u64, RunId>,
}

#[derive(Debug, Default)]
struct Pool {
    limit: Option<NonZeroUsize>,
    used: usize,
}

impl Pool {
    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.used < limit.get())
    }
}

#[derive(Debug)]
enum Entry {
    Waiting {
        lane: LaneId,
        ticket: u64,
        parent: Option<RunId>,
    },
    Active {
        lane: LaneId,
        /// The run whose slot this is; `None` for one that holds its own.
        lender: Option<RunId>,
        /// Whether its own slot is lent to a child now.
        lends: bool,
        /// Children of this run that wait, by ticket.
        children: BTreeSet<u64>,
    },
}

impl Admission {
    /// An overall limit, and a bound on how many wait.
    pub(crate) fn new(overall: Option<NonZeroUsize>, bound: usize) -> Self {
        Self {
            overall: Pool { limit: overall, used: 0 },
            lanes: Vec::new(),
            bound,
            queued: 0,
            next_ticket: 1,
            runs: HashMap::default(),
        }
    }

    /// A lane for a provider, with a limit or without.
    pub(crate) fn add_lane(&mut self, limit: Option<NonZeroUsize>) -> LaneId {
        self.lanes.push(Lane { pool: Pool { limit, used: 0 }, waiting: BTreeMap::new() });
        LaneId(self.lanes.len() - 1)
    }

    /// Asks for a start of `run`, a child of `parent` if that is a run.
    pub(crate) fn submit(&mut self, run: RunId, lane: LaneId, parent: Option<RunId>) -> Submission {
        if self.overall.limit.is_none() && self.lanes[lane.0].pool.limit.is_none() {
            return Submission::Free;
        }
        if self.overall.has_room() && self.lanes[lane.0].pool.has_room() {
            self.occupy(run, lane, None);
            return Submission::Admitted { borrowed: false };
        }
        if let Some(parent) = parent
            && self.lend(parent)
        {
            self.occupy(run, lane, Some(parent));
            return Submission::Admitted { borrowed: true };
        }
        if self.queued >= self.bound {
            let active = self.runs.len() - self.queued;
            return Submission::Full { queued: self.queued, active };
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queued += 1;
        self.lanes[lane.0].waiting.insert(ticket, run);
        if let Some(Entry::Active { children, .. }) = parent.and_then(|parent| self.runs.get_mut(&parent)) {
            children.insert(ticket);
        }
        self.runs.insert(run, Entry::Waiting { lane, ticket, parent });
        Submission::Queued { ticket }
    }

    /// `run` is gone, or waits no longer. Returns those whose wait is over by that.
    pub(crate) fn leave(&mut self, run: RunId) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        if self.runs.is_empty() {
            return admitted;
        }
        match self.runs.remove(&run) {
            None => {}
            Some(Entry::Waiting { lane, ticket, parent }) => self.unqueue(lane, ticket, parent),
            Some(Entry::Active { lane, lender: None, .. }) => {
                self.overall.used -= 1;
                self.lanes[lane.0].pool.used -= 1;
                self.fill(&mut admitted);
            }
            Some(Entry::Active { lender: Some(lender), .. }) => {
                if let Some(Entry::Active { lends, .. }) = self.runs.get_mut(&lender) {
                    *lends = false;
                    self.lend_to_next_child(lender, &mut admitted);
                }
            }
        }
        admitted
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    fn occupy(&mut self, run: RunId, lane: LaneId, lender: Option<RunId>) {
        if lender.is_none() {
            self.overall.used += 1;
            self.lanes[lane.0].pool.used += 1;
        }
        self.runs.insert(run, Entry::Active { lane, lender, lends: false, children: BTreeSet::new() });
    }

    fn lend(&mut self, parent: RunId) -> bool {
        match self.runs.get_mut(&parent) {
            Some(Entry::Active { lends, .. }) => !std::mem::replace(lends, true),
            Some(Entry::Waiting { .. }) | None => false,
        }
    }

    fn unqueue(&mut self, lane: LaneId, ticket: u64, parent: Option<RunId>) {
        self.queued -= 1;
        self.lanes[lane.0].waiting.remove(&ticket);
        if let Some(Entry::Active { children, .. }) = parent.and_then(|parent| self.runs.get_mut(&parent)) {
            children.remove(&ticket);
        }
    }

    /// Serves the lowest ticket of any lane with room, while the overall limit has room.
    fn fill(&mut self, admitted: &mut Vec<Admitted>) {
        while self.overall.has_room() {
            let next = self
                .lanes
                .iter()
                .filter(|lane| lane.pool.has_room())
                .filter_map(|lane| lane.waiting.first_key_value())
                .min_by_key(|(ticket, _)| **ticket)
                .map(|(_, run)| *run);
            let Some(run) = next else { return };
            self.serve(run, None, admitted);
        }
    }

    fn lend_to_next_child(&mut self, lender: RunId, admitted: &mut Vec<Admitted>) {
        let Some(Entry::Active { children, .. }) = self.runs.get(&lender) else { return };
        let Some(ticket) = children.first().copied() else { return };
        let child = self.lanes.iter().find_map(|lane| lane.waiting.get(&ticket).copied());
        if let Some(child) = child
            && self.lend(lender)
        {
            self.serve(child, Some(lender), admitted);
        }
    }

    fn serve(&mut self, run: RunId, lender: Option<RunId>, admitted: &mut Vec<Admitted>) {
        let Some(Entry::Waiting { lane, ticket, parent }) = self.runs.remove(&run) else { return };
        self.unqueue(lane, ticket, parent);
        self.occupy(run, lane, lender);
        admitted.push(Admitted { run, borrowed: lender.is_some() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Admitted, LaneId, Submission};
    use proptest::prelude::*;
    use std::{collections::HashMap, num::NonZeroUsize};
    use subagents_seam::RunId;

    fn limits(overall: usize, lanes: &[usize], bound: usize) -> (Admission, Vec<LaneId>) {
        let mut admission = Admission::new(NonZeroUsize::new(overall), bound);
        let lanes = lanes.iter().map(|limit| admission.add_lane(NonZeroUsize::new(*limit))).collect();
        (admission, lanes)
    }

    #[test]
    fn without_limits_nothing_is_recorded() {
        let (mut admission, lanes) = limits(0, &[0], 0);
        assert_eq!(admission.submit(RunId::new(), lanes[0], None), Submission::Free);
        assert!(admission.runs.is_empty());
    }

    #[test]
    fn a_parent_lends_to_one_child_at_a_time_ahead_of_the_queue() {
        let (mut admission, lanes) = limits(0, &[1], 10);
        let [parent, stranger, first, second] = std::array::from_fn(|_| RunId::new());
        assert_eq!(admission.submit(parent, lanes[0], None), Submission::Admitted { borrowed: false });
        assert_eq!(admission.submit(stranger, lanes[0], None), Submission::Queued { ticket: 1 });
        assert_eq!(admission.submit(first, lanes[0], Some(parent)), Submission::Admitted { borrowed: true });
        assert_eq!(admission.submit(second, lanes[0], Some(parent)), Submission::Queued { ticket: 2 });
        assert_eq!(admission.leave(first), [Admitted { run: second, borrowed: true }]);
        assert_eq!(admission.leave(second), []);
        assert_eq!(admission.leave(parent), [Admitted { run: stranger, borrowed: false }]);
    }

    #[test]
    fn a_full_queue_says_how_full_it_is() {
        let (mut admission, lanes) = limits(2, &[0], 1);
        for _ in 0..2 {
            admission.submit(RunId::new(), lanes[0], None);
        }
        assert_eq!(admission.submit(RunId::new(), lanes[0], None), Submission::Queued { ticket: 1 });
        assert_eq!(admission.submit(RunId::new(), lanes[0], None), Submission::Full { queued: 1, active: 2 });
    }

    #[test]
    fn a_lane_without_room_does_not_hold_up_another() {
        let (mut admission, lanes) = limits(2, &[1, 1], 10);
        let [a, waits, b] = std::array::from_fn(|_| RunId::new());
        admission.submit(a, lanes[0], None);
        assert_eq!(admission.submit(waits, lanes[0], None), Submission::Queued { ticket: 1 });
        assert_eq!(admission.submit(b, lanes[1], None), Submission::Admitted { borrowed: false });
        assert_eq!(admission.leave(b), []);
        assert_eq!(admission.leave(a), [Admitted { run: waits, borrowed: false }]);
    }

    proptest! {
        /// Whatever comes and goes: limits hold for those that hold a slot, nobody waits while there is room, a
        /// run lends to one at a time, and nothing is left in the end.
        #[test]
        fn limits_hold_and_nobody_starves(
            steps in prop::collection::vec((0u8..4, 0usize..12, 0usize..3), 1..120),
            overall in 0usize..4,
        ) {
            let (mut admission, lanes) = limits(overall, &[1, 2, 0], 6);
            let mut active: Vec<(RunId, usize, bool, Option<RunId>)> = Vec::new();
            let mut waiting: HashMap<RunId, (usize, Option<RunId>)> = HashMap::new();
            let settle = |admitted: Vec<Admitted>, active: &mut Vec<_>, waiting: &mut HashMap<RunId, (usize, Option<RunId>)>| {
                for Admitted { run, borrowed } in admitted {
                    let (lane, parent) = waiting.remove(&run).expect("only one that waits is admitted");
                    active.push((run, lane, borrowed, parent));
                }
            };
            for (what, pick, lane) in steps {
                if what < 3 {
                    let parent = (what > 0 && !active.is_empty()).then(|| active[pick % active.len()].0);
                    let run = RunId::new();
                    match admission.submit(run, lanes[lane], parent) {
                        Submission::Free => {}
                        Submission::Admitted { borrowed } => active.push((run, lane, borrowed, parent)),
                        Submission::Queued { .. } => { waiting.insert(run, (lane, parent)); }
                        Submission::Full { queued, .. } => prop_assert_eq!(queued, 6),
                    }
                } else if !active.is_empty() {
                    // Gone child-first, as the runtime does it: nobody leaves before those below it.
                    let leaves = active.iter().position(|(run, ..)| {
                        !active.iter().any(|(.., parent)| *parent == Some(*run)) && !waiting.values().any(|(_, parent)| *parent == Some(*run))
                    });
                    if let Some(i) = leaves {
                        let (run, ..) = active.swap_remove(i);
                        let admitted = admission.leave(run);
                        settle(admitted, &mut active, &mut waiting);
                    }
                }
                for (lane, limit) in [(0, 1), (1, 2)] {
                    prop_assert!(active.iter().filter(|(_, l, borrowed, _)| *l == lane && !borrowed).count() <= limit);
                }
                let held = active.iter().filter(|(.., borrowed, _)| !borrowed).count();
                prop_assert!(overall == 0 || held <= overall);
                for (run, ..) in &active {
                    let borrowers = active.iter().filter(|(.., borrowed, parent)| *borrowed && *parent == Some(*run)).count();
                    prop_assert!(borrowers <= 1);
                }
                prop_assert!(active.is_empty() <= waiting.is_empty(), "one waits and nobody runs");
                prop_assert_eq!(admission.queued(), waiting.len());
            }
            while let Some(i) = active.iter().position(|(run, ..)| !active.iter().any(|(.., parent)| *parent == Some(*run)) && !waiting.values().any(|(_, parent)| *parent == Some(*run)))
                .or_else(|| (!active.is_empty()).then_some(0)) {
                let (run, ..) = active.swap_remove(i);
                let admitted = admission.leave(run);
                settle(admitted, &mut active, &mut waiting);
            }
            prop_assert!(waiting.is_empty(), "somebody waits for ever");
            prop_assert!(admission.runs.is_empty());
        }
    }
}
