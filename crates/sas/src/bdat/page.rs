//! A page: its head, its pointers to subheaders, and where its rows are.
//!
//! ```text
//! B = 16, or 32 in files of 64 bit; W = 4 or 8
//!   12 or 24  bytes that are free between rows and subheaders, W bytes
//!   B         kind, 2 bytes    B+2  blocks, 2 bytes    B+4  subheaders, 2 bytes
//!   B+8       pointers to subheaders, 3 W bytes each: place in the page (W), length (W), how it is packed (1), type (1)
//!             rows, from a multiple of 8 on
//!             free bytes
//!             a bit for each row that was deleted, if the kind says that some were; the highest bit of a byte first
//!   … end     subheaders, or rows one by one where they are compressed
//! ```

use super::header::Words;
use crate::SasError;

/// Kinds of pages, without their flags.
const MASK: u16 = 0x0F00;
const META: u16 = 0x0000;
const DATA: u16 = 0x0100;
const MIX: u16 = 0x0200;
const AMENDMENT: u16 = 0x0400;
/// Some rows of the page were deleted.
const DELETED: u16 = 0x0080;
/// A second form of pages of metadata.
const META_2: u16 = 0x4000;
/// Pages that say where compressed rows lie; with either bit there is nothing in it for a reader.
const INDEX: u16 = 0x9000;

/// How a subheader's bytes are packed.
const PLAIN: u8 = 0;
const TRUNCATED: u8 = 1;
const PACKED: u8 = 4;
const PACKED_DELETED: u8 = 5;

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PageKind {
    /// Metadata, and in compressed files rows.
    Meta,
    /// Rows only.
    Data,
    /// Metadata and rows.
    Mix,
    /// Metadata that was changed later.
    Amendment,
    /// Nothing of interest.
    Index,
}

/// A page and its head.
pub(super) struct Page<'a> {
    bytes: &'a [u8],
    words: Words,
    /// Its number, for messages.
    number: u64,
    pub kind: PageKind,
    deleted: bool,
    blocks: usize,
    subheaders: usize,
}

/// A pointer to a subheader, which lies within the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pointer {
    pub at: usize,
    pub length: usize,
    packing: u8,
}

impl Pointer {
    /// Whether the subheader is not compressed: metadata never is.
    pub fn plain(self) -> bool {
        self.packing == PLAIN
    }
}

/// A row somewhere in a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowRef {
    pub at: usize,
    /// Its length; less than that of a row if it is compressed.
    pub length: usize,
}

impl<'a> Page<'a> {
    /// Reads the head of a page.
    pub fn new(bytes: &'a [u8], words: Words, number: u64) -> Result<Self, SasError> {
        let base = base(words);
        let head = || Some((words.two(bytes, base)?, words.two(bytes, base + 2)?, words.two(bytes, base + 4)?));
        let (kind, blocks, subheaders) = head().expect("a page is longer than its head");
        let known = kind & !(MASK | DELETED | META_2 | INDEX) == 0;
        let kind_of = match kind & MASK {
            _ if !known => None,
            _ if kind & INDEX > 0 => Some(PageKind::Index),
            META => Some(PageKind::Meta),
            DATA => Some(PageKind::Data),
            MIX => Some(PageKind::Mix),
            AMENDMENT => Some(PageKind::Amendment),
            _ => None,
        };
        let Some(kind_of) = kind_of else {
            return Err(SasError::data(format!(
                "page {number} is of kind {kind:#06x}, which is not known: the file is damaged, or of a newer form of SAS7BDAT"
            )));
        };
        Ok(Page {
            bytes,
            words,
            number,
            kind: kind_of,
            deleted: kind & DELETED > 0,
            blocks: blocks as usize,
            subheaders: if kind_of == PageKind::Data { 0 } else { subheaders as usize },
        })
    }

    /// How many rows the page has, if its head tells.
    pub fn rows_told(&self) -> Option<u64> {
        (self.kind == PageKind::Data && !self.deleted).then_some(self.blocks as u64)
    }

    /// Calls `each` for every subheader that there is something in.
    pub fn subheaders(&self, mut each: impl FnMut(Pointer) -> Result<(), SasError>) -> Result<(), SasError> {
        if matches!(self.kind, PageKind::Data | PageKind::Index) {
            return Ok(());
        }
        for index in 0..self.subheaders {
            if let Some(pointer) = self.pointer(index)? {
                each(pointer)?;
            }
        }
        Ok(())
    }

    fn pointer(&self, index: usize) -> Result<Option<Pointer>, SasError> {
        let word = self.words.bytes();
        let from = base(self.words) + 8 + index * 3 * word;
        let read = || {
            let at = self.words.word(self.bytes, from)?;
            let length = self.words.word(self.bytes, from + word)?;
            Some((at, length, *self.bytes.get(from + 2 * word)?))
        };
        let Some((at, length, packing)) = read() else {
            return Err(SasError::data(format!(
                "page {} says that it has {} subheaders, more than its {} bytes hold",
                self.number,
                self.subheaders,
                self.bytes.len()
            )));
        };
        if length == 0 || packing == TRUNCATED {
            return Ok(None);
        }
        let size = self.bytes.len() as u64;
        if at > size || length > size - at {
            return Err(SasError::data(format!(
                "subheader {index} of page {} has {length} bytes from byte {at} on, but a page has {size} bytes",
                self.number
            )));
        }
        if !matches!(packing, PLAIN | PACKED | PACKED_DELETED) {
            return Err(SasError::data(format!(
                "subheader {index} of page {} is packed in a way that is not known ({packing})",
                self.number
            )));
        }
        Ok(Some(Pointer { at: at as usize, length: length as usize, packing }))
    }

    /// The bytes of a subheader.
    pub fn subheader(&self, pointer: Pointer) -> &'a [u8] {
        &self.bytes[pointer.at..pointer.at + pointer.length]
    }

    /// Appends the rows of the page, which stands in a buffer from byte `shift` on. `packed` says whether the
    /// file's rows are compressed, `plain_row` whether a plain subheader is a row that was not worth it.
    pub fn rows(
        &self,
        row_bytes: usize,
        packed: bool,
        shift: usize,
        plain_row: impl Fn(&[u8]) -> bool,
        out: &mut Vec<RowRef>,
    ) -> Result<(), SasError> {
        if self.kind == PageKind::Index {
            return Ok(());
        }
        self.subheaders(|pointer| {
            let Pointer { at, length, packing } = pointer;
            match packing {
                PACKED if !packed => {
                    return Err(SasError::unsupported(format!(
                        "page {} has compressed rows, but by what is not known: the metadata names neither SASYZCRL nor SASYZCR2",
                        self.number
                    )));
                }
                PACKED if length > row_bytes => {
                    return Err(SasError::data(format!(
                        "page {} has a compressed row of {length} bytes, but a row has {row_bytes}",
                        self.number
                    )));
                }
                PACKED => out.push(RowRef { at: shift + at, length }),
                PLAIN if packed && plain_row(self.subheader(pointer)) => {
                    if length != row_bytes {
                        return Err(SasError::data(format!(
                            "page {} has a subheader of {length} bytes that is neither metadata nor a row of {row_bytes} bytes",
                            self.number
                        )));
                    }
                    out.push(RowRef { at: shift + at, length });
                }
                _ => {}
            }
            Ok(())
        })?;
        if !matches!(self.kind, PageKind::Data | PageKind::Mix) {
            return Ok(());
        }
        let unaligned = base(self.words) + 8 + self.subheaders * 3 * self.words.bytes();
        let from = unaligned.next_multiple_of(8);
        let Some(count) = self.blocks.checked_sub(self.subheaders) else {
            return Err(SasError::data(format!(
                "page {} says that it has {} subheaders among {} blocks",
                self.number, self.subheaders, self.blocks
            )));
        };
        let end = from + count * row_bytes;
        if end > self.bytes.len() {
            return Err(SasError::data(format!(
                "page {} says that it has {count} rows of {row_bytes} bytes, more than its {} bytes hold",
                self.number,
                self.bytes.len()
            )));
        }
        let deleted = if self.deleted && count > 0 { Some(self.deleted_rows(end, count)?) } else { None };
        out.reserve(count);
        for row in 0..count {
            if deleted.is_none_or(|bits| bits[row / 8] & (0x80 >> (row % 8)) == 0) {
                out.push(RowRef { at: shift + from + row * row_bytes, length: row_bytes });
            }
        }
        Ok(())
    }

    /// The bits of the rows that were deleted. They stand behind the free bytes, which stand behind the rows.
    fn deleted_rows(&self, rows_end: usize, count: usize) -> Result<&'a [u8], SasError> {
        let at = if self.words.wide { 24 } else { 12 };
        let found = || {
            let from = rows_end.checked_add(self.words.place(self.bytes, at)?)?;
            self.bytes.get(from..from.checked_add(count.div_ceil(8))?)
        };
        found().ok_or_else(|| {
            SasError::data(format!("page {} says that rows of it were deleted, but which ones lies beyond its end", self.number))
        })
    }
}

/// Where the kind of a page stands.
fn base(words: Words) -> usize {
    if words.wide { 32 } else { 16 }
}
