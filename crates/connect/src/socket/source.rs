//! Rows from a peer we connect to, or from all peers that connect to us.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crossbeam_channel::Sender;
use tidemill_block::clock;
use tidemill_format::text::TextFormat;

use super::intake::{CHUNK_BYTES, Event, Intake};
use super::peer::{Acceptor, Peers, StopOnDrop, connect, connect_once, listen, spawn};
use super::{Mode, SocketOptions, alive};
use crate::{Changelog, ConnectError, Reader, ReaderContext, Source, Split, Waker, listeners};

/// The source.
pub struct SocketSource {
    pub options: SocketOptions,
    pub format: TextFormat,
}

impl Source for SocketSource {
    fn bounded(&self) -> bool {
        false
    }

    fn listens(&self) -> bool {
        self.options.mode == Mode::Listener
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(self.options.place())])
    }

    fn changelog(&self) -> Changelog {
        if self.format.changelog() { Changelog::All } else { Changelog::Append }
    }

    fn open(&self, _split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(match self.options.mode {
            Mode::Client => self.client(context)?,
            Mode::Listener => self.listener(listen(&self.options)?, context)?,
        }))
    }
}

impl SocketSource {
    /// Reads from one peer, called again if the options say so.
    fn client(&self, context: ReaderContext) -> Result<Intake, ConnectError> {
        let peers = Arc::new(Peers::default());
        let (sender, intake) = self.intake(&context);
        let (options, outlet) = (self.options.clone(), Outlet { sender, waker: context.waker, peers: peers.clone() });
        // Without further attempts the first one can be made here, where its error is seen at once.
        let first = if options.reconnect_attempts == 0 { Some(connect_once(&options)?) } else { None };
        spawn("tidemill-socket", move || read_client(&options, first, &outlet))?;
        Ok(intake.guarded(StopOnDrop(peers)))
    }

    /// Reads from everybody who connects.
    pub(super) fn listener(&self, listener: TcpListener, context: ReaderContext) -> Result<Intake, ConnectError> {
        let peers = Arc::new(Peers::default());
        let (sender, intake) = self.intake(&context);
        let refusing = peers.clone();
        let intake = intake.refusing(move |peer| refusing.cut(peer));
        let outlet = Outlet { sender, waker: context.waker, peers: peers.clone() };
        let address = listener.local_addr().map_err(|e| ConnectError::io("listening", &e))?;
        let acceptor = Acceptor::start(listener, peers, self.options.connections_max, move |peer, stream, place| {
            let (peers, outlet) = (outlet.peers.clone(), outlet.clone());
            // Fails only if the peer is gone already, which is found when it is read.
            let _ = alive::acknowledging(&stream);
            if !outlet.send(Event::Opened { peer, place }) {
                return;
            }
            let opened = outlet.clone();
            let read = move || {
                let fault = outlet.read(peer, stream);
                outlet.peers.remove(peer);
                outlet.send(closed(peer, fault));
            };
            if spawn("tidemill-socket", read).is_err() {
                // Without a thread there is nobody to read this one; the others are served on.
                listeners::turned_away(address);
                peers.remove(peer);
                opened.send(Event::Closed { peer, unfinished: None });
            }
        })?;
        Ok(intake.guarded(acceptor.cutting_silent(self.options.idle_timeout)?))
    }

    fn intake(&self, context: &ReaderContext) -> (Sender<Event>, Intake) {
        let (sender, intake) = Intake::new(self.format.clone(), context.clone());
        (sender, intake.limit(self.options.record_max.0 as usize))
    }
}

/// Where reading threads put what they have.
#[derive(Clone)]
struct Outlet {
    sender: Sender<Event>,
    waker: Waker,
    peers: Arc<Peers>,
}

impl Outlet {
    /// False if nobody reads any more.
    fn send(&self, event: Event) -> bool {
        let sent = self.sender.send(event).is_ok();
        self.waker.wake();
        sent
    }

    /// Hands over what a peer sends until it closes. Answers with what went wrong, if anything did.
    fn read(&self, peer: u64, mut stream: TcpStream) -> Option<String> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => {
                    // A copy of the right size: a chunk of a few bytes shall not hold a whole buffer.
                    if !self.send(Event::Bytes { peer, bytes: buffer[..n].to_vec(), arrival_ns: clock::now_ns() }) {
                        return None;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Some(e.to_string()),
            }
        }
    }
}

/// A connection that closes between records closes well; in the middle of one that record is bad,
/// since nobody can say how it would have gone on.
fn closed(peer: u64, fault: Option<String>) -> Event {
    let how = fault.map_or("was closed".to_string(), |fault| format!("broke ({fault})"));
    Event::Closed { peer, unfinished: Some(format!("the connection {how} inside this record: its line end is missing")) }
}

fn read_client(options: &SocketOptions, first: Option<TcpStream>, outlet: &Outlet) {
    let mut next = first.map_or_else(|| connect(options, &outlet.peers, false), Ok);
    for peer in 0u64.. {
        let stream = match next {
            Ok(stream) => stream,
            Err(error) => {
                outlet.send(Event::Failed(error));
                return;
            }
        };
        let place = options.place();
        if let Err(error) = outlet.peers.add(peer, &stream) {
            outlet.send(Event::Failed(ConnectError::io(format_args!("reading from {place}"), &error)));
            return;
        }
        if !outlet.send(Event::Opened { peer, place }) {
            return;
        }
        let fault = outlet.read(peer, stream);
        outlet.peers.remove(peer);
        if outlet.peers.is_stopped() || !outlet.send(closed(peer, fault.clone())) {
            return;
        }
        if options.reconnect_attempts == 0 {
            outlet.send(match fault {
                None => Event::Ended,
                Some(fault) => Event::Failed(ConnectError::new(format!(
                    "reading from {}: {fault}; set 'reconnect.attempts' to connect again",
                    options.place()
                ))),
            });
            return;
        }
        next = connect(options, &outlet.peers, true);
    }
}
