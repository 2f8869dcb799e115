//! Pages in browsers: whose requests a server without tokens refuses, and which pages may read answers (CORS). What does not live
//! here: tokens and rights.
//!
//! A browser reaches loopback for whatever page it shows. It says whose page it was in `Origin`, which a page can only read
//! answers with, and where it leaves that out (images, links), in `Sec-Fetch-Site`.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tidemill_connect::listeners::is_this_machine;

use crate::error::ApiError;

/// What routes answer to.
const METHODS: &str = "GET, POST, DELETE";

/// The headers that routes read and that a page may set only if it is allowed to.
const HEADERS: &str = "authorization, content-type, last-event-id";

/// Refuses what a page from elsewhere makes a browser on this machine send: without tokens, whoever
/// reaches the port may run jobs. Such a request names another host (a name that was pointed at
/// 127.0.0.1), or says that another page is its origin, or only that it comes from another one.
///
/// What the user has typed or taken from a bookmark says `Sec-Fetch-Site: none`, and programs say nothing.
pub(super) fn from_this_machine(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name: HeaderName| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    let host = uri.host().map(str::to_string).or_else(|| {
        // A value that is no address counts as a foreign one.
        text(header::HOST).map(|h| h.parse::<axum::http::uri::Authority>().map_or_else(|_| h.to_string(), |a| a.host().to_string()))
    });
    if let Some(host) = host
        && !is_this_machine(&host)
    {
        return Err(ApiError::forbidden(format!("a server without tokens answers only to the names of this machine, not to '{host}'"))
            .with_help("use http://127.0.0.1 or http://localhost, or give the server --tokens"));
    }
    if let Some(origin) = text(header::ORIGIN) {
        if is_page_of_this_machine(origin) {
            return Ok(());
        }
        return Err(ApiError::forbidden(format!("a server without tokens takes no requests from pages of '{origin}'"))
            .with_help("serve the page from this machine (http://localhost), or give the server --tokens"));
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site") {
        return Err(ApiError::forbidden("a server without tokens takes no requests that a page of another address has a browser send")
            .with_help("open the address itself, use fetch or EventSource in a page of this machine, or give the server --tokens"));
    }
    Ok(())
}

fn is_page_of_this_machine(origin: &str) -> bool {
    origin.parse::<Uri>().is_ok_and(|origin| origin.host().is_some_and(is_this_machine))
}

/// The origin of the page of this machine that asks, if one does.
pub(super) fn page(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(header::ORIGIN).filter(|origin| origin.to_str().is_ok_and(is_page_of_this_machine)).cloned()
}

/// Whether a browser asks what a page of this machine may send.
pub(super) fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) && page(headers).is_some()
}

/// The answer to that, for [`allow`].
pub(super) fn preflight() -> Response {
    let headers = [(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS), (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS)];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Lets the page read an answer, also one that refuses it.
pub(super) fn allow(page: HeaderValue, response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
    // No cache may give it to another page.
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
