//! Finds separators and record ends in CSV text, 64 bytes at a time where no quote is near.

use std::mem::MaybeUninit;

#[cfg(target_arch = "x86_64")]
use crate::processor::{wide, widest};

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
    /// Position behind the last quote, and the last byte that is not ASCII, or a little more.
    odd_until: usize,
    /// Positions of delimiters and line ends outside quotes.
    pub separators: Vec<u32>,
    /// Indices into `separators` of the line ends.
    pub record_ends: Vec<u32>,
}

impl Index {
    pub fn new(delimiter: u8, quote: Option<u8>, escape: Option<u8>) -> Self {
        let (separators, record_ends) = (Vec::new(), Vec::new());
        Index { delimiter, quote, escape, state: State::FieldStart, scanned: 0, odd_until: 0, separators, record_ends }
    }

    /// Looks at the bytes of `buffer` that were not yet looked at.
    pub fn scan(&mut self, buffer: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: the processor has all that the function is compiled for.
            if widest() {
                return unsafe { self.scan_widest(buffer) };
            }
            // SAFETY: as above.
            if wide() {
                return unsafe { self.scan_wide(buffer) };
            }
        }
        self.scan_by(buffer, masks, places);
    }

    /// In half the time again, on processors with registers of 64 bytes: one comparison for all, and the places of all bits at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn scan_widest(&mut self, buffer: &[u8]) {
        self.scan_by(
            buffer,
            |chunk, delimiter, quote| masks_widest(chunk, delimiter, quote),
            |bits, base, room| places_widest(bits, base, room),
        );
    }

    /// Twice as fast as what every processor can do: registers of 32 bytes, and instructions that count and take off bits.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn scan_wide(&mut self, buffer: &[u8]) {
        self.scan_by(buffer, |chunk, delimiter, quote| masks_wide(chunk, delimiter, quote), places);
    }

    #[inline(always)]
    fn scan_by(
        &mut self,
        buffer: &[u8],
        masks: impl Fn(&[u8; 64], u8, u8) -> Masks,
        places: impl Fn(u64, u32, &mut [MaybeUninit<u32>; 64]),
    ) {
        assert!(buffer.len() < u32::MAX as usize, "the decoder bounds its buffer");
        while self.scanned + 64 <= buffer.len() {
            let chunk: &[u8; 64] = buffer[self.scanned..self.scanned + 64].try_into().expect("64 bytes");
            let calm = matches!(self.state, State::FieldStart | State::Unquoted);
            let masks = masks(chunk, self.delimiter, self.quote.unwrap_or(b'\n'));
            let quotes = if self.quote.is_some() { masks.quotes } else { 0 };
            if quotes | masks.beyond_ascii != 0 {
                self.odd_until = self.scanned + 64;
            }
            if calm && quotes == 0 {
                self.push(masks.delimiters, masks.newlines, &places);
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

    /// Notes the separators of 64 bytes.
    #[inline(always)]
    fn push(&mut self, delimiters: u64, newlines: u64, places: impl Fn(u64, u32, &mut [MaybeUninit<u32>; 64])) {
        let (base, before) = (self.scanned as u32, self.separators.len());
        let all = delimiters | newlines;
        let mut ends = newlines;
        while ends != 0 {
            let below = ends & ends.wrapping_neg();
            self.record_ends.push(before as u32 + (all & (below - 1)).count_ones());
            ends &= ends - 1;
        }
        let count = all.count_ones() as usize;
        self.separators.reserve(64);
        let room: &mut [MaybeUninit<u32>; 64] = self.separators.spare_capacity_mut().first_chunk_mut().expect("reserved above");
        places(all, base, room);
        // SAFETY: so many are in the room, and were written, one for each bit.
        unsafe { self.separators.set_len(before + count) };
    }

    /// The scalar automaton, for text with quotes and for the tail.
    fn step(&mut self, buffer: &[u8], until: usize) {
        for (at, &byte) in buffer.iter().enumerate().take(until).skip(self.scanned) {
            if Some(byte) == self.quote || !byte.is_ascii() {
                self.odd_until = at + 1;
            }
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

    /// Whether what was looked at from `at` on is ASCII without a quote; `false` may be said of a little that is.
    pub fn is_plain_from(&self, at: usize) -> bool {
        at >= self.odd_until
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
        self.odd_until = self.odd_until.saturating_sub(bytes);
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

/// Writes where the bits stand that are set, counted from `base`, and perhaps some more numbers behind them.
#[inline(always)]
fn places(mut bits: u64, base: u32, room: &mut [MaybeUninit<u32>; 64]) {
    let count = bits.count_ones() as usize;
    // Eight at once without asking whether there are so many: a question for each would cost more than what is written.
    for (written, eight) in room.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        if written * 8 >= count {
            break;
        }
        for place in eight {
            place.write(base + bits.trailing_zeros());
            bits &= bits.wrapping_sub(1);
        }
    }
}

/// As [`places`], sixteen at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vbmi2")]
#[inline]
fn places_widest(bits: u64, base: u32, room: &mut [MaybeUninit<u32>; 64]) {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm512_add_epi32, _mm512_cvtepu8_epi32, _mm512_loadu_si512, _mm512_maskz_compress_epi8, _mm512_set1_epi32,
        _mm512_storeu_si512,
    };
    const ALL: [u8; 64] = {
        let mut all = [0; 64];
        let mut place = 0;
        while place < 64 {
            all[place] = place as u8;
            place += 1;
        }
        all
    };
    let count = bits.count_ones() as usize;
    let base = _mm512_set1_epi32(base as i32);
    let mut packed = [0u8; 64];
    // SAFETY: 64 bytes are read and written; below, 16 bytes of those, and 16 numbers of 4 bytes that are uninitialized before.
    unsafe { _mm512_storeu_si512(packed.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(ALL.as_ptr().cast()))) };
    for (written, (sixteen, places)) in room.as_chunks_mut::<16>().0.iter_mut().zip(packed.as_chunks::<16>().0).enumerate() {
        if written * 16 >= count {
            break;
        }
        // SAFETY: as above.
        unsafe {
            let places = _mm512_cvtepu8_epi32(_mm_loadu_si128(places.as_ptr().cast()));
            _mm512_storeu_si512(sixteen.as_mut_ptr().cast(), _mm512_add_epi32(places, base));
        }
    }
}

/// Which of 64 bytes are what: the lowest bit is the first byte's.
pub(super) struct Masks {
    pub delimiters: u64,
    pub newlines: u64,
    pub quotes: u64,
    /// Bytes of other characters than ASCII's.
    pub beyond_ascii: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn masks(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let mut masks = Masks { delimiters: 0, newlines: 0, quotes: 0, beyond_ascii: 0 };
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
            masks.beyond_ascii |= (_mm_movemask_epi8(bytes) as u32 as u64) << shift;
        }
    }
    masks
}

/// As [`masks`], in half as many steps.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn masks_wide(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    use std::arch::x86_64::{__m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8};
    let (low, high) = chunk.split_at(32);
    // SAFETY: each load reads the 32 bytes of a half.
    let (low, high) = unsafe { (_mm256_loadu_si256(low.as_ptr().cast::<__m256i>()), _mm256_loadu_si256(high.as_ptr().cast::<__m256i>())) };
    let half = |bytes| u64::from(_mm256_movemask_epi8(bytes) as u32);
    let which = |byte: u8| {
        let byte = _mm256_set1_epi8(byte as i8);
        half(_mm256_cmpeq_epi8(low, byte)) | half(_mm256_cmpeq_epi8(high, byte)) << 32
    };
    let beyond_ascii = half(low) | half(high) << 32;
    Masks { delimiters: which(delimiter), newlines: which(b'\n'), quotes: which(quote), beyond_ascii }
}

/// As [`masks`], in one step.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn masks_widest(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    use std::arch::x86_64::{_mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_movepi8_mask, _mm512_set1_epi8};
    // SAFETY: the 64 bytes of the chunk are read.
    let bytes = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
    let which = |byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8));
    Masks { delimiters: which(delimiter), newlines: which(b'\n'), quotes: which(quote), beyond_ascii: _mm512_movepi8_mask(bytes) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn masks(chunk: &[u8; 64], delimiter: u8, quote: u8) -> Masks {
    let mut masks = Masks { delimiters: 0, newlines: 0, quotes: 0, beyond_ascii: 0 };
    for (bit, &byte) in chunk.iter().enumerate() {
        masks.delimiters |= u64::from(byte == delimiter) << bit;
        masks.newlines |= u64::from(byte == b'\n') << bit;
        masks.quotes |= u64::from(byte == quote) << bit;
        masks.beyond_ascii |= u64::from(!byte.is_ascii()) << bit;
    }
    masks
}

#[cfg(test)]
mod tests;
