//! Runs the emulated bucket of the tests as a server, for benchmarks and for trying things out:
//!
//! ```text
//! bucket --listen 127.0.0.1:0 --latency-ms 30 --bandwidth-mb 400 --connection-mb 50 --load data=/path/to/files
//! ```
//!
//! It prints its address as the first line. Buckets need not be made. `--load BUCKET=DIRECTORY` fills one with the files of
//! a directory.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tidemill_store::emulator::{Behaviour, Emulator};

const KNOWN: &str = "--listen, --latency-ms, --bandwidth-mb, --connection-mb, --no-ranges, --load";

fn main() -> Result<(), Box<dyn Error>> {
    let mut listen = "127.0.0.1:0".to_string();
    let mut behaviour = Behaviour::default();
    let mut load = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--listen" => listen = value()?,
            "--latency-ms" => behaviour.latency = Duration::from_millis(value()?.parse()?),
            "--bandwidth-mb" => behaviour.bandwidth = Some(value()?.parse::<u64>()? * 1_000_000),
            "--connection-mb" => behaviour.connection_bandwidth = Some(value()?.parse::<u64>()? * 1_000_000),
            "--no-ranges" => behaviour.ranges = false,
            "--load" => load.push(value()?),
            other => return Err(format!("unknown option '{other}'; known: {KNOWN}").into()),
        }
    }
    let emulator = Emulator::start(&listen, behaviour)?;
    for one in load {
        let (bucket, directory) = one.split_once('=').ok_or("--load wants BUCKET=DIRECTORY")?;
        fill(&emulator, bucket, Path::new(directory), "")?;
    }
    println!("{}", emulator.endpoint());
    emulator.run();
    Ok(())
}

fn fill(emulator: &Emulator, bucket: &str, directory: &Path, prefix: &str) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            fill(emulator, bucket, &entry.path(), &format!("{key}/"))?;
        } else {
            emulator.put(bucket, &key, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}
