//! What every client of librdkafka has here: its context, which hears of errors, outages, failed
//! deliveries and the producer's id. Also the words for librdkafka's errors.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::Client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaQueue;
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde::Deserialize;
use tidemill_connect::Waker;

use crate::outage::Outage;
use crate::partitions::left;
use crate::queue;

/// How long a poll of the events' queue may wait, so that ends are noticed.
pub const EVENTS_WAIT: Duration = Duration::from_millis(200);
/// How long to wait before the offsets of a group are asked for again.
const AGAIN: Duration = Duration::from_millis(200);
/// How often they may be asked for, at least, where brokers do not answer.
const ASKED_MIN: u32 = 3;

/// A lock whose holder never leaves it half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A producer's id and epoch, by which brokers know its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// The id.
    pub id: i64,
    /// How often the transactional id was taken over.
    pub epoch: i16,
}

/// The first message that brokers did not take, and how many.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// Why the first was not taken, and where it was to go.
    pub first: Option<(RDKafkaErrorCode, String)>,
}

/// Where a member of a group begins.
pub struct GroupStart {
    /// The group.
    pub group: String,
    /// Where partitions begin that it has committed nothing of.
    pub start: Offset,
    /// How long asking for what it has committed may take.
    pub timeout: Duration,
    /// Wakes the reader, which has to hear of a failure.
    pub waker: Waker,
}

/// Hears what a client has to tell.
pub struct Context {
    outage: Arc<Outage>,
    failures: Mutex<Failures>,
    failed: AtomicBool,
    producer: Mutex<Option<ProducerId>>,
    /// Where the messages of partitions go that the group gives us; null without a group.
    group_queue: AtomicPtr<RDKafkaQueue>,
    group_start: OnceLock<GroupStart>,
    /// Why it is not known where partitions begin that the group has given us.
    group_failure: Mutex<Option<String>>,
    /// What the group has given us.
    assigned: Mutex<BTreeSet<(String, i32)>>,
    /// What it has taken away since somebody asked.
    revoked: Mutex<Vec<(String, i32)>>,
    commit_failed: AtomicBool,
    /// A message came where none may come.
    stray: AtomicBool,
}

impl Context {
    /// For a client of `owner` at `servers`.
    pub fn new(owner: &str, servers: &str) -> Self {
        Context {
            outage: Arc::new(Outage::new(format!("{owner}: Kafka at {servers}"))),
            failures: Mutex::default(),
            failed: AtomicBool::new(false),
            producer: Mutex::default(),
            group_queue: AtomicPtr::new(std::ptr::null_mut()),
            group_start: OnceLock::new(),
            group_failure: Mutex::default(),
            assigned: Mutex::default(),
            revoked: Mutex::default(),
            commit_failed: AtomicBool::new(false),
            stray: AtomicBool::new(false),
        }
    }

    /// Whether brokers answer.
    pub fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// Something came from a broker: an outage, if there was one, is over.
    #[inline]
    pub fn alive(&self) {
        self.outage.alive();
    }

    /// What a client last complained about.
    pub fn last_error(&self) -> Option<String> {
        self.outage.last_error()
    }

    /// Whether a message was not taken.
    #[inline]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The messages that were not taken.
    pub fn failures(&self) -> Failures {
        lock(&self.failures).clone()
    }

    /// The id that brokers have given the producer, as of the newest statistics.
    pub fn producer(&self) -> Option<ProducerId> {
        *lock(&self.producer)
    }

    /// Notes that a message came past the queues, so that it is missing in them.
    pub fn note_stray(&self) {
        self.stray.store(true, Ordering::Release);
    }

    /// Whether one did.
    #[inline]
    pub fn stray(&self) -> bool {
        self.stray.load(Ordering::Acquire)
    }

    /// From now on, messages of partitions that the group gives us go to this queue. When this returns,
    /// nobody uses the one before, which may then be destroyed.
    pub fn set_group_queue(&self, queue: *mut RDKafkaQueue) {
        let _nobody_forwards = lock(&self.assigned);
        self.group_queue.store(queue, Ordering::Release);
    }

    /// Has partitions begin there that the group has committed nothing of. librdkafka's `auto.offset.reset` is for these and for offsets
    /// that are gone alike, and here it is for the latter.
    pub fn begin_group_at(&self, start: GroupStart) {
        // Whoever said it first is heeded.
        let _ = self.group_start.set(start);
    }

    /// Why it is not known where partitions begin that the group has given us, if it is not. What comes of them must not be read.
    pub fn take_group_failure(&self) -> Option<String> {
        lock(&self.group_failure).take()
    }

    /// Says of partitions that the group gives us where they begin, if it has committed nothing; librdkafka asks for the rest. Without
    /// an answer `auto.offset.reset` would decide, which may pass messages over: that is a failure, which the reader hears of.
    fn begin(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let Some(GroupStart { group, start, timeout, waker }) = self.group_start.get() else { return };
        match committed(consumer, partitions, *timeout) {
            Ok(committed) => {
                for mut element in partitions.elements() {
                    let found = committed.find_partition(element.topic(), element.partition());
                    if found.is_some_and(|found| !matches!(found.offset(), Offset::Offset(_))) {
                        // Beginning and end are always taken.
                        let _ = element.set_offset(*start);
                    }
                }
            }
            Err(why) => {
                *lock(&self.group_failure) =
                    Some(format!("the committed offsets of group '{group}' could not be asked: {why}; the job's next start asks again"));
                waker.wake();
            }
        }
    }

    /// The partitions that the group has given us.
    pub fn assigned(&self) -> BTreeSet<(String, i32)> {
        lock(&self.assigned).clone()
    }

    /// The partitions that the group has taken away since this was asked last.
    pub fn take_revoked(&self) -> Vec<(String, i32)> {
        std::mem::take(&mut *lock(&self.revoked))
    }

    /// The part of the statistics that has the producer's id.
    fn note_producer(&self, statistics: &[u8]) {
        #[derive(Deserialize)]
        struct Statistics {
            eos: Option<Eos>,
        }
        #[derive(Deserialize)]
        struct Eos {
            idemp_state: String,
            producer_id: i64,
            producer_epoch: i16,
        }
        let Ok(Statistics { eos: Some(eos) }) = serde_json::from_slice(statistics) else { return };
        if eos.idemp_state == "Assigned" && eos.producer_id >= 0 {
            *lock(&self.producer) = Some(ProducerId { id: eos.producer_id, epoch: eos.producer_epoch });
        }
    }
}

impl ClientContext for Context {
    /// Whatever matters comes as an error or an event, too.
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn stats_raw(&self, statistics: &[u8]) {
        self.note_producer(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.outage.count();
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            return self.outage.set_down();
        }
        self.outage.note(if reason.is_empty() { error.to_string() } else { reason.to_string() });
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                self.begin(consumer, partitions);
                let client: &Client<Self> = consumer.client();
                // In this order: the queue lives while the lock is held.
                let mut assigned = lock(&self.assigned);
                let queue = self.group_queue.load(Ordering::Acquire);
                for element in partitions.elements() {
                    if !queue.is_null() {
                        queue::forward(client.native_ptr(), element.topic(), element.partition(), queue);
                    }
                    assigned.insert((element.topic().to_string(), element.partition()));
                }
            }
            Rebalance::Revoke(partitions) => {
                let (mut assigned, mut revoked) = (lock(&self.assigned), lock(&self.revoked));
                for element in partitions.elements() {
                    let partition = (element.topic().to_string(), element.partition());
                    assigned.remove(&partition);
                    revoked.push(partition);
                }
            }
            Rebalance::Error(error) => self.outage.note(error.to_string()),
        }
    }

    fn commit_callback(&self, result: Result<(), KafkaError>, _offsets: &TopicPartitionList) {
        match result {
            // Nothing to commit is no failure.
            Err(e) if e.rdkafka_error_code() != Some(RDKafkaErrorCode::NoOffset) => {
                if !self.commit_failed.swap(true, Ordering::AcqRel) {
                    tidemill_connect::notice(&format!("{}: {e}; the job goes on, its own checkpoints do not need it", self.outage.name()));
                }
            }
            _ => self.commit_failed.store(false, Ordering::Release),
        }
    }

    fn main_queue_min_poll_interval(&self) -> Timeout {
        Timeout::After(EVENTS_WAIT)
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        if let Err((error, message)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            let mut failures = lock(&self.failures);
            failures.count += 1;
            failures.first.get_or_insert_with(|| (code, format!("{} partition {}", message.topic(), message.partition())));
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// What the group has committed of these partitions; brokers may be away for a moment, as when the group's coordinator moves.
fn committed(
    consumer: &BaseConsumer<Context>,
    partitions: &TopicPartitionList,
    timeout: Duration,
) -> Result<TopicPartitionList, KafkaError> {
    let deadline = Instant::now() + timeout;
    loop {
        let asked = consumer.committed_offsets(partitions.clone(), left(deadline).min(timeout / ASKED_MIN));
        let answer = asked.and_then(|found| {
            found.elements().iter().try_for_each(|element| element.error())?;
            Ok(found)
        });
        let error = match answer {
            Ok(found) => return Ok(found),
            Err(e) => e,
        };
        let refused = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::GroupAuthorizationFailed | RDKafkaErrorCode::TopicAuthorizationFailed)
        );
        if refused || Instant::now() + AGAIN >= deadline {
            return Err(error);
        }
        std::thread::sleep(AGAIN);
    }
}

/// What an error of a client means, with what may be done about it.
pub fn explain(code: RDKafkaErrorCode) -> String {
    let text = code.to_string();
    let hint = match code {
        RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch => {
            "another producer uses the same transactional id: is the job running twice, or does another job have the same \
             'sink.transactional-id-prefix'? It may also be that the transaction took longer than its timeout \
             ('properties.transaction.timeout.ms')"
        }
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition => {
            "is the topic there? Create it first, or let brokers create it ('properties.allow.auto.create.topics' = 'true')"
        }
        RDKafkaErrorCode::TopicAuthorizationFailed => "the user has no right to the topic",
        RDKafkaErrorCode::MessageSizeTooLarge => {
            "raise 'properties.message.max.bytes' here and 'max.message.bytes' of the topic, or write shorter rows"
        }
        RDKafkaErrorCode::MessageTimedOut => "brokers did not take it in the time that 'properties.message.timeout.ms' gives",
        _ => "",
    };
    if hint.is_empty() { text } else { format!("{text}; {hint}") }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;

    use super::*;

    #[test]
    fn partitions_come_and_go() {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1").set("group.id", "g");
        let consumer: BaseConsumer<Context> = config.create_with_context(Context::new("t", "h:1")).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition("a", 3);
        let context = consumer.context();
        context.pre_rebalance(&consumer, &Rebalance::Assign(&list));
        assert_eq!((context.assigned().len(), context.take_revoked().len()), (1, 0));
        // A member that goes on counting this partition would commit an old offset if it came back.
        context.pre_rebalance(&consumer, &Rebalance::Revoke(&list));
        assert_eq!((context.assigned().len(), context.take_revoked()), (0, vec![("a".to_string(), 3)]));
        assert!(context.take_revoked().is_empty());
    }

    #[test]
    fn statistics_tell_the_producer() {
        let context = Context::new("t", "h:1");
        context.note_producer(br#"{"name":"x","eos":{"idemp_state":"WaitPID","producer_id":-1,"producer_epoch":-1}}"#);
        assert_eq!(context.producer(), None);
        let known = br#"{"brokers":{},"eos":{"idemp_state":"Assigned","txn_state":"Ready","producer_id":7000,"producer_epoch":3}}"#;
        context.note_producer(known);
        assert_eq!(context.producer(), Some(ProducerId { id: 7000, epoch: 3 }));
    }
}
