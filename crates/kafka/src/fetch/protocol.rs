//! The requests that reading takes, each in one version: the newest without tags, or as far as it is needed. Brokers of
//! version 2.3 and later know them, 4 included.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpStream;

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::RDKafkaRespErr;

use super::link::{Answer, Link};
use crate::transaction::wire::Body;

const FETCH: (i16, i16) = (1, 11);
const LIST_OFFSETS: (i16, i16) = (2, 5);
const METADATA: (i16, i16) = (3, 7);
const API_VERSIONS: (i16, i16) = (18, 0);
const EPOCH_ENDS: (i16, i16) = (23, 2);

/// Asked for in place of a time: the offset of the oldest message.
pub const OLDEST: i64 = -2;
/// The same: behind the newest message, of those that may be read.
pub const NEWEST: i64 = -1;

/// Errors of brokers by their codes.
pub mod code {
    /// None.
    pub const NONE: i16 = 0;
    /// The offset is not there.
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    /// The topic or partition is not there.
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    /// An election is under way.
    pub const LEADER_NOT_AVAILABLE: i16 = 5;
    /// Another broker leads.
    pub const NOT_LEADER: i16 = 6;
    /// Something took too long there.
    pub const REQUEST_TIMED_OUT: i16 = 7;
    /// The replica is not there.
    pub const REPLICA_NOT_AVAILABLE: i16 = 9;
    /// Brokers could not reach each other.
    pub const NETWORK_EXCEPTION: i16 = 13;
    /// A disk is gone.
    pub const STORAGE_ERROR: i16 = 56;
    /// The leader has not the listener that we use, or not yet.
    pub const LISTENER_NOT_FOUND: i16 = 72;
    /// We know an older leader than there is.
    pub const FENCED_LEADER_EPOCH: i16 = 74;
    /// We know a newer leader than the broker does.
    pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
    /// A new leader does not know its end yet.
    pub const OFFSET_NOT_AVAILABLE: i16 = 78;

    /// Whether to look for the leader, and try again in a moment.
    pub fn passing(code: i16) -> bool {
        matches!(
            code,
            UNKNOWN_TOPIC_OR_PARTITION
                | LEADER_NOT_AVAILABLE
                | NOT_LEADER
                | REQUEST_TIMED_OUT
                | REPLICA_NOT_AVAILABLE
                | NETWORK_EXCEPTION
                | STORAGE_ERROR
                | LISTENER_NOT_FOUND
                | FENCED_LEADER_EPOCH
                | UNKNOWN_LEADER_EPOCH
                | OFFSET_NOT_AVAILABLE
        )
    }
}

/// librdkafka's name for a broker's error.
pub fn named(code: i16) -> RDKafkaErrorCode {
    RDKafkaRespErr::try_from(i32::from(code)).map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from)
}

/// What is asked about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The epoch of the leader that is known.
    pub epoch: i32,
    /// The offset of the next message; a time; an epoch of the past.
    pub offset: i64,
}

/// Lists of partitions, those of one topic that follow each other under its name.
fn by_topic(mut body: Body, asked: &[Asked], each: impl Fn(Body, &Asked) -> Body) -> Body {
    let groups = || asked.chunk_by(|a, b| a.topic == b.topic);
    body = body.i32(groups().count() as i32);
    for group in groups() {
        body = body.text(&group[0].topic).i32(group.len() as i32);
        body = group.iter().fold(body, &each);
    }
    body
}

/// What a broker does not know of all this; none if it knows it.
///
/// # Errors
/// The connection's.
pub fn missing(link: &mut Link, client: &str) -> Result<Option<String>, String> {
    let answer = link.ask(API_VERSIONS.0, API_VERSIONS.1, client, Body::default())?;
    lacking(answer)
}

fn lacking<R: Read>(answer: &mut Answer<R>) -> Result<Option<String>, String> {
    if answer.i16()? != code::NONE {
        return Ok(Some(format!("{} does not say what it knows", answer.place())));
    }
    let mut known = BTreeMap::new();
    for _ in 0..answer.count(6)? {
        known.insert(answer.i16()?, (answer.i16()?, answer.i16()?));
    }
    let lacks = [FETCH, LIST_OFFSETS, METADATA, EPOCH_ENDS].into_iter().find(|(key, version)| {
        let range = known.get(key);
        range.is_none_or(|(least, most)| !(*least..=*most).contains(version))
    });
    let place = answer.place();
    Ok(lacks.map(|(key, version)| format!("{place} does not know version {version} of request {key}, as brokers from 2.3 on do")))
}

/// A partition's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The error's code.
    pub code: i16,
    /// The broker's number; less than none where there is no leader.
    pub node: i32,
    /// Its epoch.
    pub epoch: i32,
}

/// Brokers, and leaders of partitions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leaders {
    /// `host:port` of brokers by their numbers.
    pub brokers: BTreeMap<i32, String>,
    /// The error's code of a topic, and its partitions.
    pub topics: BTreeMap<String, (i16, BTreeMap<i32, Leader>)>,
}

/// The leaders of the partitions of topics.
///
/// # Errors
/// The connection's.
pub fn leaders(link: &mut Link, client: &str, topics: &[String]) -> Result<Leaders, String> {
    let body = topics.iter().fold(Body::default().i32(topics.len() as i32), |body, topic| body.text(topic));
    // Topics are not made by looking at them.
    read_leaders(link.ask(METADATA.0, METADATA.1, client, body.i8(0))?)
}

fn read_leaders<R: Read>(answer: &mut Answer<R>) -> Result<Leaders, String> {
    let mut found = Leaders::default();
    let _throttled = answer.i32()?;
    for _ in 0..answer.count(10)? {
        let (node, host, port) = (answer.i32()?, answer.text()?, answer.i32()?);
        let _rack = answer.text()?;
        found.brokers.insert(node, format!("{host}:{port}"));
    }
    let _cluster = answer.text()?;
    let _controller = answer.i32()?;
    for _ in 0..answer.count(9)? {
        let (code, name) = (answer.i16()?, answer.text()?);
        let _internal = answer.i8()?;
        let mut partitions = BTreeMap::new();
        for _ in 0..answer.count(26)? {
            let (code, partition, node, epoch) = (answer.i16()?, answer.i32()?, answer.i32()?, answer.i32()?);
            // Replicas, those in sync, those that are away.
            for _ in 0..3 {
                answer.skip_numbers()?;
            }
            partitions.insert(partition, Leader { code, node, epoch });
        }
        found.topics.insert(name, (code, partitions));
    }
    Ok(found)
}

/// What brokers say of the offset of a time, or of the end of an epoch: topic, partition, the error's code, the offset.
pub type Offset = (String, i32, i16, i64);

/// The offsets of times ([`OLDEST`], [`NEWEST`]) of partitions that the broker leads.
///
/// # Errors
/// The connection's.
pub fn offsets(link: &mut Link, client: &str, committed: bool, asked: &[Asked]) -> Result<Vec<Offset>, String> {
    const NO_REPLICA: i32 = -1;
    let body = Body::default().i32(NO_REPLICA).i8(i8::from(committed));
    let body = by_topic(body, asked, |body, one| body.i32(one.partition).i32(one.epoch).i64(one.offset));
    let answer = link.ask(LIST_OFFSETS.0, LIST_OFFSETS.1, client, body)?;
    let mut found = Vec::new();
    let _throttled = answer.i32()?;
    for _ in 0..answer.count(6)? {
        let topic = answer.text()?;
        for _ in 0..answer.count(26)? {
            let (partition, code) = (answer.i32()?, answer.i16()?);
            let _time = answer.i64()?;
            let offset = answer.i64()?;
            let _epoch = answer.i32()?;
            found.push((topic.clone(), partition, code, offset));
        }
    }
    Ok(found)
}

/// Where epochs of the past ended in the logs of partitions that the broker leads; less than nothing where it does not know.
///
/// # Errors
/// The connection's.
pub fn epoch_ends(link: &mut Link, client: &str, asked: &[Asked]) -> Result<Vec<Offset>, String> {
    let each = |body: Body, one: &Asked| body.i32(one.partition).i32(one.epoch).i32(one.offset as i32);
    let answer = link.ask(EPOCH_ENDS.0, EPOCH_ENDS.1, client, by_topic(Body::default(), asked, each))?;
    let mut found = Vec::new();
    let _throttled = answer.i32()?;
    for _ in 0..answer.count(6)? {
        let topic = answer.text()?;
        for _ in 0..answer.count(18)? {
            let (code, partition) = (answer.i16()?, answer.i32()?);
            let _epoch = answer.i32()?;
            found.push((topic.clone(), partition, code, answer.i64()?));
        }
    }
    Ok(found)
}

/// How much is fetched at once, and how long a broker may wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Milliseconds until it answers with what there is.
    pub wait_ms: i32,
    /// It answers as soon as it has so many bytes.
    pub bytes_min: i32,
    /// The most of all partitions together.
    pub bytes_max: i32,
    /// The most of each.
    pub partition_bytes_max: i32,
    /// Messages of transactions that are open are held back, and those of aborted ones named.
    pub committed: bool,
}

/// What comes in front of a partition's records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// The partition.
    pub partition: i32,
    /// The error's code.
    pub code: i16,
    /// The offset behind the newest message that may be read.
    pub end: i64,
    /// First offset and producer of aborted transactions, in this order.
    pub aborted: Vec<(i64, i64)>,
    /// Bytes of the records, which follow.
    pub bytes: usize,
}

/// Asks for messages; the answer is to be read with [`fetched`].
///
/// # Errors
/// The connection's.
pub fn fetch<'a>(link: &'a mut Link, client: &str, extent: &Extent, asked: &[Asked]) -> Result<&'a mut Answer<TcpStream>, String> {
    link.ask(FETCH.0, FETCH.1, client, fetch_body(extent, asked))
}

fn fetch_body(extent: &Extent, asked: &[Asked]) -> Body {
    const NO_REPLICA: i32 = -1;
    const NO_SESSION: (i32, i32) = (0, -1);
    let body = Body::default().i32(NO_REPLICA).i32(extent.wait_ms).i32(extent.bytes_min).i32(extent.bytes_max);
    let body = body.i8(i8::from(extent.committed)).i32(NO_SESSION.0).i32(NO_SESSION.1);
    // The offset at which a log begins only replicas tell.
    let each = |body: Body, one: &Asked| body.i32(one.partition).i32(one.epoch).i64(one.offset).i64(-1).i32(extent.partition_bytes_max);
    let body = by_topic(body, asked, each);
    // Nothing that is no longer wanted, since there is no session; no rack.
    body.i32(0).text("")
}

/// Reads the answer of [`fetch`]: `each` is called with a topic and what stands in front of a partition's records, and reads those.
///
/// # Errors
/// The connection's, and what the broker says of the whole request.
pub fn fetched<R: Read>(
    answer: &mut Answer<R>,
    committed: bool,
    mut each: impl FnMut(&mut Answer<R>, &str, Front) -> Result<(), String>,
) -> Result<(), String> {
    let _throttled = answer.i32()?;
    let code = answer.i16()?;
    if code != code::NONE {
        return Err(format!("{}: {}", answer.place(), named(code)));
    }
    let _session = answer.i32()?;
    for _ in 0..answer.count(6)? {
        let topic = answer.text()?;
        for _ in 0..answer.count(42)? {
            let (partition, code) = (answer.i32()?, answer.i16()?);
            let (newest, stable) = (answer.i64()?, answer.i64()?);
            let _oldest = answer.i64()?;
            let mut aborted = Vec::new();
            for _ in 0..answer.count(16)? {
                let (producer, first) = (answer.i64()?, answer.i64()?);
                aborted.push((first, producer));
            }
            aborted.sort_unstable();
            let _better_replica = answer.i32()?;
            let bytes = usize::try_from(answer.i32()?).unwrap_or(0);
            let end = if committed { stable } else { newest };
            each(answer, &topic, Front { partition, code, end, aborted, bytes })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
