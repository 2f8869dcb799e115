//! The `properties.*` of a table as librdkafka takes them: names of Java clients are translated, what
//! only Java clients have is passed over, and what cannot be is refused by name.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use tidemill_connect::ConnectError;
use tidemill_format::options::{ByteSize, RawOptions};

use crate::options::{CommonOptions, OffsetReset};
use crate::prefetch::Prefetch;

/// Properties of Java clients (and of Flink) that mean nothing here: accepted and passed over.
const JAVA_ONLY: &[&str] = &[
    "key.deserializer",
    "value.deserializer",
    "key.serializer",
    "value.serializer",
    "max.poll.records",
    "default.api.timeout.ms",
    "max.block.ms",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "partition.discovery.interval.ms",
    "client.id.prefix",
    "exclude.internal.topics",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "ssl.truststore.type",
    "ssl.keystore.type",
];

/// Properties that librdkafka knows by two names, of which it would take whichever comes last.
const TWO_NAMES: &[(&str, &str)] = &[("linger.ms", "queue.buffering.max.ms"), ("fetch.message.max.bytes", "max.partition.fetch.bytes")];

/// How to reach a cluster, as a table says it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The table, for messages.
    pub owner: String,
    /// Brokers to begin with.
    pub servers: String,
    /// The group, if the user gave one.
    pub group: Option<String>,
    /// How long a start may wait.
    pub timeout: Duration,
    /// `auto.offset.reset`: what to do where a group has no offset; none to fail.
    pub no_offset: Option<OffsetReset>,
    /// Whether offsets are committed to the group.
    pub commits: bool,
    /// What goes to librdkafka.
    properties: BTreeMap<String, String>,
}

impl Connection {
    /// Takes the properties out of `raw`.
    ///
    /// # Errors
    /// A property that librdkafka does not know or cannot have.
    pub fn take(common: &CommonOptions, raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let owner = raw.owner().to_string();
        let mut connection = Connection {
            owner: owner.clone(),
            servers: common.servers.clone(),
            group: common.group.clone(),
            timeout: common.connect_timeout,
            no_offset: None,
            commits: true,
            properties: BTreeMap::new(),
        };
        if common.properties.is_some() {
            return Err(ConnectError::new(format!("{owner}: option 'properties.*': write the name of a property in place of the star")));
        }
        if common.servers.trim().is_empty() {
            return Err(ConnectError::new(format!("{owner}: option 'properties.bootstrap.servers': expected 'host:port'")));
        }
        for (name, value) in raw.take_prefixed("properties.") {
            connection.add(&name, &value).map_err(|why| ConnectError::new(format!("{owner}: option 'properties.{name}': {why}")))?;
        }
        connection.check_security()?;
        // So that an unknown property is found at planning.
        let consumer = connection.consumer(OffsetReset::Fail, Prefetch::shared(None, 1), false);
        consumer.create_native_config().map_err(|e| connection.refused(e))?;
        connection.producer(ByteSize(1 << 20)).create_native_config().map_err(|e| connection.refused(e))?;
        Ok(connection)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |what: &str| value.trim().parse::<u64>().map_err(|_| format!("'{value}': expected {what}"));
        match name {
            "auto.offset.reset" => {
                self.no_offset = match value.trim().to_ascii_lowercase().as_str() {
                    "none" | "error" => None,
                    "earliest" | "smallest" | "beginning" => Some(OffsetReset::Earliest),
                    "latest" | "largest" | "end" => Some(OffsetReset::Latest),
                    _ => return Err(format!("'{value}': expected earliest, latest or none")),
                };
            }
            "commit.offsets.on.checkpoint" => match value.trim().to_ascii_lowercase().as_str() {
                "true" => self.commits = true,
                "false" => self.commits = false,
                _ => return Err(format!("'{value}': expected true or false")),
            },
            "transactional.id" => return Err("use 'sink.transactional-id-prefix'".into()),
            "partitioner.class" => return Err("use 'sink.partitioner'".into()),
            "interceptor.classes" => return Err("Java classes cannot be loaded".into()),
            "buffer.memory" => self.put("queue.buffering.max.kbytes", (number("bytes")? >> 10).max(1).to_string()),
            "max.request.size" => self.put("message.max.bytes", value),
            "fetch.max.wait.ms" => self.put("fetch.wait.max.ms", value),
            "receive.buffer.bytes" => self.put("socket.receive.buffer.bytes", value),
            "send.buffer.bytes" => self.put("socket.send.buffer.bytes", value),
            "sasl.mechanism" => self.put("sasl.mechanisms", value),
            "sasl.jaas.config" => {
                let found = |key: &str| jaas(value, key);
                match (found("username"), found("password")) {
                    (Some(user), Some(password)) => {
                        self.put("sasl.username", user);
                        self.put("sasl.password", password);
                    }
                    _ => return Err("no username=\"…\" password=\"…\" in it; other login modules are not there".into()),
                }
            }
            "ssl.truststore.location" | "ssl.truststore.password" | "ssl.truststore.certificates" => {
                return Err("Java's stores cannot be read: give a file of PEM certificates as 'properties.ssl.ca.location'".into());
            }
            java if JAVA_ONLY.contains(&java) => {}
            other => self.put(other, value),
        }
        Ok(())
    }

    fn put(&mut self, name: &str, value: impl Into<String>) {
        self.properties.insert(name.to_string(), value.into());
    }

    /// What the user set.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// `PLAINTEXT`, `SASL_SSL`, …
    pub fn protocol(&self) -> String {
        self.property("security.protocol").unwrap_or("plaintext").trim().to_ascii_uppercase()
    }

    /// The names of the properties that the user set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// How to log in; without a word librdkafka asks Kerberos.
    pub fn mechanism(&self) -> &str {
        self.property("sasl.mechanisms").unwrap_or("GSSAPI").trim()
    }

    fn check_security(&self) -> Result<(), ConnectError> {
        let protocol = self.protocol();
        if protocol.ends_with("SSL") && !cfg!(feature = "ssl") {
            return Err(ConnectError::new(format!(
                "{}: option 'properties.security.protocol' = '{protocol}': this build has no TLS for Kafka; build it with the feature \
                 'kafka-ssl' (it needs OpenSSL)",
                self.owner
            )));
        }
        let mechanism = self.mechanism();
        if protocol.starts_with("SASL") && mechanism != "PLAIN" && !cfg!(feature = "ssl") {
            return Err(ConnectError::new(format!(
                "{}: option 'properties.sasl.mechanism' = '{mechanism}': this build knows PLAIN only; built with the feature \
                 'kafka-ssl' (it needs OpenSSL) it knows SCRAM-SHA-256 and SCRAM-SHA-512, too",
                self.owner
            )));
        }
        Ok(())
    }

    /// What librdkafka says against a property.
    pub fn refused(&self, error: KafkaError) -> ConnectError {
        match error {
            KafkaError::ClientConfig(_, why, key, value) => {
                let secret = ["password", "secret", "key", "token"].iter().any(|s| key.contains(s));
                let value = if secret { "…" } else { value.as_str() };
                ConnectError::new(format!("{}: option 'properties.{key}' = '{value}': {why}", self.owner))
            }
            other => ConnectError::new(format!("{}: making a client for {}: {other}", self.owner, self.servers)),
        }
    }

    /// The user's properties over these defaults, below what must be.
    fn config(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in [("client.id", "tidemill"), ("enable.metrics.push", "false")].iter().chain(defaults) {
            let other = TWO_NAMES.iter().find(|(one, _)| one == name);
            if other.is_none_or(|(_, other)| self.property(other).is_none()) {
                config.set(*name, *value);
            }
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", self.servers.as_str());
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        config
    }

    /// For a consumer. librdkafka wants a group even of one that is assigned its partitions.
    pub fn consumer(&self, reset: OffsetReset, prefetch: Prefetch, eof: bool) -> ClientConfig {
        let group = self.group.clone().unwrap_or_else(|| "tidemill".into());
        let reset = match reset {
            OffsetReset::Fail => "error",
            OffsetReset::Earliest => "earliest",
            OffsetReset::Latest => "latest",
        };
        let Prefetch { kbytes, messages, answer_bytes } = prefetch;
        let (kbytes, messages, answer_bytes) = (kbytes.to_string(), messages.to_string(), answer_bytes.to_string());
        // After the queue of a partition was full, fetching rests for so many ms: by default 1,000, in which a fast job starves.
        // How large a whole answer may be librdkafka derives from the queue's kilobytes.
        let defaults = [
            ("fetch.queue.backoff.ms", "2"),
            ("queued.min.messages", messages.as_str()),
            ("queued.max.messages.kbytes", kbytes.as_str()),
            ("fetch.message.max.bytes", answer_bytes.as_str()),
        ];
        let fixed = [
            ("group.id", group.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", reset),
            ("enable.partition.eof", if eof { "true" } else { "false" }),
        ];
        self.config(&defaults, &fixed)
    }

    /// For a producer. Idempotence keeps the order when something is sent again, as in Java clients.
    pub fn producer(&self, queue: ByteSize) -> ClientConfig {
        let queue = (queue.0 >> 10).clamp(1, i32::MAX as u64).to_string();
        let weak = ["acks", "request.required.acks"].iter().any(|a| self.property(a).is_some_and(|v| !matches!(v.trim(), "all" | "-1")));
        let idempotent = if weak { "false" } else { "true" };
        let defaults = [
            ("enable.idempotence", idempotent),
            ("partitioner", "murmur2_random"),
            ("queue.buffering.max.messages", "500000"),
            ("queue.buffering.max.kbytes", queue.as_str()),
            ("linger.ms", "5"),
        ];
        self.config(&defaults, &[("delivery.report.only.error", "true")])
    }
}

/// The value of `key="…"` in a JAAS configuration.
fn jaas<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(key)?;
        let bounded = rest[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
        rest = &rest[at + key.len()..];
        let Some(value) = rest.trim_start().strip_prefix('=').map(str::trim_start) else { continue };
        let Some(quote) = value.chars().next().filter(|c| bounded && matches!(c, '"' | '\'')) else { continue };
        return value[1..].split(quote).next();
    }
}

#[cfg(test)]
mod tests {
    use tidemill_format::options::OptionSet;

    use super::*;

    fn taken(pairs: &[(&str, &str)]) -> Result<Connection, String> {
        let all = pairs.iter().chain(&[("properties.bootstrap.servers", "localhost:1")]);
        let mut raw = RawOptions::new("table 't'", all.map(|(k, v)| (k.to_string(), v.to_string())));
        let common = CommonOptions::take(&mut raw).map_err(|e| e.to_string())?;
        Connection::take(&common, &mut raw).map_err(|e| e.to_string())
    }

    #[test]
    fn names_of_java_clients() {
        let c = taken(&[
            ("properties.fetch.max.wait.ms", "77"),
            ("properties.buffer.memory", "65536"),
            ("properties.max.poll.records", "5"),
            ("properties.auto.offset.reset", "latest"),
            ("properties.sasl.jaas.config", "x.PlainLoginModule required username=\"me\" password='a b';"),
        ])
        .unwrap();
        assert_eq!(c.property("fetch.wait.max.ms"), Some("77"));
        assert_eq!(c.property("queue.buffering.max.kbytes"), Some("64"));
        assert_eq!(c.property("max.poll.records"), None);
        assert_eq!((c.property("sasl.username"), c.property("sasl.password")), (Some("me"), Some("a b")));
        assert_eq!(c.no_offset, Some(OffsetReset::Latest));
    }

    #[test]
    fn fetching_ahead_is_as_the_user_says() {
        let config = |pairs: &[(&str, &str)]| taken(pairs).unwrap().consumer(OffsetReset::Fail, Prefetch::of_messages(1 << 20), false);
        let all = config(&[]);
        assert_eq!((all.get("queued.max.messages.kbytes"), all.get("fetch.message.max.bytes")), (Some("1024"), Some("1048576")));
        let own = config(&[("properties.max.partition.fetch.bytes", "77777"), ("properties.queued.min.messages", "5")]);
        assert_eq!((own.get("max.partition.fetch.bytes"), own.get("fetch.message.max.bytes")), (Some("77777"), None));
        assert_eq!(own.get("queued.min.messages"), Some("5"));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let check = |name: &str, value: &str, expect: &str| {
            let error = taken(&[(name, value)]).unwrap_err();
            assert!(error.contains(&format!("'{name}'")) && error.contains(expect), "{error}");
        };
        check("properties.no.such", "1", "No such configuration property");
        check("properties.linger.ms", "soon", "linger.ms");
        check("properties.transactional.id", "x", "sink.transactional-id-prefix");
        check("properties.auto.offset.reset", "middle", "earliest, latest or none");
        if !cfg!(feature = "ssl") {
            check("properties.security.protocol", "SSL", "no TLS");
            let scram = [("properties.security.protocol", "SASL_PLAINTEXT"), ("properties.sasl.mechanism", "SCRAM-SHA-512")];
            let error = taken(&scram).unwrap_err();
            assert!(error.contains("'SCRAM-SHA-512'") && error.contains("'kafka-ssl'"), "{error}");
        }
    }
}
