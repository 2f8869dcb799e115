//! Finds separators and record ends in CSV text, 64 bytes at a time where no quote is near.

/// What the scanner is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    FieldStart,
    Unquoted,
    Quoted,
    /// Behind a quote inside a quoted field: the end of the field, or the first of a doubled quote.
    QuoteInQuoted,
    /// Behind an escape character inside a quoted field.
    Escaped,
}

impl State {
    /// The state behind a byte; [`State::Unquoted`] means that the byte stands outside quotes, where it may
    /// be a separator.
    #[inline]
    pub(super) fn behind(self, byte: u8, quote: Option<u8>, escape: Option<u8>) -> State {
        let is_quote = Some(byte) == quote;
        match self {
            State::Escaped => State::Quoted,
            State::Quoted if Some(byte) == escape => State::Escaped,
            State::Quoted if is_quote => State::QuoteInQuoted,
            State::Quoted => State::Quoted,
            State::QuoteInQuoted if is_quote => State::Quoted,
            State::FieldStart if is_quote => State::Quoted,
            _ => State::Unquoted,
        }
    }
}

/// Positions of the separators of the records found so far.
///
/// Record `r` owns the separators from `record_ends[r - 1] + 1` (or 0) to `record_ends[r]`; the
/// last of them is the line end.
pub(super) struct Index {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    state: State,
    /// Position in the buffer behind the last byte looked at.
    scanned: usize,
    /// Positions of delimiters and line ends outside quotes.
    pub separators: Vec<u32>,
    /// Indices into `separators` of the line ends.
    pub record_ends: Vec<u32>,
}

impl Index {
    pub fn new(delimiter: u8, quote: Option<u8>, escape: Option<u8>) -> Self {
        Index { delimiter, quote, escape, state: State::FieldStart, scanned: 0, separators: Vec::new(), record_ends: Vec::new() }
    }

    /// Looks at the bytes of `buffer` that were not yet looked at.
    pub fn scan(&mut self, buffer: &[u8]) {
        assert!(buffer.len() < u32::MAX as usize, "the decoder bounds its buffer");
        while self.scanned + 64 <= buffer.len() {
            let chunk: &[u8; 64] = buffer[self.scanned..self.scanned + 64].try_into().expect("64 bytes");
            let calm = matches!(self.state, State::FieldStart | State::Unquoted);
            let masks = masks(chunk, self.delimiter, self.quote.unwrap_or(b'\n'));
            if calm && (self.quote.is_none() || masks.quotes == 0) {
                self.push(masks.delimiters, masks.newlines);
                // The state behind the chunk: at a field's start only if the last byte separates.
                let last = 1u64 << 63;
                self.state = if (masks.delimiters | masks.newlines) & last != 0 { State::FieldStart } else { State::Unquoted };
                self.scanned += 64;
            } else {
                self.step(buffer, self.scanned + 64);
            }
        }
        self.step(buffer, buffer.len());
    }

    #[inline]
    fn push(&mut self, delimiters: u64, newlines: u64) {
        let base = self.scanned as u32;
        let mut all = delimiters | newlines;
        if newlines == 0 {
            self.separators.reserve(all.count_ones() as usize);
            while all != 0 {
                self.separators.push(base + all.trailing_zeros());
                all &= all - 1;
            }
            return;
        }
        while all != 0 {
            let bit = all.trailing_zeros();
            if newlines >> bit & 1 == 1 {
                self.record_ends.push(self.separators.len() as u32);
            }
            self.separators.push(base + bit);
            all &= all - 1;
        }
    }

    /// The scalar automaton, for text with quotes and for the tail.
    fn step(&mut self, buffer: &[u8], until: usize) {
        for (at, &byte) in buffer.iter().enumerate().take(until).skip(self.scanned) {
            self.state = match self.state.behind(byte, self.quote, self.escape) {
                State::Unquoted if byte == self.delimiter => {
                    self.separators.push(at as u32);
                    State::FieldStart
                }
                State::Unquoted if byte == b'\n' => {
                    self.record_ends.push(self.separators.len() as u32);
                    self.separators.push(at as u32);
                    State::FieldStart
                }
                other => other,
            };
        }
        self.scanned = self.scanned.max(until);
    }

    /// Whether the scanner stands inside a quoted field.
    pub fn in_quotes(&self) -> bool {
        matches!(self.state, State::Quoted | State::Escaped)
    }

    /// Forgets everything before `bytes`, where record `records` begins.
    pub fn discard(&mut self, records: usize, bytes: usize) {
        let separators = if records == 0 { 0 } else { self.record_ends[records - 1] as usize + 1 };
        self.separators.drain(..separators);
        self.record_ends.drain(..records);
        self.separators.iter_mut().for_each(|s| *s -= bytes as u32);
        self.record_ends.iter_mut().for_each(|r| *r -= separators as u32);
        self.scanned -= bytes;
    }

    /// Forgets what is behind these numbers of separators, records and bytes, where a record begins.
    pub fn truncate(&mut self, separators: usize, records: usize, bytes: usize) {
        self.separators.truncate(separators);
        self.record_ends.truncate(records);
        self.scanned = bytes;
        self.state = State::FieldStart;
    }

    /// Treats the end of the buffer as a line end, for a last record without one.
    pub fn end(&mut self, length: usize) {
        self.record_ends.push(self.separators.len() as u32);
        self.separators.push(length as u32);
        self.state = State::FieldStart;
    }
}

/// Which of 64 bytes are what: the lowest bit is the first byte's.
pub(super) struct Masks {
    pub delimiters: u64,
    pub newlines: u64,
    pub quotes: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn masks(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let mut masks = Masks { delimiters: 0, newlines: 0, quotes: 0 };
    // SAFETY: SSE2 is part of every x86-64 processor; each load reads 16 of the chunk's 64 bytes.
    unsafe {
        let d = _mm_set1_epi8(delimiter as i8);
        let n = _mm_set1_epi8(b'\n' as i8);
        let q = _mm_set1_epi8(quote as i8);
        for part in 0..4 {
            let bytes = _mm_loadu_si128(chunk.as_ptr().add(part * 16).cast::<__m128i>());
            let shift = part * 16;
            masks.delimiters |= (_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, d)) as u32 as u64) << shift;
            masks.newlines |= (_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, n)) as u32 as u64) << shift;
            masks.quotes |= (_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, q)) as u32 as u64) << shift;
        }
    }
    masks
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn masks(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    let mut masks = Masks { delimiters: 0, newlines: 0, quotes: 0 };
    for (bit, &byte) in chunk.iter().enumerate() {
        masks.delimiters |= u64::from(byte == delimiter) << bit;
        masks.newlines |= u64::from(byte == b'\n') << bit;
        masks.quotes |= u64::from(byte == quote) << bit;
    }
    masks
}

#[cfg(test)]
mod tests;
