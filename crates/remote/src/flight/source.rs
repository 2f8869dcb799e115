//! Rows of a stream that is subscribed to: one split, whose position is a row's number.

use std::sync::{Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int8Type, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_block::RowKind;
use tidemill_connect::{Changelog, ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split};
use tidemill_format::types::{plain_type, type_name};

use super::client::{Client, ROW_KIND};
use super::options::{Changes, FlightOptions, Request, Start};
use super::subscriber::{Acknowledger, Message, Received, Subscriber, SubscriberOptions, acknowledge_once};

/// Messages of fewer rows are joined with those behind them that are at hand.
const ROWS_ENOUGH: usize = 1024;

/// The source.
pub(super) struct FlightSource {
    options: FlightOptions,
    client: Client,
    /// Of the reader that was opened last.
    acknowledger: Mutex<Option<Acknowledger>>,
}

impl FlightSource {
    pub fn new(options: FlightOptions, client: Client) -> Self {
        FlightSource { options, client, acknowledger: Mutex::new(None) }
    }
}

impl Source for FlightSource {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(self.client.stream())])
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let position = split.position.as_ref().map_or(Ok(Position::default()), Position::parse).map_err(|e| e.at(self.client.place()))?;
        // Rows are counted from a number only.
        let position = Position { skip: if position.offset.is_some() { position.skip } else { 0 }, ..position };
        let applies = self.options.changes == Changes::Apply;
        if applies && position.contents > 0 {
            return Err(ConnectError::new(format!(
                "{}: the checkpoint lies within the contents of the stream, of which nobody can have the rest; start the job afresh",
                self.client.place()
            )));
        }
        let request = Request { columns: Some(columns(&context.request)), ..Request::of(&self.options) };
        let contents = position.offset.is_none() && request.from == Start::Snapshot;
        let options = SubscriberOptions {
            request,
            behind: position.offset,
            window: self.options.window.0 as usize,
            reconnect: self.options.reconnect(),
            updating: self.options.changes != Changes::Refuse,
        };
        let subscriber = Subscriber::start(self.client.clone(), options, context.waker)?;
        *self.acknowledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(subscriber.acknowledger());
        Ok(Box::new(FlightReader {
            subscriber,
            place: self.client.place().to_string(),
            request: context.request,
            mapping: None,
            applies,
            current: None,
            ended: false,
            contents,
            to_skip: position.skip,
            position,
        }))
    }

    fn changelog(&self) -> Changelog {
        if self.options.changes == Changes::Apply { Changelog::All } else { Changelog::Append }
    }

    fn committed(&self, positions: &[Value]) {
        if self.options.name.is_none() {
            return;
        }
        // A split that was not begun has no position.
        let Some(offset) = positions.iter().filter_map(|p| Position::parse(p).ok()?.offset).min() else { return };
        let acknowledger = self.acknowledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // When the stream has ended so has this job, and its process may be about to: then the server must
        // have heard it.
        if acknowledger.is_some_and(|a| a.acknowledge(offset) && (!a.over() || a.flush())) {
            return;
        }
        if let Err(error) = acknowledge_once(&self.client, &Request::of(&self.options), offset) {
            tidemill_connect::notice(&error.to_string());
        }
    }
}

/// The columns to ask for.
fn columns(request: &ReadRequest) -> Vec<String> {
    let name = |index: usize| request.physical.field(index).name().clone();
    if request.projection.is_empty() {
        // Only rows are counted, and some column must carry them.
        return vec![name(0)];
    }
    let mut names: Vec<String> = Vec::with_capacity(request.projection.len());
    for index in &request.projection {
        let name = name(*index);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The number of a row of the stream; `None` before the first is known.
    offset: Option<u64>,
    /// Rows behind it that were given, counted behind the filter.
    #[serde(default)]
    skip: u64,
    /// Rows of the contents that were given, as long as not all were: changes are applied to them, so they must not
    /// come twice. Not counted where nothing is applied.
    #[serde(default, skip_serializing_if = "nothing")]
    contents: u64,
}

fn nothing(rows: &u64) -> bool {
    *rows == 0
}

impl Position {
    fn parse(value: &Value) -> Result<Self, ConnectError> {
        Position::deserialize(value).map_err(|e| ConnectError::new(format!("the position {value} is not one of a stream: {e}")))
    }
}

/// A message that is being given.
struct Current {
    batch: RecordBatch,
    /// What the rows do, if that is applied and not all are new ones.
    kinds: Option<Vec<RowKind>>,
    /// Rows given.
    at: usize,
    next_offset: Option<u64>,
    /// Contents: there is no going on in the middle of them, so a restart reads them from the
    /// beginning.
    snapshot: bool,
    arrival_ns: u64,
    bytes: u64,
}

struct FlightReader {
    subscriber: Subscriber,
    place: String,
    request: ReadRequest,
    mapping: Option<Mapping>,
    /// Rows are inserted, updated and deleted.
    applies: bool,
    current: Option<Current>,
    ended: bool,
    /// It begins with contents, in which there is no going on.
    contents: bool,
    position: Position,
    /// Rows that come again, since they stand between the position's offset and the position.
    to_skip: u64,
}

impl FlightReader {
    /// Makes the next message the current one; false if there is none at the moment.
    fn fetch(&mut self) -> Result<bool, ConnectError> {
        let received = self.subscriber.try_next()?;
        if self.applies && !matches!(received, Received::Pending) && self.subscriber.breaks().1 > 0 {
            return Err(ConnectError::new(format!(
                "{}: the connection was broken, and changes that came meanwhile are missing, without which those that follow give wrong \
                 results; start the job afresh, or let the stream be 'exactly-once' ('stream.delivery')",
                self.place
            )));
        }
        let message = match received {
            Received::Rows(message) => message,
            Received::Pending => return Ok(false),
            Received::End => {
                self.ended = true;
                return Ok(false);
            }
        };
        if self.mapping.is_none() {
            let wire = self.subscriber.schema().expect("known before rows");
            self.mapping = Some(Mapping::new(&wire, &self.request).map_err(|e| e.at(&self.place))?);
            if self.subscriber.breaks().1 > 0 {
                // A live stream: what comes is not what stood there.
                self.to_skip = 0;
                self.position = Position { offset: self.subscriber.began(), ..Position::default() };
            }
        }
        let Message { batch, next_offset, snapshot, arrival_ns, bytes } = message;
        if self.position.offset.is_none() && !snapshot {
            self.position.offset = self.subscriber.began();
            self.position.contents = 0;
        }
        let kinds = if self.applies { kinds(&batch).map_err(|e| e.at(&self.place))? } else { None };
        let batch = self.mapping.as_ref().expect("made above").apply(&batch).map_err(|e| e.at(&self.place))?;
        let skipped = self.to_skip.min(batch.num_rows() as u64);
        self.to_skip -= skipped;
        self.current = Some(Current { batch, kinds, at: skipped as usize, next_offset, snapshot, arrival_ns, bytes });
        self.settle();
        Ok(true)
    }

    /// If the current message is given, the position stands behind it. Several messages may stand for one
    /// piece of the stream: then only the last says a new number.
    fn settle(&mut self) {
        if let Some(current) = &self.current
            && current.at == current.batch.num_rows()
        {
            if !current.snapshot && current.next_offset.is_some() && current.next_offset != self.position.offset {
                self.position = Position { offset: current.next_offset, skip: self.to_skip, contents: 0 };
            }
            self.current = None;
        }
    }
}

impl Reader for FlightReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows_max = rows_max.max(1);
        let (mut parts, mut rows): (Vec<RecordBatch>, usize) = (Vec::new(), 0);
        let (mut bytes, mut arrival_ns) = (0, None);
        let mut kinds: Option<Vec<RowKind>> = None;
        while rows < rows_max.min(ROWS_ENOUGH) {
            if self.current.is_none() && !self.fetch()? {
                break;
            }
            let position = self.position;
            let Some(current) = &mut self.current else { continue };
            let left = current.batch.num_rows() - current.at;
            // A row within a message has no number of its own, so while that of the message is not known it
            // is given as a whole. Contents are read again from their beginning anyway.
            let whole = position.offset.is_none() && !current.snapshot;
            let take = if whole { left } else { left.min(rows_max - rows) };
            parts.push(current.batch.slice(current.at, take));
            if let Some(these) = &current.kinds {
                kinds.get_or_insert_with(|| vec![RowKind::Insert; rows]).extend_from_slice(&these[current.at..current.at + take]);
            } else if let Some(kinds) = &mut kinds {
                kinds.resize(rows + take, RowKind::Insert);
            }
            arrival_ns.get_or_insert(current.arrival_ns);
            // A message counts when its first rows are given.
            bytes += std::mem::take(&mut current.bytes);
            rows += take;
            current.at += take;
            if !current.snapshot {
                self.position.skip += take as u64;
            } else if self.applies {
                self.position.contents += take as u64;
            }
            self.settle();
        }
        let batch = match parts.len() {
            0 if self.ended => return Ok(Polled::End),
            0 => return Ok(Polled::Pending),
            1 => parts.pop().expect("one part"),
            _ => concat_batches(&parts[0].schema(), &parts)
                .map_err(|e| ConnectError::new(format!("{}: joining the rows of several messages: {e}", self.place)))?,
        };
        Ok(Polled::Rows(Rows { kinds, ..Rows::good(batch, arrival_ns.unwrap_or(0), bytes) }))
    }

    fn position(&self) -> Value {
        let mut position = self.position;
        if position.offset.is_none() && !self.contents {
            // Nothing has come yet, but where it would come from is known.
            position.offset = self.subscriber.began();
        }
        serde_json::to_value(position).expect("two numbers")
    }
}

/// What the rows of a message do; `None` if all are new ones.
fn kinds(batch: &RecordBatch) -> Result<Option<Vec<RowKind>>, ConnectError> {
    // A stream that is not updated has no such column.
    let Some(column) = batch.column_by_name(ROW_KIND) else { return Ok(None) };
    let wrong = |what: String| ConnectError::new(format!("the stream's column '{ROW_KIND}' {what}"));
    let codes = column.as_primitive_opt::<Int8Type>().ok_or_else(|| wrong("is not TINYINT".into()))?;
    if codes.null_count() == 0 && codes.values().iter().all(|code| *code == 0) {
        return Ok(None);
    }
    let kind = |code: Option<i8>| {
        let known = code.and_then(|code| RowKind::from_byte(u8::try_from(code).ok()?));
        let shown = || code.map_or("NULL".to_string(), |code| code.to_string());
        known.ok_or_else(|| wrong(format!("holds {}, which says of no row what it does", shown())))
    };
    codes.iter().map(kind).collect::<Result<Vec<_>, _>>().map(Some)
}

/// From the columns that travel to those that are wanted.
struct Mapping {
    schema: SchemaRef,
    /// For each column wanted which one of those that travel it is, and the type to cast it to.
    columns: Vec<(usize, Option<DataType>)>,
}

impl Mapping {
    fn new(wire: &SchemaRef, request: &ReadRequest) -> Result<Self, ConnectError> {
        let mut columns = Vec::with_capacity(request.projection.len());
        for index in &request.projection {
            let field = request.physical.field(*index);
            let Ok(at) = wire.index_of(field.name()) else {
                let names: Vec<_> = wire.fields().iter().map(|f| f.name().as_str()).collect();
                return Err(ConnectError::new(format!("the stream has no column '{}'; it has: {}", field.name(), names.join(", "))));
            };
            let (given, wanted) = (wire.field(at).data_type(), field.data_type());
            let cast = match (given, wanted) {
                _ if given == wanted => None,
                (DataType::Timestamp(_, a), DataType::Timestamp(_, b)) if a.is_some() == b.is_some() => Some(wanted.clone()),
                // Names of types leave out what does not matter here: whether parts may be NULL.
                _ if type_name(&plain_type(given)) == type_name(wanted) => Some(wanted.clone()),
                _ => {
                    return Err(ConnectError::new(format!(
                        "column '{}' is {} in the stream and {} in the table",
                        field.name(),
                        type_name(given),
                        type_name(wanted)
                    )));
                }
            };
            columns.push((at, cast));
        }
        Ok(Mapping { schema: request.schema(), columns })
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, ConnectError> {
        let column = |(at, to): &(usize, Option<DataType>)| -> Result<ArrayRef, arrow::error::ArrowError> {
            let column = batch.column(*at);
            to.as_ref().map_or(Ok(column.clone()), |to| cast(column, to))
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        columns
            .and_then(|columns| RecordBatch::try_new_with_options(self.schema.clone(), columns, &options))
            .map_err(|e| ConnectError::new(format!("rows of the stream do not fit the table: {e}")))
    }
}

#[cfg(test)]
mod tests;
