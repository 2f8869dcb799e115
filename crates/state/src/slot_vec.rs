//! A vector by slot that grows without a copy.
//!
//! State by slot is several columns that grow at the same row. Were they vectors, each would be copied to twice its size then,
//! into pages that the system must clear first: with a million keys that stopped the flow for 60 to 100 ms. From
//! [`MAPPED_BYTES`] on this one has pages of its own, and growing moves their addresses (`mremap`) and leaves new ones untouched
//! until slots reach them. It takes memory for what it holds, not for what it could. An element is found as in a vector.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From so many bytes on memory is mapped, in multiples of it: a large page, so that moving it is moving entries of the table of
/// pages one level up.
const MAPPED_BYTES: usize = if cfg!(target_os = "linux") { 2 << 20 } else { usize::MAX };
/// When a vector has so many bytes, whoever decides about large pages is told: it would use little of each of fewer.
const LARGE_BYTES: usize = 8 << 20;
/// The same when all have so many.
const MUCH_BYTES: usize = 32 << 20;
/// Bytes of a small page.
const PAGE_BYTES: usize = 4096;
/// The least elements that there is room for.
const ELEMENTS_MIN: usize = 4;

/// Bytes that are mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static ON_MUCH: OnceLock<fn()> = OnceLock::new();

/// Has `call` called whenever state by slot grows and is large: for whoever decides if the process has large pages. They are
/// asked for in any case. The first one stays.
pub fn on_much_state(call: fn()) {
    let _ = ON_MUCH.set(call);
}

/// A vector whose elements are found by slot. It does not shrink.
pub struct SlotVec<T> {
    pointer: NonNull<T>,
    len: usize,
    /// Elements that there is room for.
    capacity: usize,
    /// Bytes that they have; whether these are mapped depends on it.
    bytes: usize,
}

// SAFETY: it owns its elements, as a vector does.
unsafe impl<T: Send> Send for SlotVec<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SlotVec<T> {}

impl<T> Default for SlotVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SlotVec<T> {
    /// No elements, and no memory.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE_BYTES) }
        SlotVec { pointer: NonNull::dangling(), len: 0, capacity: 0, bytes: 0 }
    }

    /// Adds an element at the end.
    #[inline]
    pub fn push(&mut self, value: T) {
        if self.len == self.capacity {
            self.grow(self.len + 1);
        }
        // SAFETY: there is room behind the last element.
        unsafe { self.pointer.add(self.len).write(value) };
        self.len += 1;
    }

    /// Adds copies of `value` at the end until there are `len` elements, if there are fewer.
    #[inline]
    pub fn resize(&mut self, len: usize, value: T)
    where
        T: Clone,
    {
        if len > self.len {
            self.extend(len, &value);
        }
    }

    fn extend(&mut self, len: usize, value: &T)
    where
        T: Clone,
    {
        if len > self.capacity {
            self.grow(len);
        }
        while self.len < len {
            // SAFETY: there is room for `len` elements.
            unsafe { self.pointer.add(self.len).write(value.clone()) };
            self.len += 1;
        }
    }

    /// Sets the element at `slot`; those before it that were not there are set to the default.
    #[inline]
    pub fn put(&mut self, slot: u32, value: T)
    where
        T: Clone + Default,
    {
        let slot = slot as usize;
        if slot == self.len {
            return self.push(value);
        }
        if slot > self.len {
            self.resize(slot + 1, T::default());
        }
        self[slot] = value;
    }

    /// Bytes of memory; of mapped ones those of the large pages that were ever used.
    pub fn memory(&self) -> usize {
        if self.bytes < MAPPED_BYTES {
            return self.bytes;
        }
        (self.len * size_of::<T>()).next_multiple_of(MAPPED_BYTES).min(self.bytes)
    }

    #[cold]
    fn grow(&mut self, least: usize) {
        let elements = least.max(self.capacity * 2).max(ELEMENTS_MIN);
        let wanted = elements.checked_mul(size_of::<T>()).expect("state by slot fits the address space");
        let whole = if wanted < MAPPED_BYTES { Some(wanted) } else { wanted.checked_next_multiple_of(MAPPED_BYTES) };
        let wanted = whole.expect("state by slot fits the address space");
        let layout = Layout::from_size_align(wanted, align_of::<T>()).expect("state by slot fits the address space");
        let old = self.pointer.cast::<u8>();
        let new = if self.bytes >= MAPPED_BYTES {
            // SAFETY: `old` is a mapping of so many bytes, to which nothing else points.
            unsafe { map::grow(old, self.bytes, wanted) }
        } else if wanted >= MAPPED_BYTES {
            let new = map::new(wanted);
            if let Some(new) = new {
                // SAFETY: all elements fit, and the two do not overlap.
                unsafe { new.copy_from_nonoverlapping(old, self.len * size_of::<T>()) };
                self.free();
            }
            new
        } else if self.bytes > 0 {
            // SAFETY: `old` was allocated with this layout, and the new size is not 0.
            NonNull::new(unsafe { realloc(old.as_ptr(), self.layout(), wanted) })
        } else {
            // SAFETY: the size is not 0.
            NonNull::new(unsafe { alloc(layout) })
        };
        let Some(new) = new else { handle_alloc_error(layout) };
        let before = if self.bytes < MAPPED_BYTES { 0 } else { self.bytes };
        (self.pointer, self.capacity, self.bytes) = (new.cast(), wanted / size_of::<T>(), wanted);
        if wanted >= MAPPED_BYTES {
            map::ask_for_large_pages(new, wanted);
            let all = MAPPED.fetch_add(wanted - before, Ordering::Relaxed) + wanted - before;
            if let Some(call) = ON_MUCH.get().filter(|_| wanted >= LARGE_BYTES || all >= MUCH_BYTES) {
                call();
            }
        }
    }

    /// Of what the allocator gave.
    fn layout(&self) -> Layout {
        Layout::from_size_align(self.bytes, align_of::<T>()).expect("a layout that memory was had for")
    }

    /// Gives the memory back, and leaves the fields as they are.
    fn free(&mut self) {
        let memory = self.pointer.cast::<u8>();
        if self.bytes >= MAPPED_BYTES {
            MAPPED.fetch_sub(self.bytes, Ordering::Relaxed);
            // SAFETY: it is a mapping of so many bytes, which nobody uses any more.
            unsafe { map::free(memory, self.bytes) }
        } else if self.bytes > 0 {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(memory.as_ptr(), self.layout()) }
        }
    }
}

impl<T> Drop for SlotVec<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: these are the elements, and nobody sees them any more.
            unsafe { std::ptr::drop_in_place(std::ptr::from_mut::<[T]>(self)) }
        }
        self.free();
    }
}

impl<T> Deref for SlotVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements are there.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for SlotVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

#[cfg(target_os = "linux")]
mod map {
    use std::ptr::NonNull;

    use libc::{MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE, c_void};

    fn unless_failed(pointer: *mut c_void) -> Option<NonNull<u8>> {
        if pointer == MAP_FAILED { None } else { NonNull::new(pointer.cast()) }
    }

    /// Pages of nothing but zeros.
    pub fn new(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new mapping touches no memory that is there.
        unless_failed(unsafe { libc::mmap(std::ptr::null_mut(), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) })
    }

    /// More pages behind those of a mapping, which may move.
    ///
    /// # Safety
    /// `old` is a mapping of [`new`] or [`grow`] of so many bytes, and nothing points into it.
    pub unsafe fn grow(old: NonNull<u8>, bytes: usize, wanted: usize) -> Option<NonNull<u8>> {
        // SAFETY: as the caller promises.
        unless_failed(unsafe { libc::mremap(old.as_ptr().cast(), bytes, wanted, MREMAP_MAYMOVE) })
    }

    /// Lets the system use large pages, if it has any.
    pub fn ask_for_large_pages(memory: NonNull<u8>, bytes: usize) {
        // SAFETY: it is advice, which changes no content.
        unsafe { libc::madvise(memory.as_ptr().cast(), bytes, MADV_HUGEPAGE) };
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// As [`grow`].
    pub unsafe fn free(memory: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller promises.
        let done = unsafe { libc::munmap(memory.as_ptr().cast(), bytes) };
        debug_assert_eq!(done, 0);
    }
}

/// Other systems map nothing: [`MAPPED_BYTES`] is never reached.
#[cfg(not(target_os = "linux"))]
mod map {
    use std::ptr::NonNull;

    pub fn new(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub unsafe fn grow(_old: NonNull<u8>, _bytes: usize, _wanted: usize) -> Option<NonNull<u8>> {
        None
    }

    pub fn ask_for_large_pages(_memory: NonNull<u8>, _bytes: usize) {}

    pub unsafe fn free(_memory: NonNull<u8>, _bytes: usize) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Elements of a size that divides no page: through the allocator's memory, a first mapping and larger ones.
    #[test]
    fn what_is_put_stays_while_it_grows() {
        let mut grown: SlotVec<[u32; 3]> = SlotVec::new();
        let mut vec: Vec<[u32; 3]> = Vec::new();
        for n in 0..1_500_000u32 {
            match n % 3 {
                0 => grown.push([n; 3]),
                1 => grown.put(n, [n; 3]),
                _ => grown.resize(n as usize + 1, [n; 3]),
            }
            vec.push([n; 3]);
            if n.is_power_of_two() {
                assert!(*grown == *vec, "{n}");
            }
        }
        assert!(*grown == *vec);
        grown.put(7, [1; 3]);
        grown.put(1_500_002, [2; 3]);
        assert_eq!((grown[7], grown[8], grown.len()), ([1; 3], [8; 3], 1_500_003));
        assert_eq!((grown[1_500_001], grown[1_500_002]), ([0; 3], [2; 3]));
    }

    /// A mapping counts as far as it was used.
    #[test]
    fn memory_is_what_is_used() {
        let mut bytes: SlotVec<u64> = SlotVec::new();
        assert_eq!(bytes.memory(), 0);
        bytes.push(1);
        assert_eq!(bytes.memory(), 8 * ELEMENTS_MIN);
        bytes.resize(40_000_000 / 8, 1);
        if cfg!(target_os = "linux") {
            assert_eq!(bytes.memory(), 40_000_000_usize.next_multiple_of(MAPPED_BYTES));
        }
        let held = bytes.memory();
        bytes.push(1);
        assert_eq!(bytes.memory(), held, "what follows is in the same page");
    }

    #[test]
    fn elements_are_dropped_once() {
        let one = Arc::new(());
        let mut held: SlotVec<Option<Arc<()>>> = SlotVec::new();
        held.resize(300_000, Some(Arc::clone(&one)));
        held.put(5, None);
        held.push(Some(Arc::clone(&one)));
        assert_eq!(Arc::strong_count(&one), 1 + 300_000);
        drop(held);
        assert_eq!(Arc::strong_count(&one), 1);
    }
}
