//! A table read: a channel of a listener.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, SchemaRef};

use super::channel::{Channel, MERGE_ROWS};
use super::decode::{self, Batcher, Layout};
use super::lent::Borrowed;
use super::listener::{self, Announcement, Lease};
use super::{SiddhiOptions, UnknownChannels, Wire, column_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Sockets, Source, Split};

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

    fn listens(&self) -> bool {
        true
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
        let borrowed = Borrowed::new(Batcher::new(channel.layout().clone()));
        Ok(Box::new(SiddhiReader { borrowed, channel, lease, ahead: VecDeque::new() }))
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
    /// Connections that it reads itself. They are given back before the lease ends, and with it maybe the listener.
    borrowed: Borrowed,
    channel: Arc<Channel>,
    lease: Lease,
    /// Rows taken and not asked for yet.
    ahead: VecDeque<Rows>,
}

impl SiddhiReader {
    /// Takes what has come, if all that was taken before is asked for. What threads have handed over goes first: a
    /// connection's rows stay in their order.
    fn take(&mut self, rows_max: usize) -> Result<(), ConnectError> {
        if !self.ahead.is_empty() {
            return Ok(());
        }
        if let Some(rows) = self.channel.take(rows_max, self.borrowed.incoming())? {
            self.ahead.push_back(rows);
            return Ok(());
        }
        self.borrowed.read(self.lease.shared(), &self.channel, &mut self.ahead);
        let apart = self.channel.layout().has_clock();
        if !apart && self.ahead.len() > 1 && self.ahead.iter().map(|rows| rows.batch.num_rows()).sum::<usize>() <= MERGE_ROWS {
            let merged = Rows::merge(self.ahead.drain(..).collect())?;
            self.ahead.extend(merged);
        }
        Ok(())
    }
}

impl Reader for SiddhiReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows_max = rows_max.max(1);
        self.take(rows_max)?;
        let Some(mut rows) = self.ahead.pop_front() else { return Ok(Polled::Pending) };
        let count = rows.batch.num_rows();
        if count > rows_max {
            let rest = rows.batch.slice(rows_max, count - rows_max);
            self.ahead.push_front(Rows::good(rest, rows.arrival_ns, 0));
            rows.batch = rows.batch.slice(0, rows_max);
        }
        Ok(Polled::Rows(rows))
    }

    fn wait_on(&mut self, sockets: &mut Sockets) {
        self.channel.set_borrows();
        self.borrowed.wait_on(sockets);
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
