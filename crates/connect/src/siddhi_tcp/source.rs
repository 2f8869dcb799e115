//! A table read: a channel of a listener.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, SchemaRef};

use super::channel::Channel;
use super::decode::{self, Layout};
use super::listener::{self, Announcement, Lease};
use super::{SiddhiOptions, UnknownChannels, Wire, column_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split};

/// The source.
pub struct SiddhiSource {
    options: SiddhiOptions,
    channel: String,
    owner: String,
    address: SocketAddr,
    /// The column with the publisher's clock.
    clock: Option<usize>,
    /// Until the reader is there.
    announcement: Mutex<Option<Announcement>>,
}

impl SiddhiSource {
    /// The source of the table `owner` with these physical columns.
    ///
    /// # Errors
    /// A column that the wire has no type for, a host without an address, an unknown column.
    pub fn new(schema: &SchemaRef, options: SiddhiOptions, channel: String, owner: &str) -> Result<Self, ConnectError> {
        let clock = match &options.arrival_column {
            Some(name) => Some(column_of(schema, "arrival.column", name, "BIGINT", |wire| wire == Wire::Long)?),
            None => None,
        };
        Layout::new(&ReadRequest::all(schema.clone()), clock)?;
        let addresses = options.addresses();
        let address = addresses.as_ref().ok().and_then(|all| all.first().copied()).ok_or_else(|| {
            let why = addresses.err().map_or("it has none".to_string(), |e| e.to_string());
            ConnectError::new(format!("option 'hostname' = '{}': finding the address to listen on: {why}", options.hostname))
        })?;
        let announcement = Mutex::new(Some(Announcement::new(address, &channel)));
        Ok(SiddhiSource { options, channel, owner: owner.to_string(), address, clock, announcement })
    }
}

impl Source for SiddhiSource {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(format!("{}/{}", self.address, self.channel))])
    }

    fn open(&self, _split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let layout = Arc::new(Layout::new(&context.request, self.clock)?);
        let reports = self.options.unknown_channels == UnknownChannels::BadRecord;
        let bytes_max = self.options.source_queue.0 as usize;
        let channel = Channel::new(self.channel.clone(), self.owner.clone(), layout, reports, context.waker, bytes_max);
        let lease = listener::lease(self.address, &self.options)?;
        let channel = lease.register(channel)?;
        self.announcement.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Box::new(SiddhiReader { channel, lease, ahead: None }))
    }

    /// Whatever connections they come by, and in the order in which they come.
    fn one_split(&self) -> bool {
        true
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        decode::metadata()
    }
}

/// Reads a channel, whoever sends to it.
struct SiddhiReader {
    channel: Arc<Channel>,
    lease: Lease,
    /// Rows taken from the channel and not asked for yet.
    ahead: Option<Rows>,
}

impl Reader for SiddhiReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows_max = rows_max.max(1);
        let taken = match self.ahead.take() {
            Some(rows) => Some(rows),
            None => self.channel.take(rows_max)?,
        };
        let Some(mut rows) = taken else { return Ok(Polled::Pending) };
        let count = rows.batch.num_rows();
        if count > rows_max {
            let rest = rows.batch.slice(rows_max, count - rows_max);
            self.ahead = Some(Rows::good(rest, rows.arrival_ns, 0));
            rows.batch = rows.batch.slice(0, rows_max);
        }
        Ok(Polled::Rows(rows))
    }

    /// Nothing can be asked for again.
    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

impl Drop for SiddhiReader {
    fn drop(&mut self) {
        self.lease.withdraw(&self.channel);
    }
}
