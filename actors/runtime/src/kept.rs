//! The ring of gone runs: a tree that forgets the failure you came to look at is useless, one that forgets nothing is
//! a leak.

use crate::{core::RunCore, settlement::Settled, tree};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use subagents_seam::{Node, RunId};

pub(crate) struct Kept {
    most: usize,
    age: u64,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    runs: VecDeque<Arc<RunCore>>,
    /// What was kept when the service ended. From then on the records stand alone: a run's core would hold the
    /// service that holds this ring.
    ended: Option<Vec<(Node, Option<Settled>)>>,
    forgotten: u64,
}

impl Kept {
    pub(crate) fn new(most: usize, age: Duration) -> Self {
        let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        Self { most, age, ring: Mutex::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, core: &Arc<RunCore>) {
        // Dropped outside the lock: it may be the last hold on a large result.
        let _dropped = {
            let mut ring = self.ring();
            if ring.ended.is_some() || self.most == 0 {
                ring.forgotten += 1;
                return;
            }
            ring.runs.push_back(core.clone());
            if ring.runs.len() > self.most {
                ring.forgotten += 1;
                ring.runs.pop_front()
            } else {
                None
            }
        };
    }

    fn forget_old(&self, ring: &mut Ring, now: u64) -> Vec<Arc<RunCore>> {
        let old = ring.runs.iter().take_while(|core| core.gone_at() + self.age < now).count();
        ring.forgotten += old as u64;
        ring.runs.drain(..old).collect()
    }

    /// The gone nodes, the oldest first, and how many are not remembered any more.
    pub(crate) fn nodes(&self, now: u64) -> (Vec<Node>, u64) {
        let mut ring = self.ring();
        if let Some(ended) = &ring.ended {
            return (ended.iter().map(|(node, _)| node.clone()).collect(), ring.forgotten);
        }
        let old = self.forget_old(&mut ring, now);
        let nodes = ring.runs.iter().map(|core| tree::run_node(core)).collect();
        let forgotten = ring.forgotten;
        drop(ring);
        drop(old);
        (nodes, forgotten)
    }

    pub(crate) fn outcome(&self, run: RunId) -> Option<Settled> {
        let ring = self.ring();
        match &ring.ended {
            Some(ended) => ended.iter().find(|(node, _)| node.id == run.into())?.1.clone(),
            None => ring.runs.iter().find(|core| core.id() == run)?.outcome(),
        }
    }

    /// The service ended: keeps the records and lets the runs go.
    pub(crate) fn end(&self) {
        let runs = {
            let mut ring = self.ring();
            if ring.ended.is_some() {
                return;
            }
            let runs = std::mem::take(&mut ring.runs);
            ring.ended = Some(runs.iter().map(|core| (tree::run_node(core), core.outcome())).collect());
            runs
        };
        drop(runs);
    }
}
