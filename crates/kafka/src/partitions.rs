//! Which partitions a table has now.

use std::time::{Duration, Instant};

use rdkafka::client::Client;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use regex::Regex;
use tidemill_format::options::nearest;

use crate::client::{Context, EVENTS_WAIT, explain};

/// A topic and the number of a partition.
pub type Partition = (String, i32);

/// How long to wait before a topic is looked at again that is being made.
const AGAIN: Duration = Duration::from_millis(200);

/// The topics of a table.
#[derive(Clone, Debug)]
pub enum Topics {
    /// These.
    Named(Vec<String>),
    /// Those whose whole name matches.
    Pattern(Regex),
}

impl Topics {
    /// The topics of the two options.
    ///
    /// # Errors
    /// Both or neither of them, an empty name, something that is no regular expression.
    pub fn of(topic: Option<&str>, pattern: Option<&str>) -> Result<Self, String> {
        match (topic, pattern) {
            (Some(list), None) => {
                let mut names: Vec<String> = list.split(';').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect();
                names.sort();
                names.dedup();
                if names.is_empty() {
                    return Err(format!("option 'topic' = '{list}': expected the name of a topic"));
                }
                Ok(Topics::Named(names))
            }
            (None, Some(pattern)) => match Regex::new(&format!("^(?:{pattern})$")) {
                Ok(regex) => Ok(Topics::Pattern(regex)),
                Err(e) => Err(format!("option 'topic-pattern' = '{pattern}': expected a regular expression: {e}")),
            },
            (Some(_), Some(_)) => Err("options 'topic' and 'topic-pattern': give one of them".into()),
            (None, None) => Err("option 'topic' is required (or 'topic-pattern')".into()),
        }
    }

    /// Whether a topic is one of them.
    pub fn holds(&self, topic: &str) -> bool {
        match self {
            Topics::Named(names) => names.iter().any(|n| n == topic),
            // Kafka's own topics are never meant.
            Topics::Pattern(regex) => !topic.starts_with("__") && regex.is_match(topic),
        }
    }
}

/// The partitions there are now, in order of topic and number.
///
/// # Errors
/// No broker answers in time; a topic is missing or must not be seen. The text says where and what.
pub fn list(consumer: &BaseConsumer<Context>, topics: &Topics, servers: &str, timeout: Duration) -> Result<Vec<Partition>, String> {
    let client = consumer.client();
    let deadline = Instant::now() + timeout;
    let mut found = Vec::new();
    match topics {
        Topics::Named(names) => {
            for name in names {
                loop {
                    let metadata = client.fetch_metadata(Some(name.as_str()), left(deadline));
                    let metadata = metadata.map_err(|e| unreachable(consumer, servers, timeout, &e))?;
                    let Some(topic) = metadata.topics().iter().find(|t| t.name() == name) else {
                        return Err(missing(client, name, servers, deadline));
                    };
                    match error(topic) {
                        None => {
                            found.extend(topic.partitions().iter().map(|p| (name.clone(), p.id())));
                            break;
                        }
                        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                            return Err(missing(client, name, servers, deadline));
                        }
                        Some(RDKafkaErrorCode::LeaderNotAvailable) if Instant::now() < deadline => std::thread::sleep(AGAIN),
                        Some(code) => return Err(format!("topic '{name}' at {servers}: {}", explain(code))),
                    }
                }
            }
        }
        Topics::Pattern(_) => {
            let metadata = client.fetch_metadata(None, left(deadline)).map_err(|e| unreachable(consumer, servers, timeout, &e))?;
            for topic in metadata.topics().iter().filter(|t| topics.holds(t.name()) && error(t).is_none()) {
                found.extend(topic.partitions().iter().map(|p| (topic.name().to_string(), p.id())));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn error(topic: &MetadataTopic) -> Option<RDKafkaErrorCode> {
    topic.error().map(RDKafkaErrorCode::from)
}

/// What is left until then; never nothing, since that would be for ever to some calls.
pub fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100))
}

/// No broker answered.
pub fn unreachable(consumer: &BaseConsumer<Context>, servers: &str, timeout: Duration, error: &KafkaError) -> String {
    // What went wrong with the connections waits in the queue of events.
    for _ in 0..100 {
        if consumer.poll(Duration::ZERO).is_none() && consumer.context().last_error().is_some() {
            break;
        }
    }
    if consumer.context().last_error().is_none() {
        let _ = consumer.poll(EVENTS_WAIT);
    }
    let why = consumer.context().last_error().unwrap_or_else(|| error.to_string());
    format!(
        "no Kafka broker of {servers} answered within {} s ('connect.timeout'): {why}; are the brokers running, and is \
         'properties.bootstrap.servers' right?",
        timeout.as_secs_f64()
    )
}

/// What there is to say of a topic that is not there.
pub fn missing(client: &Client<Context>, name: &str, servers: &str, deadline: Instant) -> String {
    let all = client.fetch_metadata(None, left(deadline)).ok();
    let names: Vec<String> = all.iter().flat_map(|m| m.topics()).map(|t| t.name().to_string()).filter(|n| !n.starts_with("__")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|n| *n != name).collect();
    let hint = nearest(name, &names).map(|n| format!("; did you mean '{n}'?")).unwrap_or_default();
    format!("there is no topic '{name}' at {servers}: create it first{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_by_list_and_by_pattern() {
        let named = Topics::of(Some("b; a;b"), None).unwrap();
        assert!(matches!(&named, Topics::Named(names) if *names == ["a", "b"]));
        let pattern = Topics::of(None, Some("trades|quotes-.*")).unwrap();
        let check = |name: &str, expect: bool| assert_eq!(pattern.holds(name), expect, "{name}");
        check("trades", true);
        check("trades2", false);
        check("quotes-1", true);
        check("__consumer_offsets", false);
        assert!(Topics::of(None, None).unwrap_err().contains("'topic' is required"));
        assert!(Topics::of(Some("a"), Some("b")).is_err());
        assert!(Topics::of(Some(" ; "), None).is_err());
        assert!(Topics::of(None, Some("(")).unwrap_err().contains("regular expression"));
    }
}
