//! The bytes of one text file: read in place, or by an I/O thread that decompresses, follows a
//! growing file and hands chunks over. Knows nothing of records.
//!
//! A plain file is read in place, when its rows are wanted: the system is asked to fetch what comes next
//! meanwhile, which a thread could do no better, and rows do not grow old in chunks that were read ahead.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use tidemill_block::clock;
use tidemill_format::Decoder;
use tidemill_format::compression::{self, Compression};

use crate::{ConnectError, Waker};

/// Bytes that the I/O thread hands over at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait between the I/O thread and the reader at most.
const CHUNKS_MAX: usize = 8;
/// Bytes read in place at once, at most: few enough to be still in the cache when the decoder looks at them.
const PIECE_BYTES: usize = 256 << 10;
/// And at least: a call of the system costs as much as copying some KB. What is read beyond what is wanted
/// only waits, and counts as arrived.
const PIECE_BYTES_MIN: usize = 32 << 10;
/// How far ahead of what is read in place the system is asked to fetch: some ms of a fast disk, and as
/// much as a distant one gives in the time that it takes to answer.
const AHEAD_BYTES: u64 = 4 << 20;
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

/// What is read, and how.
pub(super) struct Plan {
    /// The path, for messages and to look whether the file is still there.
    pub path: String,
    /// The file if it was opened already; a pipe is opened by the thread, since that may wait.
    pub file: Option<File>,
    /// How the bytes are compressed.
    pub compression: Compression,
    /// Uncompressed bytes before the first one wanted.
    pub skip: u64,
    /// How often to look for appended bytes at the end of the file; `None` to end there.
    pub tail: Option<Duration>,
}

/// A source of bytes that never makes the caller wait for another process.
pub(super) enum Feed {
    /// Reads in place: plain files and ranges of them.
    Inline(Inline),
    /// A thread reads, not yet started.
    Idle(Box<Plan>, Waker),
    /// A thread reads.
    Thread(Thread),
    /// Nothing is left.
    Ended,
}

impl Feed {
    /// Reads `at..end` of a plain file in place; up to its end if `end` is `None`.
    pub fn inline(path: String, file: File, at: u64, end: Option<u64>) -> Self {
        Feed::Inline(Inline { path, file, at, end, advised: at, buffer: Vec::new() })
    }

    /// Reads on a thread of its own, which begins at the first [`Feed::next`].
    pub fn thread(plan: Plan, waker: Waker) -> Self {
        Feed::Idle(Box::new(plan), waker)
    }

    /// Pushes the next bytes into the decoder, about as many as are `wanted` where that is up to us.
    ///
    /// # Errors
    /// What was being read and why it failed. What came before was handed over.
    pub fn next(&mut self, decoder: &mut dyn Decoder, wanted: usize) -> Result<Fed, ConnectError> {
        if let Feed::Idle(..) = self
            && let Feed::Idle(plan, waker) = std::mem::replace(self, Feed::Ended)
        {
            *self = Feed::Thread(Thread::start(*plan, waker)?);
        }
        let fed = match self {
            Feed::Inline(inline) => inline.next(decoder, wanted)?,
            Feed::Thread(thread) => thread.next(decoder)?,
            Feed::Idle(..) | Feed::Ended => Fed::End,
        };
        if let Fed::End = fed {
            // Frees buffers, file and thread at once: a job may have thousands of files open.
            *self = Feed::Ended;
        }
        Ok(fed)
    }
}

/// Reads a plain file with `pread` on the caller's thread.
pub(super) struct Inline {
    path: String,
    file: File,
    at: u64,
    end: Option<u64>,
    /// What the system was asked to fetch ends here.
    advised: u64,
    buffer: Vec<u8>,
}

impl Inline {
    /// Asks the system to fetch what comes next, unless it was asked already.
    fn advise(&mut self) {
        if self.advised >= self.at + AHEAD_BYTES / 2 || self.end.is_some_and(|end| self.advised >= end) {
            return;
        }
        let from = self.advised.max(self.at);
        self.advised = self.at + AHEAD_BYTES;
        fetch(&self.file, from, self.advised - from);
    }

    fn next(&mut self, decoder: &mut dyn Decoder, wanted: usize) -> Result<Fed, ConnectError> {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        if left == 0 {
            return Ok(Fed::End);
        }
        let want = left.min(wanted.clamp(PIECE_BYTES_MIN, PIECE_BYTES) as u64) as usize;
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.advise();
        let got = loop {
            match self.file.read_at(&mut self.buffer[..want], self.at) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|e| ConnectError::io(format!("reading '{}' at byte {}", self.path, self.at), &e))?,
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
        decoder.push(&self.buffer[..got]);
        self.at += got as u64;
        Ok(Fed::Bytes(got, clock::now_ns()))
    }
}

/// Asks the system to fetch so many bytes of a file from here on, without waiting for them.
#[cfg(target_os = "linux")]
fn fetch(file: &File, from: u64, bytes: u64) {
    use std::os::fd::AsRawFd;
    if let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(bytes)) {
        // SAFETY: the descriptor is open as long as the file, and no memory is passed. It is advice: whether it
        // is taken does not matter.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), from, bytes, libc::POSIX_FADV_WILLNEED) };
    }
}

/// Elsewhere the system's own guess must do.
#[cfg(not(target_os = "linux"))]
fn fetch(_file: &File, _from: u64, _bytes: u64) {}

/// What the I/O thread sends.
enum Message {
    /// A buffer, how much of it counts, and when it was read.
    Chunk(Vec<u8>, usize, u64),
    /// Reading failed; the last message.
    Failed(ConnectError),
    /// The file is at its end; the last message.
    End,
}

/// The reader's side of an I/O thread. Dropping it ends the thread.
pub(super) struct Thread {
    path: String,
    messages: Receiver<Message>,
    spare: Sender<Vec<u8>>,
    /// Nothing is ever sent: its end tells a sleeping thread that nobody waits for it.
    _alive: Sender<()>,
}

impl Thread {
    fn start(plan: Plan, waker: Waker) -> Result<Self, ConnectError> {
        let (send, messages) = bounded(CHUNKS_MAX);
        let (spare, spares) = bounded(CHUNKS_MAX + 2);
        let (alive, gone) = bounded(0);
        let path = plan.path.clone();
        std::thread::Builder::new()
            .name("file-reader".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let out = Out { send, spares, gone, waker };
                let last = match pump(plan, &out) {
                    Ok(Some(())) => Message::End,
                    Ok(None) => return,
                    Err(e) => Message::Failed(e),
                };
                out.give(last);
            })
            .map_err(|e| ConnectError::io(format!("starting a thread to read '{path}'"), &e))?;
        Ok(Thread { path, messages, spare, _alive: alive })
    }

    fn next(&mut self, decoder: &mut dyn Decoder) -> Result<Fed, ConnectError> {
        match self.messages.try_recv() {
            Ok(Message::Chunk(buffer, length, arrival_ns)) => {
                decoder.push(&buffer[..length]);
                // A full channel only means that the thread has buffers enough.
                let _ = self.spare.try_send(buffer);
                Ok(Fed::Bytes(length, arrival_ns))
            }
            Ok(Message::Failed(e)) => Err(e),
            Ok(Message::End) => Ok(Fed::End),
            Err(TryRecvError::Empty) => Ok(Fed::Nothing),
            Err(TryRecvError::Disconnected) => {
                Err(ConnectError::new(format!("the thread that reads '{}' ended without saying why", self.path)))
            }
        }
    }
}

/// The thread's side of the channels.
struct Out {
    send: Sender<Message>,
    spares: Receiver<Vec<u8>>,
    gone: Receiver<()>,
    waker: Waker,
}

impl Out {
    /// Hands a message over, waiting for room; false if nobody wants it any more.
    fn give(&self, message: Message) -> bool {
        let taken = self.send.send(message).is_ok();
        if taken {
            self.waker.wake();
        }
        taken
    }

    fn buffer(&self) -> Vec<u8> {
        self.spares.try_recv().unwrap_or_else(|_| vec![0; CHUNK_BYTES])
    }

    /// Sleeps; false if nobody waits any more.
    fn sleep(&self, time: Duration) -> bool {
        !matches!(self.gone.recv_timeout(time), Err(RecvTimeoutError::Disconnected))
    }
}

/// Reads the file to its end; `None` if the reader went away before.
fn pump(plan: Plan, out: &Out) -> Result<Option<()>, ConnectError> {
    let Plan { path, file, compression, skip, tail } = plan;
    let mut file = match file {
        Some(file) => file,
        None => File::open(&path).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?,
    };
    let meta = file.metadata().map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
    let (regular, plain) = (meta.is_file(), compression == Compression::None);
    let seekable = regular && plain;
    let identity = (meta.dev(), meta.ino());
    let tail = tail.filter(|_| seekable);
    if seekable && skip > 0 {
        file.seek(SeekFrom::Start(skip)).map_err(|e| ConnectError::io(format!("seeking to byte {skip} of '{path}'"), &e))?;
    }
    let mut input = compression::reader(Box::new(file), compression).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?;
    let mut at = 0;
    if seekable {
        at = skip;
    } else if skip > 0 {
        at = discard(&mut input, skip, &path, out)?;
        if at < skip {
            return Ok(None);
        }
    }
    loop {
        let mut buffer = out.buffer();
        let (filled, failure) = fill(&mut input, &mut buffer, regular);
        if filled > 0 {
            at += filled as u64;
            if !out.give(Message::Chunk(buffer, filled, clock::now_ns())) {
                return Ok(None);
            }
        }
        if let Some(e) = failure {
            let what = if plain { "reading" } else { "decompressing" };
            return Err(ConnectError::io(format!("{what} '{path}' at byte {at} of its content"), &e));
        }
        if filled == 0 {
            let Some(interval) = tail else { return Ok(Some(())) };
            check_tailed(&path, identity, at)?;
            if !out.sleep(interval) {
                return Ok(None);
            }
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

/// Reads past the first `skip` bytes; fewer are returned only if the reader went away.
fn discard(input: &mut dyn Read, skip: u64, path: &str, out: &Out) -> Result<u64, ConnectError> {
    let mut buffer = out.buffer();
    let mut at = 0;
    while at < skip {
        let want = buffer.len().min((skip - at) as usize);
        let (filled, failure) = fill(input, &mut buffer[..want], true);
        at += filled as u64;
        if let Some(e) = failure {
            return Err(ConnectError::io(
                format!("reading '{path}' at byte {at} of its content, on the way to byte {skip} where the job continues"),
                &e,
            ));
        }
        if filled == 0 {
            return Err(shorter(path, at, skip));
        }
        if matches!(out.gone.try_recv(), Err(TryRecvError::Disconnected)) {
            return Ok(0);
        }
    }
    Ok(at)
}

/// The error about a file that ends before the position at which reading shall continue.
pub(super) fn shorter(path: &str, length: u64, position: u64) -> ConnectError {
    ConnectError::new(format!(
        "'{path}' has {length} bytes of content, but {position} were read from it before: it was cut or replaced; \
         put the file back, or start the job without its checkpoint"
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
