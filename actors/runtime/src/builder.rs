//! Building a service.

use crate::{
    admission::Admission, kept::Kept, providers::Providers, registry::Registry, service::SubagentService,
    shared::Shared,
};
use ractor::ActorRuntime;
use std::{num::NonZeroUsize, sync::Arc, time::Duration};
use subagents_seam::{BuildError, CancellationToken, Deadlines, DynProvider};

/// Builds a [`SubagentService`]. Nothing happens before [`build`](Self::build).
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ServiceBuilder {
    providers: Vec<(String, DynProvider)>,
    limits: Vec<(String, usize)>,
    overall: Option<usize>,
    queue: usize,
    deadlines: Deadlines,
    max_depth: Option<u32>,
    root_depth: u32,
    max_starts: u64,
    event_capacity: usize,
    keep: usize,
    keep_for: Duration,
}

impl ServiceBuilder {
    pub(crate) fn new() -> Self {
        Self {
            providers: Vec::new(),
            limits: Vec::new(),
            overall: None,
            queue: 1024,
            deadlines: Deadlines::default(),
            max_depth: None,
            root_depth: 0,
            max_starts: u64::MAX,
            event_capacity: 4096,
            keep: 256,
            keep_for: Duration::from_mins(10),
        }
    }

    /// Registers a provider for the service's life, under a name of 1 to 64 bytes of `a-z`, `0-9`, `.`, `_`, `-`.
    pub fn provider(mut self, name: impl Into<String>, provider: impl Into<DynProvider>) -> Self {
        self.providers.push((name.into(), provider.into()));
        self
    }

    /// How many runs of one provider may live at once. The surplus waits.
    pub fn limit(mut self, name: impl Into<String>, runs: usize) -> Self {
        self.limits.push((name.into(), runs));
        self
    }

    /// How many runs may live at once over all providers. The surplus waits.
    pub fn overall_limit(mut self, runs: usize) -> Self {
        self.overall = Some(runs);
        self
    }

    /// How many starts may wait for a slot; one more is refused with `QUEUE_FULL`. 1024 by default.
    pub fn queue(mut self, starts: usize) -> Self {
        self.queue = starts;
        self
    }

    /// Deadlines of every run that sets no other.
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The deepest place of any tree here: absolute, 0 forbids all delegation. Unbounded by default.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = Some(depth);
        self
    }

    /// The depth of the roots, for a service that is itself a child: depth survives process borders. 0 by default.
    pub fn root_depth(mut self, depth: u32) -> Self {
        self.root_depth = depth;
        self
    }

    /// How many starts may be made below one root, ever; one more is refused with `START_LIMIT_EXCEEDED`.
    pub fn max_starts(mut self, starts: u64) -> Self {
        self.max_starts = starts;
        self
    }

    /// How many items a listener may lag behind before it loses some. 4096 by default, at least 1. An item that was not
    /// read holds its run's result: a listener that never reads holds this many of them.
    pub fn event_capacity(mut self, items: usize) -> Self {
        self.event_capacity = items.clamp(1, 1 << 20);
        self
    }

    /// How many gone runs are remembered, and for how long. 256 and ten minutes by default. Of their answers 64 MiB at
    /// most: beyond that the oldest are forgotten, but not that the runs were there or why one failed.
    pub fn keep_gone(mut self, runs: usize, age: Duration) -> Self {
        self.keep = runs;
        self.keep_for = age;
        self
    }

    /// Builds the service on the tokio runtime that this is called in.
    ///
    /// # Errors
    /// A name that is taken or malformed, a limit of zero or for an unknown provider, no runtime.
    ///
    /// # Panics
    /// Not here, but later, where the runtime keeps no time (`enable_time`): every deadline needs it.
    pub fn build(self) -> Result<SubagentService, BuildError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let overall = self.overall.map(|runs| limit("all providers", runs)).transpose()?;
        let mut admission = Admission::new(overall, self.queue);
        let unlimited = admission.add_lane(None);
        let providers = Providers::default();
        for (name, provider) in self.providers {
            let runs = self.limits.iter().rev().find(|(limited, _)| *limited == name).map(|(_, runs)| *runs);
            let lane = match runs {
                Some(runs) => admission.add_lane(Some(limit(&name, runs)?)),
                None => admission.add_lane(None),
            };
            providers.add(&name, provider, lane, |_| {})?;
        }
        let known = providers.names();
        if let Some((name, _)) =
            self.limits.iter().find(|(name, _)| !known.iter().any(|known| **known == **name))
        {
            return Err(BuildError::NoProvider { name: name.as_str().into(), known });
        }
        let shared = Arc::new(Shared::new(
            self.deadlines,
            self.max_depth,
            self.root_depth,
            self.max_starts,
            self.event_capacity,
            providers,
            Kept::new(self.keep, self.keep_for),
            CancellationToken::new(),
            runtime,
        ));
        let registry = Registry { shared: shared.clone() };
        match ActorRuntime::spawn_instant(None, registry, admission) {
            Ok((registry, _)) => {
                let _ = shared.registry.set(registry);
                Ok(SubagentService::new(shared, unlimited))
            }
            // Only a name that is taken can fail here, and it has none.
            Err(_) => Err(BuildError::NoRuntime),
        }
    }
}

fn limit(of: &str, runs: usize) -> Result<NonZeroUsize, BuildError> {
    NonZeroUsize::new(runs).ok_or_else(|| BuildError::ZeroLimit(of.into()))
}
