//! Members of a group: the broker divides the partitions of the topics among all processes that have
//! the same `properties.group.id`.
//!
//! A split is a member, and its partitions change while it reads. Offsets are the group's: they are
//! committed when a checkpoint is safe, and whoever gets a partition next begins there. Rows behind the
//! last commit are read again after a crash or when a partition moves: at-least-once. Where nothing is
//! committed the table says where to begin ([`crate::client::Context::begin_group_at`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;
use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader, Waker};

use crate::client::{explain, lock};
use crate::consumer::Consumer;
use crate::partitions::Topics;
use crate::position::GroupPosition;
use crate::queue::{Batch, Queue};
use crate::reader::lost;
use crate::rows::RowMaker;
use crate::start::no_offset;
use crate::taken::{Message as _, Taken as _};

/// How far partitions have been read: the next offset.
type Offsets = BTreeMap<(String, i32), i64>;

/// Reads what the group gives to one member.
pub struct GroupReader {
    /// Dropped before the consumer.
    queue: Queue,
    consumer: Arc<Consumer>,
    maker: RowMaker,
    offsets: Offsets,
    numbers: Vec<u32>,
    failure: Option<ConnectError>,
    name: String,
}

impl GroupReader {
    /// Joins the group.
    ///
    /// # Errors
    /// The topics cannot be subscribed to.
    pub fn join(consumer: Arc<Consumer>, topics: &Topics, maker: RowMaker, waker: Waker, name: &str) -> Result<Self, ConnectError> {
        let mut queue = Queue::of_client(consumer.pointer());
        queue.wake(waker);
        consumer.context().set_group_queue(queue.pointer());
        let names: Vec<String> = match topics {
            Topics::Named(names) => names.clone(),
            // librdkafka takes what begins with ^ for a pattern.
            Topics::Pattern(regex) => vec![regex.as_str().replacen("(?:", "(", 1)],
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        consumer.base().subscribe(&names).map_err(|e| ConnectError::new(format!("joining the group: {e}")))?;
        Ok(GroupReader { queue, consumer, maker, offsets: Offsets::new(), numbers: Vec::new(), failure: None, name: name.to_string() })
    }

    fn poll_once(&mut self, rows_max: usize) -> Result<Option<Polled>, ConnectError> {
        // Others go on with these from here; a commit of ours, should they come back, would go backwards.
        for partition in self.consumer.context().take_revoked() {
            self.offsets.remove(&partition);
        }
        let batch = self.queue.take(rows_max);
        // Noted before the first message of such a partition can come: what was taken now may begin anywhere.
        if let Some(why) = self.consumer.context().take_group_failure() {
            return Err(ConnectError::new(format!("{}: {why}", self.name)));
        }
        if batch.len() == 0 {
            return Ok(Some(Polled::Pending));
        }
        self.numbers.clear();
        self.failure = sort(&batch, &self.consumer, &mut self.numbers, &mut self.offsets);
        if self.numbers.is_empty() {
            return self.failure.take().map_or(Ok(None), Err);
        }
        let rows = self.maker.make(&batch, &self.numbers).map_err(|e| e.at(&self.name))?;
        self.consumer.context().alive();
        Ok(Some(Polled::Rows(rows)))
    }
}

/// The numbers of the messages in a batch, how far each partition has come, and an error that stands in it.
fn sort(batch: &Batch<'_>, consumer: &Consumer, numbers: &mut Vec<u32>, offsets: &mut Offsets) -> Option<ConnectError> {
    let mut failure = None;
    let mut last = None;
    for index in 0..batch.len() {
        let entry = batch.get(index);
        match entry.error() {
            None => numbers.push(index as u32),
            Some(
                RDKafkaErrorCode::PartitionEOF
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::NotLeaderForPartition,
            ) => continue,
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::LogTruncation) => {
                let (topic, partition, offset) = (entry.topic(), entry.partition(), entry.offset());
                failure = Some(ConnectError::new(match offset {
                    // There was none.
                    ..0 => no_offset(topic, partition),
                    _ => lost(consumer, topic, partition, offset, &entry.error_text()),
                }));
                break;
            }
            Some(code) => {
                let place = format!("{}:{}@{}", entry.topic(), entry.partition(), entry.offset());
                failure = Some(ConnectError::new(format!("{place}: {} ({})", explain(code), entry.error_text())));
                break;
            }
        }
        // Messages of a partition come together: only the last of each run is noted.
        if let Some(before) = last.replace(entry)
            && !entry.same_partition(before)
        {
            note(offsets, before);
        }
    }
    if let Some(entry) = last {
        note(offsets, entry);
    }
    failure
}

fn note(offsets: &mut Offsets, entry: crate::queue::Entry<'_>) {
    offsets.insert((entry.topic().to_string(), entry.partition()), entry.offset() + 1);
}

impl Reader for GroupReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.consumer.context().stray() {
            return Err(ConnectError::new(format!("internal error: a message came past the queue of {}", self.name)));
        }
        loop {
            if let Some(polled) = self.poll_once(rows_max)? {
                return Ok(polled);
            }
        }
    }

    fn position(&self) -> Value {
        let group = self.offsets.iter().map(|((topic, partition), offset)| (topic.clone(), *partition, *offset)).collect();
        serde_json::to_value(GroupPosition { group }).expect("plain data")
    }
}

impl Drop for GroupReader {
    fn drop(&mut self) {
        // Partitions must no longer be sent to a queue that is gone.
        self.consumer.base().unsubscribe();
        self.consumer.context().set_group_queue(std::ptr::null_mut());
    }
}

/// The members of a source that live.
#[derive(Default)]
pub struct Members(std::sync::Mutex<Vec<std::sync::Weak<Consumer>>>);

impl Members {
    /// One more.
    pub fn add(&self, consumer: &Arc<Consumer>) {
        let mut members = lock(&self.0);
        members.retain(|m| m.strong_count() > 0);
        members.push(Arc::downgrade(consumer));
    }

    /// Commits how far partitions were read, each by the member that has it now. Partitions that moved to
    /// other processes are theirs to commit.
    pub fn commit(&self, positions: &[Value]) {
        let mut read = Offsets::new();
        for position in positions {
            if let Ok(position) = serde_json::from_value::<GroupPosition>(position.clone()) {
                for (topic, partition, offset) in position.group {
                    let known = read.entry((topic, partition)).or_insert(offset);
                    *known = offset.max(*known);
                }
            }
        }
        for member in lock(&self.0).iter().filter_map(std::sync::Weak::upgrade) {
            let assigned = member.context().assigned();
            let own = read.iter().filter(|(partition, _)| assigned.contains(*partition));
            member.commit(own.map(|((topic, partition), offset)| (topic.clone(), *partition, *offset)));
        }
    }
}
