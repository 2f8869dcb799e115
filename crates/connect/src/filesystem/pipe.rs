//! Pipes, and whatever else is no regular file: they can be read once. Who wants to know the columns of what comes through one
//! must read some of it; that is kept here, and comes first when a table reads the pipe. So a pipe that was looked at is
//! read by one table, and a second one gets an error instead of the rows that the first has left over. A named pipe may get
//! another writer, for which a table that is declared waits, unless both are of one query: what they got of the pipe, or whether one
//! waited for ever, would be a matter of time.
//!
//! What is kept are the bytes as they came, compressed or packed into an archive. A look may end while a thread of it still
//! waits for more; what it gets then is kept, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, Mutex, Weak};

use crate::ConnectError;

/// Bytes that are kept of a pipe at most. Looking takes a few MB; more only where much lies in an archive before the member
/// that is wanted, or where the first record does not end.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// The pipes of this process that were looked at, by device and inode.
static LOOKED_AT: Mutex<BTreeMap<Identity, State>> = Mutex::new(BTreeMap::new());

/// Device and inode.
type Identity = (u64, u64);

/// What became of a pipe since it was looked at.
#[derive(Clone)]
enum State {
    /// What was taken of it waits for the table that reads it.
    Begun(Arc<Pipe>),
    /// A table has read it, or does as long as this is there.
    Taken(Weak<Pipe>),
}

/// A pipe that was begun.
struct Pipe {
    path: String,
    /// Opened by who reads first, which waits for a writer, and held while it is read.
    file: Mutex<Option<File>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// There is nothing behind them.
    ended: bool,
    /// A table reads the pipe: whoever looks at it gets nothing more.
    taken: bool,
}

/// How a pipe is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To find columns: what is read stays for others.
    Look,
    /// For the rows of a table whose columns were found by looking.
    Found,
    /// For the rows of a table that was declared.
    Rows,
}

/// The bytes of the pipe at `path` from the first on. May wait for its writer.
///
/// # Errors
/// It cannot be opened, or a table has read it since it was looked at.
pub(super) fn open(path: &str, meta: &Metadata, purpose: Purpose) -> Result<Box<dyn Read + Send>, ConnectError> {
    open_known(path, (meta.dev(), meta.ino()), purpose)
}

fn open_known(path: &str, identity: Identity, purpose: Purpose) -> Result<Box<dyn Read + Send>, ConnectError> {
    let mut known = LOOKED_AT.lock().expect("no panic while held");
    if purpose == Purpose::Look {
        let pipe = match known.get(&identity) {
            Some(State::Begun(pipe)) => pipe.clone(),
            // A named one may have got another writer since.
            Some(State::Taken(_)) | None => {
                let pipe = Arc::new(Pipe { path: path.to_string(), file: Mutex::default(), kept: Mutex::default() });
                known.insert(identity, State::Begun(pipe.clone()));
                pipe
            }
        };
        return Ok(Box::new(Input { pipe, at: 0, purpose }));
    }
    match known.get(&identity).cloned() {
        // Declared, and read without a look.
        None => {}
        Some(State::Begun(pipe)) => {
            known.insert(identity, State::Taken(Arc::downgrade(&pipe)));
            drop(known);
            pipe.kept.lock().expect("no panic while held").taken = true;
            return Ok(Box::new(Input { pipe, at: 0, purpose }));
        }
        // A table that was found waits for nobody: what it was found by is gone.
        Some(State::Taken(reader)) if purpose == Purpose::Rows && reader.strong_count() == 0 && is_named(path) => {
            known.remove(&identity);
        }
        Some(State::Taken(_)) => return Err(twice(path)),
    }
    drop(known);
    Ok(Box::new(File::open(path).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?))
}

/// Device and inode of the pipe at `path`, if there is one.
pub(super) fn at(path: &str) -> Option<Identity> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_fifo())?;
    Some((meta.dev(), meta.ino()))
}

fn twice(path: &str) -> ConnectError {
    ConnectError::new(format!(
        "'{path}' is a pipe, which can be read once, and is read a second time; write what comes through it into a file first"
    ))
}

/// The pipes that the tables of one query read.
#[derive(Default)]
pub struct Pipes(BTreeSet<Identity>);

impl Pipes {
    /// Notes the pipe that one more table reads, if it reads one: its path, and its device and inode.
    ///
    /// # Errors
    /// Another one reads the same pipe, by whatever name.
    pub fn note(&mut self, pipe: Option<(String, (u64, u64))>) -> Result<(), ConnectError> {
        match pipe {
            Some((path, identity)) if !self.0.insert(identity) => Err(twice(&path)),
            _ => Ok(()),
        }
    }
}

/// Whether a pipe has a name of its own by which others can write to it. `/dev/stdin` and `/dev/fd/3` lead to none.
fn is_named(path: &str) -> bool {
    fs::canonicalize(path).is_ok()
}

/// The error about a pipe where a format wants a file, which it reads from its end or anywhere.
pub(super) fn not_a_file(path: &str, format: &str) -> ConnectError {
    ConnectError::new(format!(
        "'{path}' is no regular file, and {format} cannot be read from what comes through a pipe; write it into a file first"
    ))
}

/// Reads a pipe that was begun.
struct Input {
    pipe: Arc<Pipe>,
    /// How many of the bytes that are kept were read.
    at: usize,
    purpose: Purpose,
}

impl Input {
    /// The next bytes as far as they are kept, 0 of them at the end; `None` if they are to be read.
    fn kept(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let mut kept = self.pipe.kept.lock().expect("no panic while held");
        if self.purpose == Purpose::Look && kept.taken {
            return Some(0);
        }
        let left = &kept.bytes[self.at..];
        if left.is_empty() {
            if self.purpose != Purpose::Look {
                kept.bytes = Vec::new();
                self.at = 0;
            }
            return kept.ended.then_some(0);
        }
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.at += length;
        Some(length)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(length) = self.kept(buffer) {
            return Ok(length);
        }
        // While this waited, a look may have got what it had been waiting for.
        let pipe = self.pipe.clone();
        let mut file = pipe.file.lock().expect("no panic while held");
        if let Some(length) = self.kept(buffer) {
            return Ok(length);
        }
        if file.is_none() {
            *file = Some(File::open(&pipe.path)?);
        }
        let length = file.as_mut().expect("opened above").read(buffer)?;
        let mut kept = pipe.kept.lock().expect("no panic while held");
        kept.ended = length == 0 && !buffer.is_empty();
        if self.purpose == Purpose::Look {
            kept.bytes.extend_from_slice(&buffer[..length]);
            self.at += length;
            if kept.bytes.len() > KEPT_BYTES_MAX {
                let why = format!("more than {} MB of the pipe must be read to find its columns", KEPT_BYTES_MAX >> 20);
                let advice = "declare them by CREATE TABLE with 'connector' = 'stdin', or write a file first";
                return Err(io::Error::other(format!("{why}; {advice}")));
            }
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    /// A pipe with what is put into it, and the path by which it can be opened.
    fn pipe(content: &[u8]) -> (io::PipeReader, String, Identity) {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(content).unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let meta = fs::metadata(&path).unwrap();
        (reader, path, (meta.dev(), meta.ino()))
    }

    fn text(input: Box<dyn Read + Send>, bytes: u64) -> String {
        let mut text = String::new();
        input.take(bytes).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_a_look_takes_comes_first() {
        let (_reader, path, identity) = pipe(b"one\ntwo\nthree\n");
        let open = |purpose| open_known(&path, identity, purpose);
        for bytes in [5, 2, 9] {
            assert_eq!(text(open(Purpose::Look).unwrap(), bytes), "one\ntwo\nthree\n"[..bytes as usize]);
        }
        let mut late = open(Purpose::Look).unwrap();
        assert_eq!(text(open(Purpose::Rows).unwrap(), u64::MAX), "one\ntwo\nthree\n");
        assert_eq!(late.read(&mut [0; 8]).unwrap(), 0, "a look that comes too late takes nothing");
        drop(late);
        let again = open(Purpose::Rows).err().unwrap().to_string();
        assert!(again.contains("is read a second time"), "{again}");
    }

    /// A query read a named pipe, after which no declared table of the process could, whoever wrote to it.
    #[test]
    fn a_named_pipe_gets_another_writer() {
        let path = std::env::temp_dir().join(format!("tidemill-pipe-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let name = path.to_str().unwrap().to_string();
        let meta = fs::metadata(&path).unwrap();
        let open = |purpose| super::open(&name, &meta, purpose);
        let write = |content: &'static str| {
            let path = path.clone();
            std::thread::spawn(move || fs::write(path, content).unwrap())
        };
        let refused = |purpose| open(purpose).err().unwrap().to_string().contains("is read a second time");

        let writer = write("one\n");
        assert_eq!(text(open(Purpose::Look).unwrap(), 4), "one\n");
        writer.join().unwrap();
        let first = open(Purpose::Found).unwrap();
        assert!(refused(Purpose::Found) && refused(Purpose::Rows), "it is being read");
        assert_eq!(text(first, u64::MAX), "one\n");
        assert!(refused(Purpose::Found), "it was found by what is gone");
        for content in ["two\n", "three\n"] {
            let writer = write(content);
            assert_eq!(text(open(Purpose::Rows).unwrap(), u64::MAX), content);
            writer.join().unwrap();
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_pipe_that_was_read_to_its_end_by_a_look() {
        let (_reader, path, identity) = pipe(b"all of it");
        assert_eq!(text(open_known(&path, identity, Purpose::Look).unwrap(), u64::MAX), "all of it");
        assert_eq!(text(open_known(&path, identity, Purpose::Rows).unwrap(), u64::MAX), "all of it");
    }

    #[test]
    fn without_a_look_nothing_is_kept() {
        let (_reader, path, identity) = pipe(b"rows");
        assert_eq!(text(open_known(&path, identity, Purpose::Rows).unwrap(), 2), "ro");
        assert!(!LOOKED_AT.lock().unwrap().contains_key(&identity));
    }
}
