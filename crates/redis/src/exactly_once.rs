//! Entries that are added with their checkpoint, once.
//!
//! Between two checkpoints, an *epoch*, entries gather in a file ([`crate::frames`]). A checkpoint makes the file safe; its
//! commit adds the entries frame by frame. Each frame is a script that the server runs as one step: if the *mark* of the
//! writer, a key of its own, says that the frame before was the last one added, it adds the entries and sets the mark;
//! otherwise it does nothing and tells the mark. So a frame is added once, whoever sends it how often and however late: a
//! commit that is cut off is done again from the file, what a killed process has sent and the server reads after its
//! successor has begun finds another mark, and frames may be sent one behind the other without waiting.
//!
//! Why a script and not MULTI: the commands of a transaction are all done even if one fails, so a stream that somebody has
//! replaced by something else would lose its entries and get its mark. A script ends at the first failure, which is that of
//! its first entry, before anything was done.
//!
//! What it rests on: the server keeps what it has confirmed. If it loses the newest entries in a crash, it loses their
//! marks with them, and the next commit finds that out.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Writer, WriterStats};

use crate::connection::{Connection, Trouble, unexpected};
use crate::entries::{EntryEncoder, Trim};
use crate::frames::{Frame, FrameReader, FrameWriter};
use crate::resp::{self, Reply};

/// Adds the entries of a frame, if its turn has come. Keys: the stream, the mark. Arguments: the mark as it must be, the
/// mark as it will be (it is first set to what it is, so that who may not set it adds nothing), how many arguments of `XADD` follow that say what is trimmed, these, and the parts of the frame.
const SCRIPT: &str = "\
local mark = redis.call('GET', KEYS[2]) or ''
if mark ~= ARGV[1] then return mark end
redis.call('SET', KEYS[2], mark)
local first = 4 + tonumber(ARGV[3])
local at = first
while at <= #ARGV do
  local add = {'XADD', KEYS[1]}
  for i = 4, first - 1 do add[#add + 1] = ARGV[i] end
  add[#add + 1] = '*'
  local last = at + tonumber(ARGV[at])
  for i = at + 1, last do add[#add + 1] = ARGV[i] end
  redis.call(unpack(add))
  at = last + 1
end
redis.call('SET', KEYS[2], ARGV[2])
return ARGV[2]";

/// Columns of a table at most: a script can hand on some 8,000 values.
pub const COLUMNS_MAX: usize = 3_900;
/// Frames under way before the oldest is waited for.
const FRAMES_MAX: u64 = 4;

/// What a checkpoint keeps of a writer's epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The key of the stream.
    pub stream: String,
    /// The key of the writer's mark.
    pub mark: String,
    /// Counts the writer's checkpoints.
    pub epoch: u64,
    /// The mark behind the epoch before; empty before the first.
    pub before: String,
    /// The file that has the entries, in the directory of the sink.
    pub file: String,
    /// Frames in it.
    pub frames: u64,
}

impl Epoch {
    /// The mark when so many of its frames were added.
    fn after(&self, frames: u64) -> String {
        if frames == 0 { self.before.clone() } else { format!("{}/{frames}", self.epoch) }
    }

    /// Whether a mark says that this frame (from 1) was added.
    fn has(&self, frame: u64, mark: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let marked = mark.split_once('/').and_then(|(epoch, frame)| Some((number(epoch)?, number(frame)?)));
        marked.is_some_and(|marked| marked >= (self.epoch, frame))
    }
}

/// Writes the rows of one shard.
pub struct ExactlyOnce {
    encoder: EntryEncoder,
    stream: String,
    mark: String,
    /// Where files go, and what their names begin with.
    directory: PathBuf,
    prefix: String,
    /// The number of this epoch, and the mark behind those before.
    epoch: u64,
    before: String,
    /// The file of this epoch, from its first row on.
    file: Option<FrameWriter>,
    bytes: u64,
}

impl ExactlyOnce {
    /// A writer to a stream, with a mark of its own under the key `mark`, and files of its own in a directory.
    pub fn new(encoder: EntryEncoder, stream: String, mark: String, (directory, prefix): (PathBuf, String)) -> Self {
        ExactlyOnce { encoder, stream, mark, directory, prefix, epoch: 1, before: String::new(), file: None, bytes: 0 }
    }

    /// The name of this epoch's file.
    fn name(&self) -> String {
        format!("{}{}.frames", self.prefix, self.epoch)
    }
}

impl Writer for ExactlyOnce {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(FrameWriter::create(self.directory.join(self.name()))?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        for (fields, parts) in self.encoder.encode(block)?.iter() {
            self.bytes += fields.len() as u64;
            file.add(fields, parts)?;
        }
        Ok(())
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        let Some(file) = self.file.take() else { return Ok(Vec::new()) };
        let epoch = Epoch {
            stream: self.stream.clone(),
            mark: self.mark.clone(),
            epoch: self.epoch,
            before: self.before.clone(),
            file: self.name(),
            frames: file.finish()?,
        };
        self.before = epoch.after(epoch.frames);
        self.epoch += 1;
        let kept = serde_json::to_value(epoch);
        Ok(vec![kept.map_err(|e| ConnectError::new(format!("internal error: a checkpoint's epoch: {e}")))?])
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}

/// Why an epoch was not added.
pub enum Uncommitted {
    /// Of the server or the connection.
    Trouble(Trouble),
    /// Of the file, or of what the server has lost.
    Lost(ConnectError),
}

impl From<Trouble> for Uncommitted {
    fn from(trouble: Trouble) -> Self {
        Uncommitted::Trouble(trouble)
    }
}

/// Adds the entries of an epoch that are not there yet.
///
/// # Errors
/// Those that are not added are when this is called again.
pub fn commit(connection: &mut Connection, epoch: &Epoch, directory: &Path, trim: Trim) -> Result<(), Uncommitted> {
    let path = directory.join(&epoch.file);
    // Its file goes when it is added, and a crash right behind that leaves it in the checkpoint.
    if !path.exists() && is_added(connection, epoch)? {
        return Ok(());
    }
    let mut reader = FrameReader::open(&path).map_err(Uncommitted::Lost)?;
    let trim = trim.parts();
    let mut confirmed = 0;
    for frame in 1..=epoch.frames {
        let read = reader.next_frame().map_err(Uncommitted::Lost)?;
        connection.send(&question(epoch, frame, &read, &trim))?;
        if frame - confirmed >= FRAMES_MAX {
            confirmed += 1;
            confirm(connection, epoch, confirmed)?;
        }
    }
    (confirmed + 1..=epoch.frames).try_for_each(|frame| confirm(connection, epoch, frame))
}

/// Whether the mark says that all of an epoch was added.
fn is_added(connection: &mut Connection, epoch: &Epoch) -> Result<bool, Trouble> {
    let reply = connection.ask(&[b"GET", epoch.mark.as_bytes()])?;
    Ok(reply.text().is_some_and(|mark| epoch.has(epoch.frames, mark)))
}

/// The command that adds a frame.
fn question(epoch: &Epoch, number: u64, frame: &Frame, trim: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(frame.bytes.len() + 2 * SCRIPT.len());
    resp::command(&mut out, 8 + trim.len() + frame.parts);
    let (before, after) = (epoch.after(number - 1), epoch.after(number));
    for part in ["EVAL", SCRIPT, "2", epoch.stream.as_str(), epoch.mark.as_str(), before.as_str(), after.as_str()] {
        resp::bulk(&mut out, part.as_bytes());
    }
    resp::number(&mut out, trim.len() as u64);
    trim.iter().for_each(|part| resp::bulk(&mut out, part.as_bytes()));
    out.extend_from_slice(&frame.bytes);
    out
}

/// Waits for the answer to a frame.
fn confirm(connection: &mut Connection, epoch: &Epoch, frame: u64) -> Result<(), Uncommitted> {
    let reply = connection.receive()?;
    if let Reply::Error(text) = &reply {
        return Err(Trouble::of_answer(text).into());
    }
    let mark = reply.text().ok_or_else(|| unexpected("EVAL", &reply))?;
    if epoch.has(frame, mark) {
        return Ok(());
    }
    let (key, expected) = (&epoch.mark, epoch.after(frame - 1));
    Err(Uncommitted::Lost(ConnectError::new(format!(
        "the server has lost entries that it had confirmed: the key '{key}' says '{mark}' in place of '{expected}'; was it restarted \
         without persistence, flushed, or does it evict keys? --fresh begins anew"
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(epoch: u64, before: &str) -> Epoch {
        Epoch { stream: "s".into(), mark: "m".into(), epoch, before: before.into(), file: "f".into(), frames: 3 }
    }

    #[test]
    fn marks_count_epochs_and_frames() {
        let epoch = epoch(12, "9/2");
        assert_eq!([epoch.after(0), epoch.after(1), epoch.after(3)], ["9/2", "12/1", "12/3"]);
        for (frame, mark, expect) in [
            (1, "12/1", true),
            (2, "12/1", false),
            (2, "12/10", true),
            (3, "13/1", true),
            (1, "9/2", false),
            (1, "", false),
            (1, "x/1", false),
        ] {
            assert_eq!(epoch.has(frame, mark), expect, "{frame} {mark:?}");
        }
    }

    #[test]
    fn a_frame_is_one_command() {
        let frame = Frame { parts: 3, bytes: b"$1\r\n2\r\n$1\r\na\r\n$1\r\nb\r\n".to_vec() };
        let asked = question(&epoch(1, ""), 1, &frame, &["MAXLEN".into(), "~".into(), "5".into()]);
        let Reply::Array(parts) = resp::read_reply(&mut asked.as_slice()).unwrap() else { panic!("a command is an array") };
        let parts: Vec<&str> = parts.iter().map(|part| part.text().unwrap()).collect();
        assert_eq!(parts[0], "EVAL");
        assert_eq!(parts[2..], ["2", "s", "m", "", "1/1", "3", "MAXLEN", "~", "5", "2", "a", "b"]);
    }
}
