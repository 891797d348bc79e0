//! The service's steady clock: tokio's, so that a test can pause it, anchored once to the wall.

use std::time::{SystemTime, UNIX_EPOCH};
use subagents_seam::{Instant, Timestamp};

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    wall_ms: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX / 2) }
    }

    /// Microseconds since the service was built.
    pub(crate) fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    pub(crate) fn micros(&self, at: Instant) -> u64 {
        // Not `as_micros`, which divides 128 bits.
        let since = at.saturating_duration_since(self.origin);
        since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.origin + std::time::Duration::from_micros(micros)
    }

    pub(crate) fn stamp(&self, micros: u64) -> Timestamp {
        Timestamp::from_millis(self.wall_ms + micros / 1_000)
    }
}
