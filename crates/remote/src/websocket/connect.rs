//! Calling a server: TCP, TLS, the WebSocket handshake, and what is said first; again, as the options
//! say.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidemill_connect::ConnectError;
use tidemill_connect::socket::peer::Peers;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::http::{HeaderMap, Uri, header};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use super::WebSocketOptions;
use crate::flight::client::certificates;
use crate::headers;

/// How long a peer may take to accept bytes before it counts as gone.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// So much of what a server says about its refusal stands in messages, bytes.
const SHOWN_BYTES: usize = 200;

/// A server, and how it is called.
pub struct Target {
    uri: Uri,
    headers: HeaderMap,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    config: WebSocketConfig,
    timeout: Duration,
    attempts: u32,
    backoff: Duration,
    /// Sent after connecting.
    subscribe: Option<String>,
}

/// The bytes of a connection.
pub enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.read(buffer),
            Transport::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.write(bytes),
            Transport::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.flush(),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}

/// Why an attempt has failed.
struct Failure {
    text: String,
    /// The same would come of another.
    lasting: bool,
}

impl Failure {
    fn passing(text: impl std::fmt::Display) -> Self {
        Failure { text: text.to_string(), lasting: false }
    }
}

impl Target {
    /// The server of these options. What is written is sent when there are `write_buffer` bytes of it.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn new(options: &WebSocketOptions, write_buffer: usize) -> Result<Self, ConnectError> {
        let text = options.url.as_deref().unwrap_or_default();
        let expected = |why: &str| ConnectError::new(format!("option 'url' = '{text}': expected ws://host:port/path or wss://…{why}"));
        let uri = text.trim().parse::<Uri>().map_err(|e| expected(&format!(" ({e})")))?;
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(expected("")),
        };
        let host = uri.host().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_string());
        let host = host.filter(|host| !host.is_empty()).ok_or_else(|| expected(""))?;
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(ConnectError::new(
                "option 'url': a user or password in the address is not used; give 'token', or an Authorization in 'headers'",
            ));
        }
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| expected(&format!(": '{host}' is no name of a host")))?;
            Some((tls(options.ca_file.as_deref().map(Path::new))?, name))
        } else if options.ca_file.is_some() {
            return Err(ConnectError::new("option 'ca-file': certificates are of use with wss:// only"));
        } else {
            None
        };
        Ok(Target {
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            uri,
            headers: headers::all(options.headers.as_deref(), options.token.as_deref()).map_err(ConnectError::new)?,
            host,
            tls,
            config: options.config(write_buffer),
            timeout: options.connect_timeout,
            attempts: options.reconnect_attempts,
            backoff: options.reconnect_backoff,
            subscribe: options.subscribe_message.clone(),
        })
    }

    /// The address, for messages.
    pub fn place(&self) -> String {
        self.uri.to_string()
    }

    /// How often a connection that is broken is made again.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Connects, trying again as the options say, and sends what comes first: the message of the options,
    /// then `greeting`. The connection is registered as `peer`, and `wrap` says what its bytes go
    /// through. `again` if there was a connection before: then it waits before the first attempt, too.
    ///
    /// # Errors
    /// The last attempt's, or that all was stopped.
    pub fn connect<S: Read + Write>(
        &self,
        peers: &Peers,
        peer: u64,
        again: bool,
        greeting: &str,
        wrap: impl Fn(Transport) -> S,
    ) -> Result<WebSocket<S>, ConnectError> {
        let doing = format!("connecting to {}", self.uri);
        let attempts = u64::from(self.attempts) + u64::from(!again);
        let mut last = format!("the connection to {} was closed", self.uri);
        for attempt in 1..=attempts {
            if (again || attempt > 1) && !peers.pause(self.backoff) {
                return Err(ConnectError::new(format!("{doing}: the job is being stopped")));
            }
            match self.attempt(peers, peer, greeting, &wrap) {
                Ok(socket) => return Ok(socket),
                Err(Failure { text, lasting }) => {
                    peers.remove(peer);
                    if lasting || peers.is_stopped() {
                        return Err(ConnectError::new(format!("{doing}: {text}")));
                    }
                    last = format!("{doing}: {text}");
                    if attempts > 1 {
                        last += &format!(" (attempt {attempt} of {attempts})");
                    } else {
                        last += "; check that a server listens there, or set 'reconnect.attempts'";
                    }
                }
            }
        }
        Err(ConnectError::new(last))
    }

    fn attempt<S: Read + Write>(
        &self,
        peers: &Peers,
        peer: u64,
        greeting: &str,
        wrap: &impl Fn(Transport) -> S,
    ) -> Result<WebSocket<S>, Failure> {
        let stream = wrap(self.dial(peers, peer)?);
        let lasting = |e: Error| Failure { text: e.to_string(), lasting: true };
        let mut request = self.uri.clone().into_client_request().map_err(lasting)?;
        for (name, value) in &self.headers {
            if *name == header::HOST {
                request.headers_mut().insert(name.clone(), value.clone());
            } else {
                request.headers_mut().append(name.clone(), value.clone());
            }
        }
        let (mut socket, _) = client_with_config(request, stream, Some(self.config)).map_err(|e| match e {
            HandshakeError::Interrupted(_) => self.silent(),
            HandshakeError::Failure(error) => self.refused(error),
        })?;
        for text in self.subscribe.as_deref().into_iter().chain((!greeting.is_empty()).then_some(greeting)) {
            socket.send(Message::text(text)).map_err(Failure::passing)?;
        }
        Ok(socket)
    }

    /// A connection that is encrypted if it shall be.
    fn dial(&self, peers: &Peers, peer: u64) -> Result<Transport, Failure> {
        let mut last = Failure::passing("the host has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs().map_err(Failure::passing)? {
            let stream = match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => stream,
                Err(e) => {
                    last = Failure::passing(e);
                    continue;
                }
            };
            let ready = stream
                // Rows are small and somebody waits for them.
                .set_nodelay(true)
                .and_then(|()| stream.set_read_timeout(Some(self.timeout)))
                .and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)))
                .and_then(|()| peers.add(peer, &stream));
            ready.map_err(Failure::passing)?;
            return Ok(match &self.tls {
                None => Transport::Plain(stream),
                Some((config, name)) => {
                    let connection = ClientConnection::new(config.clone(), name.clone());
                    let connection = connection.map_err(|e| Failure { text: e.to_string(), lasting: true })?;
                    Transport::Tls(Box::new(StreamOwned::new(connection, stream)))
                }
            });
        }
        Err(last)
    }

    fn silent(&self) -> Failure {
        Failure::passing(format_args!("the server does not answer within {} ms", self.timeout.as_millis()))
    }

    /// What an error of the handshake means.
    fn refused(&self, error: Error) -> Failure {
        match error {
            Error::Http(answer) => {
                let status = answer.status();
                let body = answer.body().as_deref().unwrap_or_default();
                let said = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]).trim().to_string();
                let colon = if said.is_empty() { "" } else { ": " };
                // Such an answer will be the same the next time.
                let lasting = !status.is_server_error() && !matches!(status.as_u16(), 408 | 429);
                Failure { text: format!("the server answers {status}{colon}{said}"), lasting }
            }
            Error::Io(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => self.silent(),
            // A certificate that does not fit is such an error, and fits no better later.
            Error::Io(e) if e.kind() == ErrorKind::InvalidData => Failure { text: e.to_string(), lasting: true },
            other => Failure::passing(other),
        }
    }
}

/// What is trusted, and how is encrypted.
fn tls(file: Option<&Path>) -> Result<Arc<ClientConfig>, ConnectError> {
    let pem = certificates(file)?;
    let mut roots = RootCertStore::empty();
    // A file of many may hold some of a kind that is not known here.
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 {
        return Err(ConnectError::new("no certificate to trust can be read; name a file of certificates in PEM form with 'ca-file'"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| ConnectError::new(format!("preparing encrypted connections: {e}")))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
