//! Subheaders of metadata: how long a row is and how many there are, names, places, formats and labels of columns.
//!
//! Texts stand in subheaders of their own (up to 64 KiB each) and are pointed to by three numbers of two bytes: which
//! text subheader, where in it, how long. With W = 4 or 8 bytes a word:
//!
//! ```text
//! row size    5W length of a row, 6W rows with deleted ones, 7W deleted ones; 118 from the end: the compression's name
//! column size W  how many columns
//! text        W  the text, which begins with its own length (2)
//! names       W+8  8 bytes a column: pointer to the name (6)
//! attributes  W+8  W+8 bytes a column: place in the row (W), length (4), -, type at W+6 (1: 1 number, 2 text)
//! format      one for each column: 3W width (2), 3W+2 decimals (2), 3W+22 format (6), 3W+28 label (6)
//! ```

use super::header::Words;
use super::page::{Page, Pointer};
use crate::column::{self, Column};
use crate::{Charset, Kind, SasError};

/// The most columns of a file; bounds memory where a file lies.
const COLUMNS_MAX: usize = 65_536;
/// The longest name, label or format, bytes; SAS allows 256 characters at most.
const TEXT_BYTES_MAX: usize = 1_024;
/// All text subheaders together, bytes.
const TEXTS_BYTES_MAX: usize = 64 << 20;
/// The longest row, bytes.
const ROW_BYTES_MAX: usize = 32 << 20;

const ROW_SIZE: u32 = 0xF7F7_F7F7;
const COLUMN_SIZE: u32 = 0xF6F6_F6F6;
const COUNTS: u32 = 0xFFFF_FC00;
const FORMAT: u32 = 0xFFFF_FBFE;
const ATTRIBUTES: u32 = 0xFFFF_FFFC;
const TEXT: u32 = 0xFFFF_FFFD;
const LIST: u32 = 0xFFFF_FFFE;
const NAMES: u32 = 0xFFFF_FFFF;

/// How rows are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Not at all.
    None,
    /// Run lengths.
    Rle,
    /// Ross data compression.
    Rdc,
}

/// Where a text stands.
#[derive(Clone, Copy, Debug, Default)]
struct TextRef {
    text: u16,
    at: u16,
    length: u16,
}

impl TextRef {
    fn read(words: Words, bytes: &[u8], at: usize) -> Option<TextRef> {
        Some(TextRef { text: words.two(bytes, at)?, at: words.two(bytes, at + 2)?, length: words.two(bytes, at + 4)? })
    }
}

struct Attributes {
    offset: u64,
    length: u32,
    kind: u8,
}

struct Format {
    width: u16,
    decimals: u16,
    format: TextRef,
    label: TextRef,
}

/// What was read of the metadata so far.
pub(super) struct Meta {
    words: Words,
    /// Length of a row.
    pub row_bytes: usize,
    /// Rows, deleted ones too.
    pub rows: u64,
    /// Rows that were deleted.
    pub deleted: u64,
    seen_rows: bool,
    count: Option<usize>,
    packing: TextRef,
    texts: Vec<Vec<u8>>,
    texts_bytes: usize,
    names: Vec<TextRef>,
    attributes: Vec<Attributes>,
    formats: Vec<Format>,
}

/// The signature of a subheader, if it is one of metadata.
pub(super) fn signature(words: Words, bytes: &[u8]) -> Option<u32> {
    let first = words.four(bytes, 0)?;
    // Of eight bytes with the highest first, the last four tell.
    let signature = if words.wide && words.big && matches!(first, 0 | u32::MAX) { words.four(bytes, 4)? } else { first };
    matches!(signature, ROW_SIZE | COLUMN_SIZE | COUNTS | FORMAT | ATTRIBUTES | TEXT | LIST | NAMES).then_some(signature)
}

impl Meta {
    pub fn new(words: Words) -> Self {
        Meta {
            words,
            row_bytes: 0,
            rows: 0,
            deleted: 0,
            seen_rows: false,
            count: None,
            packing: TextRef::default(),
            texts: Vec::new(),
            texts_bytes: 0,
            names: Vec::new(),
            attributes: Vec::new(),
            formats: Vec::new(),
        }
    }

    /// Reads the subheaders of a page; true if one of them was of metadata.
    pub fn page(&mut self, page: &Page, number: u64) -> Result<bool, SasError> {
        let mut any = false;
        page.subheaders(|pointer| {
            if let Some(signature) = self.metadata(page, pointer) {
                any = true;
                let bytes = page.subheader(pointer);
                self.subheader(signature, bytes).map_err(|what| SasError::data(format!("the metadata on page {number}: {what}")))?;
            }
            Ok(())
        })?;
        Ok(any)
    }

    fn metadata(&self, page: &Page, pointer: Pointer) -> Option<u32> {
        if pointer.plain() { signature(self.words, page.subheader(pointer)) } else { None }
    }

    /// Whether every column has a name and a place.
    pub fn complete(&self) -> bool {
        self.seen_rows && self.count.is_some_and(|count| self.names.len() >= count && self.attributes.len() >= count)
    }

    fn subheader(&mut self, signature: u32, bytes: &[u8]) -> Result<(), String> {
        let (words, word) = (self.words, self.words.bytes());
        match signature {
            ROW_SIZE => self.row_size(bytes),
            COLUMN_SIZE => {
                let count = words.place(bytes, word).ok_or("the number of columns is cut short")?;
                if count > COLUMNS_MAX {
                    return Err(format!("there are {count} columns; readable are {COLUMNS_MAX}"));
                }
                self.count = Some(count);
                Ok(())
            }
            TEXT => {
                // Its own length does not always count its last bytes, so all there are is taken.
                let text = bytes.get(word..).ok_or("a text is cut short")?;
                self.texts_bytes += text.len();
                if self.texts_bytes > TEXTS_BYTES_MAX {
                    return Err(format!("names and labels take up more than {TEXTS_BYTES_MAX} bytes"));
                }
                self.texts.push(text.to_vec());
                Ok(())
            }
            NAMES => {
                let entries = bytes.len().saturating_sub(2 * word + 12) / 8;
                for entry in 0..entries {
                    let name = TextRef::read(words, bytes, word + 8 + entry * 8).ok_or("a column's name is cut short")?;
                    room(self.names.len())?;
                    self.names.push(name);
                }
                Ok(())
            }
            ATTRIBUTES => {
                let entries = bytes.len().saturating_sub(2 * word + 12) / (word + 8);
                for entry in 0..entries {
                    let at = word + 8 + entry * (word + 8);
                    let read = || {
                        Some(Attributes {
                            offset: words.word(bytes, at)?,
                            length: words.four(bytes, at + word)?,
                            kind: *bytes.get(at + word + 6)?,
                        })
                    };
                    let attributes = read().ok_or("a column's place is cut short")?;
                    room(self.attributes.len())?;
                    self.attributes.push(attributes);
                }
                Ok(())
            }
            FORMAT => {
                let at = 3 * word;
                let read = || {
                    Some(Format {
                        width: words.two(bytes, at)?,
                        decimals: words.two(bytes, at + 2)?,
                        format: TextRef::read(words, bytes, at + 22)?,
                        label: TextRef::read(words, bytes, at + 28)?,
                    })
                };
                let format = read().ok_or("a column's format is cut short")?;
                room(self.formats.len())?;
                self.formats.push(format);
                Ok(())
            }
            // How many columns of which type, and their order in a listing.
            _ => Ok(()),
        }
    }

    fn row_size(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (words, word) = (self.words, self.words.bytes());
        let read = || Some((words.place(bytes, 5 * word)?, words.word(bytes, 6 * word)?, words.word(bytes, 7 * word)?));
        let (row_bytes, rows, deleted) = read().ok_or("the length of a row is cut short")?;
        if row_bytes > ROW_BYTES_MAX {
            return Err(format!("a row has {row_bytes} bytes; readable are {ROW_BYTES_MAX}"));
        }
        if deleted > rows {
            return Err(format!("{deleted} of {rows} rows were deleted"));
        }
        (self.row_bytes, self.rows, self.deleted, self.seen_rows) = (row_bytes, rows, deleted, true);
        if let Some(from) = bytes.len().checked_sub(118) {
            self.packing = TextRef::read(words, bytes, from).unwrap_or_default();
        }
        Ok(())
    }

    fn text(&self, at: TextRef) -> Result<&[u8], SasError> {
        if at.length == 0 {
            return Ok(&[]);
        }
        let (from, length) = (at.at as usize, at.length as usize);
        let text = self.texts.get(at.text as usize).and_then(|text| text.get(from..from + length));
        match text {
            Some(text) if length <= TEXT_BYTES_MAX => Ok(text),
            Some(_) => Err(SasError::data(format!("a name or label has {length} bytes; readable are {TEXT_BYTES_MAX}"))),
            None => Err(SasError::data(format!(
                "a name or label points beyond the texts ({length} bytes from byte {from} of text {})",
                at.text
            ))),
        }
    }

    /// How the rows are compressed.
    pub fn packing(&self) -> Packing {
        // The pointer is where newer files have it; the name stands near the beginning of the texts in all of them.
        let name = self.text(self.packing).unwrap_or_default();
        let first = self.texts.first().map_or(&[][..], |text| &text[..text.len().min(64)]);
        let named = |packing: &[u8]| name == packing || first.windows(packing.len()).any(|part| part == packing);
        if named(b"SASYZCRL") {
            Packing::Rle
        } else if named(b"SASYZCR2") {
            Packing::Rdc
        } else {
            Packing::None
        }
    }

    /// The columns.
    pub fn columns(&self, charset: Charset) -> Result<Vec<Column>, SasError> {
        if !self.seen_rows {
            return Err(SasError::data("the metadata does not say how long a row is: the file is cut short or damaged"));
        }
        let count = self.count.unwrap_or(0);
        if self.names.len() < count || self.attributes.len() < count {
            return Err(SasError::data(format!(
                "the metadata has {} names and {} places for {count} columns: the file is cut short or damaged",
                self.names.len(),
                self.attributes.len()
            )));
        }
        let text = |at: TextRef| -> Result<String, SasError> {
            let bytes = self.text(at)?;
            let end = bytes.iter().rposition(|b| !matches!(b, b' ' | 0)).map_or(0, |last| last + 1);
            Ok(charset.decode(&bytes[..end])?.into_owned())
        };
        let mut columns = Vec::with_capacity(count);
        for (index, (name, attributes)) in self.names.iter().zip(&self.attributes).take(count).enumerate() {
            let name = text(*name)?;
            let (label, format, width, decimals) = match self.formats.get(index) {
                None => Default::default(),
                Some(f) => (text(f.label)?, text(f.format)?, f.width, f.decimals),
            };
            let kind = match attributes.kind {
                1 => Kind::of_format(&format),
                2 => Kind::Text,
                other => return Err(SasError::data(format!("column '{name}' is of type {other}; there are 1 (number) and 2 (text)"))),
            };
            let offset = usize::try_from(attributes.offset).unwrap_or(usize::MAX);
            let column = Column { name, label, format, width, decimals, kind, offset, length: attributes.length as usize };
            columns.push(column);
        }
        column::check(&columns, self.row_bytes)?;
        Ok(columns)
    }
}

/// Whether one more column may be read.
fn room(columns: usize) -> Result<(), String> {
    if columns < COLUMNS_MAX { Ok(()) } else { Err(format!("there are more than {COLUMNS_MAX} columns")) }
}
