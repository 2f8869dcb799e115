//! Texts as pages with encoding PLAIN have them: one after the other, each with its length in front of it, four bytes, the least first.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use crate::processor;

/// The highest bits of the bytes of a length.
const HIGH: usize = 0x8080_8080;

/// Where the value lies whose length stands at `at`; `None` if there is no whole one.
pub(super) fn value(page: &[u8], at: usize) -> Option<Range<usize>> {
    let length: [u8; 4] = page.get(at..at.checked_add(4)?)?.try_into().ok()?;
    let (begin, length) = (at + 4, u32::from_le_bytes(length) as usize);
    (length <= page.len() - begin).then(|| begin..begin + length)
}

/// So much is looked at before the lengths in it are followed, bytes: these lie one behind the other, and each would be waited for.
const AHEAD: usize = 8 << 10;

/// Looks at up to `count` texts from `begin` on, and says whether all of them are ASCII; of less than a whole one behind them nobody
/// can make a text.
///
/// # Errors
/// Where some texts begin of which one is not UTF-8.
pub(super) fn are_ascii(page: &[u8], begin: usize, count: usize) -> Result<bool, usize> {
    // Texts and lengths are looked at as a whole: what is not ASCII in it must all be lengths.
    let beyond = |from: usize, to: usize| page.get(from..to).map_or(0, beyond_ascii);
    let (mut at, mut seen) = (begin, begin);
    let (mut all, mut lengths) = (0, 0);
    for _ in 0..count {
        if at.saturating_add(4) > seen {
            let to = at.saturating_add(AHEAD).min(page.len());
            all += beyond(seen, to);
            seen = seen.max(to);
        }
        let Some(text) = value(page, at) else { break };
        lengths += (text.len() & HIGH).count_ones() as usize;
        at = text.end;
    }
    all = all + beyond(seen, at) - beyond(at, seen);
    if all == lengths { Ok(true) } else { are_utf8(page, begin, count).map(|()| false) }
}

/// As [`are_ascii`], of texts that are not.
fn are_utf8(page: &[u8], begin: usize, count: usize) -> Result<(), usize> {
    let (mut from, mut at) = (begin, begin);
    let look = |texts: Range<usize>| {
        let begin = texts.start;
        std::str::from_utf8(page.get(texts).unwrap_or_default()).map(drop).map_err(|_| begin)
    };
    for _ in 0..count {
        let Some(text) = value(page, at) else { break };
        // Most lengths are ASCII, too: they can be looked at with the texts around them, and end a character that was cut.
        if text.len() & HIGH != 0 {
            look(from..at)?;
            from = text.start;
        }
        at = text.end;
    }
    look(from..at)
}

/// How many bytes are not ASCII.
fn beyond_ascii(bytes: &[u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if processor::widest() {
            // SAFETY: the processor has all that the function is compiled for.
            return unsafe { beyond_ascii_widest(bytes) };
        }
        if processor::wide() {
            // SAFETY: as above.
            return unsafe { beyond_ascii_wide(bytes) };
        }
    }
    bytes.iter().filter(|byte| !byte.is_ascii()).count()
}

/// As [`beyond_ascii`], 64 bytes at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
fn beyond_ascii_widest(bytes: &[u8]) -> usize {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_movepi8_mask};
    let (chunks, rest) = bytes.as_chunks::<64>();
    let count = |chunk: &[u8; 64]| {
        // SAFETY: the 64 bytes of the chunk are read.
        let bytes = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        _mm512_movepi8_mask(bytes).count_ones() as usize
    };
    // SAFETY: of what lies behind the rest nothing is read.
    let rest = unsafe { _mm512_maskz_loadu_epi8((1 << rest.len()) - 1, rest.as_ptr().cast()) };
    chunks.iter().map(count).sum::<usize>() + _mm512_movepi8_mask(rest).count_ones() as usize
}

/// As [`beyond_ascii`], 32 bytes at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn beyond_ascii_wide(bytes: &[u8]) -> usize {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_movemask_epi8};
    let (chunks, rest) = bytes.as_chunks::<32>();
    let count = |chunk: &[u8; 32]| {
        // SAFETY: the 32 bytes of the chunk are read.
        let bytes = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast::<__m256i>()) };
        _mm256_movemask_epi8(bytes).count_ones() as usize
    };
    chunks.iter().map(count).sum::<usize>() + rest.iter().filter(|byte| !byte.is_ascii()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(texts: &[&[u8]]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes(), *text].concat()).collect()
    }

    #[test]
    fn lengths_are_no_texts() {
        let long = [b'x'; 200];
        let longer = [b'x'; 0x80 << 8];
        let look = |texts: &[&[u8]]| are_ascii(&page(texts), 0, texts.len());
        assert_eq!(look(&[b"a", b"", &long, b"b", &longer, b"c"]), Ok(true));
        assert_eq!(look(&[]), Ok(true));
        assert_eq!(look(&[b"a", &long, "é".as_bytes(), &long, b"b"]), Ok(false));
        assert_eq!(look(&["é".repeat(100).as_bytes(), b"b"]), Ok(false));
        // Halves of a character are no texts, whatever stands between them.
        assert_eq!(look(&[b"a", b"\xc3", b"\xa9"]), Err(0));
        assert_eq!(look(&[b"abc\xc3", &long, b"\xa9"]), Err(0));
        assert_eq!(look(&[b"a", &long, b"b\xa9"]), Err(9));
        assert_eq!(look(&[&[&long[..], &b"\xc3"[..]].concat(), &[0xa9; 169]]), Err(4));
        // Texts that nobody reads, or that begin later.
        assert_eq!(are_ascii(&page(&[b"a", b"\xff"]), 0, 1), Ok(true));
        assert_eq!(are_ascii(&[&[0xff; 7][..], &page(&[b"a"])].concat(), 7, 9), Ok(true));
        // Cut short, or shorter than where its texts were to begin.
        assert_eq!(are_ascii(&page(&[b"a", &long])[..100], 0, 2), Ok(true));
        assert_eq!((are_ascii(&[], 9, 1), are_ascii(&[0xff; 3], 1, 1)), (Ok(true), Ok(true)));
    }

    /// More than is looked at ahead, with texts of all lengths, and one byte that is not ASCII anywhere or nowhere.
    #[test]
    fn one_byte_is_found_wherever_it_stands() {
        let texts: Vec<Vec<u8>> = (0..400usize).map(|n| vec![b'x'; n * 7919 % 700 + if n == 200 { 20_000 } else { 0 }]).collect();
        let page = page(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(page.len() > 3 * AHEAD);
        assert_eq!(are_ascii(&page, 0, texts.len()), Ok(true));
        let mut at = 0;
        for (n, text) in texts.iter().enumerate() {
            let begin = at + 4;
            at = begin + text.len();
            for place in [begin, begin + text.len() / 2, at.saturating_sub(1)].into_iter().filter(|place| (begin..at).contains(place)) {
                let mut page = page.clone();
                page[place] = 0xc3;
                assert!(are_ascii(&page, 0, texts.len()).is_err(), "{place}");
                // The texts before it, and those behind it.
                assert_eq!((are_ascii(&page, 0, n), are_ascii(&page, at, 400 - n - 1)), (Ok(true), Ok(true)), "{place}");
                if place + 1 < at {
                    page[place + 1] = 0xa9;
                    assert_eq!(are_ascii(&page, 0, texts.len()), Ok(false), "{place}");
                }
            }
        }
    }

    #[test]
    fn bytes_beyond_ascii_are_counted() {
        let bytes: Vec<u8> = (0..3000usize).map(|n| if n * 7 % 11 < 3 { 0x80 | (n % 128) as u8 } else { (n % 128) as u8 }).collect();
        let counted = |bytes: &[u8]| bytes.iter().filter(|byte| **byte >= 0x80).count();
        for part in [0..0, 0..1, 5..69, 3..3000, 64..128, 1..64, 100..163, 700..957] {
            let bytes = &bytes[part];
            assert_eq!(beyond_ascii(bytes), counted(bytes));
            #[cfg(target_arch = "x86_64")]
            if processor::wide() {
                // SAFETY: the processor has all that the function is compiled for.
                assert_eq!(unsafe { beyond_ascii_wide(bytes) }, counted(bytes));
            }
        }
    }

    #[test]
    fn values_are_whole() {
        assert_eq!(value(&page(&[b"a", b"bc"]), 5), Some(9..11));
        assert_eq!((value(&[255; 8], 0), value(&[0; 3], 0), value(&[0; 3], usize::MAX)), (None, None, None));
    }
}
