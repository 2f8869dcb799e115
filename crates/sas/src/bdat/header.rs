//! The header of a SAS7BDAT file, and numbers in the order and width that it announces.
//!
//! ```text
//!   0  32 bytes that every such file begins with
//!  32  '3' if lengths and places have 8 bytes ("64 bit"), otherwise they have 4
//!  35  '3' if 4 bytes of padding stand before byte 164 (A = 4, otherwise 0)
//!  37  1 if the lowest byte of numbers comes first, 0 if the highest
//!  70  the character set
//!  92  the name of the data set, 64 bytes
//! 196+A  length of the header, 4 bytes
//! 200+A  length of a page, 4 bytes
//! 204+A  how many pages, 4 or 8 bytes
//! ```
//! SAS has published nothing of this; it is what is found in files.

use crate::SasError;
use crate::pages::{self, Pages};

/// What every SAS7BDAT file begins with.
pub(crate) const MAGIC: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xC2, 0xEA, 0x81, 0x60, 0xB3, 0x14, 0x11, 0xCF, 0xBD, 0x92, 0x08, 0x00, 0x09, 0xC7, 0x31, 0x8C,
    0x18, 0x1F, 0x10, 0x11,
];
/// Bytes of the header that are looked at.
const LOOKED_AT: usize = 288;
/// The largest page that is read, bytes; SAS makes them of 4 KiB to some MiB.
const PAGE_BYTES_MAX: u32 = 256 << 20;
/// The smallest page, bytes: SAS makes none below 1 KiB, and this holds the head of one.
const PAGE_BYTES_MIN: u32 = 256;

/// How numbers lie in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words {
    /// Lengths and places have 8 bytes, not 4.
    pub wide: bool,
    /// The highest byte comes first.
    pub big: bool,
}

impl Words {
    /// Bytes of a length or place.
    pub fn bytes(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// A number of two bytes; `None` beyond the end.
    #[inline]
    pub fn two(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
    }

    /// A number of four bytes; `None` beyond the end.
    #[inline]
    pub fn four(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    }

    /// A length or place; `None` beyond the end.
    #[inline]
    pub fn word(self, bytes: &[u8], at: usize) -> Option<u64> {
        if !self.wide {
            return self.four(bytes, at).map(u64::from);
        }
        let eight = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(if self.big { u64::from_be_bytes(eight) } else { u64::from_le_bytes(eight) })
    }

    /// A length or place that memory can have; `None` beyond the end.
    #[inline]
    pub fn place(self, bytes: &[u8], at: usize) -> Option<usize> {
        usize::try_from(self.word(bytes, at)?).ok()
    }
}

/// What a header says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub words: Words,
    /// The character set's number.
    pub charset: u8,
    /// The name of the data set, in the file's character set, without the blanks behind it.
    pub name: Vec<u8>,
    /// Where the first page begins.
    pub bytes: u64,
    pub page_bytes: usize,
    pub pages: u64,
}

impl Header {
    /// Reads the header.
    pub fn read(file: &dyn Pages) -> Result<Header, SasError> {
        let mut head = [0; LOOKED_AT];
        let length = pages::fill(file, 0, &mut head)?;
        let head = &head[..length];
        if !head.starts_with(&MAGIC) {
            return Err(SasError::data(match head {
                _ if head.starts_with(b"HEADER RECORD*******LIB") => "it is not a SAS7BDAT file but one in XPORT form; read it as 'xport'",
                _ if head.starts_with(b"**COMPRESSED**") => {
                    "it is not a SAS7BDAT file but one made by PROC CPORT, which only SAS can read; write it as SAS7BDAT or XPORT there"
                }
                _ if MAGIC.starts_with(head) => "it is cut short: not even its header is there",
                _ => "it is not a SAS7BDAT file: it does not begin as one",
            }));
        }
        if length < LOOKED_AT {
            return Err(SasError::data(format!("it is cut short: its header ends after {length} bytes")));
        }
        let words = Words { wide: head[32] == b'3', big: head[37] == 0 };
        let shift = if head[35] == b'3' { 4 } else { 0 };
        if head[37] > 1 {
            return Err(SasError::data(format!("byte 37 of its header, the order of bytes, is {} and not 0 or 1", head[37])));
        }
        let number = |at: usize| words.four(head, at + shift).expect("within what was read");
        let (bytes, page_bytes) = (number(196), number(200));
        let pages = words.word(head, 204 + shift).expect("within what was read");
        if !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(SasError::data(format!(
                "its header says that a page has {page_bytes} bytes; readable are pages of {PAGE_BYTES_MIN} to {PAGE_BYTES_MAX}"
            )));
        }
        let end = pages.checked_mul(u64::from(page_bytes)).and_then(|all| all.checked_add(u64::from(bytes)));
        if end.is_none_or(|end| end > file.size()) {
            return Err(SasError::data(format!(
                "it is cut short: its header says that {pages} pages of {page_bytes} bytes follow from byte {bytes} on, \
                 but the file has {} bytes",
                file.size()
            )));
        }
        let name = &head[92..156];
        let name = &name[..name.iter().rposition(|b| !matches!(b, b' ' | 0)).map_or(0, |last| last + 1)];
        Ok(Header { words, charset: head[70], name: name.to_vec(), bytes: u64::from(bytes), page_bytes: page_bytes as usize, pages })
    }

    /// Where a page begins in the file.
    pub fn page_at(&self, page: u64) -> u64 {
        assert!(page <= self.pages, "page {page} of {}", self.pages);
        self.bytes + page * self.page_bytes as u64
    }
}
