//! Comma-separated values, as Flink's `csv` format reads and writes them.
//!
//! [`index`] finds the separators 64 bytes at a time, [`decode`] parses only the wanted columns,
//! column by column, [`count`] only counts, [`encode`] writes; [`messages`] does both where records come one by one. Quoting
//! follows RFC 4180: a quote opens a field only at its beginning, and is doubled inside.

mod count;
mod decode;
mod encode;
pub(crate) mod field;
mod index;
mod messages;
mod plain;

pub use count::CsvCounter;
pub use decode::CsvDecoder;
pub(crate) use encode::Cell;
pub use encode::CsvEncoder;
pub(crate) use field::shown;
pub(crate) use messages::{CsvMessageEncoder, CsvMessages};

use crate::encoding::TextEncoding;
use crate::{option_enum, options};

/// The option that says the encoding.
pub(crate) const ENCODING: &str = "csv.encoding";

option_enum! {
    /// Whether a file begins with a line of column names.
    pub enum Header {
        /// No header line, as Flink has it.
        No = "false",
        /// A header line; its names must be the table's physical columns, in their order.
        Checked = "true",
        /// A header line, whatever it says.
        Skip = "skip",
    }
}

options! {
    /// Options of the `csv` format.
    pub struct CsvOptions {
        /// The character between fields; `\t` for a tab.
        flink "csv.field-delimiter" => field_delimiter: char = ',';
        /// The character around fields that contain delimiters, quotes or line ends.
        flink "csv.quote-character" => quote_character: char = '"';
        /// Treats the quote character as any other.
        flink "csv.disable-quote-character" => disable_quote_character: bool = false;
        /// A character that takes the special meaning from the one behind it, inside quotes.
        flink "csv.escape-character" => escape_character: Option<char>;
        /// Skips lines that begin with `#`, above a header line, too.
        flink "csv.allow-comments" => allow_comments: bool = false;
        /// Skips records that cannot be read, as `'on-error' = 'skip'` does; they are counted.
        flink "csv.ignore-parse-errors" => ignore_parse_errors: bool = false;
        /// The text that stands for NULL, read and written. Without it an empty field is NULL for
        /// every type but STRING, and NULL is written as an empty field, an empty text as two quotes.
        flink "csv.null-literal" => null_literal: Option<String>;
        /// Takes blanks away from both ends of unquoted fields.
        flink "csv.trim-spaces" => trim_spaces: bool = false;
        /// Reads an empty STRING field as NULL.
        flink "csv.empty-string-as-null" => empty_string_as_null: bool = false;
        /// Ignores fields behind the last column of the table instead of calling the record bad.
        flink "csv.ignore-trailing-unmappable" => ignore_trailing_unmappable: bool = false;
        /// Accepts one delimiter behind the last column.
        flink "csv.allow-trailing-comma" => allow_trailing_comma: bool = true;
        /// Calls a record bad that has too few fields; otherwise the missing ones are NULL.
        flink "csv.fail-on-missing-columns" => fail_on_missing_columns: bool = true;
        /// Whether each file begins with a header line: `false`, `true` (the names are checked
        /// against the table's) or `skip`. Also writes one at the top of each part file.
        ours "csv.header" => header: Header = Header::No;
        /// The encoding of the text: `UTF-8`, `UTF-16` (with a byte order mark), `UTF-16LE`, `windows-1252`, `Shift_JIS`, `GB18030` or
        /// another of the WHATWG's labels. Bytes that are no text in it, and characters that it lacks, are errors.
        ours "csv.encoding" => encoding: TextEncoding = TextEncoding::Utf8;
    }
}
