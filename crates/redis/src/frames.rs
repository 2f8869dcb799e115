//! Entries of a checkpoint in a file of the state directory, until the checkpoint is safe and they are added: frames, each
//! of which is added in one step.
//!
//! A frame is, one behind the other: how many parts it has (4 bytes, little end first), how many bytes these take (4 bytes),
//! and the parts as the protocol has them: for each entry the number of its parts, then names and values in turn.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use tidemill_connect::ConnectError;

use crate::resp;

/// Bytes of a frame: few enough that a server is not kept from others, enough that its own cost does not show.
const FRAME_BYTES: usize = 256 << 10;
/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Entries that are added in one step.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// How many parts.
    pub parts: usize,
    /// The parts.
    pub bytes: Vec<u8>,
}

/// A file that is being written.
pub struct FrameWriter {
    path: PathBuf,
    file: BufWriter<File>,
    open: Frame,
    frames: u64,
}

fn failed(doing: &str, path: &Path, e: impl std::fmt::Display) -> ConnectError {
    ConnectError::new(format!("{doing} '{}', which keeps entries until their checkpoint is committed: {e}", path.display()))
}

impl FrameWriter {
    /// Begins a file; one that is there is of a run that came to nothing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: PathBuf) -> Result<Self, ConnectError> {
        let file = File::create(&path).map_err(|e| failed("creating", &path, e))?;
        Ok(FrameWriter { path, file: BufWriter::with_capacity(BUFFER_BYTES, file), open: Frame::default(), frames: 0 })
    }

    /// Appends an entry of so many parts.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, fields: &[u8], parts: usize) -> Result<(), ConnectError> {
        resp::number(&mut self.open.bytes, parts as u64);
        self.open.bytes.extend_from_slice(fields);
        self.open.parts += 1 + parts;
        if self.open.bytes.len() >= FRAME_BYTES { self.end_frame() } else { Ok(()) }
    }

    fn end_frame(&mut self) -> Result<(), ConnectError> {
        if self.open.parts == 0 {
            return Ok(());
        }
        let frame = std::mem::take(&mut self.open);
        let (Ok(parts), Ok(bytes)) = (u32::try_from(frame.parts), u32::try_from(frame.bytes.len())) else {
            return Err(failed("writing", &self.path, "an entry has more than 4 GB"));
        };
        let head = [parts.to_le_bytes(), bytes.to_le_bytes()].concat();
        let written = self.file.write_all(&head).and_then(|()| self.file.write_all(&frame.bytes));
        written.map_err(|e| failed("writing", &self.path, e))?;
        self.frames += 1;
        Ok(())
    }

    /// Ends the file and makes it and its name safe; how many frames it has.
    ///
    /// # Errors
    /// It cannot be made safe.
    pub fn finish(mut self) -> Result<u64, ConnectError> {
        self.end_frame()?;
        let path = &self.path;
        self.file.flush().map_err(|e| failed("writing", path, e))?;
        self.file.get_ref().sync_all().map_err(|e| failed("making safe (fsync)", path, e))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("making safe (fsync) the name of", path, e))?;
        Ok(self.frames)
    }
}

/// Reads a file from its beginning.
pub struct FrameReader {
    path: PathBuf,
    file: BufReader<File>,
}

impl FrameReader {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be opened; it is gone.
    pub fn open(path: &Path) -> Result<Self, ConnectError> {
        let file = File::open(path).map_err(|e| {
            if e.kind() == ErrorKind::NotFound {
                let lost =
                    "it is gone, so rows that the checkpoint counts as written are lost; restore it, or start without the checkpoint";
                failed("opening", path, lost)
            } else {
                failed("opening", path, e)
            }
        })?;
        Ok(FrameReader { path: path.to_path_buf(), file: BufReader::with_capacity(BUFFER_BYTES, file) })
    }

    /// The next frame. To be asked for as many as were written.
    ///
    /// # Errors
    /// It cannot be read, or the file is cut off.
    pub fn next_frame(&mut self) -> Result<Frame, ConnectError> {
        self.try_next().map_err(|e| failed("reading", &self.path, e))
    }

    fn try_next(&mut self) -> std::io::Result<Frame> {
        let mut head = [[0; 4]; 2];
        self.file.read_exact(head.as_flattened_mut())?;
        let [parts, length] = head.map(|number| u32::from_le_bytes(number) as usize);
        let mut bytes = Vec::new();
        let got = (&mut self.file).take(length as u64).read_to_end(&mut bytes)?;
        if got < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Frame { parts, bytes }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frames");
        let mut writer = FrameWriter::create(path.clone()).unwrap();
        let mut fields = Vec::new();
        resp::bulk(&mut fields, b"a");
        resp::bulk(&mut fields, &[b'x'; 1000]);
        for _ in 0..1000 {
            writer.add(&fields, 2).unwrap();
        }
        let frames = writer.finish().unwrap();
        assert_eq!(frames, 4);
        let mut reader = FrameReader::open(&path).unwrap();
        let read: Vec<Frame> = (0..frames).map(|_| reader.next_frame().unwrap()).collect();
        assert_eq!(read.iter().map(|frame| frame.parts).sum::<usize>(), 3000);
        let one = [&b"$1\r\n2\r\n"[..], fields.as_slice()].concat();
        assert!(read.iter().all(|frame| frame.bytes.len() == frame.parts / 3 * one.len() && frame.bytes.starts_with(&one)));
        assert!(reader.next_frame().is_err(), "there are no more");
    }

    #[test]
    fn a_file_that_is_gone_or_cut_off_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frames");
        let error = FrameReader::open(&path).err().expect("it is not there").to_string();
        assert!(error.contains("it is gone"), "{error}");
        let mut writer = FrameWriter::create(path.clone()).unwrap();
        writer.add(b"$1\r\na\r\n$1\r\nb\r\n", 2).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(FrameReader::open(&path).unwrap().next_frame().is_err());
    }
}
