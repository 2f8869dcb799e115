//! Reading over connections of our own, in place of librdkafka's: answers of brokers become columns where they lie.
//!
//! librdkafka makes an operation and a reference count of every message, and hands it through a queue; at 100 bytes a message
//! that is more than everything that follows. Here a thread for each broker asks for all of a source's partitions that
//! the broker leads, reads what is answered for each into a buffer of its own and hands the buffer over; the reader of
//! the partition, in its worker's thread, checks, unpacks and decodes it. So the costs are: for a message the copy out
//! of the kernel, its checksum and its numbers (some 30 ns for 100 bytes), for an answer of a partition (up to 2 MB)
//! one lock and one wake-up.
//!
//! Of the protocol there is what reading needs: the newest versions of requests that still have no tags, which brokers
//! have known since 2.3. Whatever else a table wants is done by librdkafka as before: who is member of a group, commits, which
//! topics there are, where a scan begins and ends. And so is reading, where brokers or their connections are other than
//! what is spoken here ([`fetcher::Fetcher::start`]), or messages are of the formats before 0.11.
//!
//! - [`bytes`], [`crc`], [`compress`], [`batch`], [`pieces`]: from bytes to messages by column; `written` is for their tests
//! - [`link`], [`protocol`]: a connection, requests and answers
//! - [`slot`]: what waits between a broker's thread and a reader; [`feed`] is the reader's end
//! - [`fetcher`]: the partitions of a source and their leaders; [`leaders`] finds these, [`broker`] fetches from one

pub mod batch;
mod broker;
mod bytes;
mod compress;
pub mod crc;
mod feed;
mod fetcher;
mod leaders;
mod link;
pub mod pieces;
mod protocol;
mod slot;

#[cfg(test)]
mod written;

pub(crate) use feed::{Came, Feed};
pub(crate) use fetcher::{Fetcher, Settings};
pub(crate) use protocol::named;
