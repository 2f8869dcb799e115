//! Who may do what: the token file, the middleware that asks for a token, and the rights that a request
//! carries from then on.
//!
//! [`Access`] is put into the extensions of every request. A server without tokens listens on loopback
//! only and gives every request [`Access::all`]; since a browser on the same machine reaches loopback
//! too, requests that come from a foreign page are refused there ([`pages`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tonic::{Code, Status};

use crate::error::{ApiError, status_of};
use crate::state::AppState;

mod pages;
mod tokens;

use pages::from_this_machine;
pub use tokens::Tokens;

/// Which streams a right is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// This one.
    Exact(String),
    /// Those whose name begins so; `*` alone gives the empty beginning.
    Prefix(String),
}

impl Pattern {
    /// A name, or the beginning of one with `*` behind it.
    fn new(text: &str) -> Result<Self, String> {
        match text.strip_suffix('*') {
            Some(prefix) if prefix.contains('*') => Err(format!("'{text}': a '*' can only stand at the end")),
            Some(prefix) => Ok(Pattern::Prefix(prefix.to_string())),
            None if text.contains('*') => Err(format!("'{text}': a '*' can only stand at the end")),
            None if text.is_empty() => Err("an empty name".to_string()),
            None => Ok(Pattern::Exact(text.to_string())),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Exact(exact) => exact == name,
            Pattern::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// What one token gives.
#[derive(Debug)]
pub(crate) struct Grant {
    name: String,
    read: Vec<Pattern>,
    write: Vec<Pattern>,
    manage: bool,
    expires: Option<SystemTime>,
    /// Set when the token file no longer holds the token.
    revoked: AtomicBool,
}

impl Grant {
    /// Whether both give the same.
    fn same(&self, other: &Grant) -> bool {
        (&self.name, &self.read, &self.write, self.manage, self.expires)
            == (&other.name, &other.read, &other.write, other.manage, other.expires)
    }
}

/// The rights of a request. Cheap to clone; a long-lived call keeps it and asks [`Access::expired`].
#[derive(Clone, Debug)]
pub struct Access(Arc<Grant>);

impl Access {
    /// Every right, for ever: what a request has on a server without tokens.
    pub fn all() -> Self {
        let everything = vec![Pattern::Prefix(String::new())];
        Access(Arc::new(Grant {
            name: "anybody".to_string(),
            read: everything.clone(),
            write: everything,
            manage: true,
            expires: None,
            revoked: AtomicBool::new(false),
        }))
    }

    /// The name that the token file gives the holder, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Whether it may subscribe to the stream.
    pub fn may_read(&self, stream: &str) -> bool {
        self.0.read.iter().any(|p| p.matches(stream))
    }
    /// Whether it may publish into the stream.
    pub fn may_write(&self, stream: &str) -> bool {
        self.0.write.iter().any(|p| p.matches(stream))
    }
    /// Whether it may see and change jobs.
    pub fn may_manage(&self) -> bool {
        self.0.manage
    }
    /// Whether it may read every stream.
    pub fn may_read_all(&self) -> bool {
        self.0.read.contains(&Pattern::Prefix(String::new()))
    }
    /// Whether the token is no longer good: its time is over, or the token file no longer holds it.
    pub fn expired(&self) -> bool {
        self.0.revoked.load(Ordering::Relaxed) || self.0.expires.is_some_and(|at| SystemTime::now() >= at)
    }

    /// [`Access::may_read`], for those who answer a request.
    ///
    /// # Errors
    /// 401 if the token is no longer good, 403 if it does not give the right.
    pub fn require_read(&self, stream: &str) -> Result<(), ApiError> {
        self.require(self.may_read(stream), || format!("read stream '{stream}'"))
    }
    /// [`Access::may_write`], for those who answer a request.
    ///
    /// # Errors
    /// As [`Access::require_read`].
    pub fn require_write(&self, stream: &str) -> Result<(), ApiError> {
        self.require(self.may_write(stream), || format!("write stream '{stream}'"))
    }
    /// Whether the stream may be read or written, for those who tell what it is.
    ///
    /// # Errors
    /// As [`Access::require_read`].
    pub fn require_either(&self, stream: &str) -> Result<(), ApiError> {
        let either = self.may_read(stream) || self.may_write(stream);
        self.require(either, || format!("read stream '{stream}' or write stream '{stream}'"))
    }
    /// [`Access::may_manage`], for those who answer a request.
    ///
    /// # Errors
    /// As [`Access::require_read`].
    pub fn require_manage(&self) -> Result<(), ApiError> {
        self.require(self.may_manage(), || "manage jobs".to_string())
    }

    fn require(&self, given: bool, what: impl FnOnce() -> String) -> Result<(), ApiError> {
        if self.expired() {
            return Err(no_longer_good(self.name()));
        }
        if given {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("the token of '{}' gives no right to {}", self.name(), what()))
            .with_help("rights stand in the server's token file: read, write, manage"))
    }
}

/// What the holder of an expired token is told, also in the middle of a stream.
pub(crate) fn no_longer_good(name: &str) -> ApiError {
    ApiError::unauthenticated(format!("the token of '{name}' has expired or was taken out of the token file"))
        .with_help("ask for a new one")
}

/// What the middleware needs.
pub struct Guard {
    /// The tokens; `None` lets everybody in who calls from this machine.
    pub tokens: Option<Arc<Tokens>>,
    /// For its counts.
    pub state: Arc<AppState>,
    /// What everybody gets without tokens.
    pub open: Access,
}

impl Guard {
    /// A guard for these tokens.
    pub fn new(tokens: Option<Arc<Tokens>>, state: Arc<AppState>) -> Self {
        Guard { tokens, state, open: Access::all() }
    }

    fn access(&self, request: &Request) -> Result<Access, ApiError> {
        let Some(tokens) = &self.tokens else {
            from_this_machine(request.uri(), request.headers())?;
            return Ok(self.open.clone());
        };
        let Some(token) = presented(request.uri(), request.headers())? else {
            return Err(ApiError::unauthenticated("this server wants a token").with_help("send the header 'Authorization: Bearer TOKEN'"));
        };
        let access = tokens.find(&token).ok_or_else(|| {
            ApiError::unauthenticated("the token is not known")
                .with_help("tokens stand in the server's token file, which is read anew when it changes")
        })?;
        if access.expired() {
            return Err(no_longer_good(access.name()));
        }
        Ok(access)
    }
}

/// The middleware: answers a request or refuses it, and lets pages of this machine read that.
pub async fn middleware(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let page = pages::page(request.headers());
    let mut response = answer(&guard, request, next).await;
    if let Some(page) = page {
        pages::allow(page, &mut response);
    }
    response
}

/// Finds the rights of a request and has it answered, or refuses it in the words of its protocol.
async fn answer(guard: &Guard, mut request: Request, next: Next) -> Response {
    // So that a balancer can ask without a token; it learns nothing but that we live.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    // A browser asks ahead without the token that the page will send.
    if pages::is_preflight(&request) && (guard.tokens.is_some() || from_this_machine(request.uri(), request.headers()).is_ok()) {
        return pages::preflight();
    }
    let response = match guard.access(&request) {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(error) => refusal(request.headers(), error),
    };
    if let Some(status) = refused_with(&response) {
        guard.state.counts.refuse(status);
    }
    response
}

/// The status of an answer that is an error; of gRPC, which answers everything with 200, the one that means the same.
/// Errors that end a stream are counted by those who send it.
fn refused_with(response: &Response) -> Option<StatusCode> {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        return Some(status);
    }
    status_of(Code::from_bytes(response.headers().get("grpc-status")?.as_bytes()))
}

/// The error as an answer that the peer's protocol understands.
pub(crate) fn refusal(headers: &HeaderMap, error: ApiError) -> Response {
    let grpc = headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/grpc"));
    if grpc { Status::from(error).into_http() } else { error.into_response() }
}

/// The part of a query that is ours.
#[derive(Deserialize)]
struct InQuery {
    token: Option<String>,
}

/// The token that a request brings: in its header, or, since a browser can set none for them, in the
/// query of an event stream or WebSocket.
fn presented<'r>(uri: &Uri, headers: &'r HeaderMap) -> Result<Option<Cow<'r, str>>, ApiError> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().ok().map(str::trim);
        let token =
            text.and_then(|t| t.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        return match token {
            Some(token) if !token.is_empty() => Ok(Some(Cow::Borrowed(token))),
            _ => {
                Err(ApiError::unauthenticated("the header 'Authorization' holds no token").with_help("send 'Authorization: Bearer TOKEN'"))
            }
        };
    }
    if !(uri.path().ends_with("/events") || uri.path().ends_with("/ws")) {
        return Ok(None);
    }
    let query = Query::<InQuery>::try_from_uri(uri).map_err(|e| ApiError::bad_request(format!("reading the query of the address: {e}")))?;
    Ok(query.0.token.map(Cow::Owned))
}

#[cfg(test)]
mod tests;
