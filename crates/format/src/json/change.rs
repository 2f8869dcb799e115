//! Changes of database rows as JSON: the messages of Debezium, Canal and Maxwell, read and written as
//! Flink's formats of these names do.
//!
//! A message is an envelope: what happened, and the row before and after it. Here envelopes are
//! opened; the rows in them are read by [`super::column`]. What does not live here: where messages
//! begin and end.

use std::iter::repeat_n;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};

use super::column::{Context, Record};
use super::encode::JsonRows;
use super::scan::{Fault, Scan};
use super::{JsonEncoder, JsonForm, JsonOptions, TimestampFormat};
use crate::options::{OptionSet, OptionSpec, RawOptions};
use crate::{Encoder, FormatError, options};

options! {
    /// Options of the `debezium-json` format.
    pub struct DebeziumJsonOptions {
        /// The messages carry a schema beside the row (Kafka Connect with
        /// `value.converter.schemas.enable`): the change then stands in the field `payload`.
        flink "debezium-json.schema-include" => schema_include: bool = false;
        /// Skips messages that cannot be read, as `'on-error' = 'skip'` does; they are counted.
        flink "debezium-json.ignore-parse-errors" => ignore_parse_errors: bool = false;
        /// The form of TIMESTAMP and TIMESTAMP_LTZ values written; both are read.
        flink "debezium-json.timestamp-format.standard" => timestamp_format: TimestampFormat = TimestampFormat::Sql;
        /// Writes every DECIMAL in plain digits.
        flink "debezium-json.encode.decimal-as-plain-number" => decimal_as_plain_number: bool = false;
        /// Leaves fields out that are NULL instead of writing `null`.
        flink "debezium-json.encode.ignore-null-fields" => ignore_null_fields: bool = false;
    }
}

options! {
    /// Options of the `canal-json` format.
    pub struct CanalJsonOptions {
        /// Skips messages that cannot be read, as `'on-error' = 'skip'` does; they are counted.
        flink "canal-json.ignore-parse-errors" => ignore_parse_errors: bool = false;
        /// The form of TIMESTAMP and TIMESTAMP_LTZ values written; both are read.
        flink "canal-json.timestamp-format.standard" => timestamp_format: TimestampFormat = TimestampFormat::Sql;
        /// Writes every DECIMAL in plain digits.
        flink "canal-json.encode.decimal-as-plain-number" => decimal_as_plain_number: bool = false;
        /// Leaves fields out that are NULL instead of writing `null`.
        flink "canal-json.encode.ignore-null-fields" => ignore_null_fields: bool = false;
    }
}

options! {
    /// Options of the `maxwell-json` format.
    pub struct MaxwellJsonOptions {
        /// Skips messages that cannot be read, as `'on-error' = 'skip'` does; they are counted.
        flink "maxwell-json.ignore-parse-errors" => ignore_parse_errors: bool = false;
        /// The form of TIMESTAMP and TIMESTAMP_LTZ values written; both are read.
        flink "maxwell-json.timestamp-format.standard" => timestamp_format: TimestampFormat = TimestampFormat::Sql;
        /// Writes every DECIMAL in plain digits.
        flink "maxwell-json.encode.decimal-as-plain-number" => decimal_as_plain_number: bool = false;
        /// Leaves fields out that are NULL instead of writing `null`.
        flink "maxwell-json.encode.ignore-null-fields" => ignore_null_fields: bool = false;
    }
}

/// How a change is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `{"before": …, "after": …, "op": "u"}`.
    Debezium {
        /// The same in the field `payload` of an object that has a schema, too.
        schema: bool,
    },
    /// `{"data": [ … ], "old": [ … ], "type": "UPDATE"}`.
    Canal,
    /// `{"data": …, "old": …, "type": "update"}`.
    Maxwell,
}

/// A format whose messages say what became of rows.
#[derive(Clone, Debug)]
pub struct ChangeFormat {
    /// How a change is wrapped.
    pub envelope: Envelope,
    /// How its rows are read and written.
    pub rows: JsonOptions,
}

impl ChangeFormat {
    /// The names of these formats.
    pub const NAMES: [&'static str; 3] = ["debezium-json", "canal-json", "maxwell-json"];

    /// The format called `name`, its options taken out of `raw`; `None` if it is not one of these.
    ///
    /// # Errors
    /// A wrong option.
    pub fn take(name: &str, raw: &mut RawOptions) -> Result<Option<Self>, FormatError> {
        let rows = |ignore_parse_errors, timestamp_format, decimal_as_plain_number, ignore_null_fields| JsonOptions {
            ignore_parse_errors,
            fail_on_missing_field: false,
            form: JsonForm::Lines,
            timestamp_format,
            decimal_as_plain_number,
            ignore_null_fields,
        };
        Ok(Some(match name {
            "debezium-json" => {
                let o = DebeziumJsonOptions::take(raw)?;
                let rows = rows(o.ignore_parse_errors, o.timestamp_format, o.decimal_as_plain_number, o.ignore_null_fields);
                ChangeFormat { envelope: Envelope::Debezium { schema: o.schema_include }, rows }
            }
            "canal-json" => {
                let o = CanalJsonOptions::take(raw)?;
                let rows = rows(o.ignore_parse_errors, o.timestamp_format, o.decimal_as_plain_number, o.ignore_null_fields);
                ChangeFormat { envelope: Envelope::Canal, rows }
            }
            "maxwell-json" => {
                let o = MaxwellJsonOptions::take(raw)?;
                let rows = rows(o.ignore_parse_errors, o.timestamp_format, o.decimal_as_plain_number, o.ignore_null_fields);
                ChangeFormat { envelope: Envelope::Maxwell, rows }
            }
            _ => return Ok(None),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self.envelope {
            Envelope::Debezium { .. } => Self::NAMES[0],
            Envelope::Canal => Self::NAMES[1],
            Envelope::Maxwell => Self::NAMES[2],
        }
    }

    /// The options of all of them.
    pub fn specs() -> Vec<OptionSpec> {
        [DebeziumJsonOptions::specs(), CanalJsonOptions::specs(), MaxwellJsonOptions::specs()].concat()
    }
}

/// A field of an envelope that means something here.
#[derive(Clone, Copy)]
enum Part {
    Before,
    After,
    Operation,
    Payload,
    Other,
}

/// What an envelope says was done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Insert,
    Update,
    Delete,
    /// Known, and of no row: a change of the table itself, the beginning of a snapshot.
    Nothing,
    Unknown,
}

/// Where the parts of an envelope stand in the message: the first byte of each value that is not null.
#[derive(Default)]
struct Parts {
    before: Option<usize>,
    after: Option<usize>,
    payload: Option<usize>,
    operation: Option<Operation>,
}

impl Envelope {
    /// Takes the message under the cursor, appends its rows, none or more, and their kinds, and gives
    /// how many they are. After an error some columns may have more rows: [`Record::truncate`].
    pub(super) fn read(
        self,
        record: &mut Record,
        scan: &mut Scan<'_>,
        context: &mut Context,
        kinds: &mut Vec<RowKind>,
    ) -> Result<usize, Fault> {
        let mut parts = self.parts(scan, context)?;
        if let Envelope::Debezium { schema: true } = self {
            let absent = || Fault::from("the message has no field 'payload'; leave 'debezium-json.schema-include' out");
            let payload = parts.payload.ok_or_else(absent)?;
            parts = self.parts(&mut at(scan, payload), context)?;
        }
        let operation = match parts.operation {
            Some(Operation::Unknown) => return Err(self.unknown()),
            Some(operation) => operation,
            None => return Err(self.missing(parts.payload)),
        };
        match self {
            Envelope::Debezium { .. } => debezium(operation, &parts, record, scan, context, kinds),
            Envelope::Canal => canal(operation, &parts, record, scan, context, kinds),
            Envelope::Maxwell => maxwell(operation, &parts, record, scan, context, kinds),
        }
    }

    fn part(self, name: &[u8]) -> Part {
        match (self, name) {
            (Envelope::Debezium { .. }, b"before") => Part::Before,
            (Envelope::Debezium { .. }, b"after") => Part::After,
            (Envelope::Debezium { .. }, b"op") => Part::Operation,
            (Envelope::Debezium { .. }, b"payload") => Part::Payload,
            (Envelope::Canal | Envelope::Maxwell, b"old") => Part::Before,
            (Envelope::Canal | Envelope::Maxwell, b"data") => Part::After,
            (Envelope::Canal | Envelope::Maxwell, b"type") => Part::Operation,
            _ => Part::Other,
        }
    }

    fn operation(self, code: &[u8]) -> Operation {
        match (self, code) {
            (Envelope::Debezium { .. }, b"c" | b"r") => Operation::Insert,
            (Envelope::Debezium { .. }, b"u") => Operation::Update,
            (Envelope::Debezium { .. }, b"d") => Operation::Delete,
            (Envelope::Canal, b"INSERT") => Operation::Insert,
            (Envelope::Canal, b"UPDATE") => Operation::Update,
            (Envelope::Canal, b"DELETE") => Operation::Delete,
            (Envelope::Canal, b"CREATE") => Operation::Nothing,
            (Envelope::Maxwell, b"insert" | b"bootstrap-insert") => Operation::Insert,
            (Envelope::Maxwell, b"update") => Operation::Update,
            (Envelope::Maxwell, b"delete") => Operation::Delete,
            (Envelope::Maxwell, b"bootstrap-start" | b"bootstrap-complete") => Operation::Nothing,
            _ => Operation::Unknown,
        }
    }

    /// Takes the object under the cursor and notes where its parts stand.
    fn parts(self, scan: &mut Scan<'_>, context: &mut Context) -> Result<Parts, Fault> {
        let mut parts = Parts::default();
        scan.take(b'{', "'{'")?;
        scan.blanks();
        if scan.peek() == b'}' {
            scan.at += 1;
            return Ok(parts);
        }
        loop {
            if scan.peek() != b'"' {
                return Err(scan.expected("a field name"));
            }
            let part = self.part(scan.string(&mut context.scratch)?);
            scan.colon()?;
            let from = (scan.peek() != b'n').then_some(scan.at);
            match part {
                Part::Operation if scan.peek() == b'"' => {
                    parts.operation = Some(self.operation(scan.string(&mut context.scratch)?));
                }
                _ => scan.skip()?,
            }
            match part {
                Part::Before => parts.before = from,
                Part::After => parts.after = from,
                Part::Payload => parts.payload = from,
                Part::Operation | Part::Other => {}
            }
            if !scan.more(b'}')? {
                return Ok(parts);
            }
        }
    }

    #[cold]
    fn missing(self, payload: Option<usize>) -> Fault {
        match self {
            Envelope::Debezium { schema: false } if payload.is_some() => {
                "the message has no field 'op' but a field 'payload'; set 'debezium-json.schema-include' = 'true'".into()
            }
            Envelope::Debezium { .. } => "the message has no field 'op' that says what was done".into(),
            Envelope::Canal | Envelope::Maxwell => "the message has no field 'type' that says what was done".into(),
        }
    }

    #[cold]
    fn unknown(self) -> Fault {
        match self {
            Envelope::Debezium { .. } => "the field 'op' is none of c, r, u, d".into(),
            Envelope::Canal => "the field 'type' is none of INSERT, UPDATE, DELETE, CREATE".into(),
            Envelope::Maxwell => "the field 'type' is none of insert, update, delete, bootstrap-insert".into(),
        }
    }
}

/// A cursor over the same message somewhere else.
fn at<'a>(scan: &Scan<'a>, at: usize) -> Scan<'a> {
    Scan { bytes: scan.bytes, at }
}

#[cold]
fn absent(field: &str, of: &str) -> Fault {
    format!("the field '{field}' of {of} is missing or null").into()
}

fn debezium(
    operation: Operation,
    parts: &Parts,
    record: &mut Record,
    scan: &Scan<'_>,
    context: &mut Context,
    kinds: &mut Vec<RowKind>,
) -> Result<usize, Fault> {
    let mut row = |from: usize, kind: RowKind| -> Result<(), Fault> {
        record.read(&mut at(scan, from), context)?;
        kinds.push(kind);
        Ok(())
    };
    // Without the row before there is nothing to take back.
    let before = |of: &str| -> Result<usize, Fault> {
        parts.before.ok_or_else(|| {
            format!("the field 'before' of {of} is missing or null; in PostgreSQL the table needs REPLICA IDENTITY FULL").into()
        })
    };
    match operation {
        Operation::Insert => {
            row(parts.after.ok_or_else(|| absent("after", "an insert"))?, RowKind::Insert)?;
            Ok(1)
        }
        Operation::Update => {
            row(before("an update")?, RowKind::UpdateBefore)?;
            row(parts.after.ok_or_else(|| absent("after", "an update"))?, RowKind::UpdateAfter)?;
            Ok(2)
        }
        Operation::Delete => {
            row(before("a deletion")?, RowKind::Delete)?;
            Ok(1)
        }
        Operation::Nothing | Operation::Unknown => Ok(0),
    }
}

fn maxwell(
    operation: Operation,
    parts: &Parts,
    record: &mut Record,
    scan: &Scan<'_>,
    context: &mut Context,
    kinds: &mut Vec<RowKind>,
) -> Result<usize, Fault> {
    if operation == Operation::Nothing {
        return Ok(0);
    }
    let data = parts.after.ok_or_else(|| absent("data", "a change"))?;
    let kind = match operation {
        Operation::Update => {
            let old = parts.before.ok_or_else(|| absent("old", "an update"))?;
            record.read_over(&mut at(scan, data), &mut at(scan, old), context)?;
            kinds.push(RowKind::UpdateBefore);
            RowKind::UpdateAfter
        }
        Operation::Delete => RowKind::Delete,
        _ => RowKind::Insert,
    };
    record.read(&mut at(scan, data), context)?;
    kinds.push(kind);
    Ok(if kind == RowKind::UpdateAfter { 2 } else { 1 })
}

fn canal(
    operation: Operation,
    parts: &Parts,
    record: &mut Record,
    scan: &Scan<'_>,
    context: &mut Context,
    kinds: &mut Vec<RowKind>,
) -> Result<usize, Fault> {
    if operation == Operation::Nothing {
        return Ok(0);
    }
    let data = elements(&mut at(scan, parts.after.ok_or_else(|| absent("data", "a change"))?))?;
    if operation == Operation::Update {
        let old = elements(&mut at(scan, parts.before.ok_or_else(|| absent("old", "an update"))?))?;
        if old.len() != data.len() {
            return Err(format!("'data' has {} rows and 'old' has {}", data.len(), old.len()).into());
        }
        for (new, old) in data.iter().zip(old) {
            // Only columns that changed stand in 'old'.
            record.read_over(&mut at(scan, *new), &mut at(scan, old), context)?;
            record.read(&mut at(scan, *new), context)?;
            kinds.extend([RowKind::UpdateBefore, RowKind::UpdateAfter]);
        }
        return Ok(data.len() * 2);
    }
    let kind = if operation == Operation::Delete { RowKind::Delete } else { RowKind::Insert };
    for row in &data {
        record.read(&mut at(scan, *row), context)?;
    }
    kinds.extend(repeat_n(kind, data.len()));
    Ok(data.len())
}

/// Where the elements of the array under the cursor begin.
fn elements(scan: &mut Scan<'_>) -> Result<Vec<usize>, Fault> {
    let mut places = Vec::new();
    scan.take(b'[', "'['")?;
    scan.blanks();
    if scan.peek() == b']' {
        return Ok(places);
    }
    loop {
        places.push(scan.at);
        scan.skip()?;
        if !scan.more(b']')? {
            return Ok(places);
        }
    }
}

/// Writes changes: an inserted row and the new one of an update as an insert, a deleted row and the old
/// one of an update as a deletion, as Flink does.
pub struct ChangeEncoder {
    rows: JsonEncoder,
    envelope: Envelope,
    skip_nulls: bool,
}

impl ChangeEncoder {
    /// An encoder for rows of `schema`.
    ///
    /// # Errors
    /// A column type that JSON cannot express; messages with a schema, which are only read.
    pub fn new(format: &ChangeFormat, schema: &SchemaRef) -> Result<Self, FormatError> {
        if let Envelope::Debezium { schema: true } = format.envelope {
            return Err(FormatError::unsupported(
                "the debezium-json format does not write schemas; leave 'debezium-json.schema-include' out to write",
            ));
        }
        Ok(ChangeEncoder {
            rows: JsonEncoder::new(&format.rows, schema)?,
            envelope: format.envelope,
            skip_nulls: format.rows.ignore_null_fields,
        })
    }

    /// Appends the change of each row of a block; `end` is called behind each.
    ///
    /// # Errors
    /// None that rows of the schema can cause.
    pub(crate) fn changes(&self, block: &Block, out: &mut Vec<u8>, mut end: impl FnMut(&mut Vec<u8>)) -> Result<(), FormatError> {
        let batch: &RecordBatch = &block.batch;
        self.rows.with_rows(batch, |rows| {
            for row in 0..block.rows() {
                self.change(rows, row, block.kind(row).adds(), out);
                end(out);
            }
        })
    }

    #[inline]
    fn change(&self, rows: &JsonRows<'_>, row: usize, adds: bool, out: &mut Vec<u8>) {
        // What stands in front of the row and behind it.
        let (front, behind): (&[u8], &[u8]) = match (self.envelope, adds, self.skip_nulls) {
            (Envelope::Debezium { .. }, true, false) => (b"{\"before\":null,\"after\":", b",\"op\":\"c\"}"),
            (Envelope::Debezium { .. }, true, true) => (b"{\"after\":", b",\"op\":\"c\"}"),
            (Envelope::Debezium { .. }, false, false) => (b"{\"before\":", b",\"after\":null,\"op\":\"d\"}"),
            (Envelope::Debezium { .. }, false, true) => (b"{\"before\":", b",\"op\":\"d\"}"),
            (Envelope::Canal, true, _) => (b"{\"data\":[", b"],\"type\":\"INSERT\"}"),
            (Envelope::Canal, false, _) => (b"{\"data\":[", b"],\"type\":\"DELETE\"}"),
            (Envelope::Maxwell, true, _) => (b"{\"data\":", b",\"type\":\"insert\"}"),
            (Envelope::Maxwell, false, _) => (b"{\"data\":", b",\"type\":\"delete\"}"),
        };
        out.extend_from_slice(front);
        rows.write(row, out);
        out.extend_from_slice(behind);
    }
}

impl Encoder for ChangeEncoder {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.changes(block, out, |out| out.push(b'\n'))
    }
}
