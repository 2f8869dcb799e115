//! How far ahead of the job messages are fetched, so that what the client holds stays within bounds.
//!
//! librdkafka's limits are for one queue each (of a partition; of a member, where the group divides them) and count
//! the bytes of messages. It holds more: some hundred bytes beside each message, and a queue that is just below its
//! limit gets one more answer on top. With messages of 100 bytes both are more than the messages themselves, so they
//! are counted here. Small queues are also the faster ones: what stands in them is still in the processor's caches.
//! What we fetch ourselves keeps to the same bytes that wait, whatever the number of messages, and asks for more of a partition at
//! once (`fetch/fetcher.rs`).

use crate::properties::Connection;

/// Bytes of a queue's memory where nobody says it.
pub const QUEUE_BYTES: u64 = 16 << 20;
/// The least: less would mean a request for every few messages.
const QUEUE_BYTES_MIN: u64 = 128 << 10;
/// Bytes that librdkafka keeps beside a message, the allocator's included, and those of a small message.
const MESSAGE_BYTES: u64 = 384 + 128;
/// The most messages that are waited for in a queue whose bytes the table says.
const MESSAGES: u64 = 50_000;
/// Bytes of a partition in one answer to librdkafka, and the least in one of ours.
const ANSWER_BYTES: (u64, u64) = (32 << 10, 1 << 20);

/// What librdkafka is told of the queue of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// More is fetched while there are fewer kilobytes of messages …
    pub kbytes: u64,
    /// … and fewer messages.
    pub messages: u64,
    /// Bytes asked for at once.
    pub answer_bytes: u64,
}

impl Prefetch {
    /// So many bytes of messages, as the table says.
    pub fn of_messages(bytes: u64) -> Self {
        Prefetch { kbytes: (bytes >> 10).clamp(1, 2_097_151), messages: MESSAGES, answer_bytes: ANSWER_BYTES.1 }
    }

    /// A queue that takes about so many bytes of memory, within bounds: one half waits, the other is for the answer on top,
    /// which, where messages are small, takes four times its bytes.
    pub fn of_memory(bytes: u64) -> Self {
        let bytes = bytes.clamp(QUEUE_BYTES_MIN, QUEUE_BYTES);
        Prefetch {
            kbytes: (bytes / 2) >> 10,
            messages: bytes / 2 / MESSAGE_BYTES,
            answer_bytes: (bytes / 8).clamp(ANSWER_BYTES.0, ANSWER_BYTES.1),
        }
    }

    /// One of `queues` that share so many bytes of memory; the default if nobody limits them.
    pub fn shared(memory: Option<u64>, queues: usize) -> Self {
        Self::of_memory(memory.map_or(QUEUE_BYTES, |bytes| bytes / queues.max(1) as u64))
    }

    /// Whether the user has set by name what this would.
    pub fn is_set_in(connection: &Connection) -> bool {
        ["queued.min.messages", "queued.max.messages.kbytes"].iter().all(|name| connection.property(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_stay_within_their_memory() {
        for size in [100, 1_000, 1_000_000] {
            for memory in [QUEUE_BYTES_MIN * 2, 1 << 20, 8 << 20, QUEUE_BYTES] {
                let p = Prefetch::of_memory(memory);
                let waiting = p.messages.min((p.kbytes << 10) / size);
                let most = (waiting + p.answer_bytes / size) * (size + 384);
                assert!(most <= memory + memory / 10, "{p:?}: messages of {size}, {most} of {memory}");
            }
        }
    }

    #[test]
    fn memory_is_divided() {
        assert_eq!(Prefetch::shared(None, 1000), Prefetch::of_memory(QUEUE_BYTES));
        assert_eq!(Prefetch::shared(Some(64 << 20), 8), Prefetch { kbytes: 4096, messages: 8192, answer_bytes: 1 << 20 });
        assert_eq!(Prefetch::shared(Some(64 << 20), 1), Prefetch::of_memory(QUEUE_BYTES));
        assert_eq!(Prefetch::shared(Some(1 << 20), 48), Prefetch::of_memory(QUEUE_BYTES_MIN));
        assert_eq!(Prefetch::of_messages(16 << 20).kbytes, 16 << 10);
    }
}
