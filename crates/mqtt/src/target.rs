//! A broker and how it is called: its address, encryption, who we are, and again, for as long as it is worth it.

use std::fmt;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidemill_connect::ConnectError;
use tidemill_connect::certificates::trusted;
use tidemill_connect::socket::alive;
use tidemill_connect::socket::peer::Peers;

use crate::link::{Duplex, Link};
use crate::options::MqttOptions;
use crate::packet::{self, Accepted, Packet};
use crate::reason;

/// How long the broker may take to accept bytes before it counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait before the second attempt; it doubles with each up to the next.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest wait between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How often who waits looks whether it is to give up.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// A broker.
pub struct Target {
    secure: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    username: Option<String>,
    password: Option<String>,
    keep_alive_s: u16,
    timeout: Duration,
}

/// Which session is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub client_id: String,
    /// Whether it begins anew.
    pub clean_start: bool,
    /// How long it stays without a connection, seconds.
    pub expiry_s: u32,
    /// How many messages of quality 1 may come before they are acknowledged.
    pub receive_max: u16,
}

/// How long an attempt is followed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as a start may wait.
    Start,
    /// Until it is there.
    Endless,
}

/// Why an attempt has failed.
#[derive(Debug)]
struct Failure {
    text: String,
    /// The same would come of another.
    lasting: bool,
}

impl Failure {
    fn passing(text: impl fmt::Display) -> Self {
        Failure { text: text.to_string(), lasting: false }
    }

    fn lasting(text: impl fmt::Display) -> Self {
        Failure { text: text.to_string(), lasting: true }
    }
}

impl fmt::Display for Target {
    /// The address, for messages: no user and no password is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "mqtts" } else { "mqtt" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// Whether the connection is encrypted, the host without the brackets of IPv6, and the port.
fn parse(url: &str) -> Result<(bool, String, u16), ConnectError> {
    // Before anything of it is shown.
    if url.contains('@') {
        return Err(ConnectError::new("option 'url': a user or password in the address is not used; give 'username' and 'password'"));
    }
    let expected = || ConnectError::new(format!("option 'url' = '{url}': expected mqtt://host:port or mqtts://host:port"));
    let (scheme, rest) = url.trim().split_once("://").ok_or_else(expected)?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "mqtt" | "tcp" => false,
        "mqtts" | "ssl" => true,
        _ => return Err(expected()),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    let port = match port.ok_or_else(expected)? {
        "" => {
            if secure {
                8883
            } else {
                1883
            }
        }
        port => port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(expected)?,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if host.is_empty() || !host.chars().all(legal) {
        return Err(expected());
    }
    Ok((secure, host.to_string(), port))
}

impl Target {
    /// The broker of these options.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn new(options: &MqttOptions) -> Result<Self, ConnectError> {
        let (secure, host, port) = parse(&options.url)?;
        let tls = if secure {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|_| ConnectError::new(format!("option 'url': '{host}' is no name of a host")))?;
            Some((tls(options.ca_file.as_deref().map(Path::new))?, name))
        } else if options.ca_file.is_some() {
            return Err(ConnectError::new("option 'ca-file': certificates are of use with mqtts:// only"));
        } else {
            None
        };
        Ok(Target {
            secure,
            host,
            port,
            tls,
            username: options.username.clone(),
            password: options.password.clone(),
            keep_alive_s: options.keep_alive_s(),
            timeout: options.connect_timeout,
        })
    }

    /// Connects, again and again for as long as `patience` says and nobody has `cancelled` it. The connection is registered
    /// among `peers` under the number 0.
    ///
    /// # Errors
    /// The last attempt's, or the first one's that would be every further one's; it was given up.
    pub fn connect(
        &self,
        peers: &Peers,
        wanted: &Wanted,
        patience: Patience,
        cancelled: impl Fn() -> bool,
    ) -> Result<(Link, Accepted), ConnectError> {
        let (begun, mut backoff) = (Instant::now(), BACKOFF_MIN);
        loop {
            let failure = match self.attempt(peers, wanted) {
                Ok(made) => return Ok(made),
                Err(failure) => failure,
            };
            peers.remove(0);
            let over = patience == Patience::Start && begun.elapsed() + backoff >= self.timeout;
            if failure.lasting || over {
                let hint = if failure.lasting { "" } else { "; is a broker there? 'connect.timeout' is how long a start waits for it" };
                return Err(ConnectError::new(format!("connecting to {self}: {}{hint}", failure.text)));
            }
            if !pause(peers, backoff, &cancelled) {
                return Err(ConnectError::new(format!("connecting to {self}: the job is being stopped ({})", failure.text)));
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn attempt(&self, peers: &Peers, wanted: &Wanted) -> Result<(Link, Accepted), Failure> {
        let mut link = self.dial(peers)?;
        let mut asked = Vec::new();
        let connect = packet::Connect {
            client_id: &wanted.client_id,
            clean_start: wanted.clean_start,
            expiry_s: wanted.expiry_s,
            receive_max: wanted.receive_max,
            keep_alive_s: self.keep_alive_s,
            username: self.username.as_deref(),
            password: self.password.as_deref(),
        };
        packet::connect(&mut asked, &connect);
        link.send(&asked).map_err(failure)?;
        let accepted = self.answer(&mut link)?;
        if let Some(seconds) = accepted.keep_alive_s.filter(|seconds| *seconds > 0) {
            link.set_keep_alive(Duration::from_secs(seconds.into()));
        }
        Ok((link, accepted))
    }

    /// What the broker says to the connection, which it accepts.
    fn answer(&self, link: &mut Link) -> Result<Accepted, Failure> {
        let end = Instant::now() + self.timeout;
        loop {
            let head = link.head(0).map_err(Failure::lasting)?;
            if let Some(head) = head
                && let Some(body) = link.received().get(head.from..head.from + head.length)
            {
                let answer = packet::read(head.first, body);
                let refused = |code: u8, said: &str| Failure {
                    text: format!("the broker refuses the connection: {}", reason::shown(code, said)),
                    lasting: reason::lasting(code),
                };
                return match answer {
                    Ok(Packet::Accepted(accepted)) if accepted.reason == 0 => {
                        link.drop_first(head.from + head.length);
                        Ok(accepted)
                    }
                    Ok(Packet::Accepted(accepted)) => Err(refused(accepted.reason, &accepted.said)),
                    Ok(Packet::Disconnect { reason, said }) => Err(refused(reason, &said)),
                    _ => Err(Failure::lasting("what listens there does not answer as a broker of MQTT 5 does")),
                };
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::passing(format_args!("the broker does not answer within {} ms", self.timeout.as_millis())));
            }
            link.fill(Some(left)).map_err(failure)?;
        }
    }

    /// A connection that is encrypted if it shall be.
    fn dial(&self, peers: &Peers) -> Result<Link, Failure> {
        let mut last = Failure::passing("the host has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs().map_err(Failure::passing)? {
            let tcp = match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(tcp) => tcp,
                Err(e) => {
                    last = Failure::passing(e);
                    continue;
                }
            };
            let ready = tcp
                // Messages are small and somebody waits for them.
                .set_nodelay(true)
                .and_then(|()| alive::keep_alive(&tcp))
                .and_then(|()| tcp.set_read_timeout(Some(self.timeout)))
                .and_then(|()| tcp.set_write_timeout(Some(WRITE_TIMEOUT)))
                .and_then(|()| peers.add(0, &tcp))
                .and_then(|()| tcp.try_clone());
            let socket = ready.map_err(Failure::passing)?;
            let stream: Box<dyn Duplex> = match &self.tls {
                None => Box::new(tcp),
                Some((config, name)) => {
                    let connection = ClientConnection::new(config.clone(), name.clone()).map_err(Failure::lasting)?;
                    Box::new(StreamOwned::new(connection, tcp))
                }
            };
            return Ok(Link::new(stream, socket, Duration::from_secs(self.keep_alive_s.into())));
        }
        Err(last)
    }
}

/// What an error of a new connection means.
fn failure(error: std::io::Error) -> Failure {
    // A certificate that does not fit is such an error, and fits no better later.
    Failure { lasting: error.kind() == ErrorKind::InvalidData, text: error.to_string() }
}

/// Waits for that long; false if it was given up before.
fn pause(peers: &Peers, time: Duration, cancelled: &impl Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if cancelled() || !peers.pause(left.min(CANCEL_CHECK)) {
            return false;
        }
        if left.is_zero() {
            return true;
        }
    }
}

/// What is trusted, and how is encrypted.
fn tls(file: Option<&Path>) -> Result<Arc<ClientConfig>, ConnectError> {
    let pem = trusted(file, "ca-file")?;
    let mut roots = RootCertStore::empty();
    // A file of many may hold some of a kind that is not known here.
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 {
        return Err(ConnectError::new("option 'ca-file': no certificate to trust can be read; name a file of them in PEM form"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| ConnectError::new(format!("preparing encrypted connections: {e}")))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let host = |text: &str| text.to_string();
        assert_eq!(parse("mqtt://h").unwrap(), (false, host("h"), 1883));
        assert_eq!(parse("mqtts://a.b-c:99/").unwrap(), (true, host("a.b-c"), 99));
        assert_eq!(parse("mqtts://[::1]").unwrap(), (true, host("::1"), 8883));
        assert_eq!(parse("MQTT://[::1]:7").unwrap(), (false, host("::1"), 7));
        for wrong in ["h:1883", "http://h", "mqtt://", "mqtt://h:0", "mqtt://h:x", "mqtt://[::1]x", "mqtt://h/path"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("'url' = '{wrong}': expected mqtt://host:port")), "{error}");
        }
        let error = parse("mqtt://ann:hunter2@h").unwrap_err().to_string();
        assert!(error.contains("'username' and 'password'") && !error.contains("hunter2"), "{error}");
    }
}
