//! The allocator of the process: mimalloc, asked in a way that suits Arrow's buffers.
//!
//! Arrow aligns every buffer to 128 bytes, and most buffers of small blocks are smaller than that. mimalloc aligns blocks whose
//! size is a power of two by themselves; for a smaller size than the alignment it takes a slower way, and more memory. So the
//! size of what is small is rounded up: with blocks of one row the slow way was a tenth of the CPU of a job.
//!
//! Memory that is free goes back to the system, but not at once: a job takes much of it again with every checkpoint, and pages
//! that are new must be cleared. With mimalloc's own second, as long as checkpoints often are apart, a join with 2.7 GB of state
//! spent more time on that than on its rows.
//!
//! The system's large pages (transparent huge pages of 2 MB) are for jobs that have much in memory: a small one uses a part of
//! each, and all of it counts. They are switched on when state by slot has some megabytes, which is mapped beside this allocator
//! (`tidemill_state::SlotVec`), with the first allocation of as much, or when much is held in blocks of half a megabyte, as of
//! pages of Parquet: clearing small pages, one fault each, was a fifth of the reading of a wide file.
//!
//! Not so in a process that makes checkpoints of state on disk: where tables grow, several columns and both shards come to a new
//! large page at the same row, and to clear ten of them stops the flow for 50 ms, longer where the memory must be had from a host
//! first. The longest stop in the first minute after a restart from 10 GB was 78 ms with large pages, and 66 and 56 without.
//!
//! What a thread took and another freed goes back only when the first one asks for more: memory of one that rests would stay
//! with it. So threads that rest have it looked for now and then.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;

/// Whether a block is aligned by itself no longer matters above this: allocating is little of what filling it costs.
const SIZE_MAX: usize = 4096;
/// Every block of mimalloc is aligned to this.
const ALIGN_MIN: usize = 16;

/// `mi_option_purge_delay` of `mimalloc.h`.
const OPTION_PURGE_DELAY: c_int = 15;
/// How long free memory is kept, ms. The environment's `MIMALLOC_PURGE_DELAY` goes before it.
const PURGE_DELAY_MS: c_long = 10_000;

/// The same where memory is short, ms.
const PURGE_DELAY_SHORT_MS: c_long = 100;
/// Memory has been short.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whoever allocates so much at once has use for large pages, bytes.
const LARGE: usize = 8 << 20;
/// Blocks from this size on are counted, bytes.
const COUNTED: usize = 512 << 10;
/// Whoever holds so much in counted blocks has use for large pages, too, bytes.
const MUCH: usize = 64 << 20;
/// What is held in counted blocks, as long as there are small pages only.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Large pages stay switched off.
static STAYS_SMALL: AtomicBool = AtomicBool::new(false);
/// Large pages are switched off until then.
static SMALL_PAGES: AtomicBool = AtomicBool::new(false);

/// How often a thread that rests looks for what others have freed. It goes through the thread's pages, whose number is that
/// of its memory in 64 KB: some tens of microseconds for a small job.
const COLLECT_INTERVAL: Duration = Duration::from_secs(5);

thread_local! {
    /// When this thread looked last.
    static COLLECTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

unsafe extern "C" {
    /// Sets an option, unless the environment has.
    fn mi_option_set_default(option: c_int, value: c_long);
    /// Frees the pages of the calling thread in which nothing is in use, and gives back what is free for long enough; with
    /// `force` for however long.
    fn mi_collect(force: bool);
}

/// Has mimalloc keep free memory for a while.
pub fn keep_what_is_free() {
    // SAFETY: it sets a number; options that do not exist are left alone.
    unsafe { mi_option_set_default(OPTION_PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Has the system use no large pages before something large is allocated. If somebody has switched them off for this process
/// already, they stay off. Processes that are started before that have none either.
pub fn begin_with_small_pages() {
    SMALL_PAGES.store(has_large_pages() && large_pages(false), Ordering::Relaxed);
}

/// Whether the system may use large pages for this process.
#[cfg(target_os = "linux")]
fn has_large_pages() -> bool {
    // SAFETY: it reads a flag of the process; a kernel that does not know it says so.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0 }
}

/// Switches large pages off or on for this process; whether that was possible.
#[cfg(target_os = "linux")]
fn large_pages(on: bool) -> bool {
    // SAFETY: it sets a flag of the process; a kernel that does not know it says so.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(!on), 0, 0, 0) == 0 }
}

/// Other systems have nothing to switch.
#[cfg(not(target_os = "linux"))]
fn has_large_pages() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn large_pages(_on: bool) -> bool {
    false
}

/// Has the system use no large pages from now on, whoever has use for them.
pub fn stay_with_small_pages() {
    if !STAYS_SMALL.load(Ordering::Relaxed) && !STAYS_SMALL.swap(true, Ordering::Relaxed) {
        SMALL_PAGES.store(false, Ordering::Relaxed);
        large_pages(false);
    }
}

/// Somebody has use for large pages in memory that is not allocated here.
pub fn want_large_pages() {
    if STAYS_SMALL.load(Ordering::Relaxed) {
        return;
    }
    if SMALL_PAGES.load(Ordering::Relaxed) && SMALL_PAGES.swap(false, Ordering::Relaxed) {
        large_pages(true);
    }
}

/// An allocation of `size` bytes is about to be made.
#[inline]
fn taking(size: usize) {
    if size >= COUNTED && SMALL_PAGES.load(Ordering::Relaxed) {
        let held = HELD.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if size >= LARGE || held >= MUCH {
            want_large_pages();
        }
    }
}

/// A block of `size` bytes goes.
#[inline]
fn giving(size: usize) {
    if size >= COUNTED && SMALL_PAGES.load(Ordering::Relaxed) {
        // What was taken before anybody counted is no less than nothing.
        let _ = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(size)));
    }
}

/// Gives back what other threads have freed of the calling thread's memory, if it is time: for threads that rest.
pub fn collect_at_times() {
    let now = Instant::now();
    if COLLECTED.get().is_none_or(|last| now - last >= COLLECT_INTERVAL) {
        COLLECTED.set(Some(now));
        // SAFETY: what is in use stays where it is.
        unsafe { mi_collect(false) }
    }
}

/// Gives back all that is free, however short a time it has been. If that was tried and is not enough, what becomes free goes back
/// soon from now on, and there are no large pages any more, of which much may be used in part: at a limit of 400 MB, of which 150 were in
/// use beside the program and its tables, the process held 380 before and 340 after.
pub fn give_back(again: bool) {
    if again && !SHORT.swap(true, Ordering::Relaxed) {
        // SAFETY: it sets a number; options that do not exist are left alone.
        unsafe { mi_option_set_default(OPTION_PURGE_DELAY, PURGE_DELAY_SHORT_MS) }
        stay_with_small_pages();
    }
    // SAFETY: what is in use stays where it is.
    unsafe { mi_collect(true) }
}

/// mimalloc, with sizes that it aligns by themselves.
pub struct Allocator;

/// The layout to ask for instead of `layout`: no smaller, of the same alignment.
#[inline]
fn rounded(layout: Layout) -> Layout {
    if layout.align() <= ALIGN_MIN || layout.size() > SIZE_MAX {
        return layout;
    }
    let size = layout.size().max(layout.align()).next_power_of_two();
    // A size that is too large is refused when it is allocated.
    Layout::from_size_align(size, layout.align()).unwrap_or(layout)
}

// SAFETY: everything is handed on to mimalloc, with sizes that are not smaller than was asked for; freeing needs no size.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taking(layout.size());
        // SAFETY: as the caller promises; a larger size is none of 0.
        unsafe { MiMalloc.alloc(rounded(layout)) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taking(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(rounded(layout)) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        giving(layout.size());
        // SAFETY: as the caller promises.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        giving(layout.size());
        taking(size);
        let size = Layout::from_size_align(size, layout.align()).map_or(size, |wanted| rounded(wanted).size());
        // SAFETY: as the caller promises, and the new size is not smaller than was asked for.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// The number of the option is right as long as its value is mimalloc's own, which no other has.
    #[test]
    fn free_memory_is_kept_for_a_while() {
        // SAFETY: it reads a number.
        let delay = || unsafe { mi_option_get(OPTION_PURGE_DELAY) };
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
            assert_eq!(delay(), 1000);
            keep_what_is_free();
            assert_eq!(delay(), PURGE_DELAY_MS);
        }
    }

    /// Not while the system refuses, which it may.
    #[cfg(target_os = "linux")]
    #[test]
    fn much_memory_switches_large_pages_on() {
        let many = MUCH / COUNTED;
        let ways: [(&str, &dyn Fn()); 2] =
            [("one block", &|| taking(LARGE)), ("many blocks", &|| (0..2 * many).for_each(|_| taking(COUNTED)))];
        for (way, take) in ways {
            HELD.store(0, Ordering::Relaxed);
            begin_with_small_pages();
            if SMALL_PAGES.load(Ordering::Relaxed) {
                assert!(!has_large_pages());
                (0..2 * MUCH / LARGE).for_each(|_| taking(COUNTED - 1));
                // What goes does not count.
                for _ in 0..2 * many {
                    taking(COUNTED);
                    giving(COUNTED);
                }
                assert!(!has_large_pages(), "{way}");
                take();
                assert!(has_large_pages(), "{way}");
            }
        }
        if large_pages(true) {
            stay_with_small_pages();
            taking(LARGE);
            want_large_pages();
            assert!(!has_large_pages(), "once and for all");
            // For other tests.
            STAYS_SMALL.store(false, Ordering::Relaxed);
            large_pages(true);
        }
    }

    #[test]
    fn small_aligned_sizes_are_powers_of_two() {
        let size = |size, align| rounded(Layout::from_size_align(size, align).unwrap()).size();
        assert_eq!([size(1, 1), size(24, 8), size(24, 16)], [1, 24, 24]);
        assert_eq!([size(8, 128), size(64, 128), size(192, 128), size(4096, 64)], [128, 128, 256, 4096]);
        assert_eq!([size(4097, 128), size(1 << 20, 4096)], [4097, 1 << 20]);
    }

    #[test]
    fn what_is_allocated_is_aligned_and_keeps_its_content() {
        for (bytes, align) in [(1, 128), (64, 128), (200, 64), (5000, 128), (1 << 20, 4096)] {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: the sizes are not 0, and what is freed was allocated by the same allocator with the same alignment.
            unsafe {
                let first = Allocator.alloc_zeroed(layout);
                assert_eq!((first as usize % align, *first, *first.add(bytes - 1)), (0, 0, 0));
                *first = 7;
                let grown = Allocator.realloc(first, layout, 3 * bytes);
                assert_eq!((grown as usize % align, *grown), (0, 7));
                Allocator.dealloc(grown, Layout::from_size_align(3 * bytes, align).unwrap());
            }
        }
    }
}
