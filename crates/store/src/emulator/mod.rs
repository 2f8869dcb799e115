//! A bucket in memory that speaks the XML protocol of Google Cloud Storage and, since that is nearly the same, of S3 with
//! paths; as a plain web server it serves the same objects. For tests and benchmarks: latency, bandwidth and faults are
//! made to order. Signatures are not looked at.
//!
//! [`answer`] is the protocol, [`contents`] the objects and uploads, [`pacing`] the slowness.

mod answer;
mod contents;
mod pacing;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use self::contents::Contents;
use self::pacing::Line;
use crate::runtime::{lock, spawn};

/// How the emulated service behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Time until an answer begins.
    pub latency: Duration,
    /// Bytes a second of all connections together, each way.
    pub bandwidth: Option<u64>,
    /// Bytes a second of one answer or upload.
    pub connection_bandwidth: Option<u64>,
    /// Whether ranges are given. Otherwise answers are whole objects, as some web servers do it.
    pub ranges: bool,
    /// Objects on one page of a list.
    pub page: usize,
    /// Whether the conditions of writes are looked at. Some services that speak S3 do not.
    pub conditions: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour { latency: Duration::ZERO, bandwidth: None, connection_bandwidth: None, ranges: true, page: 1_000, conditions: true }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer is this status, and nothing was done.
    Status(u16),
    /// The connection is cut after so many bytes of the body.
    CutAfter(u64),
    /// Nothing comes behind so many bytes of the body, and the connection stays.
    Stall(u64),
    /// It was done, and the answer is lost: status 503.
    Forgotten,
    /// Somebody else writes the object anew, with the same bytes, just before this is answered.
    Touched,
    /// Nothing is done before [`Emulator::let_go`].
    Held,
    /// It is done, and not answered before [`Emulator::let_go`].
    Late,
    /// Nothing goes wrong: this request is passed over, and the fault after it meets the next one.
    Passed,
}

/// A fault that waits for its request.
struct Planned {
    method: String,
    key: String,
    fault: Fault,
    times: usize,
}

/// What the requests share.
struct Shared {
    behaviour: Behaviour,
    contents: Mutex<Contents>,
    faults: Mutex<Vec<Planned>>,
    requests: Mutex<Vec<String>>,
    /// Requests that are held.
    held: AtomicUsize,
    /// How often those were let go.
    let_go: AtomicUsize,
    inbound: Line,
    outbound: Line,
}

impl Shared {
    /// The fault for a request, which is then used up.
    fn fault(&self, method: &str, target: &str) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let at = faults.iter().position(|f| f.times > 0 && f.method == method && target.contains(&f.key))?;
        faults[at].times -= 1;
        Some(faults[at].fault)
    }

    /// Waits until requests are let go.
    async fn hold(&self) {
        let before = self.let_go.load(Ordering::Acquire);
        self.held.fetch_add(1, Ordering::AcqRel);
        while self.let_go.load(Ordering::Acquire) == before {
            sleep(Duration::from_millis(1)).await;
        }
        self.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A running emulator. It ends when dropped.
pub struct Emulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: AbortHandle,
}

impl Emulator {
    /// Starts one on `listen`, such as `127.0.0.1:0` for any free port.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(listen: &str, behaviour: Behaviour) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let line = || Line::new(behaviour.bandwidth);
        let shared = Arc::new(Shared {
            contents: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            held: AtomicUsize::new(0),
            let_go: AtomicUsize::new(0),
            inbound: line(),
            outbound: line(),
            behaviour,
        });
        let router = Router::new().fallback(answer::answer).with_state(shared.clone());
        let server = spawn(async move {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                // It ends with the task.
                let _ = axum::serve(listener, router).await;
            }
        })?;
        Ok(Emulator { address, shared, server })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What goes into `store.endpoint`; followed by bucket and key it is the URL of an object.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object there, as somebody else would.
    pub fn put(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        lock(&self.shared.contents).put(format!("{bucket}/{key}"), vec![bytes.into()]);
    }

    /// The bytes of an object.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Bytes> {
        Some(lock(&self.shared.contents).get(&format!("{bucket}/{key}"))?.whole())
    }

    /// The keys of a bucket, sorted.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        lock(&self.shared.contents).keys(&format!("{bucket}/"))
    }

    /// How many uploads are neither completed nor aborted.
    pub fn uploads(&self) -> usize {
        lock(&self.shared.contents).uploads()
    }

    /// How many parts those hold: what costs money. An upload without parts costs none.
    pub fn parts(&self) -> usize {
        lock(&self.shared.contents).parts()
    }

    /// Lets the next `times` requests of this method go wrong whose bucket, key and query contain `target`.
    pub fn fail(&self, method: &str, target: &str, fault: Fault, times: usize) {
        lock(&self.shared.faults).push(Planned { method: method.to_string(), key: target.to_string(), fault, times });
    }

    /// Forgets the faults that have not happened yet.
    pub fn forgive(&self) {
        lock(&self.shared.faults).clear();
    }

    /// How many requests are held.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Acquire)
    }

    /// Lets the requests go that are held.
    pub fn let_go(&self) {
        self.shared.let_go.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes an object look as if it had been written so much earlier.
    pub fn age(&self, bucket: &str, key: &str, by: Duration) {
        lock(&self.shared.contents).age(&format!("{bucket}/{key}"), by);
    }

    /// The requests so far: method, bucket, key and query, and the range asked for.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.shared.requests).clone()
    }

    /// Waits until the process is ended from outside.
    pub fn run(&self) {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.server.abort();
    }
}
