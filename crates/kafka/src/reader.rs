//! Reads one partition: what has arrived in its queue becomes rows.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;
use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader};

use crate::client::explain;
use crate::consumer::Consumer;
use crate::options::OffsetReset;
use crate::position::{EARLIEST, Position};
use crate::queue::{Batch, Entry, Queue};
use crate::rows::RowMaker;

/// How long to ask for the range of a partition, for an error message.
const RANGE_WAIT: Duration = Duration::from_secs(2);

/// Reads a partition.
pub struct PartitionReader {
    /// None where nothing is to be read. Dropped before the consumer.
    queue: Option<Queue>,
    consumer: Arc<Consumer>,
    maker: RowMaker,
    position: Position,
    reset: OffsetReset,
    /// Found behind rows that were given first.
    failure: Option<ConnectError>,
    ended: bool,
    numbers: Vec<u32>,
}

impl PartitionReader {
    /// A reader at `position`, whose messages come through `queue`; without a queue it is at its end.
    pub fn new(queue: Option<Queue>, consumer: Arc<Consumer>, maker: RowMaker, position: Position, reset: OffsetReset) -> Self {
        PartitionReader { ended: queue.is_none(), queue, consumer, maker, position, reset, failure: None, numbers: Vec::new() }
    }

    fn close(&mut self) {
        if self.queue.take().is_some() {
            self.consumer.unassign(&self.position);
        }
    }

    /// Sorts a batch into messages to be decoded and what else may stand in it.
    fn sort(&mut self, batch: &Batch<'_>) {
        self.numbers.clear();
        for index in 0..batch.len() {
            let entry = batch.get(index);
            if let Some(code) = entry.error() {
                self.heed(code, entry);
            } else if let Some(stop) = self.position.stop.filter(|stop| entry.offset() >= *stop) {
                // What stood before it was read, or is no message: marks of transactions, gaps.
                self.position.offset = stop;
                self.ended = true;
            } else if entry.offset() < self.position.offset && self.reset == OffsetReset::Fail {
                self.failure = Some(self.lost(&format!("offset {} came", entry.offset())));
            } else {
                self.numbers.push(index as u32);
                self.position.offset = entry.offset() + 1;
            }
            if self.ended || self.failure.is_some() {
                return;
            }
        }
    }

    /// Something that is no message.
    fn heed(&mut self, code: RDKafkaErrorCode, entry: Entry<'_>) {
        match code {
            RDKafkaErrorCode::PartitionEOF => {
                // Behind the last message there may be marks of transactions, and gaps.
                if let Some(stop) = self.position.stop
                    && entry.offset() >= stop
                {
                    self.position.offset = stop;
                    self.ended = true;
                }
            }
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::LogTruncation => {
                self.failure = Some(self.lost(&entry.error_text()));
            }
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition => {
                self.failure = Some(ConnectError::new(format!(
                    "{}: the topic or the partition is no longer there ({}); was it deleted? If it is created anew, start with --fresh",
                    self.position.split(),
                    entry.error_text()
                )));
            }
            // Librdkafka goes on trying; the context tells of outages.
            RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::LeaderNotAvailable
            | RDKafkaErrorCode::NotLeaderForPartition
            | RDKafkaErrorCode::PollExceeded => {}
            other => {
                let place = format!("{}@{}", self.position.split(), self.position.offset);
                self.failure = Some(ConnectError::new(format!("{place}: {} ({})", explain(other), entry.error_text())));
            }
        }
    }

    /// The next offset is not there.
    fn lost(&self, why: &str) -> ConnectError {
        let Position { topic, partition, offset, .. } = &self.position;
        let range = match self.consumer.base().fetch_watermarks(topic, *partition, RANGE_WAIT) {
            Ok((low, high)) => format!("brokers have offsets {low} to {high} now"),
            Err(e) => format!("which offsets brokers have could not be asked ({e})"),
        };
        ConnectError::new(format!(
            "{topic}:{partition}: the next offset is {offset}, but {range} ({why}): the topic was created anew, or its messages \
             expired before they were read; 'scan.offset-reset' = 'earliest' or 'latest' goes on with what is there, --fresh begins anew"
        ))
    }
}

impl Reader for PartitionReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.consumer.context().stray() {
            return Err(ConnectError::new(format!("internal error: a message came past the queue of {}", self.position.split())));
        }
        loop {
            if self.ended {
                self.close();
                return Ok(Polled::End);
            }
            // The queue is lent out while its batch is looked at.
            let mut queue = self.queue.take().expect("there until the end");
            let batch = queue.take(rows_max);
            let got = batch.len();
            self.sort(&batch);
            let numbers = std::mem::take(&mut self.numbers);
            let rows = if numbers.is_empty() { Ok(None) } else { self.maker.make(&batch, &numbers).map(Some) };
            drop(batch);
            self.numbers = numbers;
            self.queue = Some(queue);
            let place = || format!("{}@{}", self.position.split(), self.position.offset);
            if let Some(rows) = rows.map_err(|e| e.at(place()))? {
                self.consumer.context().alive();
                return Ok(Polled::Rows(rows));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if got == 0 && !self.ended {
                return Ok(Polled::Pending);
            }
        }
    }

    fn position(&self) -> Value {
        self.position.value()
    }
}

impl Drop for PartitionReader {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether a scan from here to there reads nothing.
pub fn nothing(position: &Position) -> bool {
    position.stop.is_some_and(|stop| stop <= position.offset.max(0) && (position.offset != EARLIEST || stop == 0))
}
