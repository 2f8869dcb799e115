//! The messages of one connection on their way to the reader.
//!
//! Messages that come together go to the reader together: they are gathered until the connection must be
//! asked for more bytes, so that a peer that sends a row a message costs a hand-over a read, not a row.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use crossbeam_channel::{Sender, TrySendError};
use tidemill_block::clock;
use tidemill_connect::Waker;
use tidemill_connect::socket::intake::{CHUNK_BYTES, Event};
use tidemill_connect::socket::room::Share;
use tungstenite::error::{CapacityError, ProtocolError};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Bytes, Error, Message, WebSocket};

use super::connect::Transport;
use super::frames::Frames;
use crate::lines::split_values;

/// Where reading threads put what they have.
#[derive(Clone)]
pub struct Outlet {
    pub sender: Sender<Event>,
    pub waker: Waker,
    /// Whether a message may be a JSON array of records.
    pub arrays: bool,
}

impl Outlet {
    /// False if nobody reads any more.
    pub fn send(&self, event: Event) -> bool {
        let sent = self.sender.send(event).is_ok();
        self.waker.wake();
        sent
    }

    /// The same for a connection that holds `share`: says of it when it has to wait for the job.
    fn send_holding(&self, event: Event, share: &Share) -> bool {
        match self.sender.try_send(event) {
            Ok(()) => {
                self.waker.wake();
                true
            }
            Err(TrySendError::Full(event)) => {
                let _held_up = share.held_up();
                self.send(event)
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// A connection whose messages are gathered. Whenever it is asked for more bytes, it first hands over
/// what there is.
pub struct Inflow {
    transport: Transport,
    outlet: Outlet,
    peer: u64,
    gathered: Vec<u8>,
    /// When the bytes of the messages gathered came.
    arrival_ns: u64,
    /// Something came since this was last set to false.
    heard: bool,
    /// Bytes that have come of messages that are not handed over, those of control frames left out.
    held: usize,
    /// The last message that came is whole: once it is handed over nothing is held.
    whole: bool,
    /// What is held is part of this.
    share: Share,
    /// Where the bytes stand among the peer's frames, if no pings ask whether it is there.
    frames: Option<Frames>,
    /// There was no room for more.
    crowded_out: bool,
    /// The last read has ended because nothing came.
    timed_out: bool,
}

/// What a control frame of a peer has beside its payload: two bytes and the mask.
const CONTROL_BYTES: usize = 6;

/// How a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In good order.
    Closed,
    /// It broke.
    Broken(String),
    /// The peer says nothing, not even that it is there.
    Silent,
    /// Nothing more came of a message.
    Stalled,
    /// There was no room for more of a message.
    CrowdedOut(String),
    /// The peer sent what is no message; something of it is lost.
    Offence(String),
}

impl End {
    /// Why, if not in good order.
    pub fn why(&self) -> Option<&str> {
        match self {
            End::Closed => None,
            End::Silent => Some("the peer does not answer pings"),
            End::Stalled => Some("nothing more came of a message"),
            End::Broken(why) | End::CrowdedOut(why) | End::Offence(why) => Some(why),
        }
    }
}

impl Inflow {
    /// The messages of `peer`. What it holds is part of `share`.
    pub fn new(transport: Transport, outlet: Outlet, peer: u64, share: Share) -> Self {
        Inflow {
            transport,
            outlet,
            peer,
            gathered: Vec::new(),
            arrival_ns: 0,
            heard: false,
            held: 0,
            whole: false,
            share,
            frames: None,
            crowded_out: false,
            timed_out: false,
        }
    }

    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        self.transport.tcp()
    }

    /// Takes note of a control frame: it is held by nobody, also between the frames of a message.
    fn pass_over(&mut self, payload: &[u8]) {
        self.held = self.held.saturating_sub(CONTROL_BYTES + payload.len());
    }

    /// Sees to it that what is held finds room. Waits while there is none and others go on or wait for the job.
    fn find_room(&mut self) -> io::Result<()> {
        if self.share.set(self.held) || self.share.wait(self.held) {
            return Ok(());
        }
        self.crowded_out = true;
        Err(io::Error::other("there is no room for the rest of the message"))
    }

    /// Adds a message. Each ends its last record, whether it has a line end or not.
    fn add(&mut self, message: &[u8]) -> io::Result<()> {
        self.whole = true;
        let from = self.gathered.len();
        self.gathered.extend_from_slice(message);
        if self.outlet.arrays && message.trim_ascii_start().first() == Some(&b'[') && split_values(&mut self.gathered[from..]).is_err() {
            // As it came: the decoder says what is wrong.
            self.gathered[from..].copy_from_slice(message);
        }
        if self.gathered.len() > from && self.gathered.last() != Some(&b'\n') {
            self.gathered.push(b'\n');
        }
        if self.gathered.len() >= CHUNK_BYTES { self.hand_over() } else { Ok(()) }
    }

    /// Gives the reader what is gathered; waits while it has enough.
    fn hand_over(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let all = std::mem::take(&mut self.gathered);
        let (peer, arrival_ns) = (self.peer, self.arrival_ns);
        let send = |bytes| {
            let sent = self.outlet.send_holding(Event::Bytes { peer, bytes, arrival_ns }, &self.share);
            if sent { Ok(()) } else { Err(io::Error::from(ErrorKind::ConnectionAborted)) }
        };
        // The reader's channel counts chunks, so none is much larger than it expects.
        if all.len() <= 2 * CHUNK_BYTES { send(all) } else { all.chunks(CHUNK_BYTES).try_for_each(|chunk| send(chunk.to_vec())) }
    }

    /// Leaves a trace of a message that is lost: a record without an end, which is bad when the
    /// connection ends.
    fn mark(&mut self) {
        self.gathered.extend_from_slice(b"(a message that cannot be read)");
    }
}

impl Read for Inflow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.hand_over()?;
        if std::mem::take(&mut self.whole) {
            self.held = 0;
        }
        self.find_room()?;
        let read = self.transport.read(buffer);
        self.timed_out = read.as_ref().is_err_and(is_silence);
        let read = read?;
        self.held += read;
        if let Some(frames) = &mut self.frames {
            frames.pass(&buffer[..read]);
        }
        self.heard = true;
        self.arrival_ns = clock::now_ns();
        Ok(read)
    }
}

impl Write for Inflow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}

/// Takes messages until the connection ends. With `pings` a read that times out asks the peer whether it
/// is there; without, the connection ends if that is in the middle of a message.
pub fn read(socket: &mut WebSocket<Inflow>, pings: bool) -> End {
    let mut asked = false;
    // The handshake is over.
    let inflow = socket.get_mut();
    inflow.held = 0;
    inflow.frames = (!pings).then(Frames::default);
    let end = loop {
        let taken = match socket.read() {
            Ok(Message::Text(text)) => socket.get_mut().add(text.as_str().as_bytes()),
            Ok(Message::Binary(bytes)) => socket.get_mut().add(&bytes),
            Ok(Message::Close(frame)) => {
                // The answer to it.
                let _ = socket.flush();
                break closed(frame);
            }
            Ok(Message::Ping(payload) | Message::Pong(payload)) => {
                socket.get_mut().pass_over(&payload);
                Ok(())
            }
            Ok(Message::Frame(_)) => Ok(()),
            Err(Error::Io(_)) if socket.get_ref().crowded_out => break crowded_out(socket),
            Err(Error::Io(_)) if !pings && socket.get_ref().timed_out => {
                let inflow = socket.get_mut();
                inflow.timed_out = false;
                if inflow.frames.as_ref().is_some_and(Frames::is_partial) {
                    inflow.mark();
                    break End::Stalled;
                }
                Ok(())
            }
            Err(Error::Io(e)) if pings && is_silence(&e) => {
                let heard = std::mem::take(&mut socket.get_mut().heard);
                if asked && !heard {
                    break End::Silent;
                }
                asked = true;
                match socket.send(Message::Ping(Bytes::new())) {
                    Ok(()) => Ok(()),
                    Err(e) => break End::Broken(e.to_string()),
                }
            }
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => break End::Closed,
            Err(Error::Io(e)) => break End::Broken(e.to_string()),
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => {
                break End::Broken("the peer has closed the connection without saying so".to_string());
            }
            Err(error) => break offence(socket, &error),
        };
        if let Err(e) = taken {
            break End::Broken(e.to_string());
        }
    };
    // If nobody reads any more, nobody misses it.
    let _ = socket.get_mut().hand_over();
    end
}

/// Whether a read has ended because nothing came for so long as it may wait.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// What a close frame means.
pub fn closed(frame: Option<CloseFrame>) -> End {
    match frame {
        Some(CloseFrame { code, reason }) if !matches!(code, CloseCode::Normal | CloseCode::Away | CloseCode::Status) => {
            let colon = if reason.as_str().is_empty() { "" } else { ": " };
            End::Broken(format!("the peer has closed the connection with code {}{colon}{}", u16::from(code), reason.as_str()))
        }
        _ => End::Closed,
    }
}

/// Tells a peer for whose message there is no room that it must go, and leaves a trace.
fn crowded_out(socket: &mut WebSocket<Inflow>) -> End {
    let reason = "too many large messages of others";
    // It may be gone already.
    let _ = socket.close(Some(CloseFrame { code: CloseCode::Again, reason: reason.into() }));
    let inflow = socket.get_mut();
    inflow.mark();
    End::CrowdedOut(format!("there is no room for more than the {} bytes that have come of a message: {reason}", inflow.held))
}

/// Tells the peer what it has done, and leaves a trace.
fn offence(socket: &mut WebSocket<Inflow>, error: &Error) -> End {
    let (code, text) = match error {
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            (CloseCode::Size, format!("a message of {size} bytes is longer than 'max-message-size' ({max_size} bytes)"))
        }
        Error::Utf8(_) => (CloseCode::Invalid, "a message of text is not valid UTF-8".to_string()),
        other => (CloseCode::Protocol, format!("the peer does not keep to the protocol: {other}")),
    };
    // A reason has 123 bytes at most.
    let reason: String = text.chars().take(100).filter(char::is_ascii).collect();
    // It may be gone already.
    let _ = socket.close(Some(CloseFrame { code, reason: reason.into() }));
    socket.get_mut().mark();
    End::Offence(text)
}
