//! A request: how it is made, what its answer means, and when it is made again.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use tidemill_block::clock;
use tidemill_connect::ConnectError;
use tidemill_format::text::TextFormat;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Error};

use super::Format;
use super::batch::{Outbox, Sealed};
use super::options::{HttpOptions, Verb};
use crate::flight::client::certificates;
use crate::headers;

/// So much of an answer stands in messages, bytes.
const SHOWN_BYTES: u64 = 200;
/// So much of an answer is read, so that its connection can be used again.
const READ_BYTES: u64 = 64 << 10;
/// The longest wait that an answer can ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Sends bodies to a URL.
pub struct Post {
    agent: Agent,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    retry: Retry,
}

/// When to try again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    attempts: u32,
    backoff: Duration,
    backoff_max: Duration,
}

/// What became of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    /// It may go well another time, after so long if the server has said it.
    Again(String, Option<Duration>),
    /// The same would come of it.
    Refused(String),
}

impl Post {
    /// For the requests of a table.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn new(options: &HttpOptions, format: &Format) -> Result<Self, ConnectError> {
        let uri = address(options.url.as_deref().unwrap_or_default()).map_err(|why| ConnectError::new(format!("option 'url': {why}")))?;
        let mut headers = headers::all(options.headers.as_deref(), options.token.as_deref()).map_err(ConnectError::new)?;
        headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(match format {
            Format::Text(TextFormat::Json(_) | TextFormat::Changes(_)) => "application/x-ndjson",
            Format::Text(TextFormat::Csv(_)) => "text/csv",
            Format::Text(TextFormat::Fixed(_)) => "text/plain",
            Format::Arrow => "application/vnd.apache.arrow.stream",
        }));
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // The rows would not go where a redirect points.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections_per_host(options.parallel)
            .max_idle_connections(options.parallel)
            .timeout_global(Some(options.timeout));
        if is_loopback(uri.host().unwrap_or_default()) {
            config = config.proxy(None);
        }
        if uri.scheme_str() == Some("https") {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(options.ca_file.as_deref().map(Path::new))?).build());
        } else if options.ca_file.is_some() {
            return Err(ConnectError::new("option 'ca-file': certificates are of use with https:// only"));
        }
        let method = match options.method {
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
            Verb::Patch => Method::PATCH,
        };
        let retry = Retry { attempts: options.retry_attempts, backoff: options.backoff, backoff_max: options.backoff_max };
        Ok(Post { agent: config.build().into(), uri, method, headers, retry })
    }

    /// The URL, for messages.
    pub fn place(&self) -> String {
        self.uri.to_string()
    }

    /// Sends a body until it is taken. `key` tells it from all others.
    ///
    /// # Errors
    /// The server's refusal, or why it was tried in vain; that it was stopped.
    pub fn send(&self, body: &Sealed, key: &str, outbox: &Outbox) -> Result<(), String> {
        let doing = || format!("sending {} row{} to {}", body.rows, if body.rows == 1 { "" } else { "s" }, self.uri);
        let mut failed = 0u32;
        loop {
            let (why, after) = match self.attempt(&body.body, key) {
                Outcome::Taken => return Ok(()),
                Outcome::Refused(why) => return Err(format!("{}: {why}", doing())),
                Outcome::Again(why, after) => (why, after),
            };
            failed = failed.saturating_add(1);
            if failed > self.retry.attempts {
                return Err(match self.retry.attempts {
                    0 => format!("{}: {why}; 'retry.attempts' = 0 says not to try again", doing()),
                    _ => format!("{}: {why}; tried {failed} times in vain, see 'retry.attempts'", doing()),
                });
            }
            if failed == 1 {
                tidemill_connect::notice(&format!("{}: {why}; trying again", doing()));
            }
            if !outbox.pause(self.retry.pause(failed, after, chance())) {
                return Err(format!("{}: {why}; the job was stopped before it could be tried again", doing()));
            }
        }
    }

    fn attempt(&self, body: &[u8], key: &str) -> Outcome {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        match HeaderValue::from_str(key) {
            Ok(key) => request.headers_mut().insert("idempotency-key", key),
            Err(e) => return Outcome::Refused(format!("internal error: the key '{key}': {e}")),
        };
        match self.agent.run(request) {
            Ok(mut answer) => {
                let status = answer.status();
                let after = retry_after(answer.headers());
                let text = read(answer.body_mut());
                meaning(status, after, &text)
            }
            Err(error) => trouble(&error),
        }
    }
}

/// The text of an answer, as much as is shown. The rest is read, too, unless it is long.
fn read(body: &mut Body) -> String {
    let mut reader = body.as_reader();
    let mut shown = Vec::new();
    // What breaks off here is the server's explanation, not its answer.
    let _ = reader.by_ref().take(SHOWN_BYTES).read_to_end(&mut shown);
    let _ = std::io::copy(&mut reader.take(READ_BYTES), &mut std::io::sink());
    String::from_utf8_lossy(&shown).trim().to_string()
}

/// What an answer means.
fn meaning(status: StatusCode, after: Option<Duration>, text: &str) -> Outcome {
    let said = if text.is_empty() { format!("the server answers {status}") } else { format!("the server answers {status}: {text}") };
    match status.as_u16() {
        200..=299 => Outcome::Taken,
        300..=399 => Outcome::Refused(format!("{said}; redirects are not followed, put the right address into 'url'")),
        408 | 429 | 500..=599 => Outcome::Again(said, after),
        _ => Outcome::Refused(said),
    }
}

/// What an error on the way means.
fn trouble(error: &Error) -> Outcome {
    let text = error.to_string();
    match error {
        // A certificate that does not fit is such an error, and fits no better later.
        Error::Io(e) if e.kind() == ErrorKind::InvalidData => Outcome::Refused(text),
        Error::Io(_)
        | Error::Timeout(_)
        | Error::HostNotFound
        | Error::ConnectionFailed
        | Error::Protocol(_)
        | Error::ConnectProxyFailed(_) => Outcome::Again(text, None),
        _ => Outcome::Refused(text),
    }
}

/// What `Retry-After` says, if in seconds.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

impl Retry {
    /// How long to wait before further attempt number `failed`, counted from 1. `chance` is 0 to 1.
    fn pause(&self, failed: u32, after: Option<Duration>, chance: f64) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << failed.saturating_sub(1).min(20)).min(self.backoff_max);
        // So that many clients of a server that was away don't come back all at once.
        let own = doubled.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0));
        after.map_or(own, |after| own.max(after.min(RETRY_AFTER_MAX)))
    }
}

/// A number from 0 to 1; good enough to tell clients apart.
fn chance() -> f64 {
    // The mixer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) over the clock.
    let mut z = clock::now_ns().wrapping_add(u64::from(std::process::id()) << 32).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as f64 / u64::MAX as f64
}

/// The address of the option `url`.
pub(super) fn address(text: &str) -> Result<Uri, String> {
    let expected = "expected an address such as http://host:8080/path";
    let uri = text.trim().parse::<Uri>().map_err(|e| format!("{expected} ({e})"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => {}
        _ => return Err(expected.to_string()),
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("a user or password in the address is not used; give 'token', or an Authorization in 'headers'".to_string());
    }
    Ok(uri)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The certificates to trust: those of the file, else the system's, else Mozilla's.
fn roots(file: Option<&Path>) -> Result<RootCerts, ConnectError> {
    let pem = match certificates(file) {
        Ok(pem) => pem,
        Err(_) if file.is_none() => return Ok(RootCerts::WebPki),
        Err(e) => return Err(e),
    };
    let found = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        // A file of many may hold some of a kind that is not known here.
        _ => None,
    });
    Ok(RootCerts::Specific(Arc::new(found.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_mean() {
        let of = |status: u16| meaning(StatusCode::from_u16(status).unwrap(), None, "why");
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status), Outcome::Taken);
        }
        for status in [408, 429, 500, 502, 503, 599] {
            assert!(matches!(of(status), Outcome::Again(why, None) if why.ends_with(": why")), "{status}");
        }
        for status in [301, 307, 400, 401, 404, 409, 413, 422] {
            assert!(matches!(of(status), Outcome::Refused(why) if why.starts_with(&format!("the server answers {status} "))), "{status}");
        }
        let after = Some(Duration::from_secs(7));
        let said = "the server answers 429 Too Many Requests".to_string();
        assert_eq!(meaning(StatusCode::TOO_MANY_REQUESTS, after, ""), Outcome::Again(said, after));
        let headers = |text: &'static str| HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(text))]);
        assert_eq!(retry_after(&headers(" 7 ")), after);
        assert_eq!((retry_after(&headers("Fri, 31 Dec 1999 23:59:59 GMT")), retry_after(&HeaderMap::new())), (None, None));
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let ms = Duration::from_millis;
        let retry = Retry { attempts: 10, backoff: ms(100), backoff_max: ms(1000) };
        let full: Vec<_> = [1, 2, 3, 4, 5, u32::MAX].iter().map(|n| retry.pause(*n, None, 1.0).as_millis()).collect();
        assert_eq!(full, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!((retry.pause(1, None, 0.0), retry.pause(1, Some(ms(3000)), 0.0)), (ms(50), ms(3000)));
        assert_eq!(retry.pause(5, Some(ms(0)), 1.0), ms(1000));
        assert_eq!(retry.pause(1, Some(Duration::from_secs(1 << 40)), 0.5), RETRY_AFTER_MAX);
        assert!((0.0..=1.0).contains(&chance()));
    }

    #[test]
    fn addresses() {
        for good in ["http://h", " https://h:1/a?b=c ", "http://[::1]:80/"] {
            address(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "h:1/a", "/a", "ftp://h/", "http:///a", "http://h /"] {
            assert!(address(bad).unwrap_err().starts_with("expected an address"), "{bad}");
        }
        assert!(address("http://me:pass@h/").unwrap_err().contains("give 'token'"));
        assert!(is_loopback("localhost") && is_loopback("[::1]") && is_loopback("127.0.0.9") && !is_loopback("10.0.0.1"));
    }
}
