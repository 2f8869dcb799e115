//! JSON lines, one object a line, as Flink's `json` format reads and writes them; and documents, which are only read: objects
//! in an array, or behind each other over any number of lines.
//!
//! [`scan`] walks over the text, [`column`] holds typed columns under construction that can take a
//! half-read row back, [`decode`] puts both together for lines and documents, whose objects [`split`] finds, and [`messages`] for
//! whole messages; [`encode`] writes. [`change`] has the envelopes in which databases' changes come.

pub mod base64;
mod change;
mod column;
mod decode;
mod encode;
mod messages;
mod scan;
pub(crate) mod split;
#[cfg(test)]
mod tests;

pub use change::{CanalJsonOptions, ChangeEncoder, ChangeFormat, DebeziumJsonOptions, Envelope, MaxwellJsonOptions};
pub use decode::JsonDecoder;
pub use encode::JsonEncoder;
pub(crate) use messages::{ChangeMessageEncoder, JsonMessageEncoder, JsonMessages};

use crate::{option_enum, options};

option_enum! {
    /// How timestamps are written. Both forms are read, whatever is chosen.
    pub enum TimestampFormat {
        /// `2024-01-31 08:00:00.5`, with `Z` behind a TIMESTAMP_LTZ.
        Sql = "SQL",
        /// `2024-01-31T08:00:00.5`, with `Z` behind a TIMESTAMP_LTZ.
        Iso = "ISO-8601",
    }
}

option_enum! {
    /// How objects stand in a text.
    pub enum JsonForm {
        /// Found out by how the text begins.
        Auto = "auto",
        /// One a line.
        Lines = "lines",
        /// In an array, or behind each other, over any number of lines.
        Document = "document",
    }
}

options! {
    /// Options of the `json` format.
    pub struct JsonOptions {
        /// Skips records that cannot be read, as `'on-error' = 'skip'` does; they are counted.
        flink "json.ignore-parse-errors" => ignore_parse_errors: bool = false;
        /// Calls a record bad that lacks a column; otherwise the column is NULL.
        flink "json.fail-on-missing-field" => fail_on_missing_field: bool = false;
        /// How objects stand in a text that is read: `lines`, one a line, `document`, in an array (`[{…}, {…}]`) or behind each
        /// other, over any number of lines, or `auto`: a document is what begins with `[`, or with an object that does not end
        /// in its line. A declared table expects lines, so that a line that is cut makes no document of a stream; in queries
        /// that name a file it is found out. Only files of lines are divided among readers. Written are lines; to messages, each of
        /// which is an object or an array, this means nothing.
        ours "json.form" => form: JsonForm = JsonForm::Lines;
        /// The form of TIMESTAMP and TIMESTAMP_LTZ values written. Both are read; a whole number
        /// is read as milliseconds since 1970.
        flink "json.timestamp-format.standard" => timestamp_format: TimestampFormat = TimestampFormat::Sql;
        /// Writes every DECIMAL in plain digits; otherwise very small ones get an exponent
        /// (`2.7E-8`).
        flink "json.encode.decimal-as-plain-number" => decimal_as_plain_number: bool = false;
        /// Leaves fields out that are NULL instead of writing `null`.
        flink "json.encode.ignore-null-fields" => ignore_null_fields: bool = false;
    }
}
