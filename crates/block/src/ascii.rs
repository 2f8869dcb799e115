//! Memory whose texts are known to be ASCII: who decodes texts looks at all of their bytes anyhow, and functions that count
//! or change characters need not look at them a second time, when they have left the processor's cache.
//!
//! Arrow's buffers have no room for a mark, so the marked memory is listed by its addresses, for as long as anything refers to it. What
//! is not listed may be ASCII, too. A file that lies, with columns that overlap, may get wrong numbers of characters; nobody may depend on
//! a mark for more than that.

use std::collections::BTreeMap;
use std::sync::RwLock;

/// The marked memory: where it begins and ends, and how often it was marked.
static LISTED: RwLock<BTreeMap<(usize, usize), usize>> = RwLock::new(BTreeMap::new());

/// Bytes in which all texts are ASCII, with their mark, which is taken off before they are freed.
#[derive(Debug)]
pub struct Ascii<B> {
    place: (usize, usize),
    bytes: B,
}

impl<B: AsRef<[u8]>> Ascii<B> {
    /// Marks bytes of which whoever calls this knows it: not of all of them, but of all that belong to a text. They must lie
    /// where they are even if `bytes` itself is moved, as those of a vector do.
    pub fn new(bytes: B) -> Self {
        let place = place(bytes.as_ref());
        *LISTED.write().expect("no panic while held").entry(place).or_default() += 1;
        Ascii { place, bytes }
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Ascii<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<B> Drop for Ascii<B> {
    fn drop(&mut self) {
        let mut listed = LISTED.write().expect("no panic while held");
        if let Some(marks) = listed.get_mut(&self.place) {
            *marks -= 1;
            if *marks == 0 {
                listed.remove(&self.place);
            }
        }
    }
}

/// Whether it is known that all texts in all of these bytes are ASCII. Takes some tens of nanoseconds for each of them, however
/// many bytes there are.
pub fn are_known<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> bool {
    let listed = LISTED.read().expect("no panic while held");
    all.all(|bytes| {
        let (begin, end) = place(bytes);
        // The last that begins there or before: where marked memory lies within other such, one that is missed costs only time.
        begin == end || listed.range(..=(begin, usize::MAX)).next_back().is_some_and(|((_, last), _)| end <= *last)
    })
}

/// As [`are_known`], of some bytes.
pub fn is_known(bytes: &[u8]) -> bool {
    are_known(std::iter::once(bytes))
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
