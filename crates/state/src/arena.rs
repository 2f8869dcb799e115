//! Bytes of keys in segments: a key that goes leaves its segment, and a segment without keys gives its memory
//! back.
//!
//! Keys that come together lie together, and keys that leave for the disk are mostly those that came together,
//! so whole segments fall empty and nothing is moved. Where they don't, [`Arena::pack`] moves what is left of
//! sparse segments. There is never a second copy of everything, as there would be in one growing vector.

/// Bytes of a segment: large against a key, small against what an operator may keep.
const SEGMENT_BYTES: usize = 1 << 16;
/// Bytes of removed keys that are not worth the work of giving them back.
const DEAD_BYTES_MIN: usize = 64 << 10;
/// Bits of an offset in a segment, and of a length.
const FIELD_BITS: u32 = 20;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;
/// The length of a key that has a segment of its own and is longer than a length can say.
const WHOLE: u64 = FIELD_MASK;
/// No segment.
const NONE: usize = usize::MAX;

/// Where a key lies: its segment, the offset there and the length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span(u64);

impl Span {
    #[inline]
    fn segment(self) -> usize {
        (self.0 >> (2 * FIELD_BITS)) as usize
    }

    #[inline]
    fn length(self) -> u64 {
        self.0 & FIELD_MASK
    }
}

#[derive(Default)]
struct Segment {
    bytes: Vec<u8>,
    /// Bytes of keys that are still there.
    live: usize,
}

/// The bytes of many keys.
pub(crate) struct Arena {
    segments: Vec<Segment>,
    /// The segment to which keys are added.
    open: usize,
    /// Segments without bytes.
    free: Vec<u32>,
    /// Bytes in all segments, and those of keys that are still there.
    held: usize,
    live: usize,
}

impl Arena {
    /// No keys.
    pub fn new() -> Self {
        Arena { segments: Vec::new(), open: NONE, free: Vec::new(), held: 0, live: 0 }
    }

    /// The key at a place.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        let length = span.length();
        if length == 0 {
            return &[];
        }
        let bytes = &self.segments[span.segment()].bytes;
        if length == WHOLE {
            return bytes;
        }
        let from = ((span.0 >> FIELD_BITS) & FIELD_MASK) as usize;
        &bytes[from..from + length as usize]
    }

    /// Keeps a key; `None` if there are more segments than can be numbered (16 million: 1 TB of keys).
    pub fn push(&mut self, key: &[u8]) -> Option<Span> {
        if key.is_empty() {
            return Some(Span::default());
        }
        if key.len() > SEGMENT_BYTES {
            let number = self.empty_segment(key.len())?;
            return Some(self.add(number, key));
        }
        if self.open == NONE || self.segments[self.open].bytes.len() + key.len() > SEGMENT_BYTES {
            // The first one grows with its keys: most tables are small.
            let number = self.empty_segment(if self.segments.is_empty() { 0 } else { SEGMENT_BYTES })?;
            self.seal();
            self.open = number;
        }
        Some(self.add(self.open, key))
    }

    fn add(&mut self, number: usize, key: &[u8]) -> Span {
        let segment = &mut self.segments[number];
        let offset = segment.bytes.len() as u64;
        segment.bytes.extend_from_slice(key);
        segment.live += key.len();
        self.held += key.len();
        self.live += key.len();
        Span((number as u64) << (2 * FIELD_BITS) | offset << FIELD_BITS | (key.len() as u64).min(WHOLE))
    }

    /// An empty segment with room for so many bytes.
    fn empty_segment(&mut self, bytes: usize) -> Option<usize> {
        let number = match self.free.pop() {
            Some(number) => number as usize,
            None if self.segments.len() >= 1 << (64 - 2 * FIELD_BITS) => return None,
            None => {
                self.segments.push(Segment::default());
                self.segments.len() - 1
            }
        };
        self.segments[number].bytes = Vec::with_capacity(bytes);
        Some(number)
    }

    /// No more keys come to the open segment.
    fn seal(&mut self) {
        let open = std::mem::replace(&mut self.open, NONE);
        if open != NONE && self.segments[open].live == 0 {
            self.give_back(open);
        }
    }

    fn give_back(&mut self, number: usize) {
        let segment = std::mem::take(&mut self.segments[number]);
        self.held -= segment.bytes.len();
        self.free.push(number as u32);
    }

    /// Forgets the key at a place.
    pub fn remove(&mut self, span: Span) {
        if span.length() == 0 {
            return;
        }
        let number = span.segment();
        let segment = &mut self.segments[number];
        let length = if span.length() == WHOLE { segment.bytes.len() } else { span.length() as usize };
        segment.live -= length;
        self.live -= length;
        if segment.live > 0 {
            return;
        }
        if number == self.open {
            self.held -= segment.bytes.len();
            segment.bytes.clear();
        } else {
            self.give_back(number);
        }
    }

    /// Whether so many bytes belong to no key any more that [`Arena::pack`] pays.
    pub fn is_sparse(&self) -> bool {
        let dead = self.held - self.live;
        dead > DEAD_BYTES_MIN && dead > self.held / 2
    }

    /// Moves the keys of sparse segments together. `spans` are the places of all keys there are.
    pub fn pack<'a>(&mut self, spans: impl Iterator<Item = &'a mut Span>) {
        self.seal();
        let mut old: Vec<Option<Vec<u8>>> = Vec::with_capacity(self.segments.len());
        for segment in &mut self.segments {
            let sparse = segment.live * 2 < segment.bytes.len();
            old.push(sparse.then(|| {
                self.held -= segment.bytes.len();
                self.live -= std::mem::take(&mut segment.live);
                std::mem::take(&mut segment.bytes)
            }));
        }
        for span in spans.filter(|span| span.length() > 0) {
            let Some(Some(bytes)) = old.get(span.segment()) else { continue };
            // A key with a segment of its own is all of it or gone, so this one lies among others.
            let from = ((span.0 >> FIELD_BITS) & FIELD_MASK) as usize;
            *span = self.push(&bytes[from..from + span.length() as usize]).expect("fewer segments than before");
        }
        let emptied = old.iter().enumerate().filter(|(_, bytes)| bytes.is_some()).map(|(number, _)| number as u32);
        self.free.extend(emptied);
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let bytes: usize = self.segments.iter().map(|s| s.bytes.capacity()).sum();
        bytes + self.segments.capacity() * size_of::<Segment>() + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of many lengths come and go in both orders, and are found where they are said to be.
    #[test]
    fn keys_stay_what_they_are() {
        let mut arena = Arena::new();
        let key = |n: usize| vec![(n % 251) as u8; if n.is_multiple_of(500) { SEGMENT_BYTES * 5 + n } else { n * 7 % 1500 }];
        let mut kept: Vec<(usize, Span)> = Vec::new();
        for n in 0..4000 {
            kept.push((n, arena.push(&key(n)).unwrap()));
            if n % 3 > 0 {
                let at = if n.is_multiple_of(2) { 0 } else { kept.len() / 2 };
                arena.remove(kept.remove(at).1);
            }
            if arena.is_sparse() {
                arena.pack(kept.iter_mut().map(|(_, span)| span));
                assert!(!arena.is_sparse());
            }
        }
        for (n, span) in &kept {
            assert!(arena.get(*span) == key(*n), "key {n}");
        }
        assert_eq!(arena.live, kept.iter().map(|(n, _)| key(*n).len()).sum::<usize>());
        kept.iter().for_each(|(_, span)| arena.remove(*span));
        assert_eq!((arena.held, arena.live), (0, 0));
        assert!(arena.memory() < SEGMENT_BYTES + 100_000, "{} bytes for no keys", arena.memory());
    }
}
