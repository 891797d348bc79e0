//! The ring of gone runs: a tree that forgets the failure you came to look at is useless, one that forgets nothing is
//! a leak.

use crate::{core::RunCore, settlement::Settled, tree};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use subagents_seam::{Node, RunId, Timestamp};

pub(crate) struct Kept {
    most: usize,
    age: Duration,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    /// Records, not runs: a run's own memory is best freed while it is warm.
    records: VecDeque<(Node, Option<Settled>)>,
    forgotten: u64,
}

impl Kept {
    pub(crate) fn new(most: usize, age: Duration) -> Self {
        Self { most, age, ring: Mutex::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, core: &RunCore) {
        let record = (self.most > 0).then(|| (tree::run_node(core), core.outcome()));
        // The oldest is dropped outside the lock: it may be the last hold on a large result.
        let _dropped = {
            let mut ring = self.ring();
            let full = ring.records.len() >= self.most;
            ring.forgotten += u64::from(full);
            let dropped = if full { ring.records.pop_front() } else { None };
            ring.records.extend(record);
            dropped
        };
    }

    /// The gone nodes, the oldest first, and how many are not remembered any more.
    pub(crate) fn nodes(&self, now: Timestamp) -> (Vec<Node>, u64) {
        let mut ring = self.ring();
        let old = ring.records.iter().take_while(|(node, _)| node.since.until(now) > self.age).count();
        ring.forgotten += old as u64;
        let old: Vec<_> = ring.records.drain(..old).collect();
        let nodes = ring.records.iter().map(|(node, _)| node.clone()).collect();
        let forgotten = ring.forgotten;
        drop(ring);
        drop(old);
        (nodes, forgotten)
    }

    pub(crate) fn outcome(&self, run: RunId) -> Option<Settled> {
        self.ring().records.iter().find(|(node, _)| node.id == run.into())?.1.clone()
    }
}
