//! Web servers: single files over `http` and `https`, ranges where the server gives them.
//!
//! The client library's own view of the web is WebDAV: it wants sizes, ranges and `HEAD`, and drops what follows a `?`.
//! Servers of plain files often lack one of these, so requests are made here.

use std::time::Duration;

use chrono::DateTime;
use futures::StreamExt;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_MATCH, LAST_MODIFIED, RANGE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequestBody, HttpResponse};
use tokio::time::{sleep, timeout};

use crate::error::{Kind, StoreError};
use crate::explain::{kind_of, shown};
use crate::open::Answer;
use crate::runtime::backoff;
use crate::{Object, SIZE_UNKNOWN, Scheme};

/// The longest pause that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// How a web server is asked.
pub(crate) struct Site {
    pub http: HttpClient,
    pub retries: u32,
    /// How long the server may be silent.
    pub silence: Duration,
}

impl Site {
    /// What is known of a file: by `HEAD`, and where that says too little by asking for its first byte.
    pub async fn head(&self, url: &str) -> Result<Object, StoreError> {
        let doing = || format!("looking at '{url}'");
        let response = self.ask(&Method::HEAD, url, &[], &doing()).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        // Some servers refuse the method, or sign URLs for reading alone.
        let refused = matches!(status.as_u16(), 400 | 403 | 405 | 501);
        if !status.is_success() && !refused {
            return Err(refusal(&doing(), status));
        }
        let length = content_length(&headers);
        if !refused && length.is_some() && has(&headers, ACCEPT_RANGES, "bytes") {
            return Ok(object(url, &headers, length, true));
        }
        if !refused && length == Some(0) {
            return Ok(object(url, &headers, length, false));
        }
        let response = self.ask(&Method::GET, url, &[(RANGE, "bytes=0-0")], &doing()).await?;
        let headers = response.headers();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let size = content_range(headers).and_then(|(_, size)| size);
                Ok(object(url, headers, size.or(length), size.is_some()))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(object(url, headers, Some(0), false)),
            status if status.is_success() => Ok(object(url, headers, content_length(headers).or(length), false)),
            status => Err(refusal(&doing(), status)),
        }
    }

    /// Begins to read at `from`, or at the beginning if the server knows no ranges.
    pub async fn open(&self, url: &str, object: &Object, from: u64, end: Option<u64>) -> Result<Answer, StoreError> {
        let doing = format!("reading '{url}'");
        let mut range = String::new();
        if object.seekable && (from > 0 || end.is_some_and(|end| end < object.size)) {
            range = match end {
                Some(end) => format!("bytes={from}-{}", end - 1),
                None => format!("bytes={from}-"),
            };
        }
        let mut headers: Vec<(HeaderName, &str)> = Vec::new();
        if !range.is_empty() {
            headers.push((RANGE, &range));
        }
        // Only strong tags may stand in this header, and what stands for a missing tag may not.
        if let Some(tag) = object.etag.as_deref().filter(|tag| tag.starts_with('"')) {
            headers.push((IF_MATCH, tag));
        }
        let response = self.ask(&Method::GET, url, &headers, &doing).await?;
        let start = match response.status() {
            StatusCode::PARTIAL_CONTENT => content_range(response.headers()).map_or(from, |(start, _)| start),
            status if status.is_success() => 0,
            status => return Err(refusal(&doing, status)),
        };
        if start > from {
            let why = format!("{doing}: the server was asked for byte {from} and answered with byte {start}");
            return Err(StoreError::new(Kind::Server, why));
        }
        if let (Some(tag), Some(then)) = (tag(response.headers()), &object.etag)
            && tag != *then
        {
            return Err(StoreError::explain(doing, Scheme::Http, Kind::Changed, None, ""));
        }
        let sized = if response.status() == StatusCode::OK { content_length(response.headers()) } else { None };
        let length = sized.filter(|_| object.size != SIZE_UNKNOWN);
        if length.is_some_and(|length| length != object.size) {
            return Err(StoreError::explain(doing, Scheme::Http, Kind::Changed, None, "its size is another one"));
        }
        let body = response.into_body().bytes_stream().map(move |frame| {
            frame.map_err(|e| StoreError::explain(&doing, Scheme::Http, Kind::Network, None, &format!("the body broke off ({e})")))
        });
        Ok(Answer { start, body: body.boxed() })
    }

    /// One request, repeated where that may help. Statuses that say no come back as answers.
    async fn ask(&self, method: &Method, url: &str, headers: &[(HeaderName, &str)], doing: &str) -> Result<HttpResponse, StoreError> {
        let uri = url::Url::parse(url).map_err(|e| StoreError::new(Kind::Other, format!("{doing}: this is no URL: {e}")))?;
        let mut tried = 0;
        loop {
            let mut request = Request::builder().method(method).uri(uri.as_str());
            for (name, value) in headers {
                request = request.header(name, *value);
            }
            let request = request
                .body(HttpRequestBody::empty())
                .map_err(|e| StoreError::new(Kind::Other, format!("{doing}: this is no request: {e}")))?;
            let network = |why: &str| StoreError::explain(doing, Scheme::Http, Kind::Network, None, why);
            let (error, pause) = match timeout(self.silence, self.http.execute(request)).await {
                Ok(Ok(response)) => {
                    let status = response.status().as_u16();
                    if !(matches!(status, 408 | 429) || status >= 500) || status == 501 {
                        return Ok(response);
                    }
                    (refusal(doing, response.status()), retry_after(response.headers()))
                }
                Ok(Err(e)) if e.kind() == HttpErrorKind::Decode => return Err(network(&chain(&e))),
                Ok(Err(e)) => (network(&chain(&e)), None),
                Err(_) => (network(&format!("no answer within {}", shown(self.silence))), None),
            };
            if tried >= self.retries {
                return Err(error);
            }
            sleep(pause.unwrap_or_else(|| backoff(tried))).await;
            tried += 1;
        }
    }
}

fn refusal(doing: &str, status: StatusCode) -> StoreError {
    StoreError::explain(doing, Scheme::Http, kind_of(status.as_u16()), Some(status.as_u16()), "")
}

/// An error's text with that of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn has(headers: &HeaderMap, name: HeaderName, value: &str) -> bool {
    text(headers, name).is_some_and(|v| v.eq_ignore_ascii_case(value))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_LENGTH)?.parse().ok()
}

/// The first byte and, if it is known, the size of the whole, from `bytes 5-9/100`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, size) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, size.trim().parse().ok()))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = text(headers, RETRY_AFTER)?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// What tells one version of a file from the next: its tag, or when it was changed.
fn tag(headers: &HeaderMap) -> Option<String> {
    text(headers, ETAG).or_else(|| text(headers, LAST_MODIFIED)).map(str::to_string)
}

fn object(url: &str, headers: &HeaderMap, size: Option<u64>, seekable: bool) -> Object {
    let place = url.split_once("://").map_or(url, |(_, rest)| rest);
    let key = match (place.find('/'), place.find('?')) {
        (Some(slash), query) if query.is_none_or(|q| slash < q) => &place[slash + 1..],
        (_, Some(query)) => &place[query..],
        _ => "",
    };
    let modified = text(headers, LAST_MODIFIED).and_then(|t| DateTime::parse_from_rfc2822(t).ok());
    Object {
        url: url.to_string(),
        key: key.to_string(),
        size: size.unwrap_or(SIZE_UNKNOWN),
        etag: tag(headers),
        modified_ms: modified.map_or(0, |t| t.timestamp_millis()),
        seekable: seekable && size.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_headers_say() {
        let all = headers(&[
            (CONTENT_RANGE, "bytes 5-9/100"),
            (LAST_MODIFIED, "Wed, 21 Oct 2015 07:28:00 GMT"),
            (RETRY_AFTER, "600"),
            (CONTENT_LENGTH, " 5 "),
        ]);
        assert_eq!(content_range(&all), Some((5, Some(100))));
        assert_eq!(content_range(&headers(&[(CONTENT_RANGE, "bytes 0-0/*")])), Some((0, None)));
        assert_eq!(content_length(&all), Some(5));
        assert_eq!(retry_after(&all), Some(RETRY_AFTER_MAX));
        let object = object("http://h/d/x.zip?a=1", &all, Some(100), true);
        assert_eq!((object.key.as_str(), object.modified_ms, object.seekable), ("d/x.zip?a=1", 1_445_412_480_000, true));
        assert_eq!(object.etag.as_deref(), Some("Wed, 21 Oct 2015 07:28:00 GMT"));
    }
}
