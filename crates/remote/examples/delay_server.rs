//! An HTTP server whose answers take their time, to measure lookups against: `delay_server PORT MIN_MS MAX_MS
//! [SEED] [THREADS]`. Port 0 lets the system choose; the first line of its output is the port.
//!
//! `GET /7` answers `{"id":7,"name":"n7"}` after MIN_MS to MAX_MS milliseconds, drawn evenly for each request from SEED
//! and its number. Connections are kept; requests that come before the one in front is answered wait. Lines on its standard
//! input ask for more: `slots 200` has it work on 200 requests at once from now on while others wait, as a server does that has
//! become slow (it begins with as many as come); to `now` it answers how many requests are there and how many it has answered.
//! When standard input ends, it says how many requests it answered and with how much CPU, and ends.
//!
//! One task a connection, a hand-made parser for requests without a body, a timer wheel of tokio's: a request
//! costs little more than its two system calls.

use std::env;
use std::io::{Error, Write as _};
use std::net::TcpListener as StdListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

/// The longest request: an address and a few headers.
const REQUEST_BYTES: usize = 8 << 10;
/// Peers that wait to be taken in.
const BACKLOG: u32 = 4096;
/// The most requests worked on at once.
const SLOTS_MAX: usize = 1 << 20;

struct Delays {
    min_us: u64,
    span_us: u64,
    seed: u64,
    requests: AtomicU64,
    /// Requests that were answered.
    answered: AtomicU64,
    /// One for each request that is worked on.
    free: Semaphore,
    /// How many of these there are to be.
    slots: AtomicUsize,
    /// How many there are too many.
    excess: AtomicUsize,
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

/// Does what a line of standard input says.
fn command(line: &str, delays: &Delays) {
    let mut words = line.split_whitespace();
    match (words.next(), words.next().and_then(|n| n.parse::<usize>().ok())) {
        (Some("slots"), Some(slots)) => {
            let slots = slots.clamp(1, SLOTS_MAX);
            let before = delays.slots.swap(slots, Ordering::Relaxed);
            if slots > before {
                let owed = delays.excess.swap(0, Ordering::Relaxed);
                delays.free.add_permits((slots - before).saturating_sub(owed));
                delays.excess.fetch_add(owed.saturating_sub(slots - before), Ordering::Relaxed);
            }
            // Those in use are taken away as they come back.
            let excess = before.saturating_sub(slots);
            delays.excess.fetch_add(excess - delays.free.forget_permits(excess), Ordering::Relaxed);
        }
        (Some("now"), _) => {
            let answered = delays.answered.load(Ordering::Relaxed);
            println!("{} {answered}", delays.requests.load(Ordering::Relaxed) - answered);
        }
        _ => eprintln!("delay_server: no such command: {line}"),
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
            let delay = delays.next();
            let slot = delays.free.acquire().await.map_err(Error::other)?;
            let due = Instant::now() + delay;
            body.clear();
            write!(body, "{{\"id\":{id},\"name\":\"n{id}\"}}")?;
            answer.clear();
            write!(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len())?;
            answer.extend_from_slice(&body);
            sleep_until(due).await;
            match delays.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |excess| excess.checked_sub(1)) {
                Ok(_) => slot.forget(),
                Err(_) => drop(slot),
            }
            delays.answered.fetch_add(1, Ordering::Relaxed);
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
    let delays = Arc::new(Delays {
        min_us: min * 1000,
        span_us: max.saturating_sub(*min) * 1000,
        seed,
        requests: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        free: Semaphore::new(SLOTS_MAX),
        slots: AtomicUsize::new(SLOTS_MAX),
        excess: AtomicUsize::new(0),
    });
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
    // Until whoever started it is done.
    std::io::stdin().lines().map_while(Result::ok).for_each(|line| command(&line, &delays));
    let requests = delays.requests.load(Ordering::Relaxed);
    let cpu = cpu_seconds().map_or("null".to_string(), |s| s.to_string());
    println!("{{\"requests\": {requests}, \"cpu_s\": {cpu}}}");
    ExitCode::SUCCESS
}
