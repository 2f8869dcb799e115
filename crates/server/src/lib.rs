//! The publish/subscribe server: jobs over REST, streams over Arrow Flight, WebSocket, server-sent events
//! and plain HTTP, all on one port.
//!
//! - [`listen`]: accepts connections, timeouts, the bound on connections, the graceful end; [`tls`]; [`untaken`]: calls
//!   whose peer takes nothing
//! - [`auth`]: tokens and rights; [`limits`]: every bound; [`room`]: for bytes on their way; [`error`]: what a peer is told
//! - [`jobs`]: the jobs that this process keeps running, their files, their REST interface
//! - [`flight`], [`streams`]: publishing and subscribing; [`filter`]: what a subscriber wants of a row
//! - [`metrics`]: the page for Prometheus; [`waiting`]: work that keeps a thread
//!
//! What does not live here: the streams themselves (`tidemill-hub`), how a job runs (`tidemill-runtime`),
//! clients (`tidemill-remote`). Jobs run on threads that know no async; the only runtime is the server's.

pub mod auth;
pub mod error;
pub mod filter;
pub mod flight;
pub mod jobs;
pub mod limits;
mod listen;
mod metrics;
mod room;
pub mod state;
pub mod streams;
mod tls;
mod untaken;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use tidemill_hub::Hub;
use tidemill_runtime::Stop;
use tidemill_runtime::metrics::{Summary, raise_open_files};
use tidemill_sql::FileResolver;
use tokio::sync::watch;

use crate::auth::{Guard, Tokens};
use crate::error::ApiError;
use crate::jobs::{Jobs, NewJob};
use crate::limits::BLOCK_BYTES_MIN;
pub use crate::limits::Limits;
use crate::listen::Listening;
use crate::state::AppState;
use crate::tls::Tls;

/// The certificate and key of a server, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that lead to a root, in this order.
    pub cert: PathBuf,
    /// Its private key (PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
}

/// What a server is started with.
#[derive(Clone)]
pub struct ServeOptions {
    /// The address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Speak TLS; without it the address must be loopback.
    pub tls: Option<TlsFiles>,
    /// The token file; without it the address must be loopback, and everybody on the machine may do
    /// everything.
    pub tokens: Option<PathBuf>,
    /// Where jobs, their checkpoints and the logs of streams are kept; without it nothing is.
    pub state_dir: Option<PathBuf>,
    /// Jobs to add or to replace, by name and SQL text.
    pub jobs: Vec<(String, String)>,
    /// Settings for all jobs; they win over what a job sets.
    pub settings: BTreeMap<String, String>,
    /// Bounds.
    pub limits: Limits,
    /// Lets jobs name files as tables.
    pub files: Option<FileResolver>,
}

impl Default for ServeOptions {
    /// A server for this machine only that keeps nothing.
    fn default() -> Self {
        ServeOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7733)),
            tls: None,
            tokens: None,
            state_dir: None,
            jobs: Vec::new(),
            settings: BTreeMap::new(),
            limits: Limits::default(),
            files: None,
        }
    }
}

/// Why a server could not start or go on.
#[derive(Debug)]
pub enum ServeError {
    /// An option, a file or a job that was given is wrong.
    Usage(String),
    /// The system refused something.
    Failed(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Usage(m) | ServeError::Failed(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for ServeError {}

/// Serves until `stop`, then stops all jobs with a last checkpoint. `ready` is called with the address once
/// requests are answered and all jobs are being started. Gives what each job did in its last run, by name;
/// its CPU time is that of the whole process meanwhile.
///
/// # Errors
/// What is wrong with the options or the files that they name, a job among `options.jobs` that cannot be
/// planned, an address that cannot be had.
pub fn serve(options: ServeOptions, stop: &Stop, ready: impl FnOnce(SocketAddr)) -> Result<Vec<Summary>, ServeError> {
    check(&options)?;
    let tokens = options.tokens.map(Tokens::open).transpose().map_err(ServeError::Usage)?.map(Arc::new);
    let tls = options.tls.map(Tls::open).transpose().map_err(ServeError::Usage)?.map(Arc::new);
    let jobs = Arc::new(Jobs::open(options.state_dir.as_deref(), options.settings, options.files).map_err(ServeError::Failed)?);
    let hub = Hub::global();
    hub.serve(options.state_dir);
    for (name, sql) in options.jobs {
        let new = NewJob { name, sql, settings: BTreeMap::new(), start: true, replace: true };
        // Not started yet: first all must be right.
        jobs.put_for_later(new).map_err(|e| ServeError::Usage(e.to_string()))?;
    }
    let open_files = raise_open_files();
    if open_files < options.limits.connections as u64 + OTHER_FILES {
        log(format_args!(
            "warning: the process may open {open_files} files and sockets, too few for {} connections: ulimit -n",
            options.limits.connections
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads()).enable_all().thread_name("server").build();
    let runtime = runtime.map_err(|e| ServeError::Failed(format!("starting the server's threads: {e}")))?;
    // Before any job runs: an address that is taken is the commonest error.
    let listener = {
        let _entered = runtime.enter();
        listen::bind(options.listen)?
    };
    let address = listener.local_addr().map_err(|e| ServeError::Failed(format!("asking for the address listened on: {e}")))?;
    let state = Arc::new(AppState::new(hub, jobs.clone(), options.limits));
    let router = router(state.clone(), tokens.clone());
    let listening = Arc::new(Listening { state, router, tls, tokens, ending: watch::Sender::new(false) });
    jobs.start_wanted();
    ready(address);
    let connections = runtime.block_on(listen::accept(listener, listening.clone(), || stop.requested()));
    // Peers are still answered meanwhile: publishers hear what the last checkpoint holds.
    jobs.stop_all();
    runtime.block_on(listen::end(connections, &listening.ending));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(jobs.summaries())
}

/// Files and sockets of jobs, beside connections.
const OTHER_FILES: u64 = 256;

/// Threads for connections: one for two processors, since jobs need them, too. Whenever a worker of a job wakes one of these
/// threads and finds it at rest, the runtime has it wake another one to look whether there is more: with two threads on two
/// processors that is a switch of threads more for each message, and the task of a connection and that of its call,
/// which hand bytes to each other, run beside each other instead of one after the other. What waits for a disk or takes long
/// hands its thread's tasks over meanwhile ([`waiting`]).
fn threads() -> usize {
    available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

/// The rules that hold between options.
fn check(options: &ServeOptions) -> Result<(), ServeError> {
    let usage = |text: String| Err(ServeError::Usage(text));
    if !options.listen.ip().is_loopback() && (options.tls.is_none() || options.tokens.is_none()) {
        let missing = match (&options.tls, &options.tokens) {
            (None, None) => "--tls-cert, --tls-key and --tokens",
            (None, Some(_)) => "--tls-cert and --tls-key",
            _ => "--tokens",
        };
        return usage(format!(
            "--listen {}: beyond this machine a server needs TLS and tokens, \
             else everybody in the network may run jobs: give {missing}, or listen on 127.0.0.1",
            options.listen
        ));
    }
    if options.limits.connections == 0 {
        return usage("--max-connections 0: at least 1 is needed".to_string());
    }
    if options.limits.block_bytes < BLOCK_BYTES_MIN {
        return usage(format!("--max-block-bytes {}: at least {BLOCK_BYTES_MIN} are needed", options.limits.block_bytes));
    }
    if options.limits.pending_bytes < options.limits.block_bytes {
        let Limits { pending_bytes, block_bytes, .. } = options.limits;
        return usage(format!(
            "--max-pending-bytes {pending_bytes}: at least one block of --max-block-bytes, which is {block_bytes}, must fit into it"
        ));
    }
    Ok(())
}

/// All that the port answers.
fn router(state: Arc<AppState>, tokens: Option<Arc<Tokens>>) -> Router {
    let guard = Arc::new(Guard::new(tokens, state.clone()));
    let http = Router::new()
        .route("/healthz", get(alive))
        .route("/metrics", get(metrics::page))
        .merge(jobs::rest::routes())
        .merge(streams::routes())
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(state.limits.block_bytes))
        .with_state(state.clone());
    // Flight's answer to what it does not know is ours too, in the words of the protocol that asks.
    let bound = middleware::from_fn_with_state(state.clone(), untaken::bound);
    let all = http.merge(flight::service(state).reset_fallback()).fallback(unknown);
    all.layer(bound).layer(middleware::from_fn_with_state(guard, auth::middleware))
}

async fn alive() -> Response {
    Json(serde_json::json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")})).into_response()
}

async fn unknown(request: Request) -> Response {
    let path = request.uri().path();
    let error = if path.starts_with("/arrow.flight.") {
        ApiError::new(StatusCode::NOT_IMPLEMENTED, format!("Flight has no method '{path}' here"))
    } else {
        ApiError::not_found(format!("nothing is at '{path}'"))
            .with_help("/healthz, /metrics, /v1/jobs, /v1/streams, and Arrow Flight over HTTP/2 are here")
    };
    auth::refusal(request.headers(), error)
}

async fn wrong_method(request: Request) -> Response {
    let error = format!("{} is not answered at '{}'", request.method(), request.uri().path());
    auth::refusal(request.headers(), ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error))
}

/// A line of the log, with the time. That nobody reads it is no reason to stop.
pub(crate) fn log(message: impl fmt::Display) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
    let mut line = Vec::new();
    tidemill_block::value::write_timestamp(&mut line, now, arrow::datatypes::TimeUnit::Millisecond, 3);
    line.extend_from_slice(format!(" {message}\n").as_bytes());
    let _ = std::io::stderr().lock().write_all(&line);
}

#[cfg(test)]
mod tests;
