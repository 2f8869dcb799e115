//! How far a copy is: a bar for each file under way and one for all on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidemill_format::compression::Compression;

use super::manifest::Source;
use super::plan::archive_of;
use crate::files::look;
use crate::show::{bytes, count};

/// How often bars are drawn anew.
const DRAW: Duration = Duration::from_millis(100);
/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(10);
/// How many times longer text is than its compressed form, where nothing is known.
const EXPANSION: f64 = 4.0;

/// Says how many rows and decoded bytes were read so far.
pub type Counter = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// How far a task is.
pub struct Meter {
    name: String,
    /// Bytes of its files.
    pub bytes: u64,
    rows: AtomicU64,
    /// Bytes of files that were read to their end.
    finished: AtomicU64,
    under_way: Mutex<BTreeMap<usize, Reading>>,
    next: AtomicU64,
    state: AtomicU8,
}

/// A file, or several, being read.
struct Reading {
    bytes: u64,
    /// Decoded bytes for each byte of the files.
    expansion: f64,
    counter: Counter,
}

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const COMPARING: u8 = 2;
const DONE: u8 = 3;

impl Meter {
    /// For a task that reads these files.
    pub fn new(sources: &[Source]) -> Self {
        let name = match sources {
            [one] => one.path.clone(),
            many => format!("{} files", many.len()),
        };
        Meter {
            name,
            bytes: sources.iter().map(|s| s.bytes).sum(),
            rows: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            under_way: Mutex::default(),
            next: AtomicU64::new(0),
            state: AtomicU8::new(WAITING),
        }
    }

    /// The task begins.
    pub fn begin(&self) {
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    /// Rows were written.
    pub fn wrote(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// What was written is read again.
    pub fn comparing(&self) {
        self.state.store(COMPARING, Ordering::Relaxed);
    }

    /// The task is done.
    pub fn end(&self) {
        self.state.store(DONE, Ordering::Relaxed);
    }

    /// Files are being read; the number is for [`Meter::read_to_the_end`].
    pub fn reading(&self, sources: &[Source], counter: Counter) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let bytes = sources.iter().map(|s| s.bytes).sum();
        let expansion = sources.first().map_or(1.0, expansion);
        self.lock().insert(number, Reading { bytes, expansion, counter });
        number
    }

    /// They were read to their end.
    pub fn read_to_the_end(&self, number: usize) {
        if let Some(reading) = self.lock().remove(&number) {
            self.finished.fetch_add(reading.bytes, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Reading>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of its files that were read, as far as that is known.
    pub fn position(&self) -> u64 {
        if self.state.load(Ordering::Relaxed) == DONE {
            return self.bytes;
        }
        let read = |reading: &Reading| ((reading.counter)().1 as f64 / reading.expansion).min(reading.bytes as f64) as u64;
        let under_way: u64 = self.lock().values().map(read).sum();
        (self.finished.load(Ordering::Relaxed) + under_way).min(self.bytes)
    }
}

/// How many bytes of text a byte of a file becomes: gzip says at its end how long its text is (modulo 4 GB, and of
/// its last member only); formats that tell bytes of the file have 1.
fn expansion(source: &Source) -> f64 {
    let path = source.path.strip_prefix("file://").unwrap_or(&source.path);
    match Compression::from_path(path) {
        Compression::None if archive_of(path).is_some() => EXPANSION,
        Compression::None => 1.0,
        // Opening a pipe would wait for another writer.
        Compression::Gzip if look::length(path).is_some() => {
            let mut length = [0; 4];
            let read = File::open(path).and_then(|file| file.read_exact_at(&mut length, source.bytes.saturating_sub(4)));
            let (packed, text) = (source.bytes as f64, f64::from(u32::from_le_bytes(length)));
            if read.is_ok() && text > packed && text < packed * 1000.0 { text / packed } else { EXPANSION }
        }
        _ => EXPANSION,
    }
}

/// What is shown while a copy goes on; ends when dropped.
pub struct Progress {
    stop: Arc<AtomicBool>,
    drawing: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    /// Begins to show how far these tasks are; `before` is what earlier runs have done: tasks, and bytes of files.
    pub fn begin(meters: Vec<Arc<Meter>>, before: (usize, u64), quiet: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        if quiet {
            return Progress { stop, drawing: None };
        }
        let flag = stop.clone();
        let drawing = std::thread::spawn(move || {
            let view = View { total: before.1 + meters.iter().map(|m| m.bytes).sum::<u64>(), meters, before, begun: Instant::now() };
            if std::io::stderr().is_terminal() { view.bars(&flag) } else { view.lines(&flag) }
        });
        Progress { stop, drawing: Some(drawing) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(drawing) = self.drawing.take() {
            drawing.thread().unpark();
            let _ = drawing.join();
        }
    }
}

struct View {
    meters: Vec<Arc<Meter>>,
    /// Tasks and bytes that earlier runs have done.
    before: (usize, u64),
    total: u64,
    begun: Instant,
}

impl View {
    fn state(&self, wanted: u8) -> usize {
        self.meters.iter().filter(|m| m.state.load(Ordering::Relaxed) == wanted).count()
    }

    fn rows(&self) -> u64 {
        self.meters.iter().map(|m| m.rows.load(Ordering::Relaxed)).sum()
    }

    /// Bytes read by this run.
    fn position(&self) -> u64 {
        self.meters.iter().map(|m| m.position()).sum()
    }

    fn tasks(&self) -> String {
        format!("{} of {}", self.before.0 + self.state(DONE), self.before.0 + self.meters.len())
    }

    /// Draws until `stop`.
    fn bars(&self, stop: &AtomicBool) {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let style = |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let each = style("{prefix:32!} {bar:20} {percent:>3} %  {msg}");
        let total = all.add(ProgressBar::new(self.total.max(1)));
        total.set_style(style("{prefix:32!} {bar:20} {percent:>3} %  {bytes_per_sec}, {eta} left, {msg}"));
        total.set_position(self.before.1);
        total.reset_eta();
        let mut bars: BTreeMap<usize, ProgressBar> = BTreeMap::new();
        while !stop.load(Ordering::Relaxed) {
            for (number, meter) in self.meters.iter().enumerate() {
                match meter.state.load(Ordering::Relaxed) {
                    WAITING => {}
                    DONE => {
                        if let Some(bar) = bars.remove(&number) {
                            bar.finish_and_clear();
                            all.remove(&bar);
                        }
                    }
                    state => {
                        let bar = bars.entry(number).or_insert_with(|| {
                            let bar = all.insert_before(&total, ProgressBar::new(meter.bytes.max(1)));
                            bar.set_style(each.clone());
                            bar.set_prefix(ending(&meter.name, 32));
                            bar
                        });
                        bar.set_position(meter.position());
                        let rows = count(meter.rows.load(Ordering::Relaxed));
                        bar.set_message(if state == COMPARING { format!("{rows} rows, comparing") } else { format!("{rows} rows") });
                    }
                }
            }
            total.set_position((self.before.1 + self.position()).min(self.total.max(1)));
            total.set_prefix(format!("{} parts", self.tasks()));
            total.set_message(format!("{} rows", count(self.rows())));
            std::thread::park_timeout(DRAW);
        }
        bars.values().for_each(ProgressBar::finish_and_clear);
        total.finish_and_clear();
        let _ = all.clear();
    }

    /// Writes a line now and then until `stop`.
    fn lines(&self, stop: &AtomicBool) {
        let mut next = LINE;
        while !stop.load(Ordering::Relaxed) {
            let elapsed = self.begun.elapsed();
            if elapsed >= next {
                next = elapsed + LINE;
                // Whoever reads this may be gone, which must not end the copy.
                let _ = writeln!(std::io::stderr(), "{}", self.line(elapsed));
            }
            std::thread::park_timeout(DRAW);
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let (read, seconds) = (self.position(), elapsed.as_secs_f64().max(1e-3));
        let rate = read as f64 / seconds;
        let left = self.total.saturating_sub(self.before.1 + read);
        let left = if rate > 0.0 { format!(", {:.0} s left", left as f64 / rate) } else { String::new() };
        format!(
            "{seconds:>6.1} s  {} parts, {} of {} read, {}/s, {} rows{left}",
            self.tasks(),
            bytes(self.before.1 + read),
            bytes(self.total),
            bytes(rate as u64),
            count(self.rows())
        )
    }
}

/// The end of a text that is too long: of paths it tells most.
fn ending(text: &str, length: usize) -> String {
    let characters = text.chars().count();
    if characters <= length { text.to_string() } else { format!("…{}", text.chars().skip(characters - length + 1).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_in_the_files() {
        let source = |path: &str, bytes| Source { path: path.into(), bytes, ..Source::default() };
        let sources = [source("a.csv", 100), source("b.csv.zst", 100)];
        let meter = Meter::new(&sources);
        assert_eq!((meter.name.as_str(), meter.position()), ("2 files", 0));
        let plain = meter.reading(&sources[..1], Box::new(|| (3, 60)));
        meter.reading(&sources[1..], Box::new(|| (3, 60)));
        assert_eq!(meter.position(), 60 + 15);
        meter.read_to_the_end(plain);
        assert_eq!(meter.position(), 100 + 15);
        meter.end();
        assert_eq!(meter.position(), 200);
    }

    #[test]
    fn long_names_are_cut_at_their_beginning() {
        assert_eq!((ending("abc", 3), ending("abcdef", 3)), ("abc".to_string(), "…ef".to_string()));
    }
}
