//! What a row costs on disk: microseconds per operation for N keys of 100 bytes.
//!
//! ```text
//! cargo run --release -p tidemill-state --example cold -- [rows, default 10,000,000] [run MB, 32] [directory] [MB for filters]
//! ```
//!
//! Blocks of 8,192 new keys are looked up in the filter, what may be there is read, and all are put; then keys are
//! read at random, present ones and others; then rows are written anew at random. CPU time is that of the whole
//! process, merges included.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, StringBuilder};
use arrow::datatypes::DataType;
use tidemill_state::disk::{ColdError, ColdOptions, ColdStore};
use tidemill_state::hash;

const BLOCK: u64 = 8192;

/// Rows `numbers` of the test: a key of 100 bytes, a count and a sum.
fn block(numbers: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<ArrayRef>) {
    let (mut keys, mut counts) = (StringBuilder::new(), Vec::new());
    for n in numbers {
        keys.append_value(format!("{:016x}{:084}", hash::mix(n), n));
        counts.push(n as i64);
    }
    let keys: ArrayRef = Arc::new(keys.finish());
    let counts: ArrayRef = Arc::new(Int64Array::from(counts));
    let mut hashes = Vec::new();
    hash::rows(std::slice::from_ref(&keys), keys.len(), &mut hashes).expect("texts have hashes");
    (hashes, vec![keys, counts.clone(), counts])
}

/// CPU time of the process so far, user and kernel.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields.get(field).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // Fields 14 and 15, in hundredths of a second.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Measures what is done to rows, without the time it takes to make them.
struct Meter {
    name: &'static str,
    rows: u64,
    wall: Duration,
    cpu: Duration,
    begun: Duration,
    made: Duration,
}

impl Meter {
    fn new(name: &'static str) -> Self {
        Meter { name, rows: 0, wall: Duration::ZERO, cpu: Duration::ZERO, begun: cpu(), made: Duration::ZERO }
    }

    fn make<T>(&mut self, make: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let made = make();
        self.made += begun.elapsed();
        made
    }

    fn run<T>(&mut self, rows: usize, run: impl FnOnce() -> Result<T, ColdError>) -> Result<T, ColdError> {
        let begun = Instant::now();
        let result = run()?;
        self.wall += begun.elapsed();
        self.rows += rows as u64;
        Ok(result)
    }

    fn print(mut self, store: &ColdStore) {
        // Making rows is work of this thread only, so its time is its CPU time, about.
        self.cpu = (cpu() - self.begun).saturating_sub(self.made);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / self.rows.max(1) as f64;
        let stats = store.stats();
        println!(
            "{:32} {:>10} rows  {:6.3} µs wall  {:6.3} µs CPU  | disk {:6} MB, memory {:4} MB, written {:6} MB, runs {:2}, merges {}",
            self.name,
            self.rows,
            each(self.wall),
            each(self.cpu),
            stats.disk_bytes >> 20,
            stats.memory_bytes >> 20,
            stats.written_bytes >> 20,
            stats.runs,
            stats.compactions,
        );
    }
}

fn main() -> Result<(), ColdError> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().and_then(|a| a.replace(['_', ','], "").parse().ok()).unwrap_or(10_000_000);
    let run_bytes: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(32) << 20;
    let scratch = std::env::temp_dir().join(format!("tidemill-cold-{}", std::process::id()));
    let directory = args.next().map_or_else(|| scratch.clone(), PathBuf::from);
    let memory = args.next().and_then(|a| a.parse::<usize>().ok()).map_or(usize::MAX, |mb| mb << 20);
    let options = ColdOptions { directory: directory.clone(), name: "bench".into(), run_bytes, memory };
    let mut store = ColdStore::create(options.clone(), vec![DataType::Utf8, DataType::Int64, DataType::Int64], 1)?;

    let mut maybe = Vec::new();
    let step = (rows / 10).max(BLOCK);
    let mut from = 0;
    while from < rows {
        let mut meter = Meter::new("new keys: maybe, read, put");
        let until = (from + step).min(rows);
        while from < until {
            let (hashes, columns) = meter.make(|| block(from..(from + BLOCK).min(until)));
            meter.run(hashes.len(), || {
                maybe.clear();
                store.maybe(&hashes, &mut maybe);
                let asked: Vec<u64> = maybe.iter().map(|row| hashes[*row as usize]).collect();
                store.read(&asked)?;
                store.put(&hashes, &columns)
            })?;
            from += hashes.len() as u64;
        }
        meter.print(&store);
    }
    let mut meter = Meter::new("merges still to do");
    meter.run(rows as usize, || store.settle())?;
    meter.print(&store);

    let random = |round: u64| (0..BLOCK).map(move |n| hash::mix(round * BLOCK + n) % rows);
    let rounds = 2_000_000 / BLOCK;
    let mut meter = Meter::new("maybe of keys that are not there");
    for round in 0..rounds {
        let (hashes, _) = meter.make(|| block(random(round).map(|n| n + rows)));
        meter.run(hashes.len(), || {
            maybe.clear();
            store.maybe(&hashes, &mut maybe);
            Ok(())
        })?;
    }
    meter.print(&store);
    let mut meter = Meter::new("read of random keys");
    for round in 0..rounds {
        let (hashes, _) = meter.make(|| block(random(round)));
        meter.run(hashes.len(), || store.read(&hashes))?;
    }
    meter.print(&store);
    let mut meter = Meter::new("read and put of random keys");
    for round in 0..rounds {
        let (hashes, columns) = meter.make(|| {
            let mut numbers: Vec<u64> = random(round + rounds).collect();
            numbers.sort_unstable();
            numbers.dedup();
            block(numbers.into_iter())
        });
        meter.run(hashes.len(), || {
            store.read(&hashes)?;
            store.put(&hashes, &columns)
        })?;
    }
    meter.print(&store);
    let mut meter = Meter::new("files of a checkpoint (all rows)");
    let files = meter.run(rows as usize, || store.files())?;
    meter.print(&store);
    drop(store);
    let begun = Instant::now();
    let store = ColdStore::open(options, vec![DataType::Utf8, DataType::Int64, DataType::Int64], 1, files, |_| true)?;
    println!("opened {} runs in {:.3} s: {:?}", store.stats().runs, begun.elapsed().as_secs_f64(), store.stats());
    drop(store);
    if directory == scratch
        && let Err(error) = std::fs::remove_dir_all(&scratch)
    {
        eprintln!("removing '{}': {error}", scratch.display());
    }
    Ok(())
}
