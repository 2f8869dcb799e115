//! Rows to a peer we connect to, or to all peers that are connected to us.
//!
//! The writer encodes; a thread a connection writes. Between them lies a bounded queue, so a slow
//! peer slows the job down.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_block::Block;
use tidemill_format::Encoder;
use tidemill_format::text::TextFormat;

use super::peer::{Acceptor, Peers, StopOnDrop, connect, connect_once, listen, spawn};
use super::queue::{ByteQueue, Refused};
use super::{Mode, SocketOptions};
use crate::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};

/// Rows are handed to the queues when they make this many bytes, or when the job has a moment.
const BUFFER_BYTES: usize = 64 << 10;
/// How often a writer without peers looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// The sink.
pub struct SocketSink {
    pub options: SocketOptions,
    pub format: TextFormat,
}

impl Sink for SocketSink {
    fn accepts_updates(&self) -> bool {
        self.format.changelog()
    }

    fn parallelism(&self) -> Option<usize> {
        Some(1)
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        Ok(Box::new(match self.options.mode {
            Mode::Client => self.client(context)?,
            Mode::Listener => self.listener(listen(&self.options)?, context)?,
        }))
    }
}

impl SocketSink {
    fn client(&self, context: SinkContext) -> Result<SocketWriter, ConnectError> {
        let (encoder, header) = self.encoder(&context)?;
        let peers = Arc::new(Peers::default());
        let queue = Arc::new(ByteQueue::new(self.options.sink_queue.0 as usize));
        // Without further attempts the first one can be made here, where its error is seen at once.
        let first = if self.options.reconnect_attempts == 0 { Some(connect_once(&self.options)?) } else { None };
        let thread = {
            let (options, peers, queue) = (self.options.clone(), peers.clone(), queue.clone());
            spawn("tidemill-socket", move || {
                if let Err(error) = write_client(&options, first, &header, &queue, &peers) {
                    queue.fail(error.to_string());
                }
            })?
        };
        let guard = StopOnDrop(peers);
        Ok(SocketWriter::new(encoder, Outlet::Client { queue, thread: Some(thread), _guard: guard }, &self.options, context))
    }

    pub(super) fn listener(&self, listener: TcpListener, context: SinkContext) -> Result<SocketWriter, ConnectError> {
        let (encoder, header) = self.encoder(&context)?;
        let peers = Arc::new(Peers::default());
        let subscribers = Arc::new(Subscribers::default());
        let (joined, registry, queue_bytes) = (subscribers.clone(), peers.clone(), self.options.sink_queue.0 as usize);
        let acceptor = Acceptor::start(listener, peers, self.options.connections_max, move |peer, mut stream, place| {
            let queue = Arc::new(ByteQueue::new(queue_bytes));
            let (own, registry, header) = (queue.clone(), registry.clone(), header.clone());
            let thread = spawn("tidemill-socket", move || {
                if let Err(error) = stream.write_all(&header).and_then(|()| write_queue(&mut stream, &own)) {
                    own.fail(format!("writing to {place}: {error}"));
                }
                registry.remove(peer);
            });
            if let Ok(thread) = thread {
                joined.lock().push(Subscriber { queue, thread });
                joined.joined.notify_all();
            }
        })?;
        Ok(SocketWriter::new(encoder, Outlet::Listener { subscribers, acceptor: Some(acceptor) }, &self.options, context))
    }

    /// The encoder, and what every peer gets first.
    fn encoder(&self, context: &SinkContext) -> Result<(Box<dyn Encoder>, Vec<u8>), ConnectError> {
        let mut encoder = self.format.encoder(&context.schema)?;
        let mut header = Vec::new();
        encoder.begin(&mut header);
        Ok((encoder, header))
    }
}

/// Writes what comes through the queue until its end.
fn write_queue(stream: &mut TcpStream, queue: &ByteQueue) -> std::io::Result<()> {
    let mut chunk = Vec::new();
    while queue.take(&mut chunk) {
        stream.write_all(&chunk)?;
    }
    say_goodbye(stream);
    Ok(())
}

/// Closes so that the peer still gets everything: bytes of the peer that nobody has read would turn
/// the close into a reset, which throws away what is on its way.
fn say_goodbye(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    if stream.set_nonblocking(true).is_ok() {
        let mut unread = [0; 4096];
        // With an end, for a peer that never stops talking.
        (0..1024).take_while(|_| matches!(stream.read(&mut unread), Ok(n) if n > 0)).for_each(drop);
    }
}

fn write_client(
    options: &SocketOptions,
    first: Option<TcpStream>,
    header: &[u8],
    queue: &ByteQueue,
    peers: &Peers,
) -> Result<(), ConnectError> {
    let mut next = first.map_or_else(|| connect(options, peers, false), Ok);
    let mut chunk = Vec::new();
    for peer in 0u64.. {
        let mut stream = next?;
        let place = options.place();
        peers.add(peer, &stream).map_err(|e| ConnectError::io(format_args!("writing to {place}"), &e))?;
        // After a break the chunk in hand is sent again as a whole: it begins with a row.
        let written = stream.write_all(header).and_then(|()| stream.write_all(&chunk));
        let written = written.and_then(|()| {
            while queue.take(&mut chunk) {
                stream.write_all(&chunk)?;
            }
            Ok(())
        });
        peers.remove(peer);
        let Err(error) = written else {
            say_goodbye(&mut stream);
            return Ok(());
        };
        if options.reconnect_attempts == 0 {
            return Err(ConnectError::new(format!(
                "writing to {place}: {error}; rows on their way are lost; set 'reconnect.attempts' to connect again"
            )));
        }
        next = connect(options, peers, true)
            .map_err(|e| ConnectError::new(format!("writing to {place}: {error}; rows on their way are lost; then: {e}")));
    }
    Ok(())
}

/// A connected peer of a listener.
struct Subscriber {
    queue: Arc<ByteQueue>,
    thread: JoinHandle<()>,
}

/// Everybody who is connected.
#[derive(Default)]
struct Subscribers {
    all: Mutex<Vec<Subscriber>>,
    joined: Condvar,
}

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queues of all who are there; waits until somebody is.
    fn queues(&self, cancelled: &AtomicBool) -> Result<Vec<Arc<ByteQueue>>, Refused> {
        let mut all = self.lock();
        loop {
            all.retain(|s| !s.queue.is_gone());
            if !all.is_empty() {
                return Ok(all.iter().map(|s| s.queue.clone()).collect());
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(Refused::Cancelled);
            }
            all = self.joined.wait_timeout(all, CANCEL_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives the bytes to everybody; to at least one.
    fn push(&self, bytes: &[u8], cancelled: &AtomicBool) -> Result<(), Refused> {
        loop {
            let mut given = 0;
            for queue in self.queues(cancelled)? {
                match queue.push(bytes, cancelled) {
                    Ok(()) => given += 1,
                    Err(Refused::Cancelled) => return Err(Refused::Cancelled),
                    // Peers come and go; the next look at the list forgets this one.
                    Err(Refused::Gone(_)) => {}
                }
            }
            if given > 0 {
                return Ok(());
            }
        }
    }

    /// Waits until everybody who is still there has got everything.
    fn drained(&self, cancelled: &AtomicBool) -> Result<(), Refused> {
        let queues: Vec<_> = self.lock().iter().map(|s| s.queue.clone()).collect();
        for queue in queues {
            if let Err(Refused::Cancelled) = queue.drained(cancelled) {
                return Err(Refused::Cancelled);
            }
        }
        Ok(())
    }

    /// Ends all connections in good order.
    fn finish(&self) {
        for subscriber in self.lock().drain(..) {
            subscriber.queue.finish();
            let _ = subscriber.thread.join();
        }
    }
}

enum Outlet {
    Client { queue: Arc<ByteQueue>, thread: Option<JoinHandle<()>>, _guard: StopOnDrop },
    Listener { subscribers: Arc<Subscribers>, acceptor: Option<Acceptor> },
}

impl Outlet {
    fn push(&self, bytes: &[u8], cancelled: &AtomicBool) -> Result<(), Refused> {
        match self {
            Outlet::Client { queue, .. } => queue.push(bytes, cancelled),
            Outlet::Listener { subscribers, .. } => subscribers.push(bytes, cancelled),
        }
    }

    fn drained(&self, cancelled: &AtomicBool) -> Result<(), Refused> {
        match self {
            Outlet::Client { queue, .. } => queue.drained(cancelled),
            Outlet::Listener { subscribers, .. } => subscribers.drained(cancelled),
        }
    }

    fn finish(&mut self) {
        match self {
            Outlet::Client { queue, thread, .. } => {
                queue.finish();
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
            Outlet::Listener { subscribers, .. } => subscribers.finish(),
        }
    }
}

impl Drop for Outlet {
    /// For a writer that is given up: lets go of threads that wait for bytes. Those that wait for
    /// their peer are freed when their connections are closed.
    fn drop(&mut self) {
        match self {
            Outlet::Client { queue, .. } => queue.fail("the writer is gone"),
            Outlet::Listener { subscribers, acceptor } => {
                drop(acceptor.take()); // first, so that nobody joins behind our back
                subscribers.lock().iter().for_each(|s| s.queue.fail("the writer is gone"));
            }
        }
    }
}

/// Writes rows to one or all peers.
pub struct SocketWriter {
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    outlet: Outlet,
    place: String,
    cancelled: Arc<AtomicBool>,
    /// Bytes handed to the queues.
    bytes: u64,
}

impl SocketWriter {
    fn new(encoder: Box<dyn Encoder>, outlet: Outlet, options: &SocketOptions, context: SinkContext) -> Self {
        SocketWriter {
            encoder,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            outlet,
            place: options.place(),
            cancelled: context.cancelled,
            bytes: 0,
        }
    }

    /// How many peers are connected, of a listener.
    #[cfg(test)]
    pub(super) fn peers(&self) -> usize {
        match &self.outlet {
            Outlet::Client { .. } => 1,
            Outlet::Listener { subscribers, .. } => subscribers.lock().len(),
        }
    }

    fn refused(&self, why: Refused) -> ConnectError {
        ConnectError::new(match why {
            Refused::Cancelled => format!("writing to {}: the job was stopped while the peer was still busy or absent", self.place),
            Refused::Gone(reason) => reason,
        })
    }
}

impl Writer for SocketWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.encoder.encode(block, &mut self.buffer)?;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        if !self.buffer.is_empty() {
            self.outlet.push(&self.buffer, &self.cancelled).map_err(|why| self.refused(why))?;
            self.bytes += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.flush()?;
        self.outlet.drained(&self.cancelled).map_err(|why| self.refused(why))?;
        if last {
            self.outlet.finish();
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.buffer.len() as u64 }
    }
}
