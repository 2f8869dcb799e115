//! The text that a decoder has and has not consumed yet.

use std::ops::{Deref, Range};
use std::sync::Arc;

#[cfg(test)]
use crate::Decoder;
use crate::FormatError;
use crate::encoding::Mark;

/// Text in UTF-8 that comes in pieces and is consumed from the front. The byte order mark is taken off, unless others do that.
///
/// Whoever reads it can read it [right into the buffer](TextBuffer::room). A part of it can be [shared](TextBuffer::share): then the text
/// goes on in other memory, and what was shared stays as it is.
pub(crate) struct TextBuffer {
    /// All of it was written once, so that room can be given away to be written to; the text is what lies below `end`.
    bytes: Arc<Vec<u8>>,
    /// Where the text was before, to go back to when nobody has a part of it any more.
    before: Arc<Vec<u8>>,
    end: usize,
    /// Offset in the stream of the first byte.
    base: u64,
    mark: Mark,
}

impl TextBuffer {
    /// For text from its beginning, where a mark may stand.
    pub fn new() -> Self {
        TextBuffer { bytes: Arc::default(), before: Arc::default(), end: 0, base: 0, mark: Mark::default() }
    }

    /// For text from the middle of a file, or of which others take off the mark.
    pub fn without_mark() -> Self {
        TextBuffer { mark: Mark::absent(), ..TextBuffer::new() }
    }

    /// Appends what could have been the beginning of a mark, when nothing follows.
    pub fn finish(&mut self) {
        let held = self.mark.end();
        self.append(&held);
    }

    /// Appends bytes that are text, wherever they come from.
    pub fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.room(bytes.len()).copy_from_slice(bytes);
            self.end += bytes.len();
        }
    }

    /// Room for so many bytes behind the text, for [`TextBuffer::filled`].
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.is_shared() {
            self.leave(0);
        }
        let end = self.end + bytes;
        let room = Arc::get_mut(&mut self.bytes).expect("nobody has a part of it");
        if room.len() < end {
            room.resize(end, 0);
        }
        &mut room[self.end..end]
    }

    /// Says that so many bytes of the room are what was read.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes.len() - self.end, "no more is filled than there is room");
        if self.mark.is_past() {
            self.end += bytes;
        } else {
            self.begin(bytes);
        }
    }

    /// Takes the mark off what was read, or as much of it as has come.
    #[cold]
    fn begin(&mut self, bytes: usize) {
        let piece = self.bytes[self.end..self.end + bytes].to_vec();
        let stripped = self.mark.strip(&piece);
        self.base += stripped.skipped;
        self.append(&stripped.held);
        self.append(stripped.rest);
    }

    /// Forgets the first bytes.
    pub fn discard(&mut self, bytes: usize) {
        match Arc::get_mut(&mut self.bytes) {
            Some(own) => {
                own.copy_within(bytes..self.end, 0);
                self.end -= bytes;
            }
            None => self.leave(bytes),
        }
        self.base += bytes as u64;
    }

    /// A part of the text that stays as it is, and takes the memory of all of it, for as long as it is there.
    pub fn share(&self, part: Range<usize>) -> Shared {
        assert!(part.start <= part.end && part.end <= self.end, "a part of the text");
        Shared { bytes: self.bytes.clone(), part }
    }

    /// Whether somebody still has a part of it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }

    /// How many bytes of memory a [shared](TextBuffer::share) part keeps alive.
    pub fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Goes on in other memory with what lies behind the first bytes: where the text was before, unless somebody has a part of that, too,
    /// or it is there from a much longer record.
    fn leave(&mut self, bytes: usize) {
        let rest = &self.bytes[bytes..self.end];
        let next = match Arc::get_mut(&mut self.before) {
            Some(next) if rest.len() <= next.len() && next.len() / 2 <= self.end => next,
            _ => {
                // As large as what there is, else it would grow piece by piece, and move each time.
                self.before = Arc::new(vec![0; self.end]);
                Arc::get_mut(&mut self.before).expect("it is new")
            }
        };
        next[..rest.len()].copy_from_slice(rest);
        self.end = rest.len();
        std::mem::swap(&mut self.bytes, &mut self.before);
    }

    /// Forgets what lies behind so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.end = self.end.min(bytes);
    }

    /// Offset in the stream of the byte at `at`.
    pub fn offset(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// # Errors
    /// The text begins with the mark of UTF-16. `option` can say so.
    #[inline]
    pub fn check(&self, option: &str) -> Result<(), FormatError> {
        self.mark.check(option)
    }
}

impl Deref for TextBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.end]
    }
}

/// A part of a text that somebody has besides the buffer.
pub(crate) struct Shared {
    bytes: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.part.clone()]
    }
}

/// Gives a decoder the `number`th piece of a text in one of the ways there are: pushed, or read into more room than it fills.
#[cfg(test)]
pub(crate) fn feed(decoder: &mut dyn Decoder, piece: &[u8], number: usize) {
    if number % 4 == 1 {
        return decoder.push(piece);
    }
    let room = decoder.room(piece.len() + number % 3);
    room.fill(b'x');
    room[..piece.len()].copy_from_slice(piece);
    decoder.filled(piece.len());
    // Room that is left unused changes nothing.
    decoder.room(number % 5 * 10).fill(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appending and reading into the room give the same text, at the same offsets.
    #[test]
    fn a_text_is_the_same_however_it_comes() {
        let text: Vec<u8> = (0..10_000u32).flat_map(|n| format!("{n},").into_bytes()).collect();
        let (mut appended, mut filled) = (TextBuffer::without_mark(), TextBuffer::without_mark());
        let mut seen = (Vec::new(), Vec::new());
        for (n, piece) in text.chunks(997).enumerate() {
            appended.append(piece);
            // More room than is filled, as where a read gives less than it was asked for.
            filled.room(piece.len() + n % 7 * 100)[..piece.len()].copy_from_slice(piece);
            filled.filled(piece.len());
            assert_eq!(*appended, *filled);
            let gone = appended.len() * (n % 3) / 2;
            seen.0.extend_from_slice(&appended[..gone]);
            seen.1.extend_from_slice(&filled[..gone]);
            appended.discard(gone);
            filled.discard(gone);
            assert_eq!((appended.offset(0), filled.offset(0)), (seen.0.len() as u64, seen.1.len() as u64));
        }
        seen.0.extend_from_slice(&appended);
        seen.1.extend_from_slice(&filled);
        assert!(seen.0 == text && seen.1 == text);
    }

    /// What was shared stays as it is, however long it is kept, and the buffer goes on as if it were not.
    #[test]
    fn shared_parts_stay() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|n| format!("{n},").into_bytes()).collect();
        for kept_max in [0, 1, 2, 5] {
            let mut buffer = TextBuffer::without_mark();
            let mut kept = std::collections::VecDeque::new();
            let mut places = std::collections::BTreeSet::new();
            let mut at = 0;
            for (n, piece) in text.chunks(1009).enumerate() {
                read(&mut buffer, piece);
                let gone = buffer.len() * (n % 4) / 3;
                kept.push_back((buffer.share(gone / 2..gone), at + gone / 2..at + gone));
                kept.drain(..kept.len().saturating_sub(kept_max));
                if n % 3 > 0 {
                    buffer.discard(gone);
                    at += gone;
                }
                assert_eq!(buffer.offset(0), at as u64);
                assert!(*buffer == text[at..at + buffer.len()]);
                assert!(kept.iter().all(|(shared, place)| *shared.as_ref() == text[place.clone()]));
                if n > 50 {
                    places.insert(buffer.bytes.as_ptr());
                }
            }
            assert!(kept_max > 1 || places.len() <= 6, "memory is used again: {} places", places.len());
            assert_eq!(at + buffer.len(), text.len());
        }
    }

    fn read(buffer: &mut TextBuffer, piece: &[u8]) {
        buffer.room(piece.len() + 5)[..piece.len()].copy_from_slice(piece);
        buffer.filled(piece.len());
    }

    #[test]
    fn a_mark_that_comes_in_pieces_is_taken_off() {
        let mut buffer = TextBuffer::new();
        read(&mut buffer, b"\xEF\xBB");
        assert!(buffer.is_empty());
        read(&mut buffer, b"\xBFab");
        assert_eq!((&*buffer, buffer.offset(0)), (&b"ab"[..], 3));
        read(&mut buffer, b"c");
        buffer.truncate(5);
        assert_eq!((&*buffer, buffer.offset(1)), (&b"abc"[..], 4));
        buffer.truncate(1);
        assert_eq!(&*buffer, b"a");
    }

    /// A mark that only begins is text.
    #[test]
    fn the_beginning_of_a_mark_alone_is_text() {
        let mut buffer = TextBuffer::new();
        read(&mut buffer, b"\xEF\xBB");
        buffer.finish();
        assert_eq!(&*buffer, b"\xEF\xBB");
    }
}
