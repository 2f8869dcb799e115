//! The text formats by name: what a table's `'format'` option may say, Parquet and Avro excepted.

use arrow::datatypes::SchemaRef;

use crate::csv::{CsvCounter, CsvDecoder, CsvEncoder, CsvOptions};
use crate::json::{ChangeEncoder, ChangeFormat, JsonDecoder, JsonEncoder, JsonOptions};
use crate::options::{OptionSet, RawOptions, one_of};
use crate::{Decoder, Encoder, FormatError};

/// A text format with its options.
#[derive(Clone, Debug)]
pub enum TextFormat {
    /// Comma-separated values.
    Csv(CsvOptions),
    /// JSON, one object a line.
    Json(JsonOptions),
    /// Changes of rows as JSON, one a line.
    Changes(ChangeFormat),
}

/// The names of the text formats.
pub const NAMES: [&str; 5] = ["csv", "json", ChangeFormat::NAMES[0], ChangeFormat::NAMES[1], ChangeFormat::NAMES[2]];

impl TextFormat {
    /// The format called `name`, its options taken out of `raw`.
    ///
    /// # Errors
    /// An unknown name, a wrong option.
    pub fn take(name: &str, raw: &mut RawOptions) -> Result<Self, FormatError> {
        match name {
            "csv" => Ok(TextFormat::Csv(CsvOptions::take(raw)?)),
            "json" => Ok(TextFormat::Json(JsonOptions::take(raw)?)),
            other => ChangeFormat::take(other, raw)?.map(TextFormat::Changes).ok_or_else(|| {
                let why = one_of(other, &NAMES);
                FormatError::option(format!("{}: there is no text format '{other}': {why}", raw.owner()))
            }),
        }
    }

    /// A decoder that produces the columns `projection` of the physical columns.
    ///
    /// # Errors
    /// A column type that the format cannot read.
    pub fn decoder(&self, physical: &SchemaRef, projection: &[usize]) -> Result<Box<dyn Decoder>, FormatError> {
        Ok(match self {
            TextFormat::Csv(options) if projection.is_empty() => Box::new(CsvCounter::new(options, physical)?),
            TextFormat::Csv(options) => Box::new(CsvDecoder::new(options, physical, projection)?),
            TextFormat::Json(options) => Box::new(JsonDecoder::new(options, physical, projection)?),
            TextFormat::Changes(changes) => Box::new(JsonDecoder::of_changes(changes, physical, projection)?),
        })
    }

    /// As [`TextFormat::decoder`], for text that begins in the middle of a file unless `at_start`.
    ///
    /// # Errors
    /// As [`TextFormat::decoder`].
    pub fn decoder_at(&self, physical: &SchemaRef, projection: &[usize], at_start: bool) -> Result<Box<dyn Decoder>, FormatError> {
        match self {
            TextFormat::Csv(options) if !at_start && projection.is_empty() => {
                Ok(Box::new(CsvCounter::new(options, physical)?.without_header()))
            }
            TextFormat::Csv(options) if !at_start => Ok(Box::new(CsvDecoder::new(options, physical, projection)?.without_header())),
            _ => self.decoder(physical, projection),
        }
    }

    /// An encoder for rows of this schema.
    ///
    /// # Errors
    /// A column type that the format cannot write.
    pub fn encoder(&self, schema: &SchemaRef) -> Result<Box<dyn Encoder>, FormatError> {
        Ok(match self {
            TextFormat::Csv(options) => Box::new(CsvEncoder::new(options, schema)?),
            TextFormat::Json(options) => Box::new(JsonEncoder::new(options, schema)?),
            TextFormat::Changes(changes) => Box::new(ChangeEncoder::new(changes, schema)?),
        })
    }

    /// The file name extension, without dot.
    pub fn extension(&self) -> &'static str {
        match self {
            TextFormat::Csv(_) => "csv",
            TextFormat::Json(_) | TextFormat::Changes(_) => "json",
        }
    }

    /// Whether its records say what rows do to the table; otherwise all rows are inserts.
    pub fn changelog(&self) -> bool {
        matches!(self, TextFormat::Changes(_))
    }

    /// Whether a record may span lines, so that a file must not be cut at an arbitrary line end.
    pub fn multiline(&self) -> bool {
        matches!(self, TextFormat::Csv(options) if !options.disable_quote_character)
    }
}
