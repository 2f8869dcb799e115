//! The options of both connectors, in groups: those of both, those of plain `kafka` alone, those of
//! scanning and of writing, and those of `upsert-kafka` alone.

use std::time::Duration;

use tidemill_format::options::ByteSize;
use tidemill_format::{option_enum, options};

option_enum! {
    /// Which columns the value of a message holds.
    pub enum FieldsInclude {
        /// All physical columns, those of the key, too.
        All = "ALL",
        /// All but those of the key.
        ExceptKey = "EXCEPT_KEY",
    }
}

option_enum! {
    /// Where a scan begins that no checkpoint continues.
    pub enum Startup {
        /// At the oldest messages that are still there.
        Earliest = "earliest-offset",
        /// Behind the newest messages there are at the start.
        Latest = "latest-offset",
        /// Where the group has committed.
        Group = "group-offsets",
        /// At the first message of a time or later.
        Timestamp = "timestamp",
        /// At given offsets.
        Specific = "specific-offsets",
    }
}

option_enum! {
    /// Where a scan ends.
    pub enum Bounded {
        /// Nowhere.
        Unbounded = "unbounded",
        /// Before what is written after the start.
        Latest = "latest-offset",
        /// Where the group has committed.
        Group = "group-offsets",
        /// Before the first message of a time or later.
        Timestamp = "timestamp",
        /// At given offsets.
        Specific = "specific-offsets",
    }
}

option_enum! {
    /// Who divides the partitions of a topic among processes.
    pub enum Assignment {
        /// Nobody: the job reads all of them.
        All = "all",
        /// The broker, among all members of the group.
        Group = "group",
    }
}

option_enum! {
    /// What happens where the next offset is no longer there.
    pub enum OffsetReset {
        /// The job fails and names partition, offset and what is there.
        Fail = "fail",
        /// Goes on at the oldest message.
        Earliest = "earliest",
        /// Goes on behind the newest message.
        Latest = "latest",
    }
}

option_enum! {
    /// What reads partitions.
    pub enum ScanClient {
        /// Connections of our own where they speak what brokers want, librdkafka otherwise.
        Auto = "auto",
        /// Connections of our own.
        Direct = "direct",
        /// librdkafka.
        Librdkafka = "librdkafka",
    }
}

option_enum! {
    /// Which partition a message goes to.
    pub enum Partitioner {
        /// By the hash of its key, as Java producers do; without a key a random one, kept for a while.
        Default = "default",
        /// Each writer has one.
        Fixed = "fixed",
        /// One after the other.
        RoundRobin = "round-robin",
    }
}

option_enum! {
    /// What is promised of messages.
    pub enum Guarantee {
        /// Nothing: a crash may lose what was not yet sent.
        None = "none",
        /// A checkpoint waits until brokers have them; after a crash some may be written again.
        AtLeastOnce = "at-least-once",
        /// They are written in transactions that are committed with the checkpoint.
        ExactlyOnce = "exactly-once",
    }
}

option_enum! {
    /// What happens at a restart when brokers have given up a transaction that the checkpoint counts on.
    pub enum LostTransactions {
        /// The job fails and names it.
        Fail = "fail",
        /// It is told and passed over: its messages are missing, unless they were committed long ago.
        Ignore = "ignore",
    }
}

options! {
    /// Options of both connectors.
    pub struct CommonOptions {
        /// The topic. A source may name several, separated by `;`.
        flink "topic" => topic: Option<String>;
        /// Source: a regular expression that the whole name of a topic must match.
        flink "topic-pattern" => topic_pattern: Option<String>;
        /// Brokers to begin with: `host:port`, separated by commas.
        flink "properties.bootstrap.servers" => servers: String;
        /// The consumer group that offsets are committed to with each checkpoint.
        flink "properties.group.id" => group: Option<String>;
        /// Any other property of the client, by the name that librdkafka or Java clients give it.
        flink "properties.*" => properties: Option<String>;
        /// How long a start may wait for brokers. Afterwards outages are borne.
        ours "connect.timeout" => connect_timeout: Duration = Duration::from_secs(10);
        /// What the names of the key's columns begin with in the table and not in the key itself, so
        /// that key and value may have fields of one name. Needs 'value.fields-include' = 'EXCEPT_KEY'.
        flink "key.fields-prefix" => key_prefix: Option<String>;
        /// Which columns the value holds.
        flink "value.fields-include" => fields_include: FieldsInclude = FieldsInclude::All;
    }
}

options! {
    /// Options of `kafka` alone.
    pub struct PlainOptions {
        /// The columns that the key holds, separated by `;`. Needs 'key.format'.
        flink "key.fields" => key_fields: Option<String>;
        /// Source: where to begin, unless a checkpoint says it. Partitions found later are read from
        /// their beginning.
        flink "scan.startup.mode" => startup: Startup = Startup::Group;
        /// With `specific-offsets`: `partition:0,offset:42;partition:1,offset:300`. Partitions not
        /// named are read from their beginning.
        flink "scan.startup.specific-offsets" => startup_offsets: Option<String>;
        /// With `timestamp`: milliseconds since 1970.
        flink "scan.startup.timestamp-millis" => startup_ms: Option<i64>;
        /// Source: `all`: the job reads all partitions. `group`: the broker divides them among all
        /// processes with the same group; where to begin is what the group has committed. For jobs
        /// without state across partitions; at-least-once.
        ours "scan.assignment" => assignment: Assignment = Assignment::All;
        /// Sink: which partition a message goes to.
        flink "sink.partitioner" => partitioner: Partitioner = Partitioner::Default;
    }
}

options! {
    /// Options of reading.
    pub struct ScanOptions {
        /// Where to end.
        flink "scan.bounded.mode" => bounded: Bounded = Bounded::Unbounded;
        /// With `specific-offsets`: `partition:0,offset:42;partition:1,offset:300`.
        flink "scan.bounded.specific-offsets" => bounded_offsets: Option<String>;
        /// With `timestamp`: milliseconds since 1970.
        flink "scan.bounded.timestamp-millis" => bounded_ms: Option<i64>;
        /// How often to look for new partitions and topics; 0 for never.
        flink "scan.topic-partition-discovery.interval" => discovery: Duration = Duration::from_secs(300);
        /// What to do where the next offset is gone: the topic was created anew, or its messages have
        /// expired before they were read.
        ours "scan.offset-reset" => offset_reset: OffsetReset = OffsetReset::Fail;
        /// How many bytes of messages of each partition are fetched ahead, 256 mb at most. By default what fits in 16
        /// mb of memory, or in the partition's part of a sixteenth of the memory limit.
        ours "scan.prefetch" => prefetch: Option<ByteSize>;
        /// What fetches messages. `direct`: connections of our own, which take less CPU, over plain TCP, with a login by PLAIN or
        /// SCRAM if need be, from brokers of version 2.3 and later. `librdkafka`: the library. `auto`: the first where it can. With
        /// 'scan.assignment' = 'group' it is always the library.
        ours "scan.client" => client: ScanClient = ScanClient::Auto;
    }
}

options! {
    /// Options of writing.
    pub struct SinkOptions {
        /// What is promised of the messages.
        flink "sink.delivery-guarantee" => guarantee: Guarantee = Guarantee::AtLeastOnce;
        /// With `exactly-once`: what the ids of the transactions begin with. No two jobs may have the
        /// same at one cluster.
        flink "sink.transactional-id-prefix" => prefix: Option<String>;
        /// Accepted for Flink's sake; ids are pooled.
        flink "sink.transaction-naming-strategy" => naming: Option<String>;
        /// With `exactly-once`: what to do at a restart when brokers have given up a transaction of the
        /// checkpoint, because the job was down for longer than its timeout: `fail`, or `ignore`.
        ours "sink.lost-transactions" => lost: LostTransactions = LostTransactions::Fail;
        /// How many bytes a writer may hold that brokers do not have yet; then the job waits.
        ours "sink.queue" => queue: ByteSize = ByteSize(64 << 20);
    }
}

options! {
    /// Options of `upsert-kafka` alone.
    pub struct UpsertOptions {
        /// Sink: how many changes to keep so that of those of one key only the last is written; 0 for
        /// none.
        flink "sink.buffer-flush.max-rows" => buffer_rows: usize = 0usize;
        /// Sink: how long to keep them at most.
        flink "sink.buffer-flush.interval" => buffer_interval: Duration = Duration::ZERO;
    }
}
