//! How brokers are talked to over connections of our own, as a table's properties say: encrypted or not, and as whom.
//!
//! librdkafka does the same for its own connections, from the same properties. What it knows and this does not (tickets of
//! Kerberos, tokens of OAuth, stores of Java) is refused by name, where connections of our own cannot be done without.
//!
//! - encryption: [`tls`]
//! - logging in without sending the password: [`scram`]

mod scram;
#[cfg(test)]
mod tests;
mod tls;

use std::io::{Read, Result as IoResult, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use tidemill_connect::ConnectError;

use self::scram::{Exchange, Hash};
use self::tls::Tls;
use crate::properties::Connection;

/// How to talk to brokers.
#[derive(Clone)]
pub struct Access {
    /// How long an answer may take.
    pub timeout: Duration,
    tls: Option<Tls>,
    login: Option<Login>,
}

impl Access {
    /// As a table's properties say.
    ///
    /// # Errors
    /// Settings that this cannot do; certificates that cannot be read.
    pub fn of(connection: &Connection) -> Result<Self, ConnectError> {
        let refuse = |what: String| {
            ConnectError::new(format!(
                "{}: 'sink.delivery-guarantee' = 'exactly-once': {what}; after a crash, transactions are committed over a connection of \
                 our own, which knows TLS with certificates in PEM form, and SASL with the mechanisms PLAIN, SCRAM-SHA-256 and \
                 SCRAM-SHA-512: use 'at-least-once', or a listener of that kind",
                connection.owner
            ))
        };
        let protocol = connection.protocol();
        let (encrypted, logs_in) = match protocol.as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            other => return Err(refuse(format!("'properties.security.protocol' = '{other}'"))),
        };
        let tls = encrypted.then(|| Tls::of(connection)).transpose().map_err(refuse)?;
        let login = logs_in.then(|| Login::of(connection)).transpose().map_err(refuse)?;
        Ok(Access { timeout: connection.timeout, tls, login })
    }

    /// Whether what is sent is encrypted.
    pub fn encrypts(&self) -> bool {
        self.tls.is_some()
    }

    /// As whom to log in, if at all.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Goes on over a connection to `address`, encrypted if that is wanted.
    ///
    /// # Errors
    /// The broker's certificate is not trusted, or not its own; the connection fails.
    pub fn over(&self, stream: TcpStream, address: &str) -> Result<Stream, String> {
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some(tls) => tls.over(stream, address).map(|stream| Stream::Encrypted(Box::new(stream))),
        }
    }
}

/// A connection's bytes.
pub enum Stream {
    /// As they are.
    Plain(TcpStream),
    /// Encrypted.
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> IoResult<usize> {
        match self {
            Stream::Plain(stream) => stream.read(out),
            Stream::Encrypted(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> IoResult<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Encrypted(stream) => stream.flush(),
        }
    }
}

/// As whom to log in, and how that is shown.
#[derive(Clone)]
pub struct Login {
    mechanism: Mechanism,
    user: String,
    password: String,
}

#[derive(Clone, Copy)]
enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Login {
    fn of(connection: &Connection) -> Result<Self, String> {
        let name = connection.mechanism();
        let mechanism = match name {
            "PLAIN" => Mechanism::Plain,
            "SCRAM-SHA-256" => Mechanism::Scram(Hash::Sha256),
            "SCRAM-SHA-512" => Mechanism::Scram(Hash::Sha512),
            other => return Err(format!("'properties.sasl.mechanism' = '{other}'")),
        };
        match (connection.property("sasl.username"), connection.property("sasl.password")) {
            (Some(user), Some(password)) => Ok(Login { mechanism, user: user.to_string(), password: password.to_string() }),
            _ => Err(format!(
                "'properties.sasl.mechanism' = '{name}': 'properties.sasl.username' and 'properties.sasl.password' are missing"
            )),
        }
    }

    /// The mechanism's name in the protocol.
    pub fn mechanism(&self) -> &'static str {
        match self.mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(Hash::Sha512) => "SCRAM-SHA-512",
        }
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Logs in; `send` gives the broker's answer to a token.
    ///
    /// # Errors
    /// Those of `send`; a broker that does not know the password itself.
    pub fn talk(&self, mut send: impl FnMut(&[u8]) -> Result<Vec<u8>, String>) -> Result<(), String> {
        match self.mechanism {
            Mechanism::Plain => send(format!("\0{}\0{}", self.user, self.password).as_bytes()).map(|_| ()),
            Mechanism::Scram(hash) => {
                let exchange = Exchange::new(hash, &self.user, &self.password, scram::nonce()?);
                let challenge = send(exchange.first().as_bytes())?;
                let (proof, expected) = exchange.answer(&challenge)?;
                scram::check(&send(proof.as_bytes())?, &expected)
            }
        }
    }
}
