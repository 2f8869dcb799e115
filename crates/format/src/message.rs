//! Formats of messages, each of which is whole: records of Kafka, bodies of answers. No line ends, no
//! bytes cut anywhere; a message may hold anything, line ends too.
//!
//! Here are the traits and the formats by name; [`raw`] and [`avro`] are formats that only messages have,
//! the others stand beside their forms for files. What does not live here: where messages come from, and
//! the talk with a schema registry, which [`SchemaRegistry`] hides.

mod avro;
mod raw;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};

use crate::FormatError;
use crate::csv::{CsvMessageEncoder, CsvMessages, CsvOptions, Header};
use crate::json::{ChangeEncoder, ChangeFormat, ChangeMessageEncoder, JsonEncoder, JsonMessageEncoder, JsonMessages, JsonOptions};
use crate::options::{OptionSet, OptionSpec, RawOptions, one_of};

pub use avro::{AvroOptions, ConfluentOptions};
pub(crate) use avro::{Written, adapt, names};
pub use raw::{Charset, Endianness, RawFormatOptions};

/// Bytes of messages that a decoder takes before its rows must be taken out: offsets of texts have 32 bits.
pub(crate) const BYTES_MAX: usize = 1 << 30;

/// Why a message behind [`BYTES_MAX`] is refused.
#[cold]
pub(crate) fn too_many_bytes() -> String {
    format!("messages of more than {} MB were to be decoded at once", BYTES_MAX >> 20)
}

/// Where a message lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its first byte.
    pub from: u32,
    /// How many bytes; less than none is a null value.
    pub length: i32,
}

impl Place {
    /// The message; none is a null value.
    ///
    /// # Panics
    /// It lies elsewhere than in `bytes`.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        let (from, length) = (self.from as usize, usize::try_from(self.length).ok()?);
        Some(&bytes[from..from + length])
    }
}

/// Decodes messages, each of which is whole. None or more rows a message.
pub trait MessageDecoder: Send {
    /// Takes message number n (counted from 0 since the last `take`). `None` is a null value (a tombstone).
    fn push(&mut self, message: Option<&[u8]>);

    /// Takes several messages, which lie in one buffer. One call for all of them: what it calls for each is known to the
    /// compiler.
    fn push_all(&mut self, bytes: &[u8], places: &[Place]) {
        for place in places {
            self.push(place.of(bytes));
        }
    }

    /// Messages pushed since the last take.
    fn pending(&self) -> usize;

    /// The rows of the messages pushed, and begins anew.
    ///
    /// # Errors
    /// What is no fault of a message: a schema registry does not answer, a type has no counterpart.
    fn take(&mut self) -> Result<Messages, FormatError>;
}

/// Rows that messages hold.
#[derive(Debug)]
pub struct Messages {
    /// The good rows, in order of their messages.
    pub batch: RecordBatch,
    /// What each row does to the table; `None`: all are inserts.
    pub kinds: Option<Vec<RowKind>>,
    /// The message of each row; `None`: row i is of message i (all good, one row each).
    pub origins: Option<Vec<u32>>,
    /// Bad messages: number, why. Their rows are absent. In order of number.
    pub bad: Vec<(u32, String)>,
}

/// Rows to messages, one a row.
pub trait MessageEncoder: Send {
    /// Appends a message for each row of `block`. Kinds are written by formats of changes only.
    ///
    /// # Errors
    /// A value that the format cannot express; a schema registry does not answer.
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError>;
}

/// Encoded messages, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct MessageBuffer {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// The end of each message in `bytes`; it begins where the one before ends.
    pub ends: Vec<usize>,
}

impl MessageBuffer {
    /// The messages, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, move |from, end| Some(&self.bytes[std::mem::replace(from, *end)..*end]))
    }

    /// Forgets the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A registry of Avro schemas. Calls may wait for the network.
pub trait SchemaRegistry: Send + Sync {
    /// The schema with this id, as JSON; none if the registry answers that there is no such schema.
    ///
    /// # Errors
    /// The registry does not answer, or refuses to; the text says which and where.
    fn schema(&self, id: u32) -> Result<Option<String>, String>;

    /// The id of a schema under a subject, registered if it is new there.
    ///
    /// # Errors
    /// The registry does not answer, or does not take the schema; the text says which and where.
    fn register(&self, subject: &str, schema: &str) -> Result<u32, String>;
}

/// A format of messages with its options: what 'format', 'key.format' or 'value.format' says.
#[derive(Clone)]
pub struct MessageFormat {
    kind: Kind,
    registry: Option<Arc<dyn SchemaRegistry>>,
}

impl fmt::Debug for MessageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MessageFormat").field(&self.name()).finish()
    }
}

#[derive(Clone)]
enum Kind {
    Json(JsonOptions),
    Csv(CsvOptions),
    Raw(RawFormatOptions),
    Avro(AvroOptions),
    Confluent(ConfluentOptions),
    Changes(ChangeFormat),
}

/// The names of the formats.
const NAMES: &[&str] = &["json", "csv", "raw", "avro", "avro-confluent", "debezium-json", "canal-json", "maxwell-json"];

impl MessageFormat {
    /// The format that the option `<prefix>format` names, with its options, all taken off `raw`; `None` if
    /// the option is not there. The prefix is empty, `key.` or `value.`.
    ///
    /// # Errors
    /// An unknown format, a wrong option.
    pub fn take(raw: &mut RawOptions, prefix: &str) -> Result<Option<MessageFormat>, FormatError> {
        let option = match prefix {
            "" => "format",
            "key." => "key.format",
            "value." => "value.format",
            other => return Err(FormatError::option(format!("internal error: no options begin with '{other}'"))),
        };
        let Some(name) = raw.take::<String>(option)? else { return Ok(None) };
        if prefix.is_empty() {
            return Self::named(&name, option, raw).map(Some);
        }
        // The format's own options stand behind the prefix and its name, as in 'value.json.…'.
        let own = raw.take_prefixed(&format!("{prefix}{name}.")).into_iter().map(|(key, value)| (format!("{name}.{key}"), value));
        let mut own = RawOptions::new(format!("{} (options '{prefix}…')", raw.owner()), own);
        let format = Self::named(&name, option, &mut own)?;
        own.finish()?;
        Ok(Some(format))
    }

    fn named(name: &str, option: &str, raw: &mut RawOptions) -> Result<MessageFormat, FormatError> {
        let kind = match name {
            "json" => Kind::Json(JsonOptions::take(raw)?),
            "csv" => {
                let options = CsvOptions::take(raw)?;
                if options.header != Header::No {
                    return Err(FormatError::option(format!("{}: messages have no header line; leave 'csv.header' out", raw.owner())));
                }
                Kind::Csv(options)
            }
            "raw" => Kind::Raw(RawFormatOptions::take(raw)?),
            "avro" => Kind::Avro(AvroOptions::take(raw)?),
            "avro-confluent" => Kind::Confluent(ConfluentOptions::take(raw)?),
            other => match ChangeFormat::take(other, raw)? {
                Some(changes) => Kind::Changes(changes),
                None => {
                    let why = one_of(other, NAMES);
                    return Err(FormatError::option(format!("{}: '{option}' = '{other}': there is no such format: {why}", raw.owner())));
                }
            },
        };
        Ok(MessageFormat { kind, registry: None })
    }

    /// The name of the format.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Json(_) => "json",
            Kind::Csv(_) => "csv",
            Kind::Raw(_) => "raw",
            Kind::Avro(_) => "avro",
            Kind::Confluent(_) => "avro-confluent",
            Kind::Changes(changes) => changes.name(),
        }
    }

    /// Whether its messages carry row kinds; otherwise all rows are inserts.
    pub fn changelog(&self) -> bool {
        matches!(self.kind, Kind::Changes(_))
    }

    /// What the format needs of a schema registry: address, credentials, subject; `None` if it needs none.
    pub fn registry_options(&self) -> Option<&ConfluentOptions> {
        match &self.kind {
            Kind::Confluent(options) => Some(options),
            _ => None,
        }
    }

    /// Gives the format the registry that it reads schemas from.
    pub fn with_registry(&mut self, registry: Arc<dyn SchemaRegistry>) {
        self.registry = Some(registry);
    }

    /// Under which subject a schema is registered if the options do not say it (`<topic>-value`).
    pub fn default_subject(&mut self, subject: &str) {
        if let Kind::Confluent(options) = &mut self.kind {
            options.subject.get_or_insert_with(|| subject.to_string());
        }
    }

    /// A decoder. `physical`: all columns a message holds in declared order; `projection`: those wanted, in
    /// the order wanted.
    ///
    /// # Errors
    /// A column type that the format cannot read.
    pub fn decoder(&self, physical: &SchemaRef, projection: &[usize]) -> Result<Box<dyn MessageDecoder>, FormatError> {
        Ok(match &self.kind {
            Kind::Json(options) => Box::new(JsonMessages::new(options, physical, projection)?),
            Kind::Csv(options) => Box::new(CsvMessages::new(options, physical, projection)?),
            Kind::Raw(options) => Box::new(raw::RawMessages::new(options, physical, projection)?),
            Kind::Avro(options) => Box::new(avro::AvroMessages::plain(options, physical, projection)?),
            Kind::Confluent(_) => Box::new(avro::AvroMessages::confluent(self.registry.clone(), physical, projection)?),
            Kind::Changes(changes) => Box::new(JsonMessages::of_changes(changes, physical, projection)?),
        })
    }

    /// An encoder of rows of `schema`.
    ///
    /// # Errors
    /// A column type that the format cannot write.
    pub fn encoder(&self, schema: &SchemaRef) -> Result<Box<dyn MessageEncoder>, FormatError> {
        Ok(match &self.kind {
            Kind::Json(options) => Box::new(JsonMessageEncoder(JsonEncoder::new(options, schema)?)),
            Kind::Csv(options) => Box::new(CsvMessageEncoder::new(options, schema)?),
            Kind::Raw(options) => Box::new(raw::RawEncoder::new(options, schema)?),
            Kind::Avro(options) => Box::new(avro::AvroEncoder::plain(options, schema)?),
            Kind::Confluent(options) => Box::new(avro::AvroEncoder::confluent(options, self.registry.clone(), schema)?),
            Kind::Changes(changes) => Box::new(ChangeMessageEncoder(ChangeEncoder::new(changes, schema)?)),
        })
    }

    /// The options that only formats of messages have: `raw`, `avro`, `avro-confluent`. Those of `json`, `csv`
    /// and the formats of changes are told where files' formats are.
    pub fn specs() -> Vec<OptionSpec> {
        [RawFormatOptions::specs(), AvroOptions::specs(), ConfluentOptions::specs()].concat()
    }
}

/// Which message each row is of, kept only once some message is not one row.
#[derive(Default)]
pub(crate) struct Origins {
    messages: u32,
    rows: Option<Vec<u32>>,
}

impl Origins {
    /// Messages so far.
    #[inline]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// The next message has so many rows.
    #[inline]
    pub fn push(&mut self, rows: usize) {
        if rows != 1 || self.rows.is_some() {
            let message = self.messages;
            let known = self.rows.get_or_insert_with(|| (0..message).collect());
            known.extend(std::iter::repeat_n(message, rows));
        }
        self.messages += 1;
    }

    /// The next messages, so many, have a row each.
    #[inline]
    pub fn push_whole(&mut self, count: u32) {
        if let Some(known) = &mut self.rows {
            known.extend(self.messages..self.messages + count);
        }
        self.messages += count;
    }

    /// The message of each row, as in [`Messages::origins`]; begins anew.
    pub fn take(&mut self) -> Option<Vec<u32>> {
        std::mem::take(self).rows
    }
}
