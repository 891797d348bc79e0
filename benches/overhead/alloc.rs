//! The system's allocator with two counters in front of it, told to keep what it has.
//!
//! Counting is off but for the counting scenes, where it costs every peer the same; where time is measured
//! an allocation pays one relaxed load of a flag that nobody writes.
#![expect(
    unsafe_code,
    reason = "a global allocator is an unsafe trait, each call goes to the system unchanged; and a foreign call tunes it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What the table calls the allocator.
pub(crate) const NAME: &str = "the system's";

/// Tells the heap to keep what is given back to it, and says whether it can.
///
/// By default glibc returns to the kernel what is free above some tens of megabytes, and the kernel clears each page
/// anew: a hundred thousand runs would pay for that, ten thousand would not, and both figures would be of the kernel. A
/// service that has had so many runs alive once finds its memory there the next time as well.
pub(crate) fn keep_heap() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const MIB: i32 = 1 << 20;
        // Half of what a heap of a thread can hold: the most that is accepted.
        let settings = [
            (libc::M_MMAP_THRESHOLD, 32 * MIB),
            (libc::M_TRIM_THRESHOLD, i32::MAX),
            (libc::M_TOP_PAD, 256 * MIB),
        ];
        // SAFETY: it takes two numbers, and no other thread is running yet.
        settings.iter().all(|(setting, value)| unsafe { libc::mallopt(*setting, *value) } == 1)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// What happened between [`begin`] and [`end`].
pub(crate) struct Counted {
    /// Calls that gave memory; a reallocation is one.
    pub(crate) allocations: f64,
    /// Bytes asked for and not given back, without what the allocator adds of its own.
    pub(crate) live_bytes: f64,
}

/// Counts from zero.
pub(crate) fn begin() {
    for counter in [&ALLOCATIONS, &ALLOCATED, &FREED] {
        counter.store(0, Relaxed);
    }
    ON.store(true, Relaxed);
}

/// Stops counting. The scenes that count run on one thread, so that nothing is missed or torn.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn end() -> Counted {
    ON.store(false, Relaxed);
    Counted {
        allocations: ALLOCATIONS.load(Relaxed) as f64,
        live_bytes: ALLOCATED.load(Relaxed) as f64 - FREED.load(Relaxed) as f64,
    }
}

fn gave(size: usize) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        ALLOCATED.fetch_add(size as u64, Relaxed);
    }
}

fn took(size: usize) {
    if ON.load(Relaxed) {
        FREED.fetch_add(size as u64, Relaxed);
    }
}

// SAFETY: every method hands its arguments to `System` unchanged and returns what `System` returned; the
// counters neither allocate nor touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        gave(layout.size());
        // SAFETY: the caller's promise about `layout` is the one `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(layout.size());
        gave(size);
        // SAFETY: `pointer` came from `System` with this `layout`, since all memory does.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        took(layout.size());
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
