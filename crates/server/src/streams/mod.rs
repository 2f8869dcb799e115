//! The streams over HTTP: publishing with `POST`, subscribing as server-sent events or over a WebSocket,
//! what a stream is and holds. What Flight needs of the same lives here too: [`Feed`] for subscribers,
//! [`Inlet`] and [`BatchDecoder`] for publishers.
//!
//! - [`publish`]: `POST`; [`sse`]: events; [`websocket`]: both directions; [`rows`]: what there is
//! - [`feed`], [`inlet`]: the hub's subscribers and publishers for tasks that wait
//! - [`columns`], [`ipc`], [`text`]: from what a publisher sends to the columns of a stream
//! - [`json`]: rows for those who read text

mod columns;
mod feed;
#[cfg(test)]
pub(crate) mod fixture;
mod inlet;
mod ipc;
mod json;
mod publish;
mod rows;
mod sse;
mod text;
mod websocket;

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::{any, delete, get};
use serde::Deserialize;
use tidemill_format::options::nearest;
use tidemill_hub::{From as Start, Slow, Stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

pub(crate) use self::feed::{Feed, FeedRequest};
pub(crate) use self::inlet::Inlet;
pub(crate) use self::ipc::BatchDecoder;
use crate::auth::{Access, no_longer_good};
use crate::error::ApiError;
use crate::state::AppState;

/// How often a long-lived call looks whether its token is still good.
const TOKEN_CHECK: Duration = Duration::from_secs(1);

/// How often a silent connection is given a sign of life, so that proxies between keep it open and a peer
/// that is gone is found out.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Shared = State<Arc<AppState>>;

/// Everything below `/v1/streams`.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/streams", get(rows::list))
        .route("/v1/streams/{name}", get(rows::one).post(publish::publish))
        .route("/v1/streams/{name}/rows", get(rows::rows))
        .route("/v1/streams/{name}/events", get(sse::events))
        .route("/v1/streams/{name}/ws", any(websocket::open))
        .route("/v1/streams/{name}/subscriptions/{who}", delete(rows::forget))
        .route("/v1/streams/{name}/publishers/{who}", delete(rows::forget_publisher))
}

/// The stream called `name`.
///
/// # Errors
/// 404, with the name that was likely meant; 503 while a job that may have the stream starts.
pub(crate) fn find(state: &AppState, name: &str) -> Result<Arc<Stream>, ApiError> {
    state.hub.stream(name).ok_or_else(|| {
        if state.jobs.starting() {
            return ApiError::unavailable(format!("there is no stream '{name}' yet: jobs are still being started")).with_help("try again");
        }
        let streams = state.hub.streams();
        let known: Vec<&str> = streams.iter().map(|s| s.name()).collect();
        let error = ApiError::not_found(format!("there is no stream '{name}'"));
        match nearest(name, &known) {
            Some(near) => error.with_help(format!("did you mean '{near}'?")),
            None => error.with_help("streams appear when a job with a table of connector 'stream', or with a view, runs"),
        }
    })
}

/// Watches over the token of a call that lasts.
pub(crate) struct Watch {
    access: Access,
    tick: Interval,
}

impl Watch {
    /// Must be called within the runtime.
    pub fn new(access: Access) -> Self {
        let mut tick = interval_at(Instant::now() + TOKEN_CHECK, TOKEN_CHECK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watch { access, tick }
    }

    /// Looks once in a while whether the token is still good; wakes the task to look again.
    ///
    /// # Errors
    /// 401: it is not.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Result<(), ApiError> {
        while self.tick.poll_tick(context).is_ready() {
            if self.access.expired() {
                return Err(no_longer_good(self.access.name()));
            }
        }
        Ok(())
    }

    /// Does what may take long, as long as the token is good; what is done by then is not undone.
    ///
    /// # Errors
    /// 401: the token is no longer good; what the work fails with.
    pub async fn during<T, E: From<ApiError>>(&mut self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        tokio::select! {
            // What need not wait is not made dearer by a look at the clock.
            biased;
            done = work => done,
            error = self.expired() => Err(error.into()),
        }
    }

    /// Waits until the token is no longer good.
    pub async fn expired(&mut self) -> ApiError {
        loop {
            self.tick.tick().await;
            if self.access.expired() {
                return no_longer_good(self.access.name());
            }
        }
    }
}

/// The query of a subscription over HTTP. The token in it is the middleware's.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FeedQuery {
    from: Option<String>,
    name: Option<String>,
    slow: Slow,
    queue_bytes: Option<u64>,
    block_size: Option<usize>,
    columns: Option<String>,
    filter: Option<String>,
    publisher: Option<String>,
    #[serde(rename = "token")]
    _token: Option<String>,
}

impl FeedQuery {
    fn taken(query: Result<Query<FeedQuery>, QueryRejection>) -> Result<FeedQuery, ApiError> {
        match query {
            Ok(Query(query)) => Ok(query),
            Err(e) => Err(ApiError::bad_request(format!("reading the query: {}", e.body_text()))
                .with_help("known are: from, name, slow, queue_bytes, block_size, columns, filter, publisher (of a WebSocket), token")),
        }
    }

    /// What it asks for of a stream.
    ///
    /// # Errors
    /// 400: a start that there is none such.
    fn request(self, stream: String) -> Result<FeedRequest, ApiError> {
        let columns = self.columns.map(|names| names.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect());
        Ok(FeedRequest {
            stream,
            from: self.from.as_deref().map_or(Ok(Start::Now), start)?,
            name: self.name,
            slow: self.slow,
            queue_bytes: self.queue_bytes,
            block_size: self.block_size,
            columns,
            filter: self.filter,
        })
    }
}

/// Where to begin, as the query says it.
fn start(text: &str) -> Result<Start, ApiError> {
    Ok(match text {
        "now" => Start::Now,
        "snapshot" => Start::Snapshot,
        "earliest" => Start::Earliest,
        "acknowledged" => Start::Acknowledged,
        other => match other.parse() {
            Ok(offset) => Start::Offset(offset),
            Err(_) => {
                return Err(ApiError::bad_request(format!("from={other}: there is no such start"))
                    .with_help("now, snapshot, earliest, acknowledged, or the number of a row"));
            }
        },
    })
}

#[cfg(test)]
mod tests;
