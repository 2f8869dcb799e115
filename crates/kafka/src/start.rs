//! Where scans begin and end: modes with their companions, and the offsets they come to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::client::Context;
use crate::options::{Bounded, OffsetReset, PlainOptions, ScanOptions, Startup};
use crate::partitions::{Partition, left};
use crate::position::EARLIEST;

/// Where to begin or to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At the oldest message.
    Earliest,
    /// Behind the newest.
    Latest,
    /// Where the group has committed.
    Group,
    /// At the first message of this time or later, ms since 1970.
    Timestamp(i64),
    /// At these offsets, by partition.
    Specific(BTreeMap<i32, i64>),
}

/// Where a scan begins.
///
/// # Errors
/// A companion option that is missing or wrong.
pub fn start(options: &PlainOptions) -> Result<Bound, String> {
    Ok(match options.startup {
        Startup::Earliest => Bound::Earliest,
        Startup::Latest => Bound::Latest,
        Startup::Group => Bound::Group,
        Startup::Timestamp => Bound::Timestamp(time("scan.startup.timestamp-millis", options.startup_ms)?),
        Startup::Specific => Bound::Specific(offsets("scan.startup.specific-offsets", options.startup_offsets.as_deref())?),
    })
}

/// Where a scan ends; none for nowhere.
///
/// # Errors
/// A companion option that is missing or wrong.
pub fn stop(options: &ScanOptions) -> Result<Option<Bound>, String> {
    Ok(Some(match options.bounded {
        Bounded::Unbounded => return Ok(None),
        Bounded::Latest => Bound::Latest,
        Bounded::Group => Bound::Group,
        Bounded::Timestamp => Bound::Timestamp(time("scan.bounded.timestamp-millis", options.bounded_ms)?),
        Bounded::Specific => Bound::Specific(offsets("scan.bounded.specific-offsets", options.bounded_offsets.as_deref())?),
    }))
}

fn time(name: &str, ms: Option<i64>) -> Result<i64, String> {
    match ms {
        Some(ms) if ms >= 0 => Ok(ms),
        Some(ms) => Err(format!("option '{name}' = '{ms}': expected milliseconds since 1970")),
        None => Err(format!("option '{name}' is required")),
    }
}

fn offsets(name: &str, text: Option<&str>) -> Result<BTreeMap<i32, i64>, String> {
    let text = text.ok_or_else(|| format!("option '{name}' is required"))?;
    let wrong = || format!("option '{name}' = '{text}': expected 'partition:0,offset:42;partition:1,offset:300'");
    let mut found = BTreeMap::new();
    for pair in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        let (partition, offset) = pair.split_once(',').ok_or_else(wrong)?;
        let partition = partition.trim().strip_prefix("partition:").and_then(|n| n.trim().parse().ok()).ok_or_else(wrong)?;
        let offset: i64 =
            offset.trim().strip_prefix("offset:").and_then(|n| n.trim().parse().ok()).filter(|n| *n >= 0).ok_or_else(wrong)?;
        if found.insert(partition, offset).is_some() {
            return Err(wrong());
        }
    }
    if found.is_empty() { Err(wrong()) } else { Ok(found) }
}

/// What there is to say where a group has no offset, and nothing says what is to be done.
pub fn no_offset(topic: &str, partition: i32) -> String {
    format!(
        "{topic}:{partition}: the group has committed no offset: set 'scan.startup.mode' = 'earliest-offset' or 'latest-offset', or \
         'properties.auto.offset.reset'"
    )
}

/// Finds offsets at the brokers.
pub struct Resolver<'a> {
    /// The client to ask.
    pub consumer: &'a BaseConsumer<Context>,
    /// How long that may take.
    pub timeout: Duration,
    /// What to do where the group has no offset; none to fail.
    pub no_offset: Option<OffsetReset>,
}

impl Resolver<'_> {
    /// The first offset to read of each partition.
    ///
    /// # Errors
    /// Brokers do not answer in time; the group has no offset.
    pub fn starts(&self, bound: &Bound, partitions: &[Partition]) -> Result<Vec<i64>, String> {
        match bound {
            Bound::Earliest => Ok(vec![EARLIEST; partitions.len()]),
            Bound::Specific(offsets) => Ok(partitions.iter().map(|(_, p)| offsets.get(p).copied().unwrap_or(EARLIEST)).collect()),
            other => self.find(other, partitions),
        }
    }

    /// The first offset of each partition that is no longer read.
    ///
    /// # Errors
    /// As [`Resolver::starts`].
    pub fn stops(&self, bound: &Bound, partitions: &[Partition]) -> Result<Vec<i64>, String> {
        match bound {
            Bound::Specific(offsets) => Ok(partitions.iter().map(|(_, p)| offsets.get(p).copied().unwrap_or(0)).collect()),
            other => self.find(other, partitions),
        }
    }

    fn find(&self, bound: &Bound, partitions: &[Partition]) -> Result<Vec<i64>, String> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + self.timeout;
        let mut asked = TopicPartitionList::with_capacity(partitions.len());
        let answer = match bound {
            Bound::Timestamp(ms) => {
                for (topic, partition) in partitions {
                    asked.add_partition_offset(topic, *partition, Offset::Offset(*ms)).map_err(|e| e.to_string())?;
                }
                let doing = |e: KafkaError| format!("asking for the offsets of {ms} ms since 1970: {e}");
                Some(self.consumer.offsets_for_times(asked, left(deadline)).map_err(doing)?)
            }
            Bound::Group => {
                for (topic, partition) in partitions {
                    asked.add_partition(topic, *partition);
                }
                let doing = |e: KafkaError| format!("asking for the offsets of the group: {e}");
                Some(self.consumer.committed_offsets(asked, left(deadline)).map_err(doing)?)
            }
            Bound::Earliest | Bound::Latest | Bound::Specific(_) => None,
        };
        let mut found = Vec::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            let element = answer.as_ref().and_then(|list| list.find_partition(topic, *partition));
            let known = match element.as_ref().map(|e| (e.error(), e.offset())) {
                Some((Err(e), _)) => return Err(format!("{topic}:{partition}: asking for its offset: {e}")),
                Some((Ok(()), Offset::Offset(offset))) => Some(offset),
                _ => None,
            };
            found.push(match (known, bound) {
                (Some(offset), _) => offset,
                (None, Bound::Group) => match self.no_offset {
                    Some(OffsetReset::Earliest) => EARLIEST,
                    Some(_) => self.newest(topic, *partition, deadline)?,
                    None => return Err(no_offset(topic, *partition)),
                },
                (None, Bound::Earliest) => EARLIEST,
                (None, _) => self.newest(topic, *partition, deadline)?,
            });
        }
        Ok(found)
    }

    /// Behind the newest message; behind the newest committed one where transactions are heeded.
    fn newest(&self, topic: &str, partition: i32, deadline: Instant) -> Result<i64, String> {
        loop {
            match self.consumer.fetch_watermarks(topic, partition, left(deadline)) {
                Ok((_, high)) => return Ok(high),
                Err(e) if Instant::now() >= deadline => return Err(format!("{topic}:{partition}: asking for its newest offset: {e}")),
                // Leaders move.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
