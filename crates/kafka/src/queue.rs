//! Queues of librdkafka and batches of messages taken from them: the one place that touches its
//! pointers for reading. The safe wrapper hands out messages one by one, each with an event and a
//! reference count of its own, which costs more than decoding 100 bytes of JSON.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::slice;

use rdkafka::bindings as rd;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::{RDKafka, RDKafkaMessage, RDKafkaQueue, RDKafkaRespErr};
use tidemill_connect::Waker;

use crate::taken::{Message, Taken};

/// Messages taken at once, at most. Each is some 300 bytes of librdkafka's, which are touched when it is taken, when it is
/// decoded and when it is given back: so many small ones stay in the second cache (1 to 2 MB) meanwhile, four times as
/// many do not.
pub const MESSAGES_MAX: usize = 2048;

/// Sends the messages of a partition to `queue` instead of the consumer's.
pub fn forward(client: *mut RDKafka, topic: &str, partition: i32, queue: *mut RDKafkaQueue) {
    let Ok(topic) = CString::new(topic) else { return };
    // SAFETY: `client` and `queue` live; the partition's own queue is released again.
    unsafe {
        let own = rd::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition);
        if !own.is_null() {
            rd::rd_kafka_queue_forward(own, queue);
            rd::rd_kafka_queue_destroy(own);
        }
    }
}

/// A queue that messages are taken from. Must be dropped before its client.
pub struct Queue {
    queue: *mut RDKafkaQueue,
    /// What librdkafka calls when the queue is no longer empty. A box in a box, since its address is given
    /// away.
    _waker: Option<Box<Waker>>,
    messages: Vec<*mut RDKafkaMessage>,
}

// SAFETY: librdkafka's queues and messages may be used from any thread; a `Queue` is used by one at a time.
unsafe impl Send for Queue {}

/// Called by a thread of librdkafka, which holds the queue's lock.
unsafe extern "C" fn nonempty(_client: *mut RDKafka, waker: *mut c_void) {
    // SAFETY: the box lives until the callback is taken away, which waits for the queue's lock.
    let waker = unsafe { &*waker.cast::<Waker>() };
    waker.wake();
}

impl Queue {
    /// The queue of a partition, which from now on gets its messages alone; none if the client is closing.
    pub fn of_partition(client: *mut RDKafka, topic: &str, partition: i32) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        // SAFETY: `client` lives and the name ends with a zero.
        let queue = unsafe { rd::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition) };
        if queue.is_null() {
            return None;
        }
        // SAFETY: the queue is ours until it is destroyed.
        unsafe { rd::rd_kafka_queue_forward(queue, ptr::null_mut()) };
        Some(Queue { queue, _waker: None, messages: Vec::new() })
    }

    /// A queue of its own, for partitions to be forwarded to.
    pub fn of_client(client: *mut RDKafka) -> Self {
        // SAFETY: `client` lives; this never gives null.
        let queue = unsafe { rd::rd_kafka_queue_new(client) };
        Queue { queue, _waker: None, messages: Vec::new() }
    }

    /// The queue, to be forwarded to while this lives.
    pub fn pointer(&self) -> *mut RDKafkaQueue {
        self.queue
    }

    /// Calls `waker` whenever the queue was empty and no longer is.
    pub fn wake(&mut self, waker: Waker) {
        let waker = Box::new(waker);
        let address = ptr::from_ref::<Waker>(&waker).cast_mut().cast::<c_void>();
        // SAFETY: the box moves into `self`, its content stays where it is until `drop` has taken the callback away.
        unsafe { rd::rd_kafka_queue_cb_event_enable(self.queue, Some(nonempty), address) };
        self._waker = Some(waker);
    }

    /// Up to `count` of the messages that are there, errors among them; never waits.
    pub fn take(&mut self, count: usize) -> Batch<'_> {
        let count = count.clamp(1, MESSAGES_MAX);
        self.messages.clear();
        self.messages.reserve(count);
        // SAFETY: there is room for `count` pointers, and as many as are returned have been written.
        unsafe {
            let got = rd::rd_kafka_consume_batch_queue(self.queue, 0, self.messages.as_mut_ptr(), count);
            self.messages.set_len(usize::try_from(got).unwrap_or(0));
        }
        Batch { messages: &mut self.messages }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: after the first call no callback runs, and nothing uses the queue after the second.
        unsafe {
            rd::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut());
            rd::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// Messages taken from a queue; given back when dropped.
pub struct Batch<'a> {
    messages: &'a mut Vec<*mut RDKafkaMessage>,
}

impl Batch<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.messages.len()
    }
}

impl Taken for Batch<'_> {
    type Entry<'a>
        = Entry<'a>
    where
        Self: 'a;

    /// A message, or what stands in its place.
    #[inline]
    fn get(&self, index: usize) -> Entry<'_> {
        // SAFETY: librdkafka gave the pointer, and it is valid until it is destroyed, which is in `drop`.
        Entry { message: unsafe { &*self.messages[index] } }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for message in self.messages.drain(..) {
            // SAFETY: each is destroyed once, and nobody refers to it any more.
            unsafe { rd::rd_kafka_message_destroy(message) };
        }
    }
}

/// A message, or an error in its place.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    message: &'a RDKafkaMessage,
}

impl Entry<'_> {
    /// The error, if it is none.
    #[inline]
    pub fn error(&self) -> Option<RDKafkaErrorCode> {
        (self.message.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| self.message.err.into())
    }

    /// What librdkafka says about the error.
    pub fn error_text(&self) -> String {
        // SAFETY: the message lives; the text belongs to it.
        let text = unsafe { rd::rd_kafka_message_errstr(self.message) };
        if text.is_null() {
            return self.error().map(|e| e.to_string()).unwrap_or_default();
        }
        // SAFETY: it ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Whether two messages are of one partition.
    #[inline]
    pub fn same_partition(&self, other: Entry<'_>) -> bool {
        self.message.partition == other.message.partition && ptr::eq(self.message.rkt, other.message.rkt)
    }
}

impl<'a> Message<'a> for Entry<'a> {
    /// For the end of a partition, the end.
    #[inline]
    fn offset(&self) -> i64 {
        self.message.offset
    }

    #[inline]
    fn partition(&self) -> i32 {
        self.message.partition
    }

    fn topic(&self) -> &'a str {
        if self.message.rkt.is_null() {
            return "";
        }
        // SAFETY: the topic lives as long as its messages.
        let name = unsafe { CStr::from_ptr(rd::rd_kafka_topic_name(self.message.rkt)) };
        name.to_str().unwrap_or("")
    }

    #[inline]
    fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka gives pointer and length of bytes that live as long as the message.
        unsafe { bytes(self.message.payload, self.message.len) }
    }

    #[inline]
    fn key(&self) -> Option<&'a [u8]> {
        // SAFETY: as for the value.
        unsafe { bytes(self.message.key, self.message.key_len) }
    }

    fn timestamp(&self) -> (Option<i64>, &'static str) {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives.
        let ms = unsafe { rd::rd_kafka_message_timestamp(self.message, &mut kind) };
        match kind {
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => (None, "NoTimestampType"),
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME => (Some(ms), "CreateTime"),
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => (Some(ms), "LogAppendTime"),
        }
    }

    fn leader_epoch(&self) -> Option<i32> {
        // SAFETY: the message lives.
        let epoch = unsafe { rd::rd_kafka_message_leader_epoch(self.message) };
        (epoch >= 0).then_some(epoch)
    }

    fn headers(&self, mut each: impl FnMut(&'a [u8], Option<&'a [u8]>)) {
        let mut headers = ptr::null_mut();
        // SAFETY: the message lives, and its headers with it.
        if unsafe { rd::rd_kafka_message_headers(self.message, &mut headers) } != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        for index in 0.. {
            let (mut name, mut value, mut length): (*const c_char, *const c_void, usize) = (ptr::null(), ptr::null(), 0);
            // SAFETY: as above; an index behind the last gives an error.
            let got = unsafe { rd::rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut length) };
            if got != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                break;
            }
            // SAFETY: the name ends with a zero; the value has `length` bytes.
            unsafe { each(CStr::from_ptr(name).to_bytes(), bytes(value, length)) };
        }
    }
}

/// The bytes at a pointer; none if it is null.
///
/// # Safety
/// `length` bytes can be read there for `'a`.
#[inline]
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    (!at.is_null()).then(|| unsafe { slice::from_raw_parts(at.cast::<u8>(), length) })
}
