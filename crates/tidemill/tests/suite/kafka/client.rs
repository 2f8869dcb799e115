//! What the tests of Kafka ask of a broker beside the jobs: topics, messages in, messages out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::harness::{PATIENCE, wait_for};

/// Key and value of a message.
pub type Pair = (Option<String>, Option<String>);

/// A client of a broker.
pub struct Client {
    config: ClientConfig,
}

impl Client {
    /// Of the broker there.
    pub fn new(servers: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers);
        Client { config }
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config.create().expect("an admin client")
    }

    /// Whether the broker answers.
    pub fn answers(&self) -> bool {
        self.admin().inner().fetch_metadata(None, Duration::from_secs(5)).is_ok_and(|m| !m.brokers().is_empty())
    }

    /// Makes a topic.
    pub fn create(&self, topic: &str, partitions: i32) {
        let admin = self.admin();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        wait_for("the topic to be made", || {
            let made = block_on(admin.create_topics(&[NewTopic::new(topic, partitions, TopicReplication::Fixed(1))], &options));
            match made.expect("making a topic").remove(0) {
                Ok(_) => true,
                // One of this name is still being deleted.
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => false,
                Err((name, code)) => panic!("making topic {name}: {code}"),
            }
        });
    }

    /// Deletes a topic.
    pub fn delete(&self, topic: &str) {
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let deleted = block_on(self.admin().delete_topics(&[topic], &options)).expect("deleting a topic");
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
    }

    /// Gives a topic so many partitions in all.
    pub fn add_partitions(&self, topic: &str, count: usize) {
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let added = block_on(self.admin().create_partitions(&[NewPartitions::new(topic, count)], &options)).expect("adding partitions");
        assert!(added.iter().all(Result::is_ok), "{added:?}");
        wait_for("the partitions", || {
            let metadata = self.admin().inner().fetch_metadata(Some(topic), PATIENCE);
            metadata.is_ok_and(|m| m.topics()[0].partitions().len() == count)
        });
    }

    /// Writes messages to any partitions.
    pub fn produce(&self, topic: &str, messages: &[Pair]) {
        self.send(topic, |_| None, messages);
    }

    /// Writes messages to one partition.
    pub fn produce_to(&self, topic: &str, partition: i32, messages: &[Pair]) {
        self.send(topic, |_| Some(partition), messages);
    }

    /// Writes messages to partition 0, each with its time, ms since 1970, and a header `n`, its number.
    pub fn produce_at(&self, topic: &str, ms: impl Fn(usize) -> i64, messages: &[Pair]) {
        let producer: BaseProducer = self.config.create().expect("a producer");
        for (n, (_, value)) in messages.iter().enumerate() {
            let number = n.to_string();
            let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic);
            record.partition = Some(0);
            record.payload = value.as_deref();
            record.timestamp = Some(ms(n));
            record.headers = Some(OwnedHeaders::new().insert(Header { key: "n", value: Some(&number) }));
            producer.send(record).map_err(|(error, _)| error).expect("room for a few messages");
        }
        producer.flush(PATIENCE).expect("messages delivered");
    }

    /// Writes messages, the nth to the partition that is said for n.
    pub fn send(&self, topic: &str, partition: impl Fn(usize) -> Option<i32>, messages: &[Pair]) {
        let mut config = self.config.clone();
        // As the connector does, so that keys go to the same partitions; in order, whatever happens.
        config.set("partitioner", "murmur2_random").set("sticky.partitioning.linger.ms", "0").set("enable.idempotence", "true");
        let producer: BaseProducer = config.create().expect("a producer");
        hand_over(&producer, topic, partition, messages);
    }

    /// Writes messages in a transaction, which is committed or given up.
    pub fn transaction(&self, topic: &str, messages: &[Pair], commit: bool) {
        let mut config = self.config.clone();
        let producer: BaseProducer = config.set("transactional.id", "tests").create().expect("a producer");
        producer.init_transactions(PATIENCE).expect("the transactional id");
        producer.begin_transaction().expect("a transaction");
        hand_over(&producer, topic, |_| None, messages);
        let ended = if commit { producer.commit_transaction(PATIENCE) } else { producer.abort_transaction(PATIENCE) };
        ended.expect("the end of the transaction");
        // The broker says so before its partitions know: who asks for their newest committed offset meanwhile gets an older one.
        wait_for("the partitions to know that the transaction has ended", || !self.has_open_transactions(topic));
    }

    /// How many consumers share the partitions of a group; none while these are being divided.
    pub fn members(&self, group: &str) -> usize {
        let consumer = self.consumer("read_committed");
        // Every broker that is known is asked.
        consumer.fetch_metadata(None, PATIENCE).expect("metadata");
        // A group that is not known yet, or whose coordinator is not, has none.
        let listed = consumer.fetch_group_list(Some(group), PATIENCE);
        listed.map_or(0, |list| list.groups().iter().filter(|group| group.state() == "Stable").map(|group| group.members().len()).sum())
    }

    fn consumer(&self, isolation: &str) -> BaseConsumer {
        let mut config = self.config.clone();
        config.set("group.id", "tests").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("isolation.level", isolation).create().expect("a consumer")
    }

    fn partitions(&self, consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("metadata");
        metadata.topics()[0].partitions().iter().map(|p| p.id()).collect()
    }

    /// The offset that a group has committed for partition 0 of a topic, if it has.
    pub fn committed(&self, group: &str, topic: &str) -> Option<i64> {
        let mut config = self.config.clone();
        let consumer: BaseConsumer = config.set("group.id", group).create().expect("a consumer");
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic, 0);
        // Who is responsible for the group may not be known yet.
        let found = consumer.committed_offsets(asked, PATIENCE).ok()?;
        match found.find_partition(topic, 0)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }

    /// Deletes what stands before an offset of partition 0, as if it had expired.
    pub fn delete_before(&self, topic: &str, offset: i64) {
        let mut until = TopicPartitionList::new();
        until.add_partition_offset(topic, 0, Offset::Offset(offset)).expect("an offset");
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        block_on(self.admin().delete_records(&until, &options)).expect("deleting messages");
    }

    /// The values that a consumer of committed messages sees now.
    pub fn values(&self, topic: &str) -> Vec<String> {
        self.read(topic, |message| message.payload().map(|v| String::from_utf8_lossy(v).into_owned()))
    }

    /// Time, ms since 1970, and first header of the messages that it sees.
    pub fn marks(&self, topic: &str) -> Vec<(i64, String)> {
        self.read(topic, |message| {
            let header = message.headers()?.try_get(0)?;
            let value = String::from_utf8_lossy(header.value?).into_owned();
            Some((message.timestamp().to_millis()?, format!("{} {value}", header.key)))
        })
    }

    /// What `keep` makes of the messages that a consumer of committed messages sees now.
    fn read<T>(&self, topic: &str, keep: impl Fn(&BorrowedMessage<'_>) -> Option<T>) -> Vec<T> {
        let consumer = self.consumer("read_committed");
        let partitions = self.partitions(&consumer, topic);
        let mut list = TopicPartitionList::new();
        for partition in &partitions {
            list.add_partition_offset(topic, *partition, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&list).expect("partitions");
        let (mut found, mut ended, begun) = (Vec::new(), BTreeSet::new(), Instant::now());
        while ended.len() < partitions.len() {
            assert!(begun.elapsed() < PATIENCE, "reading topic {topic} takes more than {PATIENCE:?}");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => found.extend(keep(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    ended.insert(partition);
                }
                Some(Err(_)) | None => {}
            }
        }
        found
    }

    /// Whether a transaction is open: whoever reads committed messages only is held up by it.
    pub fn has_open_transactions(&self, topic: &str) -> bool {
        let (committed, all) = (self.consumer("read_committed"), self.consumer("read_uncommitted"));
        self.partitions(&all, topic).into_iter().any(|partition| {
            let end = |c: &BaseConsumer| c.fetch_watermarks(topic, partition, PATIENCE).expect("offsets").1;
            end(&committed) != end(&all)
        })
    }
}

/// Sends messages and waits until they are delivered.
fn hand_over(producer: &BaseProducer, topic: &str, partition: impl Fn(usize) -> Option<i32>, messages: &[Pair]) {
    for (n, (key, value)) in messages.iter().enumerate() {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic);
        record.key = key.as_deref();
        record.payload = value.as_deref();
        record.partition = partition(n);
        while let Err((error, back)) = producer.send(record) {
            assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            producer.poll(Duration::from_millis(10));
            record = back;
        }
    }
    producer.flush(PATIENCE).expect("messages delivered");
}
