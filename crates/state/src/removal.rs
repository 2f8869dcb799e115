//! Removes files of state that may be large, a piece at a time.
//!
//! To free the blocks of a file of some GB takes about a second where the file system tells the disk of each (`discard`), and all
//! that is read meanwhile waits behind that. So the names go at once, and what they named is cut from its end by a thread of the
//! process, which rests after each piece. Whatever ends the process, the system frees the rest then: it has no name any more.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::disk::system;

/// What is cut at once: some two milliseconds of a disk's time.
const PIECE: u64 = 8 << 20;
/// How many times as long the thread rests as it works. Not much longer: until they are cut, files keep their part of the system's
/// cache. (With a journal the disk is told when that is written, some seconds later, of all that was freed until then; rests do not
/// help there.)
const REST: u32 = 2;
/// How often the thread looks whether what somebody still has open has been closed.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of the files without a name, each counted whole until nothing is left of it.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// Removes a file. Who has it open, or has another name for it, can go on to read it.
///
/// # Errors
/// The file system's; the name is still there.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    if let Some(file) = unnamed(path)?
        && let Some(queue) = queue()
    {
        send(queue, file);
    }
    Ok(())
}

/// Removes a directory and all that is in it, or a link to one.
///
/// # Errors
/// The file system's.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return file(path);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let removed = if entry.file_type()?.is_dir() { directory(&entry.path()) } else { file(&entry.path()) };
        // Somebody else may have been here.
        removed.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    }
    fs::remove_dir(path)
}

/// Takes a file's name; the file, if it is large and that was its last one.
fn unnamed(path: &Path) -> io::Result<Option<File>> {
    let large = fs::symlink_metadata(path).is_ok_and(|told| told.is_file() && told.len() > PIECE);
    // One that cannot be opened can still be removed.
    let opened = if large { File::options().write(true).open(path).ok() } else { None };
    fs::remove_file(path)?;
    Ok(opened.filter(|file| file.metadata().is_ok_and(|told| told.nlink() == 0)))
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |told| told.len())
}

/// Where files without a name are put; none where the system has no thread for them.
fn queue() -> Option<&'static Sender<File>> {
    static QUEUE: OnceLock<Option<Sender<File>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel();
        thread::Builder::new().name("state-remove".into()).spawn(move || cut_all(&receiver, rest)).ok()?;
        Some(sender)
    };
    QUEUE.get_or_init(start).as_ref()
}

fn send(queue: &Sender<File>, file: File) {
    WAITING.fetch_add(length(&file), Ordering::Relaxed);
    // The thread never ends; if it did, the file would be closed here.
    let _ = queue.send(file);
}

/// The thread.
fn cut_all(files: &Receiver<File>, rest: fn(&File, Duration)) {
    // Those that somebody has open.
    let mut open: Vec<File> = Vec::new();
    loop {
        let came = if open.is_empty() { files.recv().map_err(RecvTimeoutError::from) } else { files.recv_timeout(LOOK) };
        match came {
            Ok(file) => open.push(file),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        open.retain(|file| {
            let whole = length(file);
            match system::is_open_once(file) {
                Ok(false) => return true,
                Ok(true) => cut(file, rest),
                // The system does not tell. The file is freed as a whole when nobody has it open any more.
                Err(_) => {}
            }
            WAITING.fetch_sub(whole, Ordering::Relaxed);
            false
        });
    }
}

/// Cuts a file until nothing is left of it.
fn cut(file: &File, rest: fn(&File, Duration)) {
    let mut left = length(file);
    while left > 0 {
        // To cut a block in two, the system would have to read it.
        left = (left - 1) / PIECE * PIECE;
        let begun = Instant::now();
        if file.set_len(left).is_err() {
            // It is freed as a whole when it is closed.
            return;
        }
        rest(file, begun.elapsed());
    }
}

/// Rests after work of so long, unless more waits to be freed than is free.
fn rest(file: &File, worked: Duration) {
    if system::free_bytes(file).is_ok_and(|free| free > WAITING.load(Ordering::Relaxed)) {
        thread::sleep(worked * REST);
    }
}

#[cfg(test)]
mod tests;
