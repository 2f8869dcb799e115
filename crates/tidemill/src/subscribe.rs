//! `subscribe`: the rows of a stream on standard output.

use std::io::{StdoutLock, Write};
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{ConnectError, Waker};
use tidemill_format::Encoder;
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;
use tidemill_plan::message;
use tidemill_remote::flight::client::{Client, has_row_kind};
use tidemill_remote::flight::options::Request;
use tidemill_remote::flight::subscriber::{Message, Received, Subscriber, SubscriberOptions, acknowledge_once};

use crate::Failure;
use crate::adapter::{block_rows, failed, flight_options, stop_flag};
use crate::args::{Output, SubscribeArgs};

/// Text is handed on when it makes so many bytes, or when no more rows are at hand.
const BUFFER_BYTES: usize = 256 << 10;

pub fn subscribe(args: &SubscribeArgs) -> Result<(), Failure> {
    let more = [("from", &args.from), ("filter", &args.condition), ("name", &args.name)];
    let more = more.into_iter().filter_map(|(key, value)| Some((key.to_string(), value.clone()?))).collect();
    let options = flight_options(&args.url, &args.remote, more)?;
    let columns: Vec<String> = args.columns.iter().map(|c| c.trim().to_string()).filter(|c| !c.is_empty()).collect();
    let block_size = block_rows(args.block_size.as_ref())?;
    let request = Request { columns: (!columns.is_empty()).then_some(columns), block_size, ..Request::of(&options) };
    if args.limit == Some(0) {
        return Ok(());
    }
    let client = options.client().map_err(failed)?;
    let wanted = SubscriberOptions {
        request: request.clone(),
        behind: None,
        window: options.window.0 as usize,
        reconnect: options.reconnect(),
        updating: true,
    };
    let stop = stop_flag("printing what has come")?;
    let mut subscriber = Subscriber::start(client.clone(), wanted, Waker::noop()).map_err(failed)?;
    let schema = match subscriber.wait_schema(&stop) {
        Ok(schema) => schema,
        // Nothing was printed, so there is nothing to be said about it.
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let mut printer = Printer::new(args.format, &schema)?;
    let mut taken = Taken { client, request, offset: None };
    let mut left = args.limit.unwrap_or(u64::MAX);
    let result = loop {
        let received = match subscriber.try_next() {
            Ok(Received::Pending) => {
                printer.flush()?;
                taken.acknowledge(&subscriber);
                subscriber.next(&stop)
            }
            other => other,
        };
        match received {
            Ok(Received::Rows(message)) => {
                let rows = (message.batch.num_rows() as u64).min(left);
                printer.print(&message.batch.slice(0, rows as usize))?;
                left -= rows;
                taken.offset = reached(&message, rows, taken.request.filter.is_some()).or(taken.offset);
                if left == 0 {
                    break Ok(());
                }
            }
            Ok(Received::Pending | Received::End) => break Ok(()),
            Err(error) => break Err(failed(error)),
        }
    };
    printer.flush()?;
    taken.acknowledge_last(&subscriber);
    let (_, gaps) = subscriber.breaks();
    if gaps > 0 {
        eprintln!("{}: the connection broke {gaps} times in a way that rows may be missing", args.url);
    }
    result
}

/// The number of the row behind the first `rows` of a message, if it is known: behind a part of it only
/// where its rows are numbered one by one, which those that a filter has left and those of contents are not.
fn reached(message: &Message, rows: u64, filtered: bool) -> Option<u64> {
    let over = message.batch.num_rows() as u64 - rows;
    match over == 0 || !(filtered || message.snapshot) {
        true => message.next_offset?.checked_sub(over),
        false => None,
    }
}

/// What was printed, for the server.
struct Taken {
    client: Client,
    request: Request,
    offset: Option<u64>,
}

impl Taken {
    /// Tells the server what need not come again.
    fn acknowledge(&self, subscriber: &Subscriber) {
        if let (Some(offset), Some(_)) = (self.offset, &self.request.name) {
            // If the subscription has ended the last word is said otherwise.
            let _ = subscriber.acknowledger().acknowledge(offset);
        }
    }

    /// The same for the last time: it must have arrived before the process ends.
    fn acknowledge_last(&self, subscriber: &Subscriber) {
        let (Some(offset), Some(_)) = (self.offset, &self.request.name) else { return };
        let acknowledger = subscriber.acknowledger();
        if acknowledger.acknowledge(offset) && acknowledger.flush() {
            // On its way is not there: the connection ends with the process.
            std::thread::sleep(std::time::Duration::from_millis(100));
            return;
        }
        if let Err(error) = acknowledge_once(&self.client, &self.request, offset) {
            eprintln!("{error}");
        }
    }
}

/// Prints rows.
struct Printer {
    out: StdoutLock<'static>,
    buffer: Vec<u8>,
    form: Form,
}

enum Form {
    Text(Box<dyn Encoder>),
    Table(Table),
}

impl Printer {
    fn new(output: Output, schema: &SchemaRef) -> Result<Self, Failure> {
        let mut buffer = Vec::new();
        let text = |name: &str, options: Vec<(String, String)>| {
            let format = TextFormat::take(name, &mut RawOptions::new("standard output", options))?;
            format.encoder(schema)
        };
        let encoder = match output {
            Output::Csv => Some(text("csv", vec![("csv.header".to_string(), "skip".to_string())])),
            Output::Json => Some(text("json", Vec::new())),
            Output::Table => None,
        };
        let form = match encoder.transpose().map_err(|e| failed(ConnectError::from(e)))? {
            Some(mut encoder) => {
                encoder.begin(&mut buffer);
                Form::Text(encoder)
            }
            None => Form::Table(Table::new(schema)),
        };
        Ok(Printer { out: std::io::stdout().lock(), buffer, form })
    }

    fn print(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        match &mut self.form {
            Form::Text(encoder) => {
                encoder.encode(&Block::inserts(batch.clone(), 0), &mut self.buffer).map_err(|e| failed(ConnectError::from(e)))?;
            }
            Form::Table(table) => table.print(batch, &mut self.buffer)?,
        }
        if self.buffer.len() >= BUFFER_BYTES { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> Result<(), Failure> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|e| failed(ConnectError::io("writing to standard output", &e)))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.hand_on()?;
        self.out.flush().map_err(|e| failed(ConnectError::io("writing to standard output", &e)))
    }
}

/// A table whose end nobody knows: columns grow as wider values come.
struct Table {
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    /// The last column says what a row does.
    kinds: bool,
    begun: bool,
}

impl Table {
    fn new(schema: &SchemaRef) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        let kinds = has_row_kind(schema);
        let last = names.len().saturating_sub(1);
        Table {
            right: schema.fields().iter().enumerate().map(|(i, f)| f.data_type().is_numeric() && !(kinds && i == last)).collect(),
            widths: names.iter().map(|n| n.chars().count()).collect(),
            names,
            kinds,
            begun: false,
        }
    }

    fn print(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Failure> {
        let options = FormatOptions::new().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
        let columns = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| failed(ConnectError::new(message::of_arrow(&e))))?;
        let last = columns.len().saturating_sub(1);
        let cell = |row: usize, column: usize| {
            let text = columns[column].value(row).to_string();
            let kind = if self.kinds && column == last { text.parse().ok().and_then(RowKind::from_byte) } else { None };
            kind.map_or(text, |kind| kind.short().to_string())
        };
        let cells: Vec<Vec<String>> =
            (0..batch.num_rows()).map(|row| (0..columns.len()).map(|column| cell(row, column)).collect()).collect();
        for row in &cells {
            row.iter().zip(&mut self.widths).for_each(|(text, width)| *width = (*width).max(text.chars().count()));
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.line(&self.names, out);
            let rule: Vec<String> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
            self.line(&rule, out);
        }
        cells.iter().for_each(|row| self.line(row, out));
        Ok(())
    }

    fn line(&self, cells: &[String], out: &mut Vec<u8>) {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(self.widths[i] - cell.chars().count());
            let gap = if i > 0 { "  " } else { "" };
            line += &if self.right[i] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        out.extend_from_slice(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{Int8Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    #[test]
    fn a_part_of_a_message_has_an_end_of_its_own() {
        let numbers: arrow::array::ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let check = |next_offset: Option<u64>, snapshot: bool, rows: u64, filtered: bool, expect: Option<u64>| {
            let message = Message { batch: batch.clone(), next_offset, snapshot, arrival_ns: 0, bytes: 0 };
            assert_eq!(reached(&message, rows, filtered), expect, "{rows} rows, next {next_offset:?}, {snapshot}, {filtered}");
        };
        check(Some(10), false, 3, false, Some(10));
        check(Some(10), false, 1, false, Some(8));
        check(Some(10), false, 3, true, Some(10));
        check(Some(10), false, 1, true, None);
        check(Some(10), true, 3, false, Some(10));
        check(Some(10), true, 1, false, None);
        check(None, false, 1, false, None);
    }

    #[test]
    fn a_table_grows() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("name", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
            Field::new("row_kind", DataType::Int8, false),
        ]));
        let batch = |names: Vec<Option<&str>>, numbers: Vec<i64>, kinds: Vec<i8>| {
            let columns: Vec<arrow::array::ArrayRef> =
                vec![Arc::new(StringArray::from(names)), Arc::new(Int64Array::from(numbers)), Arc::new(Int8Array::from(kinds))];
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        };
        let (mut table, mut out) = (Table::new(&schema), Vec::new());
        table.print(&batch(vec![Some("a"), None], vec![1, 20], vec![0, 1]), &mut out).unwrap();
        table.print(&batch(vec![Some("longer")], vec![300], vec![2]), &mut out).unwrap();
        let expect = "name   n  row_kind\n----  --  --------\na      1  +I\nNULL  20  -U\nlonger  300  +U\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}
