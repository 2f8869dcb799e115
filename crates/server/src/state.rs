//! What every handler shares: the streams, the jobs, the bounds, the counts of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use tidemill_hub::Hub;

use crate::error::ApiError;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::room::Pending;

/// State of the server; handlers get it as `State(Arc<AppState>)`. Make it with [`AppState::new`].
pub struct AppState {
    /// The streams of this process.
    pub hub: &'static Hub,
    /// The jobs of this server.
    pub jobs: Arc<Jobs>,
    /// Bounds.
    pub limits: Limits,
    /// Room for what publishers send.
    pub pending: Arc<Pending>,
    /// What connections did so far.
    pub counts: Arc<Counts>,
    /// When the server began.
    pub begun: Instant,
}

impl AppState {
    /// State of a server that begins now.
    pub fn new(hub: &'static Hub, jobs: Arc<Jobs>, limits: Limits) -> Self {
        AppState { hub, jobs, limits, pending: Arc::new(Pending::new(limits)), counts: Arc::default(), begun: Instant::now() }
    }

    /// What there is to say where no job reads or writes a stream, by `why`; one that `does` is missing. While jobs are being started
    /// it may be there any moment: whoever tries again then must not take it for a mistake.
    pub(crate) fn no_job(&self, why: String, does: &str) -> ApiError {
        if self.jobs.starting() {
            return ApiError::unavailable(format!("{why} yet: jobs are being started")).with_help("try again in a moment");
        }
        ApiError::conflict(why).with_help(format!("start the job that {does}"))
    }

    /// As [`AppState::no_job`], for one that publishes into `stream`.
    pub(crate) fn no_reader(&self, stream: &str) -> ApiError {
        self.no_job(format!("no running job reads stream '{stream}'"), "reads it, and publish again")
    }
}

/// The statuses of errors that are counted apart; any other counts as the last.
pub(crate) const REFUSALS: [u16; 14] = [400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 429, 501, 503, 500];

/// Connections and refusals, for `/metrics`.
#[derive(Default)]
pub struct Counts {
    /// Connections open now.
    pub open: AtomicUsize,
    /// Connections ever accepted.
    pub accepted: AtomicU64,
    /// Connections answered with 503 because there were too many.
    pub refused: AtomicU64,
    /// Handshakes and connections that ended with an error: TLS that failed, headers that did not come,
    /// peers that were gone.
    pub broken: AtomicU64,
    /// Bytes read from connections, after TLS.
    pub received_bytes: AtomicU64,
    /// Bytes written to connections, before TLS.
    pub sent_bytes: AtomicU64,
    /// Requests without a valid token, and calls whose token was no longer good in the middle of them.
    pub unauthenticated: AtomicU64,
    /// Requests for which the token gave no right, and those from pages of other machines.
    pub forbidden: AtomicU64,
    /// Answers that were errors, and streams that ended with one, by status, in the order of [`REFUSALS`].
    pub refusals: [AtomicU64; REFUSALS.len()],
}

impl Counts {
    /// Counts an error that a peer was told.
    pub fn refuse(&self, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => Counts::add(&self.unauthenticated),
            StatusCode::FORBIDDEN => Counts::add(&self.forbidden),
            _ => {}
        }
        let at = REFUSALS.iter().position(|known| *known == status.as_u16()).unwrap_or(REFUSALS.len() - 1);
        Counts::add(&self.refusals[at]);
    }

    /// Counts one more.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
