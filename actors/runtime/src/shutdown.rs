//! The end of a service, told.

use serde::Serialize;
use std::{sync::Arc, time::Duration};
use subagents_seam::RunId;

/// What a shutdown did with the runs that lived when it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[must_use = "it says what may be left"]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Runs that settled and went by themselves after the cancel.
    pub settled: usize,
    /// Runs whose actors had to be killed when the grace ran out.
    pub killed: usize,
    /// Runs of which something may be left, and what.
    pub leaked: Vec<(RunId, Arc<str>)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl ShutdownReport {
    /// Whether nothing had to be killed and nothing leaked.
    pub fn is_clean(&self) -> bool {
        self.killed == 0 && self.leaked.is_empty()
    }
}

/// How a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ServiceEnd {
    /// It was shut down, or its last handle was dropped.
    ShutDown,
    /// Its registry failed, which is a fault of the runtime, or its async runtime went away first.
    Failed,
}
