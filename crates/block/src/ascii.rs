//! Memory whose texts are known to be ASCII: who decodes texts looks at all of their bytes anyhow, and functions that count
//! or change characters need not look at them a second time, when they have left the processor's cache.
//!
//! Arrow's buffers have no room for a mark, so the marked memory is listed by its addresses, for as long as anything refers to it. What
//! is not listed may be ASCII, too. A file that lies, with columns that overlap, may get wrong numbers of characters; nobody may depend on
//! a mark for more than that.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The list is kept in so many parts.
const PARTS: usize = 16;

/// One part of the list, on cache lines of its own.
#[repr(align(128))]
struct Part {
    /// How many entries it has: one without any is not locked.
    count: AtomicUsize,
    /// Marked memory: where it begins and ends, and how often it was marked.
    listed: RwLock<BTreeMap<(usize, usize), usize>>,
}

/// All marked memory. A thread marks in its part and looks there first: what one decodes, it mostly is who counts it, and where
/// threads are not many each has a part for itself, so that none waits for another's cache lines. Only one part is locked at a time.
static LISTED: [Part; PARTS] = [const { Part { count: AtomicUsize::new(0), listed: RwLock::new(BTreeMap::new()) } }; PARTS];

/// How many threads were given a part.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The part of this thread, `PARTS` before it has one.
    static OWN: Cell<usize> = const { Cell::new(PARTS) };
}

/// The number of this thread's part.
fn own() -> usize {
    OWN.with(|own| {
        if own.get() == PARTS {
            own.set(THREADS.fetch_add(1, Ordering::Relaxed) % PARTS);
        }
        own.get()
    })
}

impl Part {
    fn mark(&self, place: (usize, usize)) {
        let mut listed = self.listed.write().expect("no panic while held");
        *listed.entry(place).or_default() += 1;
        self.count.store(listed.len(), Ordering::Relaxed);
    }

    fn unmark(&self, place: (usize, usize)) {
        let mut listed = self.listed.write().expect("no panic while held");
        if let Some(marks) = listed.get_mut(&place) {
            *marks -= 1;
            if *marks == 0 {
                listed.remove(&place);
                self.count.store(listed.len(), Ordering::Relaxed);
            }
        }
    }

    /// Whether marked memory of this part holds all of a place.
    fn holds(&self, (begin, end): (usize, usize)) -> bool {
        // Whoever has marked memory of another thread has it by a way that orders this, too.
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let listed = self.listed.read().expect("no panic while held");
        // The last that begins there or before: where marked memory lies within other such, one that is missed costs only time.
        listed.range(..=(begin, usize::MAX)).next_back().is_some_and(|((_, last), _)| end <= *last)
    }
}

/// Bytes in which all texts are ASCII, with their mark, which is taken off before they are freed.
#[derive(Debug)]
pub struct Ascii<B> {
    place: (usize, usize),
    /// The part of the list with their mark, whichever thread frees them.
    part: usize,
    bytes: B,
}

impl<B: AsRef<[u8]>> Ascii<B> {
    /// Marks bytes of which whoever calls this knows it: not of all of them, but of all that belong to a text. They must lie
    /// where they are even if `bytes` itself is moved, as those of a vector do.
    pub fn new(bytes: B) -> Self {
        let (place, part) = (place(bytes.as_ref()), own());
        LISTED[part].mark(place);
        Ascii { place, part, bytes }
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Ascii<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<B> Drop for Ascii<B> {
    fn drop(&mut self) {
        LISTED[self.part].unmark(self.place);
    }
}

/// Whether it is known that all texts in all of these bytes are ASCII. Takes some tens of nanoseconds for each of them, however
/// many bytes there are, and as much for each thread that has marked others where it was not this one that marked them.
pub fn are_known<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> bool {
    all.all(is_known)
}

/// As [`are_known`], of some bytes.
pub fn is_known(bytes: &[u8]) -> bool {
    let (own, place) = (own(), place(bytes));
    place.0 == place.1 || (0..PARTS).any(|part| LISTED[(own + part) % PARTS].holds(place))
}

fn place(bytes: &[u8]) -> (usize, usize) {
    let range = bytes.as_ptr_range();
    (range.start.addr(), range.end.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_marked_as_long_as_it_is_there() {
        let text = std::sync::Arc::<[u8]>::from(&b"some text"[..]);
        assert!(is_known(&[]));
        assert!(!is_known(&text));
        let (one, other) = (Ascii::new(text.clone()), Ascii::new(text.clone()));
        assert!(is_known(one.as_ref()) && is_known(&text[3..5]) && is_known(&text[9..]));
        drop(one);
        assert!(is_known(&text));
        drop(other);
        assert!(!is_known(&text) && !is_known(&text[3..5]));
    }

    #[test]
    fn marks_of_a_thread_are_known_to_all_and_taken_off_by_any() {
        // More threads than parts, so that some share one.
        let texts: Vec<_> = (0..2 * PARTS).map(|thread| vec![b'a' + (thread % 26) as u8; 8 + thread]).collect();
        let marked: Vec<_> = texts.into_iter().map(|text| std::thread::spawn(|| Ascii::new(text))).collect();
        let marked: Vec<_> = marked.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(are_known(marked.iter().map(AsRef::as_ref)));
        let places: Vec<_> = marked.iter().map(|marked| (marked.part, marked.place)).collect();
        assert!(places.iter().all(|(part, place)| LISTED[*part].holds(*place)));
        drop(marked);
        assert!(places.iter().all(|(part, place)| !LISTED[*part].listed.read().unwrap().contains_key(place)));
    }

    #[test]
    fn only_what_lies_within_is_known() {
        let text = std::sync::Arc::<[u8]>::from(&b"some text"[..]);
        struct Part(std::sync::Arc<[u8]>);
        impl AsRef<[u8]> for Part {
            fn as_ref(&self) -> &[u8] {
                &self.0[2..6]
            }
        }
        let part = Ascii::new(Part(text.clone()));
        assert!(is_known(&text[2..6]) && is_known(&text[3..4]));
        assert!(!is_known(&text[1..4]) && !is_known(&text[4..7]) && !is_known(&text) && !is_known(&text[6..8]));
        drop(part);
    }
}
