//! The connector `print`: a sink that writes changelog rows for people, as Flink's does: `+I[a, 1]`.
//!
//! Values look as Java writes them: `null`, `1.0E10`, `2024-01-31T09:30`, `[1, 2]`, `{k=v}`.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    SchemaRef, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_block::{Block, value};
use tidemill_format::options;
use tidemill_format::options::{OptionSet, RawOptions};

use crate::registry::Connector;
use crate::stdio::Output;
use crate::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "print",
    help: "Writes each row with its kind to standard output, for looking at a result: `+I[a, 1]`.",
    specs: PrintOptions::specs,
    takes_format: false,
    source: None,
    sink: Some(sink),
    lookup: None,
};

options! {
    /// Options of the connector `print`.
    pub struct PrintOptions {
        /// Stands in front of every line, followed by `> `, or by `:n> ` if several writers run in
        /// parallel.
        flink "print-identifier" => print_identifier: Option<String>;
        /// Writes to standard error instead of standard output.
        flink "standard-error" => standard_error: bool = false;
    }
}

fn sink(_schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    Ok(Box::new(Print { options: PrintOptions::take(raw)? }))
}

struct Print {
    options: PrintOptions,
}

impl Sink for Print {
    fn accepts_updates(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let output = if self.options.standard_error { Output::stderr() } else { Output::stdout() };
        let identifier = self.options.print_identifier.as_deref().unwrap_or("");
        Ok(Box::new(PrintWriter { prefix: prefix(identifier, context.shard, context.shards), output }))
    }
}

/// What stands in front of each line of writer `shard`, counted from 0.
fn prefix(identifier: &str, shard: usize, shards: usize) -> String {
    match (identifier, shards > 1) {
        ("", false) => String::new(),
        (id, false) => format!("{id}> "),
        ("", true) => format!("{}> ", shard + 1),
        (id, true) => format!("{id}:{}> ", shard + 1),
    }
}

struct PrintWriter {
    prefix: String,
    output: Output,
}

impl Writer for PrintWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let cells = block.batch.columns().iter().map(|c| cell(c.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let out = self.output.buffer();
        for row in 0..block.rows() {
            out.extend_from_slice(self.prefix.as_bytes());
            out.extend_from_slice(block.kind(row).short().as_bytes());
            write_list(out, b"[]", cells.iter(), |out, cell| cell(row, out));
            out.push(b'\n');
        }
        self.output.written()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.output.flush()
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.output.flush()?;
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        self.output.stats()
    }
}

/// Appends the value of a row of one column.
type Cell<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

fn write_list<T>(out: &mut Vec<u8>, brackets: &[u8; 2], items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(brackets[0]);
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        write(out, item);
    }
    out.push(brackets[1]);
}

/// The printer of a column, chosen once a block.
fn cell(array: &dyn Array) -> Result<Cell<'_>, ConnectError> {
    let values = values(array)?;
    Ok(match array.nulls() {
        None => values,
        Some(nulls) => Box::new(move |row, out| match nulls.is_valid(row) {
            true => values(row, out),
            false => out.extend_from_slice(b"null"),
        }),
    })
}

fn values(array: &dyn Array) -> Result<Cell<'_>, ConnectError> {
    fn numbers<'a, P: ArrowPrimitiveType>(array: &'a dyn Array, write: impl Fn(&mut Vec<u8>, P::Native) + 'a) -> Cell<'a> {
        let values = array.as_primitive::<P>().values();
        Box::new(move |row, out| write(out, values[row]))
    }
    fn integers<P: ArrowPrimitiveType>(array: &dyn Array) -> Cell<'_>
    where
        P::Native: Into<i64>,
    {
        numbers::<P>(array, |out, v| value::write_i64(out, v.into()))
    }
    fn stamps<P: ArrowPrimitiveType<Native = i64>>(array: &dyn Array, unit: TimeUnit, zoned: bool) -> Cell<'_> {
        numbers::<P>(array, move |out, v| if zoned { write_instant(out, v, unit) } else { write_local(out, v, unit) })
    }
    fn clocks<P: ArrowPrimitiveType>(array: &dyn Array, unit: TimeUnit) -> Cell<'_>
    where
        P::Native: Into<i64>,
    {
        numbers::<P>(array, move |out, v| write_clock(out, v.into(), unit))
    }
    Ok(match array.data_type() {
        DataType::Null => Box::new(|_, out| out.extend_from_slice(b"null")),
        DataType::Boolean => {
            let values = array.as_boolean().values();
            Box::new(|row, out| out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }))
        }
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::Float32 => numbers::<Float32Type>(array, value::write_f32),
        DataType::Float64 => numbers::<Float64Type>(array, value::write_f64),
        DataType::Decimal128(_, scale) => numbers::<Decimal128Type>(array, |out, v| write_big_decimal(out, v, *scale)),
        DataType::Date32 => numbers::<Date32Type>(array, value::write_date),
        DataType::Time32(TimeUnit::Second) => clocks::<Time32SecondType>(array, TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond) => clocks::<Time32MillisecondType>(array, TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond) => clocks::<Time64MicrosecondType>(array, TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond) => clocks::<Time64NanosecondType>(array, TimeUnit::Nanosecond),
        DataType::Timestamp(unit, zone) => match unit {
            TimeUnit::Second => stamps::<TimestampSecondType>(array, *unit, zone.is_some()),
            TimeUnit::Millisecond => stamps::<TimestampMillisecondType>(array, *unit, zone.is_some()),
            TimeUnit::Microsecond => stamps::<TimestampMicrosecondType>(array, *unit, zone.is_some()),
            TimeUnit::Nanosecond => stamps::<TimestampNanosecondType>(array, *unit, zone.is_some()),
        },
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            Box::new(|row, out| out.extend_from_slice(values.value(row).as_bytes()))
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            Box::new(|row, out| out.extend_from_slice(values.value(row).as_bytes()))
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            Box::new(|row, out| out.extend_from_slice(values.value(row).as_bytes()))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            Box::new(|row, out| write_list(out, b"[]", values.value(row), |out, b| value::write_i64(out, *b as i8 as i64)))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let item = cell(list.values().as_ref())?;
            Box::new(move |row, out| {
                let offsets = list.value_offsets();
                write_list(out, b"[]", offsets[row] as usize..offsets[row + 1] as usize, |out, i| item(i, out));
            })
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let (key, value) = (cell(map.keys().as_ref())?, cell(map.values().as_ref())?);
            Box::new(move |row, out| {
                let offsets = map.value_offsets();
                write_list(out, b"{}", offsets[row] as usize..offsets[row + 1] as usize, |out, i| {
                    key(i, out);
                    out.push(b'=');
                    value(i, out);
                });
            })
        }
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter().map(|c| cell(c.as_ref())).collect::<Result<Vec<_>, _>>()?;
            Box::new(move |row, out| {
                out.extend_from_slice(b"+I");
                write_list(out, b"[]", fields.iter(), |out, field| field(row, out));
            })
        }
        other => {
            let formatter = ArrayFormatter::try_new(array, &FormatOptions::new())
                .map_err(|e| ConnectError::new(format!("printing a column of type {other}: {e}; cast it to STRING in the query")))?;
            Box::new(move |row, out| out.extend_from_slice(formatter.value(row).to_string().as_bytes()))
        }
    })
}

/// As Java's `LocalDateTime.toString`: `2024-01-31T09:30`, seconds and fraction only if not zero.
fn write_local(out: &mut Vec<u8>, v: i64, unit: TimeUnit) {
    let begin = out.len();
    write_iso(out, v, unit);
    drop_seconds(out, begin);
}

/// As Java's `Instant.toString`: `2024-01-31T09:30:00Z`.
fn write_instant(out: &mut Vec<u8>, v: i64, unit: TimeUnit) {
    write_iso(out, v, unit);
    out.push(b'Z');
}

/// As Java's `LocalTime.toString`: `09:30`, `09:30:00.500`.
fn write_clock(out: &mut Vec<u8>, v: i64, unit: TimeUnit) {
    let begin = out.len();
    write_iso(out, v, unit);
    out.drain(begin..begin + "1970-01-01T".len());
    drop_seconds(out, begin);
}

/// Date and time, the fraction with 0, 3, 6 or 9 digits.
fn write_iso(out: &mut Vec<u8>, v: i64, unit: TimeUnit) {
    let begin = out.len();
    value::write_timestamp(out, v, unit, 0);
    let blank = out[begin..].iter().position(|b| *b == b' ').expect("a blank between date and time");
    out[begin + blank] = b'T';
    // Behind the blank: HH:mm:ss, perhaps a point and digits.
    let digits = (out.len() - begin - blank - 1).saturating_sub("HH:mm:ss.".len());
    out.extend(std::iter::repeat_n(b'0', digits.next_multiple_of(3) - digits));
}

/// Takes away seconds that are zero and have no fraction.
fn drop_seconds(out: &mut Vec<u8>, begin: usize) {
    // Behind a fraction there is never a colon.
    if out[begin..].ends_with(b":00") {
        out.truncate(out.len() - ":00".len());
    }
}

/// As Java's `BigDecimal.toString`: plain, but `1E-7` for what is below a millionth.
fn write_big_decimal(out: &mut Vec<u8>, v: i128, scale: i8) {
    let digits = v.unsigned_abs().to_string();
    let exponent = digits.len() as i32 - 1 - scale as i32;
    if scale >= 0 && exponent >= -6 {
        return value::write_decimal(out, v, scale);
    }
    if v < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits.as_bytes()[..1]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"E" } else { b"E+" });
    value::write_i64(out, exponent as i64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, BinaryArray, Int32Builder, Int64Array, ListArray, MapBuilder, RecordBatch, StringArray, StringBuilder, StructArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tidemill_block::text;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn printed(block: &Block, prefix: &str) -> String {
        let shared = Shared::default();
        let mut writer = PrintWriter { prefix: prefix.into(), output: Output::new(shared.clone(), "standard output") };
        writer.write(block).unwrap();
        writer.flush().unwrap();
        let text = shared.0.lock().unwrap().clone();
        assert_eq!(writer.stats().bytes, text.len() as u64);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn rows_with_kinds_and_prefix() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]));
        let block = text::parse(&schema, "a 1\n-U a 1\n+U a NULL\n-D NULL 3");
        assert_eq!(printed(&block, ""), "+I[a, 1]\n-U[a, 1]\n+U[a, null]\n-D[null, 3]\n");
        assert_eq!(printed(&block.slice(0, 1), "x:2> "), "x:2> +I[a, 1]\n");
    }

    #[test]
    fn prefixes_as_flink_has_them() {
        let cases = [("", 0, 1, ""), ("id", 0, 1, "id> "), ("", 1, 3, "2> "), ("id", 1, 3, "id:2> ")];
        for (identifier, shard, shards, expect) in cases {
            assert_eq!(prefix(identifier, shard, shards), expect);
        }
    }

    #[track_caller]
    fn check_array(array: ArrayRef, expect: &[&str]) {
        let schema = Schema::new(vec![Field::new("c", array.data_type().clone(), true)]);
        let block = Block::inserts(RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap(), 0);
        let text = printed(&block, "");
        let values: Vec<&str> = text.lines().map(|l| l.strip_prefix("+I[").unwrap().strip_suffix(']').unwrap()).collect();
        assert_eq!(values, expect);
    }

    #[track_caller]
    fn check(data_type: DataType, written: &str, expect: &str) {
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some(written), None]));
        check_array(cast(&strings, &data_type).unwrap(), &[expect, "null"]);
    }

    #[test]
    fn values_look_as_in_java() {
        let local = |unit| DataType::Timestamp(unit, None);
        let zoned = |unit| DataType::Timestamp(unit, Some("UTC".into()));
        check(DataType::Boolean, "true", "true");
        check(DataType::Int8, "-7", "-7");
        check(DataType::Float64, "1e10", "1.0E10");
        check(DataType::Float64, "3", "3.0");
        check(DataType::Float32, "0.1", "0.1");
        check(DataType::Decimal128(6, 2), "12.5", "12.50");
        check(DataType::Decimal128(12, 9), "0.000001", "0.000001000");
        check(DataType::Decimal128(12, 9), "-0.00000012", "-1.20E-7");
        check(DataType::Decimal128(12, 10), "0", "0E-10");
        check(DataType::Utf8View, "a, b", "a, b");
        check(DataType::Date32, "2024-01-31", "2024-01-31");
        check(local(TimeUnit::Millisecond), "2024-01-01T00:00:00", "2024-01-01T00:00");
        check(local(TimeUnit::Millisecond), "2024-01-01T00:00:10", "2024-01-01T00:00:10");
        check(local(TimeUnit::Millisecond), "2024-01-01T00:00:00.5", "2024-01-01T00:00:00.500");
        check(local(TimeUnit::Microsecond), "2024-01-01T00:00:00.1234", "2024-01-01T00:00:00.123400");
        check(local(TimeUnit::Nanosecond), "2024-01-01T00:00:00.000000001", "2024-01-01T00:00:00.000000001");
        check(local(TimeUnit::Second), "2024-01-01T10:00:00", "2024-01-01T10:00");
        check(zoned(TimeUnit::Millisecond), "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
        check(zoned(TimeUnit::Millisecond), "2024-01-01T00:00:00.25Z", "2024-01-01T00:00:00.250Z");
        check(DataType::Time32(TimeUnit::Millisecond), "10:30:00", "10:30");
        check(DataType::Time32(TimeUnit::Second), "10:30:05", "10:30:05");
        check(DataType::Time64(TimeUnit::Microsecond), "00:00:00.5", "00:00:00.500");
    }

    #[test]
    fn nested_values() {
        check_array(Arc::new(BinaryArray::from(vec![Some(&[1u8, 255][..]), Some(b""), None])), &["[1, -1]", "[]", "null"]);
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        check_array(Arc::new(list), &["[1, null]", "null", "[]"]);
        let field = |name, t| Arc::new(Field::new(name, t, true));
        let columns = vec![
            (field("k", DataType::Utf8), Arc::new(StringArray::from(vec!["a"])) as ArrayRef),
            (field("n", DataType::Int64), Arc::new(Int64Array::from(vec![None])) as ArrayRef),
        ];
        check_array(Arc::new(StructArray::from(columns)), &["+I[a, null]"]);
        let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        map.keys().append_value("x");
        map.values().append_value(1);
        map.keys().append_value("y");
        map.values().append_null();
        map.append(true).unwrap();
        check_array(Arc::new(map.finish()), &["{x=1, y=null}"]);
    }
}
