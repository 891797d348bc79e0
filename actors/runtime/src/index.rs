//! The runs that are not gone, looked over in one sweep.

use crate::core::RunCore;
use std::{
    hash::Hasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};
use subagents_seam::RunId;

/// As many runs share a page, and a page's lock.
const PAGE: u32 = 1024;

type Page = Mutex<Vec<Option<Arc<RunCore>>>>;

/// Entered and left by the registry alone; read by anybody.
///
/// Pages, not a hash map: each run passes in and out once, while a look by id is rare, and a sweep over a map follows a
/// counted guard per entry, which keeps the processor from fetching ahead. Each record lies in its run's first bytes.
#[derive(Default)]
pub(crate) struct Index {
    pages: RwLock<Vec<Arc<Page>>>,
    free: Mutex<Vec<u32>>,
}

fn whole<T>(lock: Result<T, PoisonError<T>>) -> T {
    // Nothing that runs under these locks can panic.
    lock.unwrap_or_else(PoisonError::into_inner)
}

impl Index {
    pub(crate) fn insert(&self, core: &Arc<RunCore>) {
        let mut free = whole(self.free.lock());
        if free.is_empty() {
            let mut pages = whole(self.pages.write());
            let first = u32::try_from(pages.len()).unwrap_or(u32::MAX).saturating_mul(PAGE);
            pages.push(Arc::new(Mutex::new(vec![None; PAGE as usize])));
            free.extend((first..first.saturating_add(PAGE)).rev());
        }
        let Some(place) = free.pop() else { return };
        drop(free);
        if let Some((mut page, slot)) =
            self.slot(place).as_ref().map(|(page, slot)| (whole(page.lock()), *slot))
        {
            page[slot] = Some(core.clone());
        }
        core.set_place(place);
    }

    /// True for whoever took it out.
    pub(crate) fn remove(&self, core: &RunCore) -> bool {
        let Some(place) = core.take_place() else { return false };
        if let Some((page, slot)) = self.slot(place) {
            drop(whole(page.lock())[slot].take());
        }
        whole(self.free.lock()).push(place);
        true
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

    /// Shows every run; one page is locked at a time.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&Arc<RunCore>)) {
        let pages = whole(self.pages.read()).clone();
        for page in pages {
            let page: MutexGuard<'_, _> = whole(page.lock());
            page.iter().flatten().for_each(&mut show);
        }
    }

    /// The runs that are there now.
    pub(crate) fn all(&self) -> Vec<Arc<RunCore>> {
        let mut all = Vec::new();
        self.for_each(|core| all.push(core.clone()));
        all
    }

    fn slot(&self, place: u32) -> Option<(Arc<Page>, usize)> {
        let (page, slot) = ((place / PAGE) as usize, (place % PAGE) as usize);
        Some((whole(self.pages.read()).get(page)?.clone(), slot))
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
