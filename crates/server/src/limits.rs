//! Every bound of the server, with its unit and its reason.
//!
//! Bounds of a stream (queues, kept log) are options of the stream and live in `tidemill-hub`.

use std::time::Duration;

/// Bounds that the command line or a test sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; a further one is answered with 503 and closed.
    pub connections: usize,
    /// Bytes of one block: a Flight message, a POST body, a WebSocket message.
    pub block_bytes: usize,
    /// Bytes of blocks of all publishers that are on their way or wait for a job to take them; a stream has a block beside them.
    pub pending_bytes: usize,
    /// How long a body waits for room among them before it is answered with 503.
    pub room_patience: Duration,
    /// Bytes that may wait for one subscriber, unless it asks for less.
    pub subscriber_queue_bytes: u64,
    /// How long a peer may take nothing of what it is sent before its connection is closed.
    pub untaken: Duration,
    /// How long after it has connected a peer may ask for nothing before its connection is closed.
    pub unasked: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            block_bytes: 64 << 20,
            pending_bytes: 1 << 30,
            // Long enough for a burst, short enough that who is refused has not given up.
            room_patience: Duration::from_secs(5),
            subscriber_queue_bytes: 8 << 20,
            untaken: UNTAKEN_MAX,
            unasked: UNASKED_MAX,
        }
    }
}

/// How long a peer may take nothing of what it is sent. A job waits for a subscriber no more than a minute, so one that it
/// waits for is dropped, and told why if it still listens, before its connection goes.
pub const UNTAKEN_MAX: Duration = Duration::from_secs(120);

/// How long after it has connected a peer may ask for nothing, though it speaks HTTP/2 and answers pings. Clients connect when
/// they have something to ask; one that holds a connection in reserve makes another.
pub const UNASKED_MAX: Duration = Duration::from_secs(60);

/// The least `block_bytes` that may be set: one row of some width must get through.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

/// What a Flight message takes beyond its block: header, descriptor, metadata. Messages without a block, which are all
/// that is not published, are not longer.
pub const MESSAGE_EXTRA_BYTES: usize = 1 << 20;

/// How long a peer may take for the TLS handshake, and then for the first bytes of HTTP. Longer than a
/// handshake over a bad mobile link, short enough that 10,000 idle dials are gone in seconds.
pub const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an HTTP/1.1 connection may wait for its next request, and take for that request's headers.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the body of a request that is taken whole may pause, and a Flight message in its middle. Endless ones may as long
/// as they like.
pub const BODY_SILENCE: Duration = Duration::from_secs(30);

/// How long a call of Flight that publishes or exchanges may take for its first message, which says what it is about and
/// is sent by every client at once. Behind it a call may be silent for as long as it likes.
pub const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a question about a stream waits for jobs that are being started: planning one takes some 50 ms, its checkpoint may
/// take longer. Then whoever asks is told to ask again.
pub const STREAM_PATIENCE: Duration = Duration::from_secs(2);

/// The first pause between two looks meanwhile; doubles up to [`STREAM_LOOK_MAX`].
pub const STREAM_LOOK_MIN: Duration = Duration::from_millis(5);

/// The longest pause between two looks: a twentieth of a second more is not felt by who has waited for longer.
pub const STREAM_LOOK_MAX: Duration = Duration::from_millis(50);

/// A connection on which nothing has come for this long is asked whether it lives (HTTP/2 PING).
pub const PING_INTERVAL: Duration = Duration::from_secs(20);

/// How long the answer to that may take before the connection counts as half open and is closed.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long requests may go on after the server was asked to stop: publishers and subscribers are told
/// at once by the end of their streams, so this is for answers that are being written.
pub const END_TIMEOUT: Duration = Duration::from_secs(3);

/// HTTP/2 window of one call: 1 GB/s at a round trip of 1 ms. A publisher that is faster than the job fills it, and
/// what waits in it shall still be in the second-level cache when it is decoded.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// HTTP/2 window of one connection: several calls at full speed.
pub const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// HTTP/2 frame: a block of 64 KB to 1 MB in one frame costs one header, not sixty-four.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;

/// What may wait in hyper for one call's window; the subscriber's own queue is the real buffer.
pub const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Calls at once on one HTTP/2 connection: a gateway may multiplex all its subscribers on one.
pub const CALLS_PER_CONNECTION: u32 = 4096;

/// All headers of one request: a token, a path and a filter.
pub const HEADER_BYTES_MAX: u32 = 64 << 10;

/// The text of one job.
pub const JOB_TEXT_BYTES_MAX: usize = 4 << 20;

/// Jobs of one server: a thread or more each.
pub const JOBS_MAX: usize = 1000;

/// How many bytes of one name (job, stream, publisher, subscriber) are accepted.
pub const NAME_BYTES_MAX: usize = 128;

/// First wait before a failed job is tried again; doubles up to [`RETRY_MAX`].
pub const RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest wait before a failed job is tried again.
pub const RETRY_MAX: Duration = Duration::from_secs(60);

/// A job that ran so long before it failed begins again with the shortest wait.
pub const RETRY_RESET: Duration = Duration::from_secs(60);

/// How often the token file's time of change is looked at.
pub const TOKENS_CHECK: Duration = Duration::from_secs(1);
