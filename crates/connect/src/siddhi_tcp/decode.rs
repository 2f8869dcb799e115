//! From payloads straight into columns.
//!
//! ```text
//! payload := i32 count, count × event        event := i64 timestamp in ms, a value for each column
//! ```
//!
//! Numbers, booleans and times have a fixed width, so where a table has no other columns an event
//! lies at a known distance from the one before it, and a column is gathered in one loop over all
//! events, big-endian and `stride` bytes apart. Frames are only noted when they come ([`Run`]) and
//! decoded when no more are at hand. A frame of a single event is part of such a run, too, as long as
//! the frames are equally long, so small frames cost little more than large ones.
//!
//! A string ends a *stretch* of fixed width. With strings each event is walked once to find where its
//! stretches begin; then the columns are made as before, from those beginnings. Columns that nobody
//! wants are not looked at.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringArray, TimestampMillisecondArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use tidemill_format::BadRecord;

use super::Wire;
use super::frame::Frame;
use crate::{ConnectError, ReadRequest, Rows};

/// The key of the metadata column with an event's timestamp.
const TIMESTAMP: &str = "timestamp";
/// The key of the metadata column that is true in the last event of each frame.
const FRAME_END: &str = "frame-end";
/// What the timestamp of an event says when its receiver shall stamp it.
const NO_TIME: i64 = -1;
/// The timestamp that every event begins with.
const STAMP_BYTES: usize = 8;
/// The length in front of a string, and the number of events in front of all.
const LENGTH_BYTES: usize = 4;
/// Of a bad record so many bytes are kept.
const RAW_BYTES_MAX: usize = 64 << 10;
/// Frames that were published further apart have arrivals of their own, ns: so much may a latency be wrong, and the frames of a fast
/// publisher still go together.
const APART_NS: i64 = 50_000;

/// The metadata columns: key and type.
pub fn metadata() -> Vec<(&'static str, DataType)> {
    vec![(TIMESTAMP, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))), (FRAME_END, DataType::Boolean)]
}

/// A column that is wanted, and where its values lie.
struct Column {
    value: Value,
    /// Which stretch of an event it is in, and how many bytes behind its beginning.
    stretch: usize,
    at: usize,
}

enum Value {
    /// A column of the table. What is nullable matters for strings only: of length 0 they are NULL.
    Physical { wire: Wire, nullable: bool },
    /// The event's own timestamp.
    Stamp,
    /// Whether the event is the last of its frame.
    FrameEnd,
}

/// How the events of a table lie in their payload, and which of their values are wanted.
pub struct Layout {
    schema: SchemaRef,
    columns: Vec<Column>,
    /// Bytes of each stretch. The first begins with the timestamp, and all but the last end with the
    /// length of a string.
    stretches: Vec<usize>,
    /// Where the publisher's clock is, if arrivals are to be taken from it.
    clock: Option<(usize, usize)>,
}

impl Layout {
    /// The layout of what `request` wants. `clock` is the index of the physical column, a BIGINT,
    /// that holds the publisher's monotonic clock.
    ///
    /// # Errors
    /// A column of a type that the wire has not, an unknown metadata column.
    pub fn new(request: &ReadRequest, clock: Option<usize>) -> Result<Self, ConnectError> {
        let (mut places, mut stretches, mut at) = (Vec::new(), Vec::new(), STAMP_BYTES);
        for field in request.physical.fields() {
            let wire = Wire::of(field).map_err(ConnectError::new)?;
            places.push((wire, stretches.len(), at));
            match wire.bytes() {
                Some(bytes) => at += bytes,
                None => {
                    stretches.push(at + LENGTH_BYTES);
                    at = 0;
                }
            }
        }
        stretches.push(at);
        let mut columns = Vec::new();
        for index in &request.projection {
            let (wire, stretch, at) = places[*index];
            let nullable = request.physical.field(*index).is_nullable();
            columns.push(Column { value: Value::Physical { wire, nullable }, stretch, at });
        }
        for (key, field) in &request.metadata {
            if key == FRAME_END {
                if *field.data_type() != DataType::Boolean {
                    return Err(ConnectError::new(format!("column '{}': the metadata '{key}' is BOOLEAN", field.name())));
                }
                columns.push(Column { value: Value::FrameEnd, stretch: 0, at: 0 });
                continue;
            }
            if key != TIMESTAMP {
                return Err(ConnectError::new(format!("there is no metadata '{key}'; there are: {TIMESTAMP}, {FRAME_END}")));
            }
            // Nothing else: a peer may send any 64 bits as a time, and no conversion shall fail on them.
            if !matches!(field.data_type(), DataType::Int64 | DataType::Timestamp(TimeUnit::Millisecond, _)) {
                let name = field.name();
                return Err(ConnectError::new(format!("column '{name}': the metadata '{key}' is a time; declare it TIMESTAMP_LTZ(3)")));
            }
            columns.push(Column { value: Value::Stamp, stretch: 0, at: 0 });
        }
        let clock = clock.map(|index| (places[index].1, places[index].2));
        Ok(Layout { schema: request.schema(), columns, stretches, clock })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether arrivals are taken from the publisher's clock. Rows that were not gathered together are left apart then.
    pub fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Strings in an event.
    fn strings(&self) -> usize {
        self.stretches.len() - 1
    }

    /// Whether anybody wants to know where frames end.
    fn wants_frame_ends(&self) -> bool {
        self.columns.iter().any(|c| matches!(c.value, Value::FrameEnd))
    }

    /// The least bytes of an event; of events without strings, their bytes.
    fn event_bytes(&self) -> usize {
        self.stretches.iter().sum()
    }
}

/// Events that lie equally far apart.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first byte of the first.
    offset: usize,
    /// From one to the next. What lies between the events of two frames is a header.
    stride: usize,
    count: usize,
}

/// Which frame of which connection it is.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// `host:port` of the peer.
    pub peer: &'a str,
    /// The frame's number on its connection, from 1.
    pub number: u64,
    /// The bytes that came before it.
    pub offset: u64,
}

/// The frames of events with strings, to find a row's frame again.
struct Mark {
    /// Its first row.
    row: usize,
    /// Its first byte.
    begin: usize,
    number: u64,
    offset: u64,
}

/// Gathers the frames of one channel that lie in one buffer, and makes a batch of them.
pub struct Batcher {
    layout: Arc<Layout>,
    rows: usize,
    /// Bytes of the frames.
    bytes: u64,
    /// Without strings: the events.
    runs: Vec<Run>,
    /// With strings: by stretch, where each event's begins.
    begins: Vec<Vec<u32>>,
    marks: Vec<Mark>,
    /// The rows behind each frame, if anybody wants to know.
    ends: Option<Vec<usize>>,
    bad: Vec<BadRecord>,
    places: Vec<String>,
}

impl Batcher {
    /// Nothing gathered yet.
    pub fn new(layout: Arc<Layout>) -> Self {
        let stretches = layout.stretches.len();
        let ends = layout.wants_frame_ends().then(Vec::new);
        Batcher {
            ends,
            layout,
            rows: 0,
            bytes: 0,
            runs: Vec::new(),
            begins: (0..stretches).map(|_| Vec::new()).collect(),
            marks: Vec::new(),
            bad: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Rows gathered.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the frame that begins at `begin` was published so much later than what is gathered that it belongs to other rows,
    /// since all rows of a batch count as having arrived with its first.
    pub fn is_apart(&self, buffer: &[u8], begin: usize, frame: &Frame) -> bool {
        // Behind a string the clock is somewhere else in each event.
        let Some((0, at)) = self.layout.clock.filter(|_| self.rows > 0) else { return false };
        let event = &buffer[begin + frame.payload..begin + frame.length];
        let clock = event.get(LENGTH_BYTES + at..).and_then(<[u8]>::first_chunk).map(|bytes| i64::from_be_bytes(*bytes));
        clock.zip(self.published(buffer)).is_some_and(|(clock, first)| clock.saturating_sub(first) > APART_NS)
    }

    /// Takes in the frame that begins at `begin` in `buffer`. A frame that is not what it should be
    /// is a bad record and leaves no row. All frames up to the next [`Batcher::finish`] must lie in
    /// the same buffer, of less than 4 GiB.
    pub fn add(&mut self, buffer: &[u8], begin: usize, frame: &Frame, place: Place) {
        self.bytes += frame.length as u64;
        let (payload, end) = (begin + frame.payload, begin + frame.length);
        let taken = match buffer[payload..end].first_chunk().map(|count| i32::from_be_bytes(*count)) {
            None => Err(format!("its payload has {} bytes and so not even the number of its events", end - payload)),
            Some(count) if count < 0 => Err(format!("it gives the number of its events as {count}")),
            Some(count) if self.layout.strings() == 0 => self.add_run(payload + LENGTH_BYTES, end, count as usize),
            Some(count) => self.walk(buffer, begin, payload + LENGTH_BYTES, end, count as usize, place),
        };
        if let Some(ends) = &mut self.ends {
            ends.push(self.rows);
        }
        if let Err(reason) = taken {
            let at = format!("{} frame {}", place.peer, place.number);
            self.refuse(&buffer[begin..end], place.number, place.offset, reason, at);
        }
    }

    /// `count` events without strings from `offset` on, in a payload that ends at `end`.
    fn add_run(&mut self, offset: usize, end: usize, count: usize) -> Result<(), String> {
        let stride = self.layout.event_bytes();
        if count.saturating_mul(stride) > end - offset {
            return Err(cut_short(count, end - offset, stride));
        }
        self.rows += count;
        match self.runs.last_mut() {
            _ if count == 0 => {}
            // A run of two may have any stride; from then on it is given.
            Some(last) if count == 1 && last.count == 1 => (last.stride, last.count) = (offset - last.offset, 2),
            Some(last) if count == 1 && offset - last.offset == last.stride * last.count => last.count += 1,
            _ => self.runs.push(Run { offset, stride, count }),
        }
        Ok(())
    }

    /// Finds where the stretches of `count` events begin.
    fn walk(&mut self, buffer: &[u8], begin: usize, mut at: usize, end: usize, count: usize, place: Place) -> Result<(), String> {
        let (size, first) = (end - at, self.rows);
        assert!(end <= u32::MAX as usize, "a buffer has less than 4 GiB");
        for event in 0..count {
            let walked = walk_event(buffer, &self.layout.stretches, &mut self.begins, at, end);
            match walked {
                Ok(next) => at = next,
                Err(fault) => {
                    self.begins.iter_mut().for_each(|b| b.truncate(first));
                    return Err(match fault {
                        Fault::Short => format!("{} (event {})", cut_short(count, size, self.layout.event_bytes()), event + 1),
                        Fault::Negative(length) => format!("the length of a string of event {} is {length}", event + 1),
                    });
                }
            }
        }
        if count > 0 {
            self.marks.push(Mark { row: first, begin, number: place.number, offset: place.offset });
            self.rows += count;
        }
        Ok(())
    }

    fn refuse(&mut self, raw: &[u8], number: u64, offset: u64, reason: String, place: String) {
        let kept = raw.len().min(RAW_BYTES_MAX);
        let reason = if kept < raw.len() { format!("{reason} (of {} bytes the first {kept} are kept)", raw.len()) } else { reason };
        self.bad.push(BadRecord { record: number - 1, offset, reason, raw: raw[..kept].to_vec() });
        self.places.push(place);
    }

    /// Everything gathered, as rows; `None` if there is nothing. `buffer` is that of the frames,
    /// `now_ms` the wall clock for events without a time.
    pub fn finish(&mut self, buffer: &[u8], peer: &str, now_ms: i64, arrival_ns: u64) -> Option<Rows> {
        if self.rows == 0 && self.bad.is_empty() {
            self.bytes = 0;
            self.ends.iter_mut().for_each(Vec::clear);
            return None;
        }
        let batch = self.batch(buffer, now_ms).unwrap_or_else(|| {
            self.drop_invalid(buffer, peer);
            self.batch(buffer, now_ms).expect("the strings left are valid")
        });
        let arrival_ns = self.published(buffer).map_or(arrival_ns, |clock| on_our_clock(clock, arrival_ns));
        let rows = Rows {
            batch,
            kinds: None,
            arrival_ns,
            bytes: self.bytes,
            bad: std::mem::take(&mut self.bad),
            places: std::mem::take(&mut self.places),
        };
        (self.rows, self.bytes) = (0, 0);
        self.runs.clear();
        self.begins.iter_mut().for_each(Vec::clear);
        self.marks.clear();
        self.ends.iter_mut().for_each(Vec::clear);
        Some(rows)
    }

    /// The batch; `None` if a string is no UTF-8.
    fn batch(&self, buffer: &[u8], now_ms: i64) -> Option<RecordBatch> {
        let mut columns = Vec::with_capacity(self.layout.columns.len());
        for (column, field) in self.layout.columns.iter().zip(self.layout.schema.fields()) {
            let array: ArrayRef = match column.value {
                Value::Physical { wire: Wire::Text, nullable } => Arc::new(self.text(buffer, column, nullable)?),
                Value::Physical { wire: Wire::Int, .. } => Arc::new(Int32Array::new(self.values(buffer, column, i32::from_be_bytes), None)),
                Value::Physical { wire: Wire::Long, .. } => {
                    Arc::new(Int64Array::new(self.values(buffer, column, i64::from_be_bytes), None))
                }
                Value::Physical { wire: Wire::Float, .. } => {
                    Arc::new(Float32Array::new(self.values(buffer, column, f32::from_be_bytes), None))
                }
                Value::Physical { wire: Wire::Double, .. } => {
                    Arc::new(Float64Array::new(self.values(buffer, column, f64::from_be_bytes), None))
                }
                Value::Physical { wire: Wire::Bool, .. } => Arc::new(self.booleans(buffer, column)),
                Value::Physical { wire: Wire::Time, .. } => times(self.values(buffer, column, i64::from_be_bytes), field.data_type()),
                Value::Stamp => {
                    let values = self.values(buffer, column, |bytes: [u8; 8]| match i64::from_be_bytes(bytes) {
                        NO_TIME => now_ms,
                        ms => ms,
                    });
                    times(values, field.data_type())
                }
                Value::FrameEnd => Arc::new(self.frame_ends()),
            };
            columns.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Some(RecordBatch::try_new_with_options(self.layout.schema.clone(), columns, &options).expect("columns of the layout's schema"))
    }

    /// Values of `W` bytes each.
    fn values<const W: usize, T: arrow::datatypes::ArrowNativeType>(
        &self,
        buffer: &[u8],
        column: &Column,
        read: impl Fn([u8; W]) -> T,
    ) -> ScalarBuffer<T> {
        let mut values = Vec::with_capacity(self.rows);
        if self.layout.strings() == 0 {
            for run in &self.runs {
                gather(buffer, run, column.at, &mut values, &read);
            }
        } else {
            values.extend(self.begins[column.stretch].iter().map(|begin| {
                let from = *begin as usize + column.at;
                read(*buffer[from..].first_chunk().expect("events were walked to their end"))
            }));
        }
        assert_eq!(values.len(), self.rows, "a value for each row");
        values.into()
    }

    /// Exactly 1 is true, as Siddhi has it.
    fn booleans(&self, buffer: &[u8], column: &Column) -> BooleanArray {
        let mut bits = BooleanBufferBuilder::new(self.rows);
        if self.layout.strings() == 0 {
            for run in &self.runs {
                let first = run.offset + column.at;
                (0..run.count).for_each(|event| bits.append(buffer[first + event * run.stride] == 1));
            }
        } else {
            self.begins[column.stretch].iter().for_each(|begin| bits.append(buffer[*begin as usize + column.at] == 1));
        }
        BooleanArray::new(bits.finish(), None)
    }

    /// True in the last row of each frame that has rows.
    fn frame_ends(&self) -> BooleanArray {
        let mut bits = BooleanBufferBuilder::new(self.rows);
        bits.append_n(self.rows, false);
        for end in self.ends.iter().flatten().filter(|end| **end > 0) {
            bits.set_bit(end - 1, true);
        }
        BooleanArray::new(bits.finish(), None)
    }

    /// Where the string of `column` lies in row `row`.
    #[inline]
    fn string(&self, column: &Column, row: usize) -> std::ops::Range<usize> {
        let from = self.begins[column.stretch][row] as usize + column.at + LENGTH_BYTES;
        from..self.begins[column.stretch + 1][row] as usize
    }

    /// Strings; `None` if one is no UTF-8.
    fn text(&self, buffer: &[u8], column: &Column, nullable: bool) -> Option<StringArray> {
        let total = (0..self.rows).map(|row| self.string(column, row).len()).sum();
        let mut values: Vec<u8> = Vec::with_capacity(total);
        let mut offsets: Vec<i32> = Vec::with_capacity(self.rows + 1);
        offsets.push(0);
        let mut empty = false;
        for row in 0..self.rows {
            let string = self.string(column, row);
            empty |= string.is_empty();
            values.extend_from_slice(&buffer[string]);
            offsets.push(values.len() as i32);
        }
        let nulls =
            (empty && nullable).then(|| NullBuffer::new(BooleanBuffer::collect_bool(self.rows, |row| offsets[row] != offsets[row + 1])));
        StringArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from_vec(values), nulls).ok()
    }

    /// Takes out the events of which a wanted string is no UTF-8, as bad records.
    fn drop_invalid(&mut self, buffer: &[u8], peer: &str) {
        let mut good = vec![true; self.rows];
        for (row, good) in good.iter_mut().enumerate() {
            let fault = self.layout.columns.iter().zip(self.layout.schema.fields()).find_map(|(column, field)| {
                let Value::Physical { wire: Wire::Text, .. } = column.value else { return None };
                let error = std::str::from_utf8(&buffer[self.string(column, row)]).err()?;
                Some(format!("column '{}': byte {} of the string is no UTF-8", field.name(), error.valid_up_to() + 1))
            });
            let Some(reason) = fault else { continue };
            *good = false;
            let mark = &self.marks[self.marks.partition_point(|mark| mark.row <= row) - 1];
            let (number, begin) = (mark.number, self.begins[0][row] as usize);
            let end = self.begins[self.layout.strings()][row] as usize + self.layout.stretches[self.layout.strings()];
            let place = format!("{peer} frame {number} event {}", row - mark.row + 1);
            let offset = mark.offset + (begin - mark.begin) as u64;
            self.refuse(&buffer[begin..end], number, offset, reason, place);
        }
        for begins in &mut self.begins {
            let mut rows = good.iter();
            begins.retain(|_| *rows.next().expect("one for each row"));
        }
        let (mut before, mut kept) = (0, 0);
        for end in self.ends.iter_mut().flatten() {
            kept += good[before..*end].iter().filter(|good| **good).count();
            before = std::mem::replace(end, kept);
        }
        self.rows = good.iter().filter(|good| **good).count();
    }

    /// The publisher's clock in the first event.
    fn published(&self, buffer: &[u8]) -> Option<i64> {
        let (stretch, at) = self.layout.clock?;
        let event = match self.runs.first() {
            Some(run) => run.offset,
            None => *self.begins[stretch].first()? as usize,
        };
        buffer.get(event + at..)?.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
    }
}

/// Milliseconds as a column of times, or of the numbers that they are.
fn times(ms: ScalarBuffer<i64>, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Timestamp(_, zone) => Arc::new(TimestampMillisecondArray::new(ms, None).with_timezone_opt(zone.clone())),
        _ => Arc::new(Int64Array::new(ms, None)),
    }
}

/// The values `at` bytes behind the beginning of each event of a run.
#[inline]
fn gather<const W: usize, T>(buffer: &[u8], run: &Run, at: usize, out: &mut Vec<T>, read: impl Fn([u8; W]) -> T) {
    let first = run.offset + at;
    let before_last = (run.count - 1) * run.stride;
    // All bounds are checked here: a chunk is as long as an event, and the last value, behind which
    // the bytes may end, is read apart.
    let (all, last) = buffer[first..first + before_last + W].split_at(before_last);
    out.extend(all.chunks_exact(run.stride).map(|event| read(*event.first_chunk().expect("an event is as long as its values"))));
    out.push(read(*last.first_chunk().expect("cut to this length")));
}

enum Fault {
    Short,
    Negative(i32),
}

/// Notes where the stretches of the event at `at` begin; answers with where the next event does.
#[inline]
fn walk_event(buffer: &[u8], stretches: &[usize], begins: &mut [Vec<u32>], mut at: usize, end: usize) -> Result<usize, Fault> {
    let strings = stretches.len() - 1;
    for stretch in 0..strings {
        begins[stretch].push(at as u32);
        let behind = at + stretches[stretch];
        if behind > end {
            return Err(Fault::Short);
        }
        let length = i32::from_be_bytes(*buffer[behind - LENGTH_BYTES..].first_chunk().expect("bounded by the frame's end"));
        let Ok(bytes) = usize::try_from(length) else { return Err(Fault::Negative(length)) };
        if bytes > end - behind {
            return Err(Fault::Short);
        }
        at = behind + bytes;
    }
    begins[strings].push(at as u32);
    let next = at + stretches[strings];
    if next > end { Err(Fault::Short) } else { Ok(next) }
}

fn cut_short(count: usize, bytes: usize, event_bytes: usize) -> String {
    format!("its {count} events of at least {event_bytes} bytes do not fit into the {bytes} bytes that it has for them")
}

/// A time of the machine's monotonic clock on the clock that arrivals are stamped with. What is later
/// than the arrival at the socket comes from another clock, and counts as that.
fn on_our_clock(published_ns: i64, arrival_ns: u64) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills the struct that it is given. The standard library does not tell what
    // this clock says, only differences, and another process has the other end of this one.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0 {
        return arrival_ns;
    }
    let machine_ns = now.tv_sec as i128 * 1_000_000_000 + now.tv_nsec as i128;
    let ours = tidemill_block::clock::now_ns() as i128 - (machine_ns - published_ns as i128);
    ours.clamp(1, arrival_ns.max(1) as i128) as u64
}
