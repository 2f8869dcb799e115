//! Texts as pages with encoding PLAIN have them: one after the other, each with its length in front of it, four bytes, the least first.

use std::ops::Range;

/// The highest bits of the bytes of a length.
const HIGH: usize = 0x8080_8080;

/// Where the value lies whose length stands at `at`; `None` if there is no whole one.
pub(super) fn value(page: &[u8], at: usize) -> Option<Range<usize>> {
    let length: [u8; 4] = page.get(at..at.checked_add(4)?)?.try_into().ok()?;
    let (begin, length) = (at + 4, u32::from_le_bytes(length) as usize);
    (length <= page.len() - begin).then(|| begin..begin + length)
}

/// Looks at up to `count` texts from `begin` on, and says whether all of them are ASCII; of less than a whole one behind them nobody
/// can make a text.
///
/// # Errors
/// Where some texts begin of which one is not UTF-8.
pub(super) fn are_ascii(page: &[u8], begin: usize, count: usize) -> Result<bool, usize> {
    let (mut from, mut at, mut ascii) = (begin, begin, true);
    let mut look = |texts: Range<usize>| {
        let begin = texts.start;
        let texts = page.get(texts).unwrap_or_default();
        ascii = ascii && texts.is_ascii();
        match ascii || std::str::from_utf8(texts).is_ok() {
            true => Ok(()),
            false => Err(begin),
        }
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
    look(from..at)?;
    Ok(ascii)
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

    #[test]
    fn values_are_whole() {
        assert_eq!(value(&page(&[b"a", b"bc"]), 5), Some(9..11));
        assert_eq!((value(&[255; 8], 0), value(&[0; 3], 0), value(&[0; 3], usize::MAX)), (None, None, None));
    }
}
