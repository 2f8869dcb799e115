//! The protocol: what a request asks for, and the answer.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, StatusCode};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::contents::Stored;
use super::pacing::{FRAME, Line};
use super::{Fault, Shared};
use crate::runtime::lock;

/// The largest body that is taken, bytes.
const BODY_MAX: usize = 1 << 30;

/// How a body ends.
#[derive(Clone, Copy)]
enum End {
    /// As it should.
    Whole,
    /// The connection is cut.
    Cut,
    /// Nothing comes any more.
    Silence,
}

/// What is asked for.
struct Asked {
    method: String,
    /// `bucket/key`, decoded.
    name: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let query = request.uri().query().unwrap_or("");
        let pairs = query.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
        });
        Asked {
            method: request.method().to_string(),
            name: decoded(request.uri().path().trim_start_matches('/')),
            query: pairs.collect(),
            headers: request.headers().clone(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn asks(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// Whether the conditions of a write hold for what is there.
    fn may_write(&self, there: Option<&Stored>) -> bool {
        let generation = self.header("x-goog-if-generation-match");
        generation.is_none_or(|g| g == there.map_or("0".to_string(), |t| t.generation.to_string()))
            && self.header("if-none-match").is_none_or(|_| there.is_none())
            && self.header("if-match").is_none_or(|tag| there.is_some_and(|t| t.etag() == tag))
    }
}

/// Decodes `%41`; what is no code stays.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten().and_then(|code| u8::from_str_radix(code, 16).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The texts between `<tag>` and `</tag>`.
fn elements(xml: &str, tag: &str) -> Vec<String> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let inside = xml.split(&open).skip(1).filter_map(|rest| rest.split_once(&close));
    inside.map(|(text, _)| text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).collect()
}

fn plain(status: StatusCode, headers: &[(&str, String)], body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(body.into()).expect("headers are made here and well-formed")
}

fn refused(status: u16, code: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}, says the emulator</Message></Error>");
    plain(status, &[("content-type", "application/xml".to_string())], body)
}

fn version(stored: &Stored) -> Vec<(&'static str, String)> {
    vec![
        ("etag", stored.etag()),
        ("last-modified", stored.modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string()),
        ("x-goog-generation", stored.generation.to_string()),
    ]
}

/// Answers one request.
pub(super) async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let asked = Asked::of(&request);
    let target = format!("{}?{}", asked.name, request.uri().query().unwrap_or(""));
    lock(&shared.requests).push(format!("{} {target} {}", asked.method, asked.header("range").unwrap_or("")));
    let body = match to_bytes(request.into_body(), BODY_MAX).await {
        Ok(body) => body,
        Err(e) => return refused(400, &format!("a body that cannot be taken: {e}")),
    };
    let own = Line::new(shared.behaviour.connection_bandwidth);
    tokio::join!(shared.inbound.pass(body.len()), own.pass(body.len()), sleep(shared.behaviour.latency));
    let fault = shared.fault(&asked.method, &target);
    if let Some(Fault::Status(status)) = fault {
        return refused(status, if status == 503 { "SlowDown" } else { "Planned" });
    }
    if fault == Some(Fault::Held) {
        shared.hold().await;
    }
    if fault == Some(Fault::Touched) {
        let mut contents = lock(&shared.contents);
        if let Some(stored) = contents.get(&asked.name).cloned() {
            contents.put(asked.name.clone(), stored.pieces);
        }
    }
    let response = match asked.method.as_str() {
        "GET" | "HEAD" if !asked.name.contains('/') => listing(&shared, &asked),
        "GET" | "HEAD" => reading(&shared, &asked, fault),
        "PUT" => writing(&shared, &asked, body),
        "POST" => posting(&shared, &asked, &body),
        "DELETE" => deleting(&shared, &asked),
        _ => refused(405, "MethodNotAllowed"),
    };
    if fault == Some(Fault::Late) {
        shared.hold().await;
    }
    if fault == Some(Fault::Forgotten) { refused(503, "ServiceUnavailable") } else { response }
}

fn listing(shared: &Shared, asked: &Asked) -> Response {
    let bucket = format!("{}/", asked.name);
    let prefix = format!("{bucket}{}", asked.asks("prefix").unwrap_or(""));
    let after = asked.asks("continuation-token").or(asked.asks("start-after")).map(|key| format!("{bucket}{key}"));
    let page = asked.asks("max-keys").and_then(|n| n.parse().ok()).unwrap_or(shared.behaviour.page);
    let contents = lock(&shared.contents);
    let begin = after.as_ref().filter(|a| **a > prefix).unwrap_or(&prefix);
    let mut found =
        contents.from(begin).take_while(|(name, _)| name.starts_with(&prefix)).filter(|(name, _)| after.as_ref().is_none_or(|a| *name > a));
    let (mut xml, mut last) = (String::from("<?xml version=\"1.0\"?><ListBucketResult>"), None);
    for (name, stored) in found.by_ref().take(page) {
        let key = &name[bucket.len()..];
        let modified = stored.modified.format("%Y-%m-%dT%H:%M:%S%.3fZ");
        xml.push_str(&format!(
            "<Contents><Key>{}</Key><LastModified>{modified}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
            escaped(key),
            escaped(&stored.etag()),
            stored.size
        ));
        last = Some(key);
    }
    if let (Some(last), true) = (last, found.next().is_some()) {
        xml.push_str(&format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>", escaped(last)));
    }
    xml.push_str("</ListBucketResult>");
    plain(StatusCode::OK, &[("content-type", "application/xml".to_string())], xml)
}

/// The bytes asked for in `bytes=5-9`, `bytes=5-`, `bytes=-5`; `None` if there are none of them.
fn range(text: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) => (from, size.min(to + 1)),
        (Ok(from), Err(_)) => (from, size),
        (Err(_), Ok(last)) => (size.saturating_sub(last), size),
        (Err(_), Err(_)) => return None,
    };
    (from < to).then_some((from, to))
}

fn reading(shared: &Arc<Shared>, asked: &Asked, fault: Option<Fault>) -> Response {
    let Some(stored) = lock(&shared.contents).get(&asked.name).cloned() else { return refused(404, "NoSuchKey") };
    if asked.header("if-match").is_some_and(|tag| tag != "*" && tag != stored.etag()) {
        return refused(412, "PreconditionFailed");
    }
    let mut headers = version(&stored);
    let (mut status, mut from, mut to) = (StatusCode::OK, 0, stored.size);
    if shared.behaviour.ranges {
        headers.push(("accept-ranges", "bytes".to_string()));
        if let Some(text) = asked.header("range") {
            let Some(range) = range(text, stored.size) else { return refused(416, "InvalidRange") };
            (from, to) = range;
            status = StatusCode::PARTIAL_CONTENT;
            headers.push(("content-range", format!("bytes {from}-{}/{}", to - 1, stored.size)));
        }
    }
    headers.push(("content-length", (to - from).to_string()));
    if asked.method == "HEAD" {
        return plain(status, &headers, Body::empty());
    }
    let (last, end) = match fault {
        Some(Fault::CutAfter(bytes)) => (to.min(from + bytes), End::Cut),
        Some(Fault::Stall(bytes)) => (to.min(from + bytes), End::Silence),
        _ => (to, End::Whole),
    };
    let frames = stored.frames(from, last, FRAME);
    let lines = (shared.clone(), Line::new(shared.behaviour.connection_bandwidth));
    let body = stream::unfold((frames, end, lines), |(mut frames, end, lines)| async move {
        match (frames.pop(), end) {
            (Some(frame), _) => {
                tokio::join!(lines.0.outbound.pass(frame.len()), lines.1.pass(frame.len()));
                Some((Ok(frame), (frames, end, lines)))
            }
            (None, End::Whole) => None,
            (None, End::Cut) => {
                // An error throws away what the server has not written yet; while it waits for a body, it writes.
                yield_now().await;
                Some((Err(io::Error::other("cut")), (frames, End::Whole, lines)))
            }
            (None, End::Silence) => pending().await,
        }
    });
    plain(status, &headers, Body::from_stream(body))
}

fn writing(shared: &Shared, asked: &Asked, body: Bytes) -> Response {
    let mut contents = lock(&shared.contents);
    if let (Some(id), Some(number)) = (asked.asks("uploadId"), asked.asks("partNumber")) {
        let Ok(number) = number.parse() else { return refused(400, "InvalidArgument") };
        return match contents.part(&asked.name, id, number, body) {
            Some(tag) => plain(StatusCode::OK, &[("etag", tag)], Body::empty()),
            None => refused(404, "NoSuchUpload"),
        };
    }
    if shared.behaviour.conditions && !asked.may_write(contents.get(&asked.name)) {
        return refused(412, "PreconditionFailed");
    }
    let stored = contents.put(asked.name.clone(), vec![body]);
    plain(StatusCode::OK, &version(&stored), Body::empty())
}

fn posting(shared: &Shared, asked: &Asked, body: &Bytes) -> Response {
    let mut contents = lock(&shared.contents);
    let xml = String::from_utf8_lossy(body);
    let answer = if asked.asks("uploads").is_some() {
        let id = contents.begin(asked.name.clone());
        format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>")
    } else if let Some(id) = asked.asks("uploadId") {
        match contents.complete(&asked.name, id, &elements(&xml, "ETag")) {
            None => return refused(404, "NoSuchUpload"),
            Some(Err(code)) => return refused(400, code),
            Some(Ok(stored)) => {
                let tag = stored.etag();
                format!("<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>")
            }
        }
    } else if asked.asks("delete").is_some() {
        let keys = elements(&xml, "Key");
        for key in &keys {
            contents.remove(&format!("{}/{key}", asked.name.trim_end_matches('/')));
        }
        let deleted: String = keys.iter().map(|key| format!("<Deleted><Key>{}</Key></Deleted>", escaped(key))).collect();
        format!("<DeleteResult>{deleted}</DeleteResult>")
    } else {
        return refused(400, "InvalidArgument");
    };
    plain(StatusCode::OK, &[("content-type", "application/xml".to_string())], format!("<?xml version=\"1.0\"?>{answer}"))
}

fn deleting(shared: &Shared, asked: &Asked) -> Response {
    let mut contents = lock(&shared.contents);
    let there = match asked.asks("uploadId") {
        Some(id) => contents.abort(id),
        None => contents.remove(&asked.name),
    };
    if there { plain(StatusCode::NO_CONTENT, &[], Body::empty()) } else { refused(404, "NoSuchKey") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_codes() {
        assert_eq!(range("bytes=5-9", 100), Some((5, 10)));
        assert_eq!(range("bytes=5-", 100), Some((5, 100)));
        assert_eq!(range("bytes=-5", 100), Some((95, 100)));
        assert_eq!((range("bytes=100-", 100), range("lines=1-2", 100)), (None, None));
        assert_eq!(decoded("a%2Fb%20c%zz%"), "a/b c%zz%");
        assert_eq!(elements("<P><ETag>&quot;a&quot;</ETag></P><P><ETag>b</ETag></P>", "ETag"), ["\"a\"", "b"]);
    }
}
