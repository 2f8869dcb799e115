//! Fixed-width text: each column stands at the same place in every line. [`layout`] is where, [`decode`] reads,
//! [`encode`] writes. Places are counted in characters, whatever the encoding, and a line ends with `\n` or `\r\n`. Fields
//! become values, and values fields, as in CSV, whose parsers and writers these are. What does not live here: records
//! without line ends.

mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;

pub use decode::FixedDecoder;
pub use encode::FixedEncoder;
pub(crate) use layout::entries;

use crate::csv::Header;
use crate::encoding::TextEncoding;
use crate::{option_enum, options};

/// The option that says the encoding.
pub(crate) const ENCODING: &str = "fixed.encoding";

option_enum! {
    /// Which blanks around a text are not part of it.
    pub enum Trim {
        /// Those on both sides.
        Both = "both",
        /// Those behind it.
        End = "end",
        /// None: a text is as long as its field.
        None = "none",
    }
}

impl Trim {
    /// What a field is told to be NULL by: its bytes without the blanks that fill it, or that are no part of it.
    #[inline]
    fn told(self, text: &[u8]) -> &[u8] {
        let text = if self == Trim::Both { trim_start(text) } else { text };
        trim_end(text)
    }
}

/// A field without the blanks in front.
#[inline]
fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// A field without the blanks behind.
#[inline]
fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

options! {
    /// Options of the `fixed` format.
    pub struct FixedOptions {
        /// Where the columns stand in a line, in characters: their widths in the table's order (`8,12,10`), or the name of each
        /// with its first and last place, counted from 1 (`ts:1-8,name:9-20`). The last may be the rest of the line: `8,12,*` or
        /// `name:21-*`. With widths a line must not be longer; with places the rest of it is not looked at.
        ours "fixed.widths" => widths: String;
        /// The text that stands for NULL, read and written. Without it a blank field is NULL, and NULL is written blank.
        ours "fixed.null-literal" => null_literal: Option<String>;
        /// Which blanks around a STRING are left out in reading: `both`, `end` or `none`.
        ours "fixed.trim" => trim: Trim = Trim::Both;
        /// Reads columns that a line is too short for as NULL, instead of calling the record bad.
        ours "fixed.allow-short-lines" => allow_short_lines: bool = false;
        /// Whether each file begins with a line of column names, at the columns' places: `false`, `true` (they are checked
        /// against the table's) or `skip`. Also writes one at the top of each part file.
        ours "fixed.header" => header: Header = Header::No;
        /// The encoding of the text, as `csv.encoding`.
        ours "fixed.encoding" => encoding: TextEncoding = TextEncoding::Utf8;
    }
}
