//! A subscriber as a task sees it: deliveries as they come, with the checks that every way of
//! subscribing needs. How rows are encoded is the matter of those who poll it.

use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use futures::task::AtomicWaker;
use serde::Deserialize;
use tidemill_connect::Waker;
use tidemill_hub::{Delivery, DeliveryMode, From as Start, HubError, OutletInfo, Received, Slow, SubscribeRequest, Subscriber};

use super::{Watch, find};
use crate::auth::Access;
use crate::error::ApiError;
use crate::filter::RowFilter;
use crate::limits::NAME_BYTES_MAX;
use crate::state::{AppState, Counts};
use crate::waiting::waiting;

/// The most rows that may be asked for at once.
const BLOCK_ROWS_MAX: usize = 1 << 20;

/// What a subscriber asks for, as it stands in a Flight ticket.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FeedRequest {
    /// The stream.
    pub stream: String,
    /// Where to begin.
    pub from: Start,
    /// The name under which rows are acknowledged.
    pub name: Option<String>,
    /// What happens when it is too slow.
    pub slow: Slow,
    /// The bound of its queue; the server's own bound holds, too.
    pub queue_bytes: Option<u64>,
    /// The most rows of a message; by default as many as the job writes at once.
    pub block_size: Option<usize>,
    /// The columns wanted; all if none are named.
    pub columns: Option<Vec<String>>,
    /// An SQL condition on the rows wanted.
    pub filter: Option<String>,
}

/// Deliveries of a stream.
pub(crate) struct Feed {
    stream: String,
    info: OutletInfo,
    /// Of this process, see [`Feed::count`].
    instance: &'static str,
    subscriber: Subscriber,
    wake: Arc<AtomicWaker>,
    filter: RowFilter,
    watch: Watch,
    counts: Arc<Counts>,
    /// The most rows that are handed on at once.
    block_rows: usize,
    /// What is being handed on in parts, and how many of its rows were.
    rest: Option<(Arc<Delivery>, usize)>,
    ended: bool,
}

impl Feed {
    /// Subscribes. Must be called within the runtime.
    ///
    /// # Errors
    /// No right, a name that is empty or too long, no such stream, nobody writes it, a wrong filter, a start that the stream
    /// does not offer.
    pub fn open(state: &AppState, access: &Access, request: FeedRequest) -> Result<Self, ApiError> {
        access.require_read(&request.stream)?;
        let block_rows = request.block_size.unwrap_or(usize::MAX);
        if request.block_size.is_some_and(|rows| !(1..=BLOCK_ROWS_MAX).contains(&rows)) {
            return Err(ApiError::bad_request(format!("block_size {block_rows}: expected 1 to {BLOCK_ROWS_MAX} rows")));
        }
        // A log keeps names, and an empty one could not be named to be forgotten.
        if let Some(bytes) = request.name.as_ref().map(String::len)
            && !(1..=NAME_BYTES_MAX).contains(&bytes)
        {
            return Err(ApiError::bad_request(format!("the subscriber's name has {bytes} bytes: expected 1 to {NAME_BYTES_MAX}"))
                .with_help("without a name nothing is acknowledged"));
        }
        let stream = find(state, &request.stream)?;
        let (Some(schema), Some(info)) = (stream.outlet_schema(), stream.outlet_info()) else {
            return Err(state.no_job(format!("no running job writes stream '{}'", request.stream), "writes it, and subscribe again"));
        };
        // Before the subscription: it would end an earlier one of the same name.
        let filter = RowFilter::new(&schema, request.columns.as_deref(), request.filter.as_deref()).map_err(ApiError::bad_request)?;
        let wake = Arc::new(AtomicWaker::new());
        let waker = {
            let wake = wake.clone();
            Waker::new(move || wake.wake())
        };
        let bound = state.limits.subscriber_queue_bytes;
        let wanted = SubscribeRequest {
            from: request.from,
            name: request.name,
            slow: request.slow,
            queue_bytes: request.queue_bytes.map(|bytes| bytes.min(bound)),
        };
        // A log keeps names and contents on disk, and contents may be large.
        let takes_long = info.delivery == DeliveryMode::ExactlyOnce || matches!(wanted.from, Start::Snapshot);
        let subscriber = if takes_long { waiting(|| stream.subscribe(wanted, waker)) } else { stream.subscribe(wanted, waker) };
        let subscriber = subscriber?;
        if subscriber.schema() != schema {
            return Err(ApiError::unavailable(format!("the job that writes stream '{}' was just replaced", request.stream))
                .with_help("subscribe again"));
        }
        let (instance, watch, counts) = (state.hub.instance(), Watch::new(access.clone()), state.counts.clone());
        let (stream, rest) = (request.stream, None);
        Ok(Feed { stream, info, instance, subscriber, wake, filter, watch, counts, block_rows, rest, ended: false })
    }

    /// The columns of the rows, as the filter leaves them.
    pub fn schema(&self) -> SchemaRef {
        self.filter.schema()
    }

    /// How the stream is written.
    pub fn info(&self) -> &OutletInfo {
        &self.info
    }

    /// What the subscriber wants of the rows.
    pub fn filter(&self) -> &RowFilter {
        &self.filter
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Where an error that ends the subscription is counted, by those who tell it.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The number of the next row, as [`Subscriber::offset`].
    pub fn offset(&self) -> u64 {
        self.subscriber.offset()
    }

    /// What tells the numbers of a `live` stream's rows from those of other processes: each of them
    /// counts from 0. `None` if rows keep their numbers.
    pub fn count(&self) -> Option<&'static str> {
        (self.info.delivery == DeliveryMode::Live).then_some(self.instance)
    }

    /// Whether the subscriber has a name, and has not acknowledged all that it was handed.
    pub fn owes(&self) -> bool {
        self.subscriber.owes()
    }

    /// Rows before number `offset` are safe with the subscriber.
    ///
    /// # Errors
    /// It has no name, or has not got so many rows; it is gone; the disk.
    pub fn acknowledge(&self, offset: u64) -> Result<(), ApiError> {
        if self.subscriber.note(offset)? {
            waiting(|| self.subscriber.save())?;
        }
        Ok(())
    }

    /// What the subscriber finds, in memory or in a file.
    fn receive(&mut self) -> Result<Received, HubError> {
        let subscriber = &mut self.subscriber;
        if subscriber.reads_file() { waiting(|| subscriber.try_next()) } else { subscriber.try_next() }
    }

    /// The next part of a delivery that is larger than wanted.
    fn part(&mut self) -> Option<Arc<Delivery>> {
        let (delivery, at) = self.rest.as_mut()?;
        let left = delivery.batch.num_rows() - *at;
        let part = Arc::new(delivery.part(*at, left.min(self.block_rows)));
        *at += part.batch.num_rows();
        if left <= self.block_rows {
            self.rest = None;
        }
        Some(part)
    }

    /// The next delivery, not filtered; `None` when the job that writes the stream has ended and
    /// everything was handed over. After an error there is nothing more.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Arc<Delivery>, ApiError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Err(expired) = self.watch.poll(context) {
            self.ended = true;
            return Poll::Ready(Some(Err(expired)));
        }
        if let Some(part) = self.part() {
            return Poll::Ready(Some(Ok(part)));
        }
        let mut received = self.receive();
        if let Ok(Received::Pending) = received {
            self.wake.register(context.waker());
            // What came before the registration has woken nobody.
            received = self.receive();
        }
        match received {
            Ok(Received::Rows(delivery)) if delivery.batch.num_rows() > self.block_rows => {
                self.rest = Some((delivery, 0));
                Poll::Ready(self.part().map(Ok))
            }
            Ok(Received::Rows(delivery)) => Poll::Ready(Some(Ok(delivery))),
            Ok(Received::Pending) => Poll::Pending,
            Ok(Received::End) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Err(error) => {
                self.ended = true;
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }
}

impl Drop for Feed {
    /// What was acknowledged is written down before the subscriber goes, which would do so without knowing how to wait.
    fn drop(&mut self) {
        // To hand over panics where the system gives no thread, so not for nothing.
        if self.subscriber.unsaved() {
            // It tries again.
            let _ = waiting(|| self.subscriber.save());
        }
    }
}
