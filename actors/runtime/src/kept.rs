//! The ring of gone runs: a tree that forgets the failure you came to look at is useless, one that forgets nothing is
//! a leak.

use crate::{core::RunCore, settlement::Settled, tree};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use subagents_seam::{Node, RunId, Timestamp};

/// As many bytes of answers are remembered at most.
const BYTES: usize = 64 << 20;

pub(crate) struct Kept {
    most: usize,
    age: Duration,
    ring: Mutex<Ring>,
}

type Record = (Node, Option<Settled>);

#[derive(Default)]
struct Ring {
    /// Records, not runs: a run's own memory is best freed while it is warm.
    records: VecDeque<Record>,
    /// Of the outcomes.
    bytes: usize,
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
        let record = (tree::run_node(core), core.outcome());
        let now = record.0.since;
        // Dropped outside the lock: each may be the last hold on a large result.
        let _dropped = {
            let mut ring = self.ring();
            ring.bytes += bytes_of(record.1.as_ref());
            ring.records.push_back(record);
            self.prune(&mut ring, now)
        };
    }

    /// Takes out what is too much, too large or too old; the oldest first. Nearly always it is one.
    fn prune(&self, ring: &mut Ring, now: Timestamp) -> (Option<Record>, Vec<Record>) {
        let first = self.take_excess(ring, now);
        let mut rest = Vec::new();
        if first.is_some() {
            rest.extend(std::iter::from_fn(|| self.take_excess(ring, now)));
        }
        (first, rest)
    }

    fn take_excess(&self, ring: &mut Ring, now: Timestamp) -> Option<Record> {
        let (node, _) = ring.records.front()?;
        let fits = ring.records.len() <= self.most && ring.bytes <= BYTES;
        if fits && node.since.until(now) <= self.age {
            return None;
        }
        let record = ring.records.pop_front()?;
        ring.bytes -= bytes_of(record.1.as_ref());
        ring.forgotten += 1;
        Some(record)
    }

    /// The gone nodes, the oldest first, and how many are not remembered any more.
    pub(crate) fn nodes(&self, now: Timestamp) -> (Vec<Node>, u64) {
        let mut ring = self.ring();
        let dropped = self.prune(&mut ring, now);
        let nodes = ring.records.iter().map(|(node, _)| node.clone()).collect();
        let forgotten = ring.forgotten;
        drop(ring);
        drop(dropped);
        (nodes, forgotten)
    }

    pub(crate) fn outcome(&self, run: RunId, now: Timestamp) -> Option<Settled> {
        let mut ring = self.ring();
        let dropped = self.prune(&mut ring, now);
        let outcome = ring
            .records
            .iter()
            .find(|(node, _)| node.id == run.into())
            .and_then(|(_, outcome)| outcome.clone());
        drop(ring);
        drop(dropped);
        outcome
    }
}

fn bytes_of(outcome: Option<&Settled>) -> usize {
    let Some(Ok(result)) = outcome else { return 0 };
    result.output.blocks().iter().map(|block| block.as_text().map_or(0, str::len)).sum()
}
