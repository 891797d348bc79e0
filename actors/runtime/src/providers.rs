//! The table of providers: read by every start without a lock, written by few.

use crate::{admission::LaneId, events::Item, index::IdHasher, shared::Shared};
use arc_swap::ArcSwap;
use indexmap::IndexMap;
use std::{
    fmt,
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, PoisonError},
};
use subagents_seam::{Capabilities, DynProvider, Name, RegisterError};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) provider: DynProvider,
    pub(crate) capabilities: Capabilities,
    pub(crate) blank_is_fine: bool,
    pub(crate) lane: LaneId,
    /// Which registration this is: a late drop must not remove a newer one of the same name.
    generation: u64,
}

/// Insertion order is the order of the list (SPEC 2.1, 23.9).
pub(crate) type Table = IndexMap<Name, Entry, BuildHasherDefault<IdHasher>>;

#[derive(Debug, Default)]
pub(crate) struct Providers {
    table: ArcSwap<Table>,
    generations: Mutex<u64>,
}

impl Providers {
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }

    pub(crate) fn names(&self) -> Vec<Name> {
        self.table.load().keys().cloned().collect()
    }

    /// Adds a provider under a name that is free, and runs `then` before any other change of the table.
    pub(crate) fn add(
        &self,
        name: &str,
        provider: DynProvider,
        lane: LaneId,
        then: impl FnOnce(&Name),
    ) -> Result<(Name, u64), RegisterError> {
        let name = Name::of_provider(name)?;
        // Foreign code, asked and dropped without the lock: a provider may hold a registration of its own.
        let (capabilities, blank_is_fine) = (provider.capabilities(), provider.allows_blank_answer());
        let mut generation = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = Table::clone(&self.table.load());
        if table.contains_key(&name) {
            return Err(RegisterError::DuplicateProvider(name));
        }
        *generation += 1;
        let entry = Entry {
            name: name.clone(),
            capabilities,
            blank_is_fine,
            provider,
            lane,
            generation: *generation,
        };
        table.insert(name.clone(), entry);
        self.table.store(Arc::new(table));
        then(&name);
        Ok((name, *generation))
    }

    /// Removes exactly this registration, and runs `then` if it was still there.
    fn remove(&self, name: &Name, generation: u64, then: impl FnOnce()) {
        let writing = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = Table::clone(&self.table.load());
        if table.get(name).is_none_or(|entry| entry.generation != generation) {
            return;
        }
        // `shift_remove` keeps the order of the rest.
        let removed = table.shift_remove(name);
        let old = self.table.swap(Arc::new(table));
        then();
        drop(writing);
        // The provider may go with these.
        drop((old, removed));
    }
}

/// A provider's registration. Dropping it ends it: no new starts; live runs go on (SPEC 2.3). A late drop never removes
/// a newer registration of the same name.
#[must_use = "dropping a registration ends it"]
pub struct Registration {
    shared: Arc<Shared>,
    name: Name,
    generation: u64,
}

impl Registration {
    pub(crate) fn new(shared: Arc<Shared>, name: Name, generation: u64) -> Self {
        Self { shared, name, generation }
    }

    /// The provider's name.
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.providers.remove(&self.name, self.generation, || {
            self.shared.channel.send(|| Item::ProviderRemoved(self.name.clone()));
        });
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}
