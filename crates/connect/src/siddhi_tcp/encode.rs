//! From columns straight into frames.
//!
//! Events without strings have a fixed width, so the bytes of a frame are made column by column, each
//! value put `stride` bytes behind the one before. Frames of a single event are made in the same way,
//! all of a block at once: the stride is then a whole frame, and everything but the values is the same
//! in each. With strings events are written row by row.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, SchemaRef, TimestampMillisecondType};

use super::frame::{PREFIX_BYTES, PROTOCOL};
use super::{NullValues, Wire};
use crate::ConnectError;

/// A frame is closed when it has become this large, whatever it may hold: a quarter of what a source
/// takes by default.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// The timestamp of an event.
const STAMP_BYTES: usize = 8;

/// Turns rows into frames of one channel.
pub struct Encoder {
    schema: SchemaRef,
    wires: Vec<Wire>,
    /// What stands before the first event of every frame; size, payload length and number of events
    /// are filled in when the frame is closed.
    header: Vec<u8>,
    /// Bytes of an event, if they are always as many.
    event_bytes: Option<usize>,
    frame_events: usize,
    nulls: NullValues,
    /// The column that gives timestamps.
    stamp: Option<usize>,
    /// Where the frame begins to which further events are added, and how many it has.
    open: Option<(usize, usize)>,
}

/// The values of a column.
enum Values<'a> {
    Int(Cow<'a, [i32]>),
    Long(Cow<'a, [i64]>),
    Float(Cow<'a, [f32]>),
    Double(Cow<'a, [f64]>),
    Bool(&'a BooleanArray),
    Text(&'a StringArray),
}

/// Where the events of a fixed width lie: the first byte and the distance between two.
#[derive(Clone, Copy)]
struct Grid {
    at: usize,
    stride: usize,
}

impl Encoder {
    /// An encoder for rows of this schema. `stamp` is the index of the column that gives timestamps.
    ///
    /// # Errors
    /// A column of a type that the wire has not.
    pub fn new(
        schema: &SchemaRef,
        session: &str,
        channel: &str,
        frame_events: usize,
        nulls: NullValues,
        stamp: Option<usize>,
    ) -> Result<Self, ConnectError> {
        let wires = schema.fields().iter().map(|field| Wire::of(field)).collect::<Result<Vec<_>, _>>().map_err(ConnectError::new)?;
        let event_bytes = wires.iter().map(|wire| wire.bytes()).sum::<Option<usize>>().map(|values| STAMP_BYTES + values);
        let mut header = vec![PROTOCOL, 0, 0, 0, 0];
        for id in [session, channel] {
            // Bytes, where Siddhi's own client writes UTF-16 units and so breaks what is not ASCII.
            header.extend((id.len() as i32).to_be_bytes());
            header.extend(id.as_bytes());
        }
        header.extend([0; 8]);
        let fitting = event_bytes.map_or(frame_events, |bytes| (FRAME_BYTES_MAX / bytes).clamp(1, frame_events));
        Ok(Encoder { schema: schema.clone(), wires, header, event_bytes, frame_events: fitting, nulls, stamp, open: None })
    }

    /// Appends the rows. The last frame stays open for further ones if it is not full.
    ///
    /// # Errors
    /// A NULL in a column for which the wire has none, a frame beyond the protocol's 2 GiB.
    pub fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>, now_ms: i64) -> Result<(), ConnectError> {
        let values = (0..self.wires.len()).map(|index| self.values(index, batch.column(index))).collect::<Result<Vec<_>, _>>()?;
        let stamps = match self.stamp {
            None => None,
            Some(index) => Some(self.stamps(index, batch.column(index))?),
        };
        let stamps = stamps.as_deref();
        if batch.num_rows() == 0 {
            return Ok(());
        }
        match self.event_bytes {
            Some(bytes) if self.frame_events == 1 => self.single(batch.num_rows(), bytes, &values, stamps, now_ms, out),
            Some(bytes) => self.fixed(batch.num_rows(), bytes, &values, stamps, now_ms, out),
            None => self.by_row(batch.num_rows(), &values, stamps, now_ms, out),
        }
    }

    /// Ends the open frame, if there is one.
    ///
    /// # Errors
    /// The frame is beyond the protocol's 2 GiB.
    pub fn close(&mut self, out: &mut [u8]) -> Result<(), ConnectError> {
        let Some((begin, events)) = self.open.take() else { return Ok(()) };
        let frame = &mut out[begin..];
        let (size, payload) = (frame.len() - PREFIX_BYTES, frame.len() - (self.header.len() - 4));
        if size > i32::MAX as usize {
            return Err(ConnectError::new(format!("a frame of {size} bytes is larger than the 2 GiB that the protocol has for it")));
        }
        fill(frame, self.header.len(), size, payload, events);
        Ok(())
    }

    /// Up to where the bytes in `out` are complete frames.
    pub fn complete(&self, out: &[u8]) -> usize {
        self.open.map_or(out.len(), |(begin, _)| begin)
    }

    /// The first so many bytes, complete frames, are gone.
    pub fn gone(&mut self, bytes: usize) {
        if let Some((begin, _)) = &mut self.open {
            *begin -= bytes;
        }
    }

    fn name(&self, index: usize) -> &str {
        self.schema.field(index).name()
    }

    /// Begins a frame unless one is open; answers with how many events it still takes.
    fn room(&mut self, out: &mut Vec<u8>) -> usize {
        let (_, events) = *self.open.get_or_insert_with(|| {
            let begin = out.len();
            out.extend_from_slice(&self.header);
            (begin, 0)
        });
        self.frame_events - events
    }

    /// So many events were added; closes the frame when it is full.
    fn added(&mut self, events: usize, out: &mut [u8]) -> Result<(), ConnectError> {
        let (begin, all) = self.open.as_mut().expect("events are added to an open frame");
        *all += events;
        if *all >= self.frame_events || out.len() - *begin >= FRAME_BYTES_MAX { self.close(out) } else { Ok(()) }
    }

    fn fixed(
        &mut self,
        rows: usize,
        stride: usize,
        values: &[Values],
        stamps: Option<&[i64]>,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectError> {
        let mut row = 0;
        while row < rows {
            let count = self.room(out).min(rows - row);
            let at = out.len();
            out.resize(at + count * stride, 0);
            put(out, Grid { at, stride }, row, count, values, stamps, now_ms);
            self.added(count, out)?;
            row += count;
        }
        Ok(())
    }

    /// A frame for each row.
    fn single(
        &mut self,
        rows: usize,
        bytes: usize,
        values: &[Values],
        stamps: Option<&[i64]>,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectError> {
        let mut frame = self.header.clone();
        frame.resize(self.header.len() + bytes, 0);
        let size = frame.len() - PREFIX_BYTES;
        fill(&mut frame, self.header.len(), size, 4 + bytes, 1);
        let at = out.len() + self.header.len();
        out.reserve(rows * frame.len());
        (0..rows).for_each(|_| out.extend_from_slice(&frame));
        put(out, Grid { at, stride: frame.len() }, 0, rows, values, stamps, now_ms);
        Ok(())
    }

    fn by_row(
        &mut self,
        rows: usize,
        values: &[Values],
        stamps: Option<&[i64]>,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectError> {
        for row in 0..rows {
            self.room(out);
            out.extend_from_slice(&stamps.map_or(now_ms, |s| s[row]).to_be_bytes());
            for column in values {
                match column {
                    Values::Int(v) => out.extend_from_slice(&v[row].to_be_bytes()),
                    Values::Long(v) => out.extend_from_slice(&v[row].to_be_bytes()),
                    Values::Float(v) => out.extend_from_slice(&v[row].to_be_bytes()),
                    Values::Double(v) => out.extend_from_slice(&v[row].to_be_bytes()),
                    Values::Bool(v) => out.push(u8::from(v.is_valid(row) && v.value(row))),
                    Values::Text(v) => {
                        // NULL and the empty string are the same there.
                        let text = if v.is_valid(row) { v.value(row) } else { "" };
                        out.extend_from_slice(&(text.len() as i32).to_be_bytes());
                        out.extend_from_slice(text.as_bytes());
                    }
                }
            }
            self.added(1, out)?;
        }
        Ok(())
    }

    /// The values of a column as they are written.
    fn values<'a>(&self, index: usize, array: &'a ArrayRef) -> Result<Values<'a>, ConnectError> {
        let wire = self.wires[index];
        if array.null_count() > 0 && wire != Wire::Text && self.nulls == NullValues::Fail {
            return Err(ConnectError::new(format!(
                "column '{}' has a NULL, and Siddhi's binary mapping has none for {}; use COALESCE, or set 'null-values' = 'zero'",
                self.name(index),
                tidemill_format::types::type_name(array.data_type())
            )));
        }
        Ok(match wire {
            Wire::Int => Values::Int(numbers::<Int32Type>(array)),
            Wire::Long => Values::Long(numbers::<Int64Type>(array)),
            Wire::Time => Values::Long(numbers::<TimestampMillisecondType>(array)),
            Wire::Float => Values::Float(numbers::<Float32Type>(array)),
            Wire::Double => Values::Double(numbers::<Float64Type>(array)),
            Wire::Bool => Values::Bool(array.as_boolean()),
            Wire::Text => Values::Text(array.as_string()),
        })
    }

    /// The timestamps of the events.
    fn stamps<'a>(&self, index: usize, array: &'a ArrayRef) -> Result<Cow<'a, [i64]>, ConnectError> {
        match self.values(index, array)? {
            Values::Long(values) => Ok(values),
            _ => Err(ConnectError::new(format!("column '{}' gives no timestamps: it is neither a time nor BIGINT", self.name(index)))),
        }
    }
}

/// The values of an array, NULLs as 0.
fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Cow<'_, [T::Native]> {
    let array = array.as_primitive::<T>();
    match array.null_count() {
        0 => Cow::Borrowed(&array.values()[..]),
        _ => Cow::Owned(array.iter().map(Option::unwrap_or_default).collect()),
    }
}

/// Fills in what the header of `frame` leaves open.
fn fill(frame: &mut [u8], header_bytes: usize, size: usize, payload: usize, events: usize) {
    frame[1..5].copy_from_slice(&(size as i32).to_be_bytes());
    frame[header_bytes - 8..header_bytes - 4].copy_from_slice(&(payload as i32).to_be_bytes());
    frame[header_bytes - 4..header_bytes].copy_from_slice(&(events as i32).to_be_bytes());
}

/// Puts `count` events, from row `row` on, into their places.
fn put(out: &mut [u8], grid: Grid, row: usize, count: usize, values: &[Values], stamps: Option<&[i64]>, now_ms: i64) {
    let mut own = grid;
    own.at += match stamps {
        Some(stamps) => scatter(out, own, stamps[row..row + count].iter().map(|v| v.to_be_bytes())),
        None => scatter(out, own, std::iter::repeat_n(now_ms.to_be_bytes(), count)),
    };
    let rows = row..row + count;
    for column in values {
        let bytes = match column {
            Values::Int(v) => scatter(out, own, v[rows.clone()].iter().map(|v| v.to_be_bytes())),
            Values::Long(v) => scatter(out, own, v[rows.clone()].iter().map(|v| v.to_be_bytes())),
            Values::Float(v) => scatter(out, own, v[rows.clone()].iter().map(|v| v.to_be_bytes())),
            Values::Double(v) => scatter(out, own, v[rows.clone()].iter().map(|v| v.to_be_bytes())),
            Values::Bool(v) => scatter(out, own, rows.clone().map(|row| [u8::from(v.is_valid(row) && v.value(row))])),
            Values::Text(_) => unreachable!("events with strings are written row by row"),
        };
        own.at += bytes;
    }
}

/// Puts values of `W` bytes into their places; answers with `W`.
#[inline]
fn scatter<const W: usize>(out: &mut [u8], grid: Grid, values: impl Iterator<Item = [u8; W]>) -> usize {
    // The chunk behind the last event may be short, so each is cut to the value by itself.
    for (event, value) in out[grid.at..].chunks_mut(grid.stride).zip(values) {
        event[..W].copy_from_slice(&value);
    }
    W
}
