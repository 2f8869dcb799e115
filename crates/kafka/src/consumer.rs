//! The consumer of a source: one for all of its partitions in this process, so that a broker gets one
//! request for all and messages come over one connection. A thread of its own serves its events and
//! looks for new partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::types::RDKafka;
use rdkafka::{ClientConfig, Offset};
use tidemill_connect::{ConnectError, Waker};

use crate::client::{Context, EVENTS_WAIT, lock};
use crate::partitions::{self, Partition, Topics};
use crate::position::{EARLIEST, Position};
use crate::properties::Connection;
use crate::queue::Queue;

/// How long a look for new partitions may take.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// New partitions, as far as they are known.
type Found = Arc<Mutex<Option<Vec<Partition>>>>;

/// A consumer and its thread.
pub struct Consumer {
    base: Arc<BaseConsumer<Context>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Found,
    /// Ids of topics that were asked for.
    ids: Mutex<BTreeMap<String, Option<String>>>,
    /// Topics that were created anew while they were read.
    anew: Mutex<BTreeSet<String>>,
    /// The brokers have answered and the topics are there.
    checked: Mutex<bool>,
}

impl Consumer {
    /// A consumer; with an interval it looks for the partitions of these topics again and again.
    ///
    /// # Errors
    /// librdkafka refuses the configuration.
    pub fn start(connection: &Connection, config: &ClientConfig, discovery: Option<(Topics, Duration)>) -> Result<Arc<Self>, ConnectError> {
        let context = Context::new(&connection.owner, &connection.servers);
        let base: BaseConsumer<Context> = config.create_with_context(context).map_err(|e| connection.refused(e))?;
        let (base, stop, found) = (Arc::new(base), Arc::new(AtomicBool::new(false)), Found::default());
        let servers = connection.servers.clone();
        let service = Service { base: base.clone(), stop: stop.clone(), found: found.clone(), discovery, servers };
        let thread = std::thread::Builder::new().name("kafka-events".into()).spawn(move || service.run());
        let thread = thread.map_err(|e| ConnectError::new(format!("starting a thread for Kafka: {e}")))?;
        let (ids, anew, checked) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Arc::new(Consumer { base, stop, thread: Some(thread), found, ids, anew, checked }))
    }

    /// librdkafka's consumer.
    pub fn base(&self) -> &BaseConsumer<Context> {
        &self.base
    }

    /// What it has heard.
    pub fn context(&self) -> &Context {
        self.base.context()
    }

    /// librdkafka's pointer.
    pub fn pointer(&self) -> *mut RDKafka {
        self.base.client().native_ptr()
    }

    /// The partitions as of the newest look; none before the first.
    pub fn found(&self) -> Option<Vec<Partition>> {
        lock(&self.found).clone()
    }

    /// Checks that the topics can be read, unless somebody has.
    ///
    /// # Errors
    /// What `check` says.
    pub fn check_once(&self, check: impl FnOnce() -> Result<(), ConnectError>) -> Result<(), ConnectError> {
        let mut checked = lock(&self.checked);
        if !*checked {
            check()?;
            *checked = true;
        }
        Ok(())
    }

    /// The id of a topic; found out once.
    pub fn topic_id(&self, topic: &str, find: impl FnOnce() -> Option<String>) -> Option<String> {
        lock(&self.ids).entry(topic.to_string()).or_insert_with(find).clone()
    }

    /// The topic may be another one by now: whoever wants its id asks for it, and ids known from before are those of no topic.
    pub fn forget_topic_id(&self, topic: &str) {
        lock(&self.anew).insert(topic.to_string());
        lock(&self.ids).remove(topic);
    }

    /// Whether the topic was created anew while it was read.
    pub fn is_anew(&self, topic: &str) -> bool {
        lock(&self.anew).contains(topic)
    }

    /// Begins to read a partition; its messages come through the queue.
    ///
    /// # Errors
    /// The consumer is closing, or reads the partition already.
    pub fn assign(&self, position: &Position, waker: Waker) -> Result<Queue, ConnectError> {
        let wrong = |why: String| ConnectError::new(format!("{}: beginning to read it: {why}", position.split()));
        let queue = Queue::of_partition(self.pointer(), &position.topic, position.partition);
        let mut queue = queue.ok_or_else(|| wrong("the consumer is closing".into()))?;
        queue.wake(waker);
        let offset = if position.offset == EARLIEST { Offset::Beginning } else { Offset::Offset(position.offset) };
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&position.topic, position.partition, offset).map_err(|e| wrong(e.to_string()))?;
        self.base.incremental_assign(&list).map_err(|e| wrong(e.to_string()))?;
        Ok(queue)
    }

    /// Ends reading a partition.
    pub fn unassign(&self, position: &Position) {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition(&position.topic, position.partition);
        // It fails only where the consumer is closing, which ends it, too.
        let _ = self.base.incremental_unassign(&list);
    }

    /// Commits offsets to the group, and does not wait for it. Failures are told once and borne.
    pub fn commit(&self, offsets: impl Iterator<Item = (String, i32, i64)>) {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in offsets.filter(|(_, _, offset)| *offset >= 0) {
            // An offset that is not negative is taken.
            let _ = list.add_partition_offset(&topic, partition, Offset::Offset(offset));
        }
        if list.count() > 0 {
            let _ = self.base.commit(&list, CommitMode::Async);
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread does.
struct Service {
    base: Arc<BaseConsumer<Context>>,
    stop: Arc<AtomicBool>,
    found: Found,
    discovery: Option<(Topics, Duration)>,
    servers: String,
}

impl Service {
    fn run(self) {
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            // Messages come through the queues of their partitions; one that comes here is lost to them.
            if let Some(Ok(_)) = self.base.poll(EVENTS_WAIT) {
                self.base.context().note_stray();
            }
            if let Some((topics, interval)) = &self.discovery
                && Instant::now() >= next
            {
                next = Instant::now() + *interval;
                // What could not be found out now is found out next time; outages are told by the context.
                if let Ok(partitions) = partitions::list(&self.base, topics, &self.servers, DISCOVERY_TIMEOUT) {
                    *lock(&self.found) = Some(partitions);
                }
            }
        }
    }
}
