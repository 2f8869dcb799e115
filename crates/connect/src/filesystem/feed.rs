//! The bytes of one text file: read in place, or by an I/O thread that waits for networks, follows a
//! growing file, walks through archives and hands chunks over. Knows nothing of records.
//!
//! A local file is read, and decompressed, in place, when its rows are wanted: the system is asked to fetch what
//! comes next meanwhile, which a thread could do no better, and rows do not grow old in chunks that were read
//! ahead. A thread decompresses only where processors would be idle otherwise.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use tidemill_block::clock;
use tidemill_format::Decoder;
use tidemill_format::encoding::Malformed;

use super::buffers::{Buffer, Buffers};
use super::members::{self, Begun, Members};
use crate::{ConnectError, Waker};

/// Chunks that wait between the I/O thread and the reader at most.
const CHUNKS_MAX: usize = 8;
/// Bytes read in place at once, at most: few enough to be still in the cache when the decoder looks at them.
const PIECE_BYTES: usize = 256 << 10;
/// And at least: a call of the system costs as much as copying some KB. What is read beyond what is wanted
/// only waits, and counts as arrived.
const PIECE_BYTES_MIN: usize = 32 << 10;
/// Stack of an I/O thread: it holds no buffers and calls nothing deep.
const STACK_BYTES: usize = 512 << 10;

/// The answer of a feed.
pub(super) enum Fed {
    /// So many bytes went into the decoder; they reached the process at this time.
    Bytes(usize, u64),
    /// Nothing at the moment; the waker will be called.
    Nothing,
    /// There will be no more.
    End,
}

/// Opens what is to be read, where it is read: that may wait.
pub(super) type Opening = Box<dyn FnOnce() -> Result<Box<dyn Read + Send>, ConnectError> + Send>;

/// What is read, and how.
pub(super) struct Plan {
    /// The path, for messages and to look whether the file is still there.
    pub path: String,
    /// Gives the content from `at` on.
    pub open: Opening,
    /// Where in the content the input begins.
    pub at: u64,
    /// The first byte of the content that is wanted; what lies before it is read and passed over.
    pub from: u64,
    /// Where the content ends, if it is cut off before its end.
    pub end: Option<u64>,
    /// `reading` or `decompressing`, for messages.
    pub doing: &'static str,
    /// Whether to wait until a chunk is full; not where bytes come in their own time (pipes).
    pub whole: bool,
    /// Whether to look for appended bytes at the end of the file.
    pub tail: Option<Tail>,
}

/// How a growing file is followed.
pub(super) struct Tail {
    /// How often to look.
    pub interval: Duration,
    /// Device and inode of the file.
    pub identity: (u64, u64),
    /// How many bytes of the file were read, if its content is another text: the two have different lengths then.
    pub read: Option<Arc<AtomicU64>>,
}

/// What a thread shall do.
pub(super) enum Work {
    /// Read one text.
    Text(Plan),
    /// Read member after member of an archive.
    Members(Members),
}

impl Work {
    fn path(&self) -> &str {
        match self {
            Work::Text(plan) => &plan.path,
            Work::Members(members) => &members.path,
        }
    }
}

/// A source of bytes that never makes the caller wait for another process.
pub(super) enum Feed {
    /// Reads in place: local files and ranges of them.
    Inline(Inline),
    /// A thread reads, not yet started.
    Idle(Box<Work>, Waker),
    /// A thread reads.
    Thread(Thread),
    /// Nothing is left.
    Ended,
}

/// The answer to a question for the next member of an archive.
pub(super) enum Next {
    /// This one begins.
    Member(Begun),
    /// Not known at the moment; the waker will be called.
    Nothing,
    /// There is none.
    End,
}

impl Feed {
    /// Reads in place; nothing is passed over, so `at` and `from` of the plan are the same.
    pub fn inline(plan: Plan) -> Self {
        debug_assert!(plan.at == plan.from && plan.tail.is_none(), "what is read in place is there and begins where it is wanted");
        let Plan { path, open, at, end, doing, .. } = plan;
        Feed::Inline(Inline { path, open: Some(open), input: None, at, end, doing, got: PIECE_BYTES })
    }

    /// Works on a thread of its own, which begins when it is first asked for something.
    pub fn thread(work: Work, waker: Waker) -> Self {
        Feed::Idle(Box::new(work), waker)
    }

    /// Lets the thread begin, if one reads.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self) -> Result<(), ConnectError> {
        if let Feed::Idle(..) = self
            && let Feed::Idle(work, waker) = std::mem::replace(self, Feed::Ended)
        {
            *self = Feed::Thread(Thread::start(*work, waker)?);
        }
        Ok(())
    }

    /// Pushes the next bytes into the decoder, about as many as are `wanted` where that is up to us. The end of a
    /// member of an archive is an end; [`Feed::member`] says what comes behind it.
    ///
    /// # Errors
    /// What was being read and why it failed. What came before was handed over.
    pub fn next(&mut self, decoder: &mut dyn Decoder, wanted: usize) -> Result<Fed, ConnectError> {
        self.start()?;
        let fed = match self {
            Feed::Inline(inline) => inline.next(decoder, wanted)?,
            Feed::Thread(thread) => thread.next(decoder)?,
            Feed::Idle(..) | Feed::Ended => Fed::End,
        };
        if let Fed::End = fed
            && !matches!(self, Feed::Thread(thread) if thread.begun.is_some())
        {
            // Frees buffers, file and thread at once: a job may have thousands of files open.
            *self = Feed::Ended;
        }
        Ok(fed)
    }

    /// Goes to the next member of an archive; only to be asked at the end of one.
    ///
    /// # Errors
    /// As [`Feed::next`].
    pub fn member(&mut self) -> Result<Next, ConnectError> {
        self.start()?;
        let next = match self {
            Feed::Thread(thread) => thread.member()?,
            Feed::Inline(_) | Feed::Idle(..) | Feed::Ended => Next::End,
        };
        if let Next::End = next {
            *self = Feed::Ended;
        }
        Ok(next)
    }
}

/// Reads on the caller's thread.
pub(super) struct Inline {
    path: String,
    /// Taken when the first bytes are wanted.
    open: Option<Opening>,
    input: Option<Box<dyn Read + Send>>,
    at: u64,
    end: Option<u64>,
    doing: &'static str,
    /// How much the last read gave.
    got: usize,
}

impl Inline {
    fn next(&mut self, decoder: &mut dyn Decoder, wanted: usize) -> Result<Fed, ConnectError> {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        if left == 0 {
            return Ok(Fed::End);
        }
        if let Some(open) = self.open.take() {
            self.input = Some(open()?);
        }
        let Some(input) = &mut self.input else { return Ok(Fed::End) };
        // Where little came last, as before the end of a small file, no more room than needed is made.
        let most = if self.got < PIECE_BYTES_MIN { PIECE_BYTES_MIN } else { PIECE_BYTES };
        let want = left.min(wanted.clamp(PIECE_BYTES_MIN, most) as u64) as usize;
        let room = decoder.room(want);
        let got = loop {
            match input.read(room) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|e| failed(self.doing, &self.path, self.at, &e))?,
            }
        };
        if got == 0 {
            return match self.end {
                None => Ok(Fed::End),
                Some(end) => Err(ConnectError::new(format!(
                    "'{}' ends at byte {}, but it had at least {end} bytes when the job began; it must not be cut while it is read",
                    self.path, self.at
                ))),
            };
        }
        self.got = got;
        decoder.filled(got);
        self.at += got as u64;
        Ok(Fed::Bytes(got, clock::now_ns()))
    }
}

/// The error about a text that could not be read on.
pub(super) fn failed(doing: &str, path: &str, at: u64, e: &io::Error) -> ConnectError {
    // It says itself which byte it is; `at` counts those of the text that it was decoded to.
    if let Some(malformed) = e.get_ref().and_then(|e| e.downcast_ref::<Malformed>()) {
        return ConnectError::new(format!("reading '{path}': {malformed}"));
    }
    ConnectError::io(format!("{doing} '{path}' at byte {at} of its content"), e)
}

/// What the I/O thread sends.
pub(super) enum Message {
    /// A member of an archive begins.
    Member(Begun),
    /// A buffer, how much of it counts, and when it was read.
    Chunk(Buffer, usize, u64),
    /// Reading failed; the last message.
    Failed(ConnectError),
    /// The file is at its end; the last message.
    End,
}

/// The reader's side of an I/O thread. Dropping it ends the thread.
pub(super) struct Thread {
    path: String,
    messages: Receiver<Message>,
    spare: Sender<Buffer>,
    /// The member that begins behind the one that has ended.
    begun: Option<Begun>,
    /// Nothing is ever sent: its end tells a sleeping thread that nobody waits for it.
    _alive: Sender<()>,
}

impl Thread {
    fn start(work: Work, waker: Waker) -> Result<Self, ConnectError> {
        let (send, messages) = bounded(CHUNKS_MAX);
        let (buffers, spare) = Buffers::new();
        let (alive, gone) = bounded(0);
        let path = work.path().to_string();
        std::thread::Builder::new()
            .name("file-reader".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let out = Out { send, buffers, gone, waker: WakeAtEnd(waker) };
                let done = match work {
                    Work::Text(plan) => pump(plan, &out),
                    Work::Members(members) => members::pump(members, &out),
                };
                let last = match done {
                    Ok(Some(())) => Message::End,
                    Ok(None) => return,
                    Err(e) => Message::Failed(e),
                };
                out.give(last);
            })
            .map_err(|e| ConnectError::io(format!("starting a thread to read '{path}'"), &e))?;
        Ok(Thread { path, messages, spare, begun: None, _alive: alive })
    }

    fn next(&mut self, decoder: &mut dyn Decoder) -> Result<Fed, ConnectError> {
        if self.begun.is_some() {
            return Ok(Fed::End);
        }
        match self.messages.try_recv() {
            Ok(Message::Chunk(buffer, length, arrival_ns)) => {
                decoder.push(&buffer.bytes[..length]);
                // A full channel only means that the thread has buffers enough.
                let _ = self.spare.try_send(buffer);
                Ok(Fed::Bytes(length, arrival_ns))
            }
            Ok(Message::Member(begun)) => {
                self.begun = Some(begun);
                Ok(Fed::End)
            }
            Ok(Message::Failed(e)) => Err(e),
            Ok(Message::End) => Ok(Fed::End),
            Err(TryRecvError::Empty) => Ok(Fed::Nothing),
            Err(TryRecvError::Disconnected) => Err(self.vanished()),
        }
    }

    fn member(&mut self) -> Result<Next, ConnectError> {
        if let Some(begun) = self.begun.take() {
            return Ok(Next::Member(begun));
        }
        match self.messages.try_recv() {
            Ok(Message::Member(begun)) => Ok(Next::Member(begun)),
            Ok(Message::Chunk(..)) => unreachable!("bytes come behind the name of their member, and are read to its end"),
            Ok(Message::Failed(e)) => Err(e),
            Ok(Message::End) => Ok(Next::End),
            Err(TryRecvError::Empty) => Ok(Next::Nothing),
            Err(TryRecvError::Disconnected) => Err(self.vanished()),
        }
    }

    #[cold]
    fn vanished(&self) -> ConnectError {
        ConnectError::new(format!("the thread that reads '{}' ended without saying why", self.path))
    }
}

/// Wakes the reader for a last time when it is dropped. It must go after the channel that the reader looks at: so
/// a reader learns that a thread has panicked, which sends nothing.
pub(super) struct WakeAtEnd(pub Waker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The thread's side of the channels.
pub(super) struct Out {
    send: Sender<Message>,
    buffers: Buffers,
    gone: Receiver<()>,
    /// Behind `send`: fields are dropped in this order.
    waker: WakeAtEnd,
}

impl Out {
    /// Hands a message over, waiting for room; false if nobody wants it any more.
    pub fn give(&self, message: Message) -> bool {
        let taken = self.send.send(message).is_ok();
        if taken {
            self.waker.0.wake();
        }
        taken
    }

    /// Sleeps; false if nobody waits any more.
    fn sleep(&self, time: Duration) -> bool {
        !matches!(self.gone.recv_timeout(time), Err(RecvTimeoutError::Disconnected))
    }
}

/// Reads the text to its end; `None` if the reader went away before.
fn pump(plan: Plan, out: &Out) -> Result<Option<()>, ConnectError> {
    let Plan { path, open, at, from, doing, whole, tail, .. } = plan;
    let mut input = open()?;
    let mut at = at;
    if at < from {
        if !discard(&mut input, at, from, &path, out)? {
            return Ok(None);
        }
        at = from;
    }
    loop {
        let Some(end) = copy(&mut input, at, doing, &path, whole, out)? else { return Ok(None) };
        at = end;
        let Some(tail) = &tail else { return Ok(Some(())) };
        check_tailed(&path, tail.identity, tail.read.as_ref().map_or(at, |read| read.load(Ordering::Relaxed)))?;
        if !out.sleep(tail.interval) {
            return Ok(None);
        }
    }
}

/// Hands the input over to its end, whose place in the content it returns; `None` if the reader went away.
pub(super) fn copy(input: &mut dyn Read, from: u64, doing: &str, path: &str, whole: bool, out: &Out) -> Result<Option<u64>, ConnectError> {
    let mut at = from;
    loop {
        let Some(mut buffer) = out.buffers.next() else { return Ok(None) };
        let (filled, failure) = fill(input, &mut buffer.bytes, whole);
        if filled > 0 {
            at += filled as u64;
            if !out.give(Message::Chunk(buffer, filled, clock::now_ns())) {
                return Ok(None);
            }
        }
        if let Some(e) = failure {
            return Err(failed(doing, path, at, &e));
        }
        if filled == 0 {
            return Ok(Some(at));
        }
    }
}

/// Reads until the buffer is full or the input at its end; a pipe's bytes are handed on as they
/// come. Returns what was read also if reading failed after it.
fn fill(input: &mut dyn Read, buffer: &mut [u8], whole: bool) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return (filled, Some(e)),
        }
        if !whole {
            break;
        }
    }
    (filled, None)
}

/// Reads past the bytes from `at` up to `from`; false if the reader went away before.
pub(super) fn discard(input: &mut dyn Read, mut at: u64, from: u64, path: &str, out: &Out) -> Result<bool, ConnectError> {
    let Some(mut buffer) = out.buffers.next() else { return Ok(false) };
    while at < from {
        let want = buffer.bytes.len().min((from - at) as usize);
        let (filled, failure) = fill(input, &mut buffer.bytes[..want], true);
        at += filled as u64;
        if let Some(e) = failure {
            return Err(ConnectError::io(
                format!("reading '{path}' at byte {at} of its content, on the way to byte {from} where the job continues"),
                &e,
            ));
        }
        if filled == 0 {
            return Err(shorter(path, at, from));
        }
        if matches!(out.gone.try_recv(), Err(TryRecvError::Disconnected)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error about a file that ends before the position at which reading shall continue.
pub(super) fn shorter(path: &str, length: u64, position: u64) -> ConnectError {
    ConnectError::new(format!(
        "'{path}' has {length} bytes of content, but {position} were read from it before: it was cut or replaced; \
         put the file back, or have all of it read: by a job without its checkpoint, by an adapter under another name (--id)"
    ))
}

/// Looks whether the path still means the file that is being followed, and has what was read of it.
fn check_tailed(path: &str, identity: (u64, u64), at: u64) -> Result<(), ConnectError> {
    let advice = "a file that is followed ('source.monitor-interval') may only grow";
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(ConnectError::new(format!("'{path}' has vanished after {at} bytes were read; {advice}")))
        }
        Err(e) => Err(ConnectError::io(format!("looking whether '{path}' has grown"), &e)),
        Ok(meta) if (meta.dev(), meta.ino()) != identity => {
            Err(ConnectError::new(format!("'{path}' was replaced by another file after {at} bytes were read; {advice}")))
        }
        Ok(meta) if meta.len() < at => {
            Err(ConnectError::new(format!("'{path}' shrank to {} bytes after {at} were read; {advice}", meta.len())))
        }
        Ok(_) => Ok(()),
    }
}
