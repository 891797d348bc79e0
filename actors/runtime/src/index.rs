//! The runs that are not gone, looked over in one sweep.

use crate::{core::RunCore, progress::Live};
use std::{
    hash::Hasher,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use subagents_seam::RunId;

/// As many runs share a page, and a page's lock.
const PAGE: u32 = 1024;
/// Segment `n` holds `2^n` pages: so many segments hold all places.
const SEGMENTS: usize = 23;

/// So many records a processor can fetch at the same time.
pub(crate) const AHEAD: usize = 16;

/// Filled when its first run enters.
type Page = Mutex<Vec<Option<Arc<RunCore>>>>;

/// Entered by the registry, left by whoever ends a run last, read by anybody.
///
/// Pages, not a hash map: each run passes in and out once, while a look by id is rare, and a sweep over a map follows a
/// counted guard per entry, which keeps the processor from fetching ahead. Each record lies in its run's first bytes.
/// A page never moves, so that to find one takes no lock.
#[derive(Default)]
pub(crate) struct Index {
    segments: [OnceLock<Box<[Page]>>; SEGMENTS],
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Left, and to be taken again: the last one first, while its memory is warm.
    free: Vec<u32>,
    /// No place from here on was ever taken.
    end: u32,
}

impl Places {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

fn whole<T>(lock: Result<T, PoisonError<T>>) -> T {
    // Nothing that runs under these locks can panic.
    lock.unwrap_or_else(PoisonError::into_inner)
}

impl Index {
    pub(crate) fn insert(&self, core: &Arc<RunCore>) {
        let place = whole(self.places.lock()).take();
        let (page, slot) = self.slot(place);
        let mut page = whole(page.lock());
        if page.is_empty() {
            page.resize(PAGE as usize, None);
        }
        page[slot] = Some(core.clone());
        drop(page);
        core.set_place(place);
    }

    /// True for whoever took it out.
    pub(crate) fn remove(&self, core: &RunCore) -> bool {
        let Some(place) = core.take_place() else { return false };
        let (page, slot) = self.slot(place);
        let left = whole(page.lock())[slot].take();
        drop(left);
        whole(self.places.lock()).free.push(place);
        true
    }

    fn slot(&self, place: u32) -> (&Page, usize) {
        let Located { segment, page, slot } = locate(place);
        let pages =
            self.segments[segment].get_or_init(|| (0..1_u32 << segment).map(|_| Page::default()).collect());
        (&pages[page], slot)
    }

    /// Looks through the live runs: for a person with an id, not for the path of a run.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<RunCore>> {
        let mut found = None;
        self.for_each(|core| {
            if core.id() == id {
                found = Some(core.clone());
            }
        });
        found
    }

    /// The run whose child is this process.
    pub(crate) fn of_process(&self, pid: u32) -> Option<Arc<RunCore>> {
        let mut found = None;
        self.for_each(|core| {
            let process = core.live().and_then(Live::process);
            if process.is_some_and(|process| process.pid == pid) && !core.state().is_settled() {
                found = Some(core.clone());
            }
        });
        found
    }

    /// Shows every run; one page is locked at a time.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&Arc<RunCore>)) {
        self.for_some(|some| some.iter().flatten().for_each(&mut show));
    }

    /// Shows every run, [`AHEAD`] places at a time.
    pub(crate) fn for_some(&self, mut show: impl FnMut(&[Option<Arc<RunCore>>])) {
        for page in self.segments.iter().filter_map(OnceLock::get).flatten() {
            whole(page.lock()).chunks(AHEAD).for_each(&mut show);
        }
    }

    /// The runs that are there now.
    pub(crate) fn all(&self) -> Vec<Arc<RunCore>> {
        let mut all = Vec::new();
        self.for_each(|core| all.push(core.clone()));
        all
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Located {
    segment: usize,
    page: usize,
    slot: usize,
}

const fn locate(place: u32) -> Located {
    // The first page has the number one: then the highest bit of a number is its segment, and the rest the page.
    let number = place / PAGE + 1;
    let segment = number.ilog2();
    Located {
        segment: segment as usize,
        page: (number - (1 << segment)) as usize,
        slot: (place % PAGE) as usize,
    }
}

/// The ids are random where it counts: their last bytes are a hash already.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.rchunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    // The length prefix of a byte slice says nothing here.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_slot_of_its_own() {
        let mut next = Located { segment: 0, page: 0, slot: 0 };
        for place in 0..20 * PAGE {
            assert_eq!(locate(place), next, "place {place}");
            next.slot += 1;
            if next.slot == PAGE as usize {
                (next.slot, next.page) = (0, next.page + 1);
            }
            if next.page == 1 << next.segment {
                (next.page, next.segment) = (0, next.segment + 1);
            }
        }
        let last = locate(u32::MAX);
        assert!(last.segment < SEGMENTS && last.page < 1 << last.segment, "{last:?}");
    }
}
