//! Whether a client is there, as far as it can be seen: its connections come and go. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// How long a client may have calls under way and no connection on which it could hear of them.
pub(super) const ABSENCE: Duration = Duration::from_secs(30);
/// How long it may have nothing under way and say nothing.
pub(super) const IDLE: Duration = Duration::from_hours(1);

/// How long it is not made to give way to another.
pub(super) const SETTLED: Duration = Duration::from_secs(10);

/// What is known of one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    /// Its calls under way.
    calls: usize,
    /// Its connections that wait for something.
    streams: usize,
    /// The last sign of it.
    seen: Instant,
}

impl Presence {
    pub(super) fn new(now: Instant) -> Self {
        Self { calls: 0, streams: 0, seen: now }
    }

    pub(super) fn seen(&mut self, now: Instant) {
        self.seen = now;
    }

    pub(super) fn call_begins(&mut self) {
        self.calls += 1;
    }

    /// From now on it may take its time: the answer has just gone out.
    pub(super) fn call_ends(&mut self, now: Instant) {
        self.calls = self.calls.saturating_sub(1);
        self.seen = now;
    }

    pub(super) fn stream_opens(&mut self) {
        self.streams += 1;
    }

    pub(super) fn stream_closes(&mut self, now: Instant) {
        self.streams = self.streams.saturating_sub(1);
        self.seen = now;
    }

    /// Whether it has been away for too long.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        let allowed = if self.calls == 0 { IDLE } else { ABSENCE };
        self.streams == 0 && now.saturating_duration_since(self.seen) >= allowed
    }

    /// Since when nothing of it is under way, nobody listens and nothing is said, if that is not just now: then it can make
    /// room for another.
    pub(super) fn idle_since(&self, now: Instant) -> Option<Instant> {
        let idle = self.calls == 0 && self.streams == 0;
        (idle && now.saturating_duration_since(self.seen) >= SETTLED).then_some(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_calls_has_to_listen_and_one_without_only_has_to_speak_now_and_then() {
        let begin = Instant::now();
        let mut presence = Presence::new(begin);
        assert!(!presence.is_gone(begin + IDLE - Duration::from_secs(1)) && presence.is_gone(begin + IDLE));
        assert_eq!(presence.idle_since(begin + SETTLED), Some(begin));
        assert_eq!(presence.idle_since(begin), None);
        presence.call_begins();
        presence.stream_opens();
        assert!(!presence.is_gone(begin + 10 * IDLE), "it listens");
        assert_eq!(presence.idle_since(begin + IDLE), None);
        let cut = begin + Duration::from_secs(100);
        presence.stream_closes(cut);
        assert!(!presence.is_gone(cut + ABSENCE - Duration::from_secs(1)) && presence.is_gone(cut + ABSENCE));
        assert_eq!(presence.idle_since(cut + IDLE), None);
        presence.seen(cut + ABSENCE);
        assert!(!presence.is_gone(cut + ABSENCE));
        presence.call_ends(cut + 2 * ABSENCE);
        assert!(!presence.is_gone(cut + 4 * ABSENCE));
        assert_eq!(presence.idle_since(cut + IDLE), Some(cut + 2 * ABSENCE));
    }
}
