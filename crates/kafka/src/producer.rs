//! A producer: messages in batches to librdkafka's queue, back-pressure where it is full, and an error
//! where a message could not be delivered.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::bindings as rd;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::{RDKafka, RDKafkaMessage, RDKafkaRespErr, RDKafkaTopic};
use tidemill_connect::ConnectError;

use crate::client::{Context, explain};
use crate::partitions::{left, missing};
use crate::properties::Connection;

/// Messages handed over at once.
const BATCH: usize = 4096;
/// How long to wait for room in the queue before looking around.
const ROOM_WAIT: Duration = Duration::from_millis(5);
/// How long to wait for messages to be delivered before looking around.
const FLUSH_WAIT_MS: c_int = 20;
/// How long to wait for brokers before looking around, where an outage is borne.
pub const OUTAGE_WAIT: Duration = Duration::from_secs(5);
/// How long asking for the names of topics may take, for an error message.
const NAMES_WAIT: Duration = Duration::from_secs(2);
/// How long to wait before a topic is looked at again that is being made.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a job that was asked to stop goes on waiting for brokers, from when it began to.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Which partition is left to the partitioner.
pub const ANY_PARTITION: i32 = -1;

/// librdkafka's handle of a topic.
struct Topic(*mut RDKafkaTopic);

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once, before its client.
        unsafe { rd::rd_kafka_topic_destroy(self.0) };
    }
}

/// How long a job that is under way bears an outage: for ever, unless it is to end.
pub struct Patience<'a> {
    /// The job ends now.
    cancelled: &'a AtomicBool,
    /// The job was asked to stop.
    stopping: &'a AtomicBool,
    since: Instant,
}

impl<'a> Patience<'a> {
    /// Of somebody who begins to wait: until `cancelled` is set, and not for much longer once `stopping` is.
    pub fn new(cancelled: &'a AtomicBool, stopping: &'a AtomicBool) -> Self {
        Patience { cancelled, stopping, since: Instant::now() }
    }

    /// Why nobody waits any longer, if so.
    pub fn over(&self) -> Option<String> {
        if self.cancelled.load(Ordering::Acquire) {
            return Some("stopped while no broker answered".into());
        }
        let waited = self.since.elapsed();
        (self.stopping.load(Ordering::Relaxed) && waited >= STOP_PATIENCE).then(|| {
            format!(
                "the job was asked to stop, and no broker answered for {} s: its last checkpoint is not taken, and the next start goes on \
                 from the one before",
                waited.as_secs()
            )
        })
    }
}

/// A producer of messages of one topic.
pub struct Producer {
    /// Dropped before the client.
    topic: Topic,
    base: BaseProducer<Context>,
    name: String,
    servers: String,
    /// When a transaction began, and for how long brokers leave it open.
    transaction: Option<(Instant, Duration)>,
    /// Filled and emptied within a call.
    batch: Vec<RDKafkaMessage>,
}

// SAFETY: librdkafka's handles may be used from any thread; the pointers in `batch` are gone when a call ends.
unsafe impl Send for Producer {}

impl Producer {
    /// A producer; connects later.
    ///
    /// # Errors
    /// librdkafka refuses the configuration.
    pub fn new(connection: &Connection, config: &ClientConfig, topic: &str) -> Result<Self, ConnectError> {
        let context = Context::new(&connection.owner, &connection.servers);
        let base: BaseProducer<Context> = config.create_with_context(context).map_err(|e| connection.refused(e))?;
        let name = CString::new(topic).map_err(|_| ConnectError::new(format!("option 'topic' = '{topic}': no name of a topic")))?;
        // SAFETY: the client lives, the name ends with a zero, and no configuration means the client's.
        let handle = unsafe { rd::rd_kafka_topic_new(base.client().native_ptr(), name.as_ptr(), ptr::null_mut()) };
        if handle.is_null() {
            return Err(ConnectError::new(format!("option 'topic' = '{topic}': no name of a topic")));
        }
        let (name, servers) = (topic.to_string(), connection.servers.clone());
        Ok(Producer { topic: Topic(handle), base, name, servers, transaction: None, batch: Vec::new() })
    }

    /// librdkafka's producer.
    pub fn base(&self) -> &BaseProducer<Context> {
        &self.base
    }

    /// What it has heard.
    pub fn context(&self) -> &Context {
        self.base.client().context()
    }

    fn pointer(&self) -> *mut RDKafka {
        self.base.client().native_ptr()
    }

    /// Notes that a transaction begins, which brokers leave open for `timeout`.
    pub fn begins(&mut self, timeout: Duration) {
        self.transaction = Some((Instant::now(), timeout));
    }

    /// What an error means. Brokers say the same of a transaction that they aborted because it was open for too long and of one that
    /// another producer ended; its age tells which.
    pub fn explain(&self, code: RDKafkaErrorCode) -> String {
        let ended = matches!(
            code,
            RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::InvalidProducerEpoch
                | RDKafkaErrorCode::InvalidTransactionalState
        );
        match self.transaction {
            Some((begun, timeout)) if ended && begun.elapsed() >= timeout * 9 / 10 => format!(
                "the transaction was open for {} s, and brokers abort what is open for longer than \
                 'properties.transaction.timeout.ms' = {}: take checkpoints more often (a job that ends by itself takes them with \
                 '--state-dir' only), or raise it, and with it the brokers' 'transaction.max.timeout.ms' ({code})",
                begun.elapsed().as_secs(),
                timeout.as_millis()
            ),
            _ => explain(code),
        }
    }

    /// Waits until brokers answer and the topic is there; how many partitions it has. With `bears` the job is under way: an outage is
    /// told and borne until it is over, or that is because the job is being stopped.
    ///
    /// # Errors
    /// They do not within `timeout`, or it is not; the job is being stopped.
    pub fn connect(&self, timeout: Duration, bears: Option<&Patience<'_>>) -> Result<usize, ConnectError> {
        let mut deadline = Instant::now() + timeout;
        let at = format!("Kafka at {}", self.servers);
        loop {
            let wait = bears.map_or(left(deadline), |_| left(deadline).min(OUTAGE_WAIT));
            let answer = self.base.client().fetch_metadata(Some(self.name.as_str()), wait);
            let code = match answer {
                Err(e) => {
                    self.base.poll(Duration::from_millis(50));
                    if let Some(patience) = bears {
                        if let Some(why) = patience.over() {
                            return Err(ConnectError::new(format!("topic '{}' ({at}): {why}", self.name)));
                        }
                        self.context().outage().set_down();
                        std::thread::sleep(AGAIN);
                        deadline = Instant::now() + timeout;
                        continue;
                    }
                    let why = self.context().last_error().unwrap_or_else(|| e.to_string());
                    return Err(ConnectError::new(format!(
                        "no Kafka broker of {} answered within {} s ('connect.timeout'): {why}; are the brokers running, and is \
                         'properties.bootstrap.servers' right?",
                        self.servers,
                        timeout.as_secs_f64()
                    )));
                }
                Ok(metadata) => match metadata.topics().iter().find(|t| t.name() == self.name) {
                    Some(topic) if topic.error().is_none() && !topic.partitions().is_empty() => {
                        self.context().alive();
                        return Ok(topic.partitions().len());
                    }
                    Some(topic) => topic.error().map_or(RDKafkaErrorCode::LeaderNotAvailable, RDKafkaErrorCode::from),
                    None => RDKafkaErrorCode::UnknownTopic,
                },
            };
            self.context().alive();
            // It may be about to be made: by somebody else, or by the broker because we have asked for it.
            let passing = matches!(
                code,
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::LeaderNotAvailable
            );
            if !passing || Instant::now() >= deadline {
                return Err(ConnectError::new(match code {
                    RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                        missing(self.base.client(), &self.name, &self.servers, Instant::now() + NAMES_WAIT)
                    }
                    other => format!("topic '{}' ({at}): {}", self.name, explain(other)),
                }));
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Hands over messages: key, value and partition of each. Waits while the queue is full.
    ///
    /// # Errors
    /// A message that cannot be sent; an earlier one that was not delivered; the job is being stopped.
    pub fn send<'a>(
        &mut self,
        messages: impl Iterator<Item = (Option<&'a [u8]>, Option<&'a [u8]>, i32)>,
        cancelled: &AtomicBool,
    ) -> Result<(), ConnectError> {
        self.batch.clear();
        for (key, value, partition) in messages {
            let ((payload, len), (key, key_len)) = (raw(value), raw(key));
            self.batch.push(RDKafkaMessage {
                err: RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
                rkt: ptr::null_mut(),
                partition,
                payload,
                len,
                key,
                key_len,
                offset: 0,
                _private: ptr::null_mut(),
            });
            if self.batch.len() == BATCH {
                self.hand_over(cancelled)?;
            }
        }
        self.hand_over(cancelled)?;
        self.serve()
    }

    /// Hands over the batch.
    fn hand_over(&mut self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        while !self.batch.is_empty() {
            let count = self.batch.len();
            let flags = rd::RD_KAFKA_MSG_F_COPY | rd::RD_KAFKA_MSG_F_PARTITION;
            // SAFETY: the topic and all pointers live during the call; librdkafka copies what it takes.
            let taken = unsafe { rd::rd_kafka_produce_batch(self.topic.0, ANY_PARTITION, flags, self.batch.as_mut_ptr(), count as c_int) };
            if usize::try_from(taken) == Ok(count) {
                self.batch.clear();
                return Ok(());
            }
            self.batch.retain(|m| m.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
            if let Some(refused) = self.batch.iter().find(|m| m.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                return Err(self.refused(refused.err.into(), refused.len));
            }
            self.wait_for_room(cancelled)?;
        }
        Ok(())
    }

    fn wait_for_room(&self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        self.base.poll(ROOM_WAIT);
        self.hear();
        if cancelled.load(Ordering::Acquire) {
            return Err(ConnectError::new(format!("topic '{}': stopped while brokers did not take messages", self.name)));
        }
        self.failure()
    }

    /// A message that librdkafka does not take.
    fn refused(&self, code: RDKafkaErrorCode, bytes: usize) -> ConnectError {
        let fatal = self.base.client().fatal_error();
        let (code, more) = fatal.map_or((code, String::new()), |(fatal, text)| (fatal, format!(" ({text})")));
        ConnectError::new(format!("topic '{}' at {}: a message of {bytes} bytes: {}{more}", self.name, self.servers, self.explain(code)))
    }

    /// Hands over one message with its own time and headers.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub fn send_one<'h>(
        &mut self,
        (key, value, partition): (Option<&[u8]>, Option<&[u8]>, i32),
        timestamp: Option<i64>,
        headers: Option<impl Iterator<Item = (&'h str, Option<&'h [u8]>)>>,
        cancelled: &AtomicBool,
    ) -> Result<(), ConnectError> {
        let ((payload, len), (key, key_len)) = (raw(value), raw(key));
        let headers = headers.map_or(ptr::null_mut(), |all| {
            // SAFETY: made here; librdkafka copies names and values.
            unsafe {
                let list = rd::rd_kafka_headers_new(4);
                for (name, value) in all {
                    let (value, length) = raw(value);
                    rd::rd_kafka_header_add(list, name.as_ptr().cast(), name.len() as isize, value, length as isize);
                }
                list
            }
        });
        loop {
            // SAFETY: types and values as librdkafka wants them, an end behind the last; it copies key and value, and
            // owns the headers if it takes the message.
            let code = unsafe {
                rd::rd_kafka_producev(
                    self.pointer(),
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT,
                    self.topic.0,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
                    partition,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
                    rd::RD_KAFKA_MSG_F_COPY,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
                    payload,
                    len,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
                    key,
                    key_len,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TIMESTAMP,
                    timestamp.unwrap_or(0),
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
                    headers,
                    rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
                )
            };
            let failure = match code {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => return Ok(()),
                RDKafkaRespErr::RD_KAFKA_RESP_ERR__QUEUE_FULL => self.wait_for_room(cancelled).err(),
                other => Some(self.refused(other.into(), len)),
            };
            if let Some(failure) = failure {
                if !headers.is_null() {
                    // SAFETY: librdkafka did not take them.
                    unsafe { rd::rd_kafka_headers_destroy(headers) };
                }
                return Err(failure);
            }
        }
    }

    /// Hears what has happened.
    ///
    /// # Errors
    /// A message was not delivered.
    pub fn serve(&self) -> Result<(), ConnectError> {
        self.hear();
        self.failure()
    }

    /// Takes all events that wait; the wrapper's own poll takes one. Without this, statistics and errors of a
    /// producer that is not used would pile up, and a failure be heard of behind them.
    pub fn hear(&self) {
        for _ in 0..self.waiting() {
            self.base.poll(Duration::ZERO);
        }
    }

    /// Events that nobody has heard yet.
    pub fn waiting(&self) -> usize {
        // SAFETY: the client lives, and always has this queue; the reference to it is given back.
        unsafe {
            let queue = rd::rd_kafka_queue_get_main(self.pointer());
            let waiting = rd::rd_kafka_queue_length(queue);
            rd::rd_kafka_queue_destroy(queue);
            waiting
        }
    }

    /// # Errors
    /// A message was not delivered.
    fn failure(&self) -> Result<(), ConnectError> {
        if !self.context().failed() {
            return Ok(());
        }
        let failures = self.context().failures();
        let Some((code, place)) = failures.first else { return Ok(()) };
        let fatal = self.base.client().fatal_error();
        let more = fatal.map(|(code, text)| format!("; {} ({text})", self.explain(code))).unwrap_or_default();
        let connection = self.context().last_error().map(|e| format!("; the connection's last error: {e}")).unwrap_or_default();
        let count = failures.count;
        Err(ConnectError::new(format!(
            "topic {place} at {}: {count} message{} not delivered: {}{more}{connection}",
            self.servers,
            if count == 1 { " was" } else { "s were" },
            self.explain(code)
        )))
    }

    /// Waits until everything handed over is delivered.
    ///
    /// # Errors
    /// A message was not delivered; the job is being stopped.
    pub fn flush(&self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        loop {
            // SAFETY: the client lives.
            let code = unsafe { rd::rd_kafka_flush(self.pointer(), FLUSH_WAIT_MS) };
            self.hear();
            self.failure()?;
            match code {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => {
                    self.context().alive();
                    return Ok(());
                }
                RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT => {}
                other => return Err(self.refused(other.into(), 0)),
            }
            if cancelled.load(Ordering::Acquire) {
                return Err(ConnectError::new(format!("topic '{}': stopped while brokers did not take messages", self.name)));
            }
        }
    }
}

/// Pointer and length as librdkafka takes them; null for none, and not null for what is empty.
#[inline]
fn raw(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |b| (b.as_ptr().cast_mut().cast::<c_void>(), b.len()))
}
