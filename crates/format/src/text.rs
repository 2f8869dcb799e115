//! The text formats by name: what a table's `'format'` option may say, Parquet and Avro excepted. What encoding a text is in
//! is dealt with here for all of them.

use arrow::datatypes::SchemaRef;

use crate::csv::{self, CsvCounter, CsvDecoder, CsvEncoder, CsvOptions, Header};
use crate::encoding::{Reencoded, TextEncoding, Transcoded};
use crate::fixed::{self, FixedDecoder, FixedEncoder, FixedOptions};
use crate::json::{ChangeEncoder, ChangeFormat, JsonDecoder, JsonEncoder, JsonForm, JsonOptions};
use crate::options::{OptionSet, RawOptions, one_of};
use crate::{Decoder, Encoder, FormatError};

/// A text format with its options.
#[derive(Clone, Debug)]
pub enum TextFormat {
    /// Comma-separated values.
    Csv(CsvOptions),
    /// JSON, one object a line, or documents of objects.
    Json(JsonOptions),
    /// Columns at fixed places in each line.
    Fixed(FixedOptions),
    /// Changes of rows as JSON, one a line.
    Changes(ChangeFormat),
}

/// The names of the text formats.
pub const NAMES: [&str; 6] = ["csv", "json", "fixed", ChangeFormat::NAMES[0], ChangeFormat::NAMES[1], ChangeFormat::NAMES[2]];

impl TextFormat {
    /// The format called `name`, its options taken out of `raw`.
    ///
    /// # Errors
    /// An unknown name, a wrong option.
    pub fn take(name: &str, raw: &mut RawOptions) -> Result<Self, FormatError> {
        match name {
            "csv" => Ok(TextFormat::Csv(CsvOptions::take(raw)?)),
            "json" => Ok(TextFormat::Json(JsonOptions::take(raw)?)),
            "fixed" => Ok(TextFormat::Fixed(FixedOptions::take(raw)?)),
            other => ChangeFormat::take(other, raw)?.map(TextFormat::Changes).ok_or_else(|| {
                let why = one_of(other, &NAMES);
                FormatError::option(format!("{}: there is no text format '{other}': {why}", raw.owner()))
            }),
        }
    }

    /// A decoder that produces the columns `projection` of the physical columns from text as it comes, in the encoding that
    /// the options say. If that is not UTF-8, the decoder's offsets are those of the text in UTF-8.
    ///
    /// # Errors
    /// A column type that the format cannot read.
    pub fn decoder(&self, physical: &SchemaRef, projection: &[usize]) -> Result<Box<dyn Decoder>, FormatError> {
        let decoder = self.decoder_at(physical, projection, true)?;
        let (encoding, option) = self.encoding();
        Ok(if encoding.is_utf8() { decoder } else { Box::new(Transcoded::new(decoder, encoding, option)) })
    }

    /// As [`TextFormat::decoder`], for text that is in UTF-8 already, whatever the options say, and that begins in the
    /// middle of a file unless `at_start`.
    ///
    /// # Errors
    /// As [`TextFormat::decoder`].
    pub fn decoder_at(&self, physical: &SchemaRef, projection: &[usize], at_start: bool) -> Result<Box<dyn Decoder>, FormatError> {
        Ok(match self {
            TextFormat::Csv(options) if projection.is_empty() => {
                let counter = CsvCounter::new(options, physical)?;
                Box::new(if at_start { counter } else { counter.without_header() })
            }
            TextFormat::Csv(options) => {
                let decoder = CsvDecoder::new(options, physical, projection)?;
                Box::new(if at_start { decoder } else { decoder.without_header() })
            }
            TextFormat::Fixed(options) => {
                let decoder = FixedDecoder::new(options, physical, projection)?;
                Box::new(if at_start { decoder } else { decoder.without_header() })
            }
            TextFormat::Json(options) => {
                let decoder = JsonDecoder::new(options, physical, projection)?;
                Box::new(if at_start { decoder } else { decoder.in_the_middle() })
            }
            TextFormat::Changes(changes) => Box::new(JsonDecoder::of_changes(changes, physical, projection)?),
        })
    }

    /// An encoder for rows of this schema.
    ///
    /// # Errors
    /// A column type that the format cannot write.
    pub fn encoder(&self, schema: &SchemaRef) -> Result<Box<dyn Encoder>, FormatError> {
        let encoder: Box<dyn Encoder> = match self {
            TextFormat::Csv(options) => Box::new(CsvEncoder::new(options, schema)?),
            TextFormat::Json(options) => Box::new(JsonEncoder::new(options, schema)?),
            TextFormat::Fixed(options) => Box::new(FixedEncoder::new(options, schema)?),
            TextFormat::Changes(changes) => Box::new(ChangeEncoder::new(changes, schema)?),
        };
        let (encoding, option) = self.encoding();
        Ok(if encoding.is_utf8() { encoder } else { Box::new(Reencoded::new(encoder, encoding, option)?) })
    }

    /// The encoding of the text, and the option that says it.
    pub fn encoding(&self) -> (TextEncoding, &'static str) {
        match self {
            TextFormat::Csv(options) => (options.encoding, csv::ENCODING),
            TextFormat::Fixed(options) => (options.encoding, fixed::ENCODING),
            TextFormat::Json(_) | TextFormat::Changes(_) => (TextEncoding::Utf8, "format"),
        }
    }

    /// Whether a file begins with a line of column names.
    pub fn header(&self) -> bool {
        match self {
            TextFormat::Csv(options) => options.header != Header::No,
            TextFormat::Fixed(options) => options.header != Header::No,
            TextFormat::Json(_) | TextFormat::Changes(_) => false,
        }
    }

    /// The file name extension, without dot.
    pub fn extension(&self) -> &'static str {
        match self {
            TextFormat::Csv(_) => "csv",
            TextFormat::Fixed(_) => "txt",
            TextFormat::Json(_) | TextFormat::Changes(_) => "json",
        }
    }

    /// Whether its records say what rows do to the table; otherwise all rows are inserts.
    pub fn changelog(&self) -> bool {
        matches!(self, TextFormat::Changes(_))
    }

    /// Whether a record may span lines, so that a file must not be cut at an arbitrary line end.
    pub fn multiline(&self) -> bool {
        self.document() || matches!(self, TextFormat::Csv(options) if !options.disable_quote_character)
    }

    /// Whether the text is one document, or may be, whose records have nothing to do with lines.
    pub fn document(&self) -> bool {
        matches!(self, TextFormat::Json(options) if options.form != JsonForm::Lines)
    }
}
