//! Rows as Flight messages. A delivery is encoded once for all subscribers who want it as it is: the
//! messages hold counted bytes, so that a copy for a subscriber costs some counts.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::{FlightData, SchemaAsIpc};
use bytes::Bytes;
use tidemill_hub::Delivery;

/// The largest body of a message, bytes. gRPC libraries refuse more than 4 MiB unless told otherwise, and
/// header and metadata come on top.
const BODY_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// The messages of one delivery, or why it cannot be encoded. A type of its own: it is how
/// [`Delivery::cached`] knows the encoding.
pub(super) struct Encoded(pub Result<Vec<FlightData>, String>);

impl Encoded {
    /// The messages of a delivery as it is, made once.
    pub fn shared(delivery: &Delivery) -> Arc<Encoded> {
        let (next, snapshot) = (delivery.next_offset, delivery.snapshot);
        delivery.cached(|rows| Encoded(messages(rows, next, snapshot)))
    }
}

/// The message that comes first: the schema.
pub(super) fn schema_message(schema: &SchemaRef) -> FlightData {
    SchemaAsIpc::new(&plain_schema(schema), &IpcWriteOptions::default()).into()
}

/// The messages of rows that end before row number `next`.
///
/// # Errors
/// What cannot be encoded.
pub(super) fn messages(rows: &RecordBatch, next: u64, snapshot: bool) -> Result<Vec<FlightData>, String> {
    let mut messages = Vec::with_capacity(1);
    // Within contents, rows have no numbers: changes go on at the same one after all of them.
    let next_of = |behind: usize| if snapshot { next } else { next - behind as u64 };
    append(&plain(rows)?, 0, &next_of, snapshot, &mut messages).map_err(|e| format!("encoding rows: {e}"))?;
    Ok(messages)
}

/// The same for what `filter` leaves of a delivery; none if it leaves nothing. Where that is too much for one
/// message, the delivery is cut before it is filtered: each message must say how far the subscriber has come
/// with it, since that is where it goes on after a break.
///
/// # Errors
/// What cannot be filtered or encoded.
pub(super) fn filtered_messages(
    delivery: &Delivery,
    filter: &dyn Fn(&RecordBatch) -> Result<RecordBatch, String>,
) -> Result<Vec<FlightData>, String> {
    let mut messages = Vec::with_capacity(1);
    append_filtered(&delivery.batch, delivery.next_offset, delivery.snapshot, filter, &mut messages)?;
    // Of what lies behind its rows the filter leaves nothing.
    if let Some(last) = messages.last_mut() {
        last.app_metadata = metadata(delivery.next_offset, delivery.snapshot);
    }
    Ok(messages)
}

/// Appends the messages of what `filter` leaves of rows that end before row number `next`.
fn append_filtered(
    rows: &RecordBatch,
    next: u64,
    snapshot: bool,
    filter: &dyn Fn(&RecordBatch) -> Result<RecordBatch, String>,
    out: &mut Vec<FlightData>,
) -> Result<(), String> {
    let left = filter(rows)?;
    if left.num_rows() == 0 {
        return Ok(());
    }
    let count = rows.num_rows();
    if count < 2 || bytes(&left) <= BODY_BYTES_MAX {
        let mut message = encode(&plain(&left)?).map_err(|e| format!("encoding rows: {e}"))?;
        if count < 2 || message.data_body.len() <= BODY_BYTES_MAX {
            message.app_metadata = metadata(next, snapshot);
            out.push(message);
            return Ok(());
        }
    }
    let half = count / 2;
    // Contents have no numbers of their own.
    let middle = if snapshot { next } else { next - (count - half) as u64 };
    append_filtered(&rows.slice(0, half), middle, snapshot, filter, out)?;
    append_filtered(&rows.slice(half, count - half), next, snapshot, filter, out)
}

/// Appends the messages of `rows`, behind which `behind` more rows of the delivery follow.
fn append(
    rows: &RecordBatch,
    behind: usize,
    next_of: &dyn Fn(usize) -> u64,
    snapshot: bool,
    out: &mut Vec<FlightData>,
) -> Result<(), arrow::error::ArrowError> {
    let count = rows.num_rows();
    if count < 2 || bytes(rows) <= BODY_BYTES_MAX {
        let mut message = encode(rows)?;
        if count < 2 || message.data_body.len() <= BODY_BYTES_MAX {
            message.app_metadata = metadata(next_of(behind), snapshot);
            out.push(message);
            return Ok(());
        }
    }
    let half = count / 2;
    append(&rows.slice(0, half), behind + count - half, next_of, snapshot, out)?;
    append(&rows.slice(half, count - half), behind, next_of, snapshot, out)
}

fn metadata(next: u64, snapshot: bool) -> Bytes {
    format!("{{\"offset\":{next},\"snapshot\":{snapshot}}}").into()
}

/// What the rows take, slices of larger columns counted as what they show.
fn bytes(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size())).sum()
}

fn encode(rows: &RecordBatch) -> Result<FlightData, arrow::error::ArrowError> {
    thread_local! {
        // The builder of headers keeps its memory.
        static CONTEXT: RefCell<IpcWriteContext> = RefCell::default();
    }
    let options = IpcWriteOptions::default();
    let mut dictionaries = DictionaryTracker::new(false);
    let (_, encoded) = CONTEXT.with_borrow_mut(|context| IpcDataGenerator::default().encode(rows, &mut dictionaries, &options, context))?;
    Ok(encoded.into())
}

/// Whether a column must become another before it can be sent.
fn plain_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        _ => None,
    }
}

/// The schema without dictionaries: their messages would have to reach each subscriber in order.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|f| plain_type(f.data_type()).is_none()) {
        return schema.clone();
    }
    let plain = |f: &Arc<Field>| match plain_type(f.data_type()) {
        Some(values) => Arc::new(Field::new(f.name(), values.clone(), f.is_nullable())),
        None => f.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()))
}

fn plain(rows: &RecordBatch) -> Result<RecordBatch, String> {
    let schema = plain_schema(rows.schema_ref());
    if Arc::ptr_eq(&schema, rows.schema_ref()) {
        return Ok(rows.clone());
    }
    let columns = rows.columns().iter().zip(schema.fields()).map(|(c, f)| match plain_type(c.data_type()) {
        Some(_) => cast(c, f.data_type()),
        None => Ok(c.clone()),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    columns
        .collect::<Result<Vec<_>, _>>()
        .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options))
        .map_err(|e| format!("encoding rows: {e}"))
}

#[cfg(test)]
mod tests;
