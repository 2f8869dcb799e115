//! Addresses of streams: `flight://host:port/stream`, `flight+tls://host:port/stream`.

use std::fmt;
use std::net::IpAddr;

use tidemill_format::options::{Absent, OptionValue};

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamUrl {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// A name or an address, IPv6 without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The stream's name, decoded.
    pub stream: String,
}

const EXPECTED: &str = "expected flight://HOST:PORT/STREAM, or flight+tls:// for an encrypted connection";

impl StreamUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else { return Err(EXPECTED.to_string()) };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "flight" => false,
            "flight+tls" => true,
            other => return Err(format!("there is no scheme '{other}'; {EXPECTED}")),
        };
        let Some((authority, path)) = rest.split_once('/') else {
            return Err(format!("the name of the stream is missing; {EXPECTED}"));
        };
        if authority.contains('@') {
            return Err("a user or password in the address is not used; pass a token instead".to_string());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => match v6.split_once("]:") {
                Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
                _ => return Err(format!("'{authority}' is no address and port, such as [::1]:8815")),
            },
            None => match authority.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && !host.contains(':') => (host, port),
                _ => return Err(format!("the host or the port is missing in '{authority}'; {EXPECTED}")),
            },
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
        if !host.chars().all(legal) {
            return Err(format!("'{host}' is no name of a host"));
        }
        let port = match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("'{port}' is no port; expected 1 to 65535")),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.contains(['?', '#']) {
            return Err("nothing may follow the name of the stream; options go elsewhere".to_string());
        }
        if path.is_empty() || path.contains('/') {
            return Err(format!("expected one name of a stream behind the port, not '{path}'"));
        }
        let stream = decode(path).ok_or_else(|| format!("'{path}' is not well encoded: expected %XX, UTF-8"))?;
        Ok(StreamUrl { tls, host: host.to_string(), port, stream })
    }

    /// Whether the peer is on this machine, so that what is not encrypted stays on it.
    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// `host:port`, IPv6 in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for StreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "flight+tls" } else { "flight" };
        write!(f, "{scheme}://{}/", self.authority())?;
        for c in self.stream.chars() {
            match c {
                '%' | '/' | '?' | '#' | ' ' => write!(f, "%{:02X}", c as u32)?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

impl OptionValue for StreamUrl {
    const KIND: &'static str = "address";
    fn parse(text: &str) -> Result<Self, String> {
        StreamUrl::parse(text)
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Absent for StreamUrl {
    fn or_absent(given: Option<Self>) -> Option<Self> {
        given
    }
}

/// `%XX` replaced; `None` if the text is not well encoded.
fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digit = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
            out.push((digit(at + 1)? * 16 + digit(at + 2)?) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests;
