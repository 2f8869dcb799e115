//! The source: partitions as splits, with the offsets at which they begin and end found out once, at the
//! start, so that a restart goes on in the same bounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arrow::datatypes::DataType;
use rdkafka::Offset;
use rdkafka::consumer::BaseConsumer;
use serde_json::Value;
use tidemill_connect::{Changelog, ConnectError, Reader, ReaderContext, Source, Split};
use tidemill_format::options::ByteSize;

use crate::client::{Context, GroupStart, lock};
use crate::consumer::Consumer;
use crate::fetch::{Fetcher, Settings};
use crate::group::{GroupReader, Members};
use crate::layout::Layout;
use crate::metadata;
use crate::options::{OffsetReset, ScanClient};
use crate::partitions::{self, Partition, Topics};
use crate::position::{EARLIEST, Position};
use crate::prefetch::Prefetch;
use crate::properties::Connection;
use crate::reader::{Inflow, PartitionReader, nothing};
use crate::rows::RowMaker;
use crate::start::{Bound, Resolver};
use crate::topic_id;

/// How often to ask for what the consumer's thread has found.
const ASKED: Duration = Duration::from_secs(1);

/// What is read, and how.
pub struct KafkaSource {
    /// The cluster.
    pub connection: Connection,
    /// The topics.
    pub topics: Topics,
    /// Key and value.
    pub layout: Layout,
    /// Where to begin.
    pub start: Bound,
    /// Where to end, if anywhere.
    pub stop: Option<Bound>,
    /// How often to look for new partitions.
    pub discovery: Option<Duration>,
    /// What to do where the next offset is gone.
    pub reset: OffsetReset,
    /// Bytes of messages fetched ahead of a partition, if the table says it.
    pub prefetch: Option<ByteSize>,
    /// What fetches them.
    pub client: ScanClient,
    /// The broker divides the partitions.
    pub group: bool,
    /// A null value deletes.
    pub upsert: bool,
    /// Bytes of memory for what is fetched ahead; 0 without a limit.
    pub memory: AtomicU64,
    /// The consumer, from when it is first needed.
    pub consumer: Mutex<Option<Arc<Consumer>>>,
    /// How much is fetched ahead of each partition, once it is known.
    pub ahead: OnceLock<Prefetch>,
    /// What fetches without librdkafka, from when it is first needed; none within where it cannot.
    pub fetcher: Mutex<Option<Option<Arc<Fetcher>>>>,
    /// Consumers that are members of the group.
    pub members: Members,
}

impl KafkaSource {
    fn consumer(&self) -> Result<Arc<Consumer>, ConnectError> {
        let mut consumer = lock(&self.consumer);
        if let Some(consumer) = &*consumer {
            return Ok(consumer.clone());
        }
        let config = self.connection.consumer(self.reset, self.prefetch_of_partition()?, self.stop.is_some());
        let discovery = self.discovery.map(|interval| (self.topics.clone(), interval));
        Ok(consumer.insert(Consumer::start(&self.connection, &config, discovery)?).clone())
    }

    /// What fetches without librdkafka, if it can and is to.
    fn fetcher(&self, consumer: &Consumer) -> Result<Option<Arc<Fetcher>>, ConnectError> {
        if self.client == ScanClient::Librdkafka {
            return Ok(None);
        }
        let mut fetcher = lock(&self.fetcher);
        if let Some(known) = &*fetcher {
            return Ok(known.clone());
        }
        let settings = Settings::of(&self.connection, self.prefetch_of_partition()?, self.reset, self.stop.is_some());
        let found = match Fetcher::start(&self.connection, settings, consumer.context().outage().clone()) {
            Ok(found) => Some(found),
            Err(why) if self.client == ScanClient::Direct => {
                let owner = &self.connection.owner;
                return Err(ConnectError::new(format!("{owner}: option 'scan.client' = 'direct': {why}; 'auto' reads with librdkafka")));
            }
            Err(_) => None,
        };
        Ok(fetcher.insert(found).clone())
    }

    /// Bytes that what was fetched ahead may take, if anybody limits them.
    fn memory(&self) -> Option<u64> {
        Some(self.memory.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// What the queue of each partition may hold. Where they share a limit, how many there are is asked for by a client of
    /// its own, since one that reads must know before it begins.
    fn prefetch_of_partition(&self) -> Result<Prefetch, ConnectError> {
        if let Some(known) = self.ahead.get() {
            return Ok(*known);
        }
        let found = self.find_prefetch()?;
        Ok(*self.ahead.get_or_init(|| found))
    }

    fn find_prefetch(&self) -> Result<Prefetch, ConnectError> {
        if let Some(bytes) = self.prefetch {
            return Ok(Prefetch::of_messages(bytes.0));
        }
        let Some(memory) = self.memory().filter(|_| !Prefetch::is_set_in(&self.connection)) else { return Ok(Prefetch::shared(None, 1)) };
        let Connection { owner, servers, timeout, .. } = &self.connection;
        let config = self.connection.consumer(self.reset, Prefetch::shared(None, 1), false);
        let asking: BaseConsumer<Context> =
            config.create_with_context(Context::new(owner, servers)).map_err(|e| self.connection.refused(e))?;
        let found = partitions::list(&asking, &self.topics, servers, *timeout).map_err(|e| self.at_servers(e))?;
        Ok(Prefetch::shared(Some(memory), found.len()))
    }

    fn at_servers(&self, why: String) -> ConnectError {
        let servers = &self.connection.servers;
        ConnectError::new(if why.contains(servers.as_str()) { why } else { format!("Kafka at {servers}: {why}") })
    }

    fn resolver<'a>(&self, consumer: &'a Consumer) -> Resolver<'a> {
        Resolver { consumer: consumer.base(), timeout: self.connection.timeout, no_offset: self.connection.no_offset }
    }

    fn ids(&self, consumer: &Consumer, partitions: &[Partition]) -> std::collections::BTreeMap<String, String> {
        let mut topics: Vec<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
        topics.dedup();
        topic_id::ids(consumer.pointer(), &topics, self.connection.timeout)
    }

    /// The split of a partition that was found while the job runs.
    fn later((topic, partition): Partition) -> Split {
        split(Position { topic, partition, offset: EARLIEST, stop: None, topic_id: None })
    }

    fn open_partition(&self, position: &Value, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let mut position = Position::of(position)?;
        if !self.topics.holds(&position.topic) {
            return Err(ConnectError::new(format!(
                "the checkpoint has a position of {}, which the table no longer reads; --fresh begins anew",
                position.split()
            )));
        }
        let consumer = self.consumer()?;
        // After a restart from a checkpoint nobody has talked to the brokers yet.
        consumer.check_once(|| {
            let listed = partitions::list(consumer.base(), &self.topics, &self.connection.servers, self.connection.timeout);
            listed.map(|_| ()).map_err(|e| self.at_servers(e))
        })?;
        let maker = RowMaker::new(&self.layout, &context.request, self.upsert)?;
        let partition = [(position.topic.clone(), position.partition)];
        if let (Some(stop), None) = (&self.stop, position.stop) {
            // The table was not bounded when the checkpoint was taken.
            let stops = self.resolver(&consumer).stops(stop, &partition).map_err(|e| self.at_servers(e))?;
            position.stop = stops.first().copied();
        }
        let id = self.known_id(&consumer, &position);
        match (position.topic_id.clone(), id) {
            (Some(before), Some(now)) if before != now && self.reset == OffsetReset::Fail => {
                return Err(ConnectError::new(format!(
                    "{}: the topic was deleted and created anew since the checkpoint (it had the id {before} and has {now}), so \
                     offset {} means another message; 'scan.offset-reset' = 'earliest' reads it from its beginning, --fresh begins anew",
                    position.split(),
                    position.offset
                )));
            }
            (Some(before), Some(now)) if before != now => {
                position.offset = match self.reset {
                    OffsetReset::Latest => self.resolver(&consumer).starts(&Bound::Latest, &partition).map_err(|e| self.at_servers(e))?[0],
                    _ => EARLIEST,
                };
                position.topic_id = Some(now);
            }
            (None, Some(now)) => position.topic_id = Some(now),
            _ => {}
        }
        let inflow = match self.fetcher(&consumer)? {
            _ if nothing(&position) => None,
            Some(fetcher) => {
                let feed = fetcher.assign(&position, context.waker.clone())?;
                Some(Inflow::Own(Box::new(feed), context.waker, self.client == ScanClient::Auto))
            }
            None => Some(Inflow::Client(consumer.assign(&position, context.waker)?)),
        };
        Ok(Box::new(PartitionReader::new(inflow, consumer, maker, position, self.reset)))
    }

    /// The id of the topic of a position that a checkpoint may have kept; asked for once a topic and process.
    fn known_id(&self, consumer: &Consumer, position: &Position) -> Option<String> {
        consumer.topic_id(&position.topic, || {
            topic_id::ids(consumer.pointer(), std::slice::from_ref(&position.topic), self.connection.timeout).remove(&position.topic)
        })
    }

    fn open_group(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let config = {
            // All partitions of a member share one queue.
            let prefetch = match self.prefetch {
                Some(bytes) => Prefetch::of_messages(bytes.0),
                None => Prefetch::shared(self.memory(), context.shards),
            };
            self.connection.consumer(self.reset, prefetch, false)
        };
        let consumer = Consumer::start(&self.connection, &config, None)?;
        // Where the group has no offset, members begin as the table says.
        let begin = match (self.connection.no_offset, &self.start) {
            (Some(OffsetReset::Earliest), _) | (None, Bound::Earliest) => Some(Offset::Beginning),
            (Some(_), _) | (None, Bound::Latest) => Some(Offset::End),
            (None, _) => None,
        };
        if let Some(start) = begin {
            let Connection { group, timeout, .. } = &self.connection;
            let (group, waker) = (group.clone().unwrap_or_default(), context.waker.clone());
            consumer.context().begin_group_at(GroupStart { group, start, timeout: *timeout, waker });
        }
        partitions::list(consumer.base(), &self.topics, &self.connection.servers, self.connection.timeout)
            .map_err(|e| self.at_servers(e))?;
        let maker = RowMaker::new(&self.layout, &context.request, self.upsert)?;
        self.members.add(&consumer);
        Ok(Box::new(GroupReader::join(consumer, &self.topics, maker, context.waker, &split.id)?))
    }
}

fn split(position: Position) -> Split {
    Split { id: position.split(), position: Some(position.value()) }
}

impl Source for KafkaSource {
    fn bounded(&self) -> bool {
        self.stop.is_some()
    }

    fn limit_memory(&self, bytes: u64) -> u64 {
        self.memory.store(bytes, Ordering::Relaxed);
        // What the table says itself is its own affair.
        if self.prefetch.is_some() || Prefetch::is_set_in(&self.connection) { 0 } else { bytes }
    }

    fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        if self.group {
            return Ok((0..parallelism.max(1)).map(|n| Split::new(format!("group member {n}"))).collect());
        }
        let consumer = self.consumer()?;
        let Connection { servers, timeout, .. } = &self.connection;
        let found = partitions::list(consumer.base(), &self.topics, servers, *timeout).map_err(|e| self.at_servers(e))?;
        consumer.check_once(|| Ok(()))?;
        if found.is_empty() && self.discovery.is_none() {
            return Err(ConnectError::new(format!("no topic at {servers} matches 'topic-pattern'")));
        }
        let resolver = self.resolver(&consumer);
        let starts = resolver.starts(&self.start, &found).map_err(|e| self.at_servers(e))?;
        let stops = self.stop.as_ref().map(|stop| resolver.stops(stop, &found)).transpose().map_err(|e| self.at_servers(e))?;
        let ids = self.ids(&consumer, &found);
        let positions = found.into_iter().enumerate().map(|(i, (topic, partition))| {
            let topic_id = ids.get(&topic).cloned();
            Position { topic, partition, offset: starts[i], stop: stops.as_ref().map(|s| s[i]), topic_id }
        });
        Ok(positions.map(split).collect())
    }

    fn discover(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        if self.group {
            return Ok(Vec::new());
        }
        // Whatever is known already is recognised by its id; what is new is read from its beginning.
        Ok(self.consumer()?.found().unwrap_or_default().into_iter().map(Self::later).collect())
    }

    fn changelog(&self) -> Changelog {
        match self.upsert {
            true => Changelog::Upsert,
            false if self.layout.value.format.changelog() => Changelog::All,
            false => Changelog::Append,
        }
    }

    /// Asked for often, since looking is the consumer's thread's affair.
    fn discovery_interval(&self) -> Option<Duration> {
        self.discovery.filter(|_| !self.group).map(|interval| interval.min(ASKED))
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        match &split.position {
            _ if self.group => self.open_group(split, context),
            Some(position) => self.open_partition(position, context),
            None => Err(ConnectError::new(format!("{}: internal error: a partition without a position", split.id))),
        }
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata::columns()
    }

    /// A member of a group begins where the group stands, wherever it is opened.
    fn replays(&self) -> Option<bool> {
        self.group.then_some(false)
    }

    fn committed(&self, positions: &[Value]) {
        if !self.connection.commits || self.connection.group.is_none() {
            return;
        }
        if self.group {
            self.members.commit(positions);
        } else if let Some(consumer) = &*lock(&self.consumer) {
            let read = positions.iter().filter_map(|p| Position::of(p).ok());
            consumer.commit(read.map(|p| (p.topic, p.partition, p.offset)));
        }
    }
}
