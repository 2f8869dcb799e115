//! How a session begins: the socket, the exchange of PRELOGIN messages ([MS-TDS] 2.2.6.5), the handshake of TLS.
//!
//! It is done here rather than by the client, whose TLS would bring a second library of ciphers, in C, and could
//! not be told which authorities to trust and from where in the way that other stores are. What comes after it,
//! the login, is the client's.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS12;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use socket2::{SockRef, TcpKeepalive};

use super::error::io_error;
use super::stream::{ANSWER, END_OF_MESSAGE, HEADER_BYTES, Link, PRELOGIN, Pipe, Wire, header};
use crate::driver::DbError;

/// A server that says nothing for this long is asked whether it is still there…
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// …again after so long…
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// …and given up after so many questions.
const KEEPALIVE_RETRIES: u32 = 3;

/// How far encryption goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    /// None at all.
    Never,
    /// The login, if the server can; everything, if it wants so.
    Login,
    /// Everything, if the server can.
    Prefer,
    /// Everything.
    Require,
}

/// What is said about encryption in a PRELOGIN message.
mod level {
    pub const OFF: u8 = 0;
    pub const ON: u8 = 1;
    pub const NOT_SUPPORTED: u8 = 2;
    pub const REQUIRED: u8 = 3;
}

/// What the two sides have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreed {
    Nothing,
    Login,
    Everything,
}

impl Encryption {
    fn level(self) -> u8 {
        match self {
            Encryption::Never => level::NOT_SUPPORTED,
            Encryption::Login => level::OFF,
            Encryption::Prefer | Encryption::Require => level::ON,
        }
    }

    /// What follows from the server's answer.
    fn agree(self, answer: u8) -> Result<Agreed, DbError> {
        match (self, answer) {
            (Encryption::Require, level::OFF | level::NOT_SUPPORTED) => Err(DbError::fatal(
                "connecting: the server does not encrypt, and encrypt=true (the default) asks for it; encrypt=false in 'url' does without",
            )),
            (Encryption::Never, level::ON | level::REQUIRED) => {
                Err(DbError::fatal("connecting: the server asks for encryption, which ssl-mode=disable in 'url' rules out"))
            }
            (Encryption::Login, level::OFF) => Ok(Agreed::Login),
            (_, level::ON | level::REQUIRED) => Ok(Agreed::Everything),
            _ => Ok(Agreed::Nothing),
        }
    }
}

/// Certificates to expect, or any. `verify`: the server's must be trusted and name the host.
///
/// # Errors
/// No certificates to trust.
pub(super) fn tls_config(verify: bool, authorities: Option<&Path>) -> Result<Arc<ClientConfig>, DbError> {
    let provider = ring::default_provider();
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    // TLS 1.3 has messages after the handshake, for which the wrapping in TDS packets has no place.
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS12])
        .map_err(|e| DbError::fatal(format!("setting up encryption: {e}")))?;
    let mut config = if verify {
        builder.with_root_certificates(crate::postgres::tls::roots(authorities)?).with_no_client_auth()
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(schemes))).with_no_client_auth()
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Reaches a server and agrees with it upon encryption. `name` is the one that its certificate must have.
///
/// # Errors
/// Nobody answers, or not as SQL Server does; encryption that one side wants and the other cannot do.
pub(super) fn reach(
    host: &str,
    port: u16,
    name: &str,
    encryption: Encryption,
    config: Arc<ClientConfig>,
    deadline: Instant,
) -> Result<Pipe, DbError> {
    let doing = format!("connecting to {host}:{port}");
    let failed = |e: io::Error| io_error(&doing, &e);
    let socket = connect(host, port, deadline).map_err(failed)?;
    let mut link = Link::new(socket, deadline);
    link.write_all(&greeting(encryption.level())).and_then(|()| link.flush()).map_err(failed)?;
    let answer = answered(&mut link).map_err(failed)?;
    let agreed = encryption.agree(answer)?;
    if agreed == Agreed::Nothing {
        return Ok(Pipe::new(Wire::new(link, None, false)));
    }
    let name = server_name(name).map_err(|why| DbError::fatal(format!("{doing}: {why}")))?;
    let mut tls = ClientConnection::new(config, name).map_err(|e| DbError::fatal(format!("{doing}: TLS: {e}")))?;
    link.wrapped = true;
    while tls.is_handshaking() {
        tls.complete_io(&mut link).map_err(|e| io_error(&format!("{doing}: TLS"), &e))?;
    }
    link.flush().map_err(failed)?;
    link.wrapped = false;
    Ok(Pipe::new(Wire::new(link, Some(tls), agreed == Agreed::Login)))
}

/// A connected socket; all addresses of the host are tried.
fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
                SockRef::from(&socket).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The name as TLS wants it.
fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_string()).map_err(|_| format!("'{name}' is no name that a certificate can have"))
}

/// A PRELOGIN message: a table of options (token, offset, length), then their values.
fn greeting(level: u8) -> Vec<u8> {
    const TABLE_BYTES: u16 = 5 * 5 + 1;
    // Version of the client, encryption, instance, thread, several results at once.
    let options: [&[u8]; 5] = [&[0; 6], &[level], &[0], &[0; 4], &[0]];
    let (mut table, mut values) = (Vec::new(), Vec::new());
    for (token, value) in options.iter().enumerate() {
        table.push(token as u8);
        table.extend_from_slice(&(TABLE_BYTES + values.len() as u16).to_be_bytes());
        table.extend_from_slice(&(value.len() as u16).to_be_bytes());
        values.extend_from_slice(value);
    }
    table.push(0xFF);
    table.extend_from_slice(&values);
    [&header(PRELOGIN, END_OF_MESSAGE, table.len(), 0)[..], &table].concat()
}

/// What the server says about encryption.
fn answered(link: &mut Link) -> io::Result<u8> {
    let not_tds = || io::Error::new(io::ErrorKind::InvalidInput, "what answers there is no SQL Server");
    let mut header = [0; HEADER_BYTES];
    link.read_exact(&mut header)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] != ANSWER || length < HEADER_BYTES {
        return Err(not_tds());
    }
    let mut options = vec![0; length - HEADER_BYTES];
    link.read_exact(&mut options)?;
    encryption_of(&options).ok_or_else(not_tds)
}

/// The value of the option about encryption.
fn encryption_of(options: &[u8]) -> Option<u8> {
    let entries = options.chunks(5).take_while(|entry| entry.first().is_some_and(|token| *token != 0xFF));
    for entry in entries {
        if let [1, high, low, ..] = entry {
            return options.get(usize::from(u16::from_be_bytes([*high, *low]))).copied();
        }
    }
    None
}

/// Takes any certificate. That of a server which has made its own may be older than what is understood here, so
/// that not even its signatures are looked at: whoever is in between could as well show a good one of their own.
#[derive(Debug)]
struct AnyCertificate(Vec<SignatureScheme>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_what_it_wants() {
        let bytes = greeting(level::ON);
        assert_eq!(&bytes[..HEADER_BYTES], [0x12, 1, 0, 47, 0, 0, 0, 0]);
        assert_eq!(encryption_of(&bytes[HEADER_BYTES..]), Some(level::ON));
        assert_eq!(encryption_of(&[0, 0, 6, 0, 6, 0xFF]), None);
        assert_eq!(encryption_of(&[1, 0, 99, 0, 1, 0xFF]), None);
        assert_eq!(encryption_of(b""), None);
    }

    #[test]
    fn encryption_is_agreed_upon() {
        #[track_caller]
        fn check(asked: Encryption, answers: [u8; 4], expect: [Option<Agreed>; 4]) {
            for (answer, expect) in answers.into_iter().zip(expect) {
                assert_eq!(asked.agree(answer).ok(), expect, "{answer}");
            }
        }
        let answers = [level::OFF, level::ON, level::NOT_SUPPORTED, level::REQUIRED];
        let (nothing, everything) = (Some(Agreed::Nothing), Some(Agreed::Everything));
        check(Encryption::Never, answers, [nothing, None, nothing, None]);
        check(Encryption::Login, answers, [Some(Agreed::Login), everything, nothing, everything]);
        check(Encryption::Prefer, answers, [nothing, everything, nothing, everything]);
        check(Encryption::Require, answers, [None, everything, None, everything]);
    }
}
