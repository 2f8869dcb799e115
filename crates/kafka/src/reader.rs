//! Reads one partition: what has arrived for it becomes rows, whoever fetched it, librdkafka or we.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;
use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader, Rows, Waker};

use crate::client::explain;
use crate::consumer::Consumer;
use crate::fetch::batch::Fault;
use crate::fetch::{Came, Feed, named};
use crate::options::OffsetReset;
use crate::position::{EARLIEST, Position};
use crate::queue::{Batch, Queue};
use crate::rows::RowMaker;
use crate::taken::{Message as _, Taken as _};

/// How long to ask for the range of a partition, for an error message.
const RANGE_WAIT: Duration = Duration::from_secs(2);

/// Where the messages of a partition come from.
pub enum Inflow {
    /// librdkafka. Dropped before the consumer.
    Client(Queue),
    /// A connection of our own; whom to wake where librdkafka has to go on, and whether it may.
    Own(Box<Feed>, Waker, bool),
}

/// Reads a partition.
pub struct PartitionReader {
    /// None where nothing is to be read, or no more.
    inflow: Option<Inflow>,
    consumer: Arc<Consumer>,
    maker: RowMaker,
    position: Position,
    reset: OffsetReset,
    /// Found behind rows that were given first.
    failure: Option<ConnectError>,
    /// The same: why librdkafka has to go on.
    unspoken: Option<String>,
    ended: bool,
    numbers: Vec<u32>,
}

/// What one look brought.
enum Seen {
    Rows(Rows),
    /// Something that is no row: to be looked again.
    Other,
    Nothing,
}

impl PartitionReader {
    /// A reader at `position`, whose messages come by `inflow`; without one it is at its end.
    pub fn new(inflow: Option<Inflow>, consumer: Arc<Consumer>, maker: RowMaker, position: Position, reset: OffsetReset) -> Self {
        let ended = inflow.is_none();
        PartitionReader { inflow, consumer, maker, position, reset, failure: None, unspoken: None, ended, numbers: Vec::new() }
    }

    fn close(&mut self) {
        if let Some(Inflow::Client(queue)) = self.inflow.take() {
            drop(queue);
            self.consumer.unassign(&self.position);
        }
    }

    /// Looks into a queue of librdkafka.
    fn look(&mut self, queue: &mut Queue, rows_max: usize) -> Result<Seen, ConnectError> {
        let batch = queue.take(rows_max);
        if batch.len() == 0 {
            return Ok(Seen::Nothing);
        }
        self.sort(&batch);
        if self.numbers.is_empty() {
            return Ok(Seen::Other);
        }
        self.maker.make(&batch, &self.numbers).map(Seen::Rows)
    }

    /// Looks at what we fetched.
    fn look_at_own(&mut self, feed: &mut Feed, rows_max: usize) -> Result<Seen, ConnectError> {
        match feed.read(rows_max) {
            Came::Nothing => return Ok(Seen::Nothing),
            Came::Begins(offset) => self.begins(offset),
            Came::End(end) => self.heed(RDKafkaErrorCode::PartitionEOF, end, String::new),
            Came::Failed(code, why) => self.heed(named(code), self.position.offset, || why),
            Came::Unspoken(why) => self.unspoken = Some(why),
            Came::Messages(given) => {
                self.position.offset = given.next;
                self.ended = given.stopped;
                match given.fault {
                    None => {}
                    Some(Fault::Old) => self.unspoken = Some("messages of a format before that of Kafka 0.11".into()),
                    Some(Fault::Damaged(why)) => {
                        let place = format!("{}@{}", self.position.split(), self.position.offset);
                        self.failure = Some(ConnectError::new(format!("{place}: the broker sent {why}; is its disk damaged?")));
                    }
                }
                let messages = feed.messages();
                if !messages.is_empty() {
                    self.numbers.clear();
                    self.numbers.extend(0..messages.len() as u32);
                    return self.maker.make(&messages, &self.numbers).map(Seen::Rows);
                }
            }
        }
        Ok(Seen::Other)
    }

    /// Has librdkafka go on where we cannot.
    fn hand_over(&mut self, why: &str) -> Result<(), ConnectError> {
        let Some(Inflow::Own(feed, waker, may)) = self.inflow.take() else { return Ok(()) };
        drop(feed);
        if !may {
            return Err(ConnectError::new(format!(
                "{}@{}: 'scan.client' = 'direct' cannot read it: {why}; 'auto' reads it with librdkafka",
                self.position.split(),
                self.position.offset
            )));
        }
        self.inflow = Some(Inflow::Client(self.consumer.assign(&self.position, waker)?));
        Ok(())
    }

    /// Sorts a batch into messages to be decoded and what else may stand in it.
    fn sort(&mut self, batch: &Batch<'_>) {
        self.numbers.clear();
        for index in 0..batch.len() {
            let entry = batch.get(index);
            if let Some(code) = entry.error() {
                self.heed(code, entry.offset(), || entry.error_text());
            } else if let Some(stop) = self.position.stop.filter(|stop| entry.offset() >= *stop) {
                // What stood before it was read, or is no message: marks of transactions, gaps.
                self.position.offset = stop;
                self.ended = true;
            } else if entry.offset() < self.position.offset && self.reset == OffsetReset::Fail {
                self.failure = Some(self.lost(&format!("offset {} came", entry.offset())));
            } else {
                self.begins(entry.offset());
                self.numbers.push(index as u32);
                self.position.offset = entry.offset() + 1;
            }
            if self.ended || self.failure.is_some() {
                return;
            }
        }
    }

    /// Reading goes on at `offset`. If that is before what was read, the topic was most likely created anew. A checkpoint that went on
    /// naming the old one would have the next start find another id, and jump once more. So would one with an offset that is gone, where
    /// 'scan.offset-reset' has passed it over: with 'latest', what came since the first jump would be lost.
    fn begins(&mut self, offset: i64) {
        if offset < self.position.offset {
            self.position.topic_id = None;
            self.consumer.forget_topic_id(&self.position.topic);
        }
        // The oldest message is another one as soon as this one expires: as long as none was read, that is no loss to be told of.
        if self.position.offset != EARLIEST {
            self.position.offset = offset;
        }
    }

    /// Something that is no message.
    fn heed(&mut self, code: RDKafkaErrorCode, offset: i64, text: impl FnOnce() -> String) {
        match code {
            RDKafkaErrorCode::PartitionEOF => {
                // Behind the last message there may be marks of transactions, and gaps.
                if let Some(stop) = self.position.stop
                    && offset >= stop
                {
                    self.position.offset = stop;
                    self.ended = true;
                }
            }
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::LogTruncation => {
                self.failure = Some(self.lost(&text()));
            }
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition => {
                self.failure = Some(ConnectError::new(format!(
                    "{}: the topic or the partition is no longer there ({}); was it deleted? If it is created anew, start with --fresh",
                    self.position.split(),
                    text()
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
                self.failure = Some(ConnectError::new(format!("{place}: {} ({})", explain(other), text())));
            }
        }
    }

    /// The next offset is not there.
    fn lost(&self, why: &str) -> ConnectError {
        let Position { topic, partition, offset, .. } = &self.position;
        ConnectError::new(format!("{}, --fresh begins anew", lost(&self.consumer, topic, *partition, *offset, why)))
    }
}

/// What there is to say where the next offset of a partition is not there, and what may be done.
pub fn lost(consumer: &Consumer, topic: &str, partition: i32, offset: i64, why: &str) -> String {
    let range = match consumer.base().fetch_watermarks(topic, partition, RANGE_WAIT) {
        Ok((low, high)) => format!("brokers have offsets {low} to {high} now"),
        Err(e) => format!("which offsets brokers have could not be asked ({e})"),
    };
    format!(
        "{topic}:{partition}: the next offset is {offset}, but {range} ({why}): the topic was created anew, or its messages expired \
         before they were read; 'scan.offset-reset' = 'earliest' or 'latest' goes on with what is there"
    )
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
            if let Some(why) = self.unspoken.take() {
                self.hand_over(&why)?;
            }
            // It is lent out while it is looked at.
            let mut inflow = self.inflow.take().expect("there until the end");
            let seen = match &mut inflow {
                Inflow::Client(queue) => self.look(queue, rows_max),
                Inflow::Own(feed, ..) => self.look_at_own(feed, rows_max),
            };
            self.inflow = Some(inflow);
            match seen.map_err(|e| e.at(format!("{}@{}", self.position.split(), self.position.offset)))? {
                Seen::Rows(rows) => {
                    self.consumer.context().alive();
                    return Ok(Polled::Rows(rows));
                }
                Seen::Nothing => return Ok(Polled::Pending),
                Seen::Other => {}
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
    }

    fn position(&self) -> Value {
        // Only the partition that went back has noticed it, and the old id is wrong for all of the topic.
        if self.consumer.is_anew(&self.position.topic) {
            return Position { topic_id: None, ..self.position.clone() }.value();
        }
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

#[cfg(test)]
mod tests;
