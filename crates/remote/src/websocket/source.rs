//! Rows from a server that we call, or from all peers that connect to us.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::socket::intake::{Event, Intake};
use tidemill_connect::socket::peer::{Acceptor, Peers, StopOnDrop, spawn};
use tidemill_connect::socket::room::{Room, Share};
use tidemill_connect::socket::{Mode, alive};
use tidemill_connect::{ConnectError, Reader, ReaderContext, Source, Split, listeners};
use tidemill_format::text::TextFormat;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tungstenite::http::{StatusCode, Uri, header};
use tungstenite::{Error, HandshakeError, WebSocket};

use super::WebSocketOptions;
use super::connect::{Target, Transport, WRITE_TIMEOUT};
use super::inflow::{End, Inflow, Outlet, read};
use crate::headers;

/// How long nothing may come of a message that has begun, where no pings ask whether the peer is there.
const MESSAGE_SILENCE_MAX: Duration = Duration::from_secs(60);

/// The source.
pub struct WebSocketSource {
    pub options: WebSocketOptions,
    pub format: TextFormat,
    /// Of a client.
    pub target: Option<Arc<Target>>,
}

impl Source for WebSocketSource {
    fn bounded(&self) -> bool {
        false
    }

    fn listens(&self) -> bool {
        self.options.mode == Mode::Listener
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(self.target.as_ref().map_or_else(|| self.options.place(), |target| target.place()))])
    }

    fn open(&self, _split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(match (&self.target, self.options.mode) {
            (Some(target), Mode::Client) => self.client(target.clone(), context)?,
            _ => {
                let address = (self.options.hostname.as_str(), self.options.port.unwrap_or_default());
                let listener = TcpListener::bind(address).map_err(|e| {
                    ConnectError::new(format!("listening on {}:{}: {e}; choose another 'port' or 'hostname'", address.0, address.1))
                })?;
                let peers = Arc::new(Peers::default());
                // For one of the largest messages at least, in one frame after another.
                let room = Arc::new(Room::new(peers.clone(), 2 * self.options.message_max.0 as usize));
                self.listener(listener, context, peers, room)?
            }
        }))
    }
}

impl WebSocketSource {
    fn intake(&self, context: ReaderContext) -> (Outlet, Intake) {
        let waker = context.waker.clone();
        let (sender, intake) = Intake::new(self.format.clone(), context);
        (Outlet { sender, waker, arrays: matches!(self.format, TextFormat::Json(_)) }, intake)
    }

    /// Reads from one server, called again if the options say so.
    fn client(&self, target: Arc<Target>, context: ReaderContext) -> Result<Intake, ConnectError> {
        let peers = Arc::new(Peers::default());
        let (outlet, intake) = self.intake(context);
        let client = Client { target, options: self.options.clone(), outlet, peers: peers.clone() };
        // Without further attempts the first one can be made here, where its error is seen at once.
        let first = if client.target.attempts() == 0 { Some(client.connect(0, false)?) } else { None };
        spawn("tidemill-websocket", move || client.run(first))?;
        Ok(intake.guarded(StopOnDrop(peers)))
    }

    /// Reads from everybody who connects. What messages hold that are not complete finds place in `room`, which is one for `peers`.
    pub(super) fn listener(
        &self,
        listener: TcpListener,
        context: ReaderContext,
        peers: Arc<Peers>,
        room: Arc<Room>,
    ) -> Result<Intake, ConnectError> {
        let (outlet, intake) = self.intake(context);
        let refusing = peers.clone();
        let intake = intake.refusing(move |peer| refusing.cut(peer));
        let (registry, options) = (peers.clone(), Arc::new(self.options.clone()));
        let address = listener.local_addr().map_err(|e| ConnectError::io("listening", &e))?;
        let acceptor = Acceptor::start(listener, peers, self.options.connections_max, move |peer, stream, place| {
            let (peers, outlet, options) = (registry.clone(), outlet.clone(), options.clone());
            // Fails only if the peer is gone already, which is found when it is read.
            let _ = alive::acknowledging(&stream);
            let share = Share::new(&room);
            let run = move || {
                let inflow = Inflow::new(Transport::Plain(stream), outlet.clone(), peer, share);
                serve(&options, inflow, &outlet, peer, place, address);
                peers.remove(peer);
            };
            if spawn("tidemill-websocket", run).is_err() {
                // Without a thread there is nobody to read this one; the others are served on.
                listeners::turned_away(address);
                registry.remove(peer);
            }
        })?;
        Ok(intake.guarded(acceptor))
    }
}

/// Reads for so long at a time: with pings no longer than their interval.
fn begin(socket: &WebSocket<Inflow>, limit: Option<Duration>) -> std::io::Result<()> {
    socket.get_ref().tcp().set_read_timeout(limit)
}

/// What is told of a connection that has ended. What a record lacks that was begun is not known.
fn closed(peer: u64, end: &End) -> Event {
    let unfinished = match (end, end.why()) {
        (_, None) => "the connection was closed inside this record".to_string(),
        (End::Offence(_) | End::CrowdedOut(_), Some(why)) => why.to_string(),
        (_, Some(why)) => format!("the connection broke ({why}) inside this record"),
    };
    Event::Closed { peer, unfinished: Some(unfinished) }
}

/// A connection to a server, made anew when it breaks.
struct Client {
    target: Arc<Target>,
    options: WebSocketOptions,
    outlet: Outlet,
    peers: Arc<Peers>,
}

impl Client {
    fn connect(&self, peer: u64, again: bool) -> Result<WebSocket<Inflow>, ConnectError> {
        // One server that was chosen has nobody to share with.
        let wrap = |transport| Inflow::new(transport, self.outlet.clone(), peer, Share::default());
        self.target.connect(&self.peers, peer, again, "", wrap)
    }

    fn run(self, first: Option<WebSocket<Inflow>>) {
        let mut next = first.map_or_else(|| self.connect(0, false), Ok);
        for peer in 0u64.. {
            let mut socket = match next {
                Ok(socket) => socket,
                Err(error) => {
                    self.outlet.send(Event::Failed(error));
                    return;
                }
            };
            let place = self.target.place();
            if !self.outlet.send(Event::Opened { peer, place: place.clone() }) {
                return;
            }
            let end = match begin(&socket, self.options.ping()) {
                Ok(()) => read(&mut socket, self.options.ping().is_some()),
                Err(e) => End::Broken(e.to_string()),
            };
            drop(socket);
            self.peers.remove(peer);
            if self.peers.is_stopped() || !self.outlet.send(closed(peer, &end)) {
                return;
            }
            if self.target.attempts() == 0 {
                self.outlet.send(match end.why() {
                    None => Event::Ended,
                    Some(why) => {
                        Event::Failed(ConnectError::new(format!("reading from {place}: {why}; set 'reconnect.attempts' to connect again")))
                    }
                });
                return;
            }
            if let Some(why) = end.why() {
                tidemill_connect::notice(&format!("reading from {place}: {why}; connecting again"));
            }
            next = self.connect(peer + 1, true);
        }
    }
}

/// Reads from a peer of the listener at `address` until it goes.
fn serve(options: &WebSocketOptions, inflow: Inflow, outlet: &Outlet, peer: u64, place: String, address: SocketAddr) {
    let stream = inflow.tcp();
    // A peer that does not agree on the protocol in time is let go, and others are served meanwhile.
    let patience = Some(options.connect_timeout);
    if stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT))).is_err() {
        return;
    }
    let exposed = options.insecure && !address.ip().to_canonical().is_loopback();
    let door = Door { path: &options.path, token: options.token.as_deref(), exposed };
    let mut socket = match tungstenite::accept_hdr_with_config(inflow, door, Some(options.config(0))) {
        Ok(socket) => socket,
        Err(HandshakeError::Interrupted(_)) => return listeners::silent(address, 1),
        // It went before it had asked for anything.
        Err(HandshakeError::Failure(Error::Io(_) | Error::Protocol(ProtocolError::HandshakeIncomplete))) => return,
        Err(HandshakeError::Failure(_)) => return listeners::refused(address),
    };
    if !outlet.send(Event::Opened { peer, place }) {
        return;
    }
    let end = match begin(&socket, options.ping().or(Some(MESSAGE_SILENCE_MAX))) {
        Ok(()) => read(&mut socket, options.ping().is_some()),
        Err(e) => End::Broken(e.to_string()),
    };
    match end {
        End::Silent | End::Stalled => listeners::silent(address, 1),
        End::CrowdedOut(_) => listeners::turned_away(address),
        _ => {}
    }
    outlet.send(closed(peer, &end));
}

/// Looks at who asks for what.
struct Door<'a> {
    path: &'a str,
    token: Option<&'a str>,
    /// Other machines reach it, as was asked for: anybody may send rows.
    exposed: bool,
}

impl Callback for Door<'_> {
    fn on_request(self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        let refuse = |status, why: &str| {
            let mut refusal = ErrorResponse::new(Some(why.to_string()));
            *refusal.status_mut() = status;
            refusal
        };
        if request.uri().path() != self.path {
            return Err(refuse(StatusCode::NOT_FOUND, "no table reads this path\n"));
        }
        match self.token {
            Some(token) if !headers::brings(request.headers(), token) => {
                return Err(refuse(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer <token>\n"));
            }
            Some(_) => {}
            None if self.exposed => {}
            // A browser on this machine reaches loopback for whatever page it shows, and names the page.
            None => {
                if let Some(origin) = request.headers().get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"))
                    && !is_page_of_this_machine(origin)
                {
                    let why = format!("a table without a token takes no rows from pages of '{origin}'");
                    return Err(refuse(
                        StatusCode::FORBIDDEN,
                        &format!("{why}; serve the page from this machine (http://localhost), or give the table a token\n"),
                    ));
                }
            }
        }
        Ok(response)
    }
}

/// Whether the origin of a page is this machine.
fn is_page_of_this_machine(origin: &str) -> bool {
    origin.parse::<Uri>().is_ok_and(|origin| origin.host().is_some_and(listeners::is_this_machine))
}
