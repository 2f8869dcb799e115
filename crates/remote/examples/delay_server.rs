//! An HTTP server whose answers take their time, to measure lookups against: `delay_server PORT MIN_MS MAX_MS
//! [SEED] [THREADS]`. Port 0 lets the system choose; the first line of its output is the port.
//!
//! `GET /7` answers `{"id":7,"name":"n7"}` after MIN_MS to MAX_MS milliseconds, drawn evenly for each request from SEED
//! and its number. Connections are kept; requests that come before the one in front is answered wait. When standard input ends,
//! it says how many requests it answered and with how much CPU, and ends.
//!
//! One task a connection, a hand-made parser for requests without a body, a timer wheel of tokio's: a request
//! costs little more than its two system calls.

use std::env;
use std::io::{Error, Read, Write as _};
use std::net::TcpListener as StdListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

/// The longest request: an address and a few headers.
const REQUEST_BYTES: usize = 8 << 10;
/// Peers that wait to be taken in.
const BACKLOG: u32 = 4096;

struct Delays {
    min_us: u64,
    span_us: u64,
    seed: u64,
    requests: AtomicU64,
}

impl Delays {
    /// The delay of the next request. The mixer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    fn next(&self) -> Duration {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut z = self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        Duration::from_micros(self.min_us + z % (self.span_us + 1))
    }
}

/// The end of the first request in `bytes`, and the last part of its path.
fn request(bytes: &[u8]) -> Option<(usize, &str)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let line = bytes.split(|b| *b == b'\r').next()?;
    let path = line.split(|b| *b == b' ').nth(1)?;
    let id = path.rsplit(|b| matches!(b, b'/' | b'=')).next()?;
    Some((end, std::str::from_utf8(id).unwrap_or("0")))
}

/// Answers the requests of a connection until it ends.
async fn serve(mut stream: TcpStream, delays: Arc<Delays>) -> Result<(), Error> {
    let mut bytes = vec![0; REQUEST_BYTES];
    let (mut body, mut answer) = (Vec::with_capacity(64), Vec::with_capacity(160));
    let mut filled = 0;
    loop {
        while let Some((end, id)) = request(&bytes[..filled]) {
            let due = Instant::now() + delays.next();
            body.clear();
            write!(body, "{{\"id\":{id},\"name\":\"n{id}\"}}")?;
            answer.clear();
            write!(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len())?;
            answer.extend_from_slice(&body);
            sleep_until(due).await;
            stream.write_all(&answer).await?;
            bytes.copy_within(end..filled, 0);
            filled -= end;
        }
        if filled == bytes.len() {
            return Err(Error::other("a request is too long"));
        }
        match stream.read(&mut bytes[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// Takes connections and serves them, all on this thread.
fn run(listener: StdListener, delays: Arc<Delays>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                // Out of files: some will be closed.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            stream.set_nodelay(true)?;
            let delays = delays.clone();
            tokio::task::spawn_local(async move {
                // A peer that goes away is nothing to speak of.
                let _ = serve(stream, delays).await;
            });
        }
    })
}

/// Listens with a long queue.
fn listen(port: u16) -> Result<StdListener, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(([127, 0, 0, 1], port).into())?;
        socket.listen(BACKLOG)?.into_std()
    })
}

/// CPU time of this process so far, seconds; none where the system does not tell.
fn cpu_seconds() -> Option<f64> {
    // Fields 14 and 15 of the line, counted behind the name in parentheses, in hundredths of a second.
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
}

fn main() -> ExitCode {
    let arguments: Vec<u64> = env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (Some(port), Some(min), Some(max)) = (arguments.first(), arguments.get(1), arguments.get(2)) else {
        eprintln!("usage: delay_server PORT MIN_MS MAX_MS [SEED] [THREADS]");
        return ExitCode::from(2);
    };
    let seed = arguments.get(3).copied().unwrap_or(42);
    let threads = arguments.get(4).copied().unwrap_or(1).max(1);
    let delays = Arc::new(Delays { min_us: min * 1000, span_us: max.saturating_sub(*min) * 1000, seed, requests: AtomicU64::new(0) });
    let started = listen(*port as u16).and_then(|listener| {
        let address = listener.local_addr()?;
        for _ in 0..threads {
            let (listener, delays) = (listener.try_clone()?, delays.clone());
            thread::spawn(move || {
                if let Err(e) = run(listener, delays) {
                    eprintln!("delay_server: {e}");
                }
            });
        }
        Ok(address)
    });
    match started {
        Ok(address) => println!("{}", address.port()),
        Err(e) => {
            eprintln!("delay_server: listening on port {port}: {e}");
            return ExitCode::FAILURE;
        }
    }
    let mut end = Vec::new();
    // Until whoever started it is done.
    let _ = std::io::stdin().read_to_end(&mut end);
    let requests = delays.requests.load(Ordering::Relaxed);
    let cpu = cpu_seconds().map_or("null".to_string(), |s| s.to_string());
    println!("{{\"requests\": {requests}, \"cpu_s\": {cpu}}}");
    ExitCode::SUCCESS
}
