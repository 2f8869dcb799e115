//! Frames of lz4, one after the other. The decoder of the crate takes a stream that was cut between two
//! blocks for one that ended, and stops at the first frame: what is here knows better.

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;

/// How a frame of data begins.
const FRAME: u32 = 0x184D_2204;
/// How a frame of the format before 2013 begins: it has neither an end nor checksums.
const LEGACY: u32 = 0x184C_2102;
/// How a frame begins that readers are to skip; the last four bits are free.
const SKIPPABLE: u32 = 0x184D_2A50;

/// Decompresses frame after frame; frames to be skipped are skipped.
pub(super) struct Frames<R: Read> {
    decoder: FrameDecoder<Watched<R>>,
    inside: bool,
}

/// What the decoder reads from: it notes whether the input came to its end, and gives the magic number
/// again that was read to see which kind of frame begins.
struct Watched<R> {
    input: R,
    magic: [u8; 4],
    magic_left: usize,
    ended: bool,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(input: R) -> Self {
        Frames { decoder: FrameDecoder::new(Watched { input, magic: [0; 4], magic_left: 0, ended: false }), inside: false }
    }

    /// Goes to the next frame of data; `false`: there is none.
    fn begin(&mut self) -> io::Result<bool> {
        let input = self.decoder.get_mut();
        loop {
            let mut magic = [0; 4];
            match input.fill(&mut magic)? {
                0 => return Ok(false),
                4 => {}
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            match u32::from_le_bytes(magic) {
                FRAME => {
                    (input.magic, input.magic_left) = (magic, 4);
                    return Ok(true);
                }
                LEGACY => {
                    let why = "it is in the legacy frame format, which shows neither its end nor damage: compress it again with lz4";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                kind if kind & !0xF == SKIPPABLE => {
                    let mut length = [0; 4];
                    input.read_exact(&mut length)?;
                    let length = u64::from(u32::from_le_bytes(length));
                    if io::copy(&mut input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no frame of lz4 begins here")),
            }
        }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.inside {
                if !self.begin()? {
                    return Ok(0);
                }
                self.inside = true;
            }
            match self.decoder.read(buf)? {
                // The end of the frame was read, or the input stopped before it.
                0 if self.decoder.get_ref().ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                // (A block of no bytes looks the same. No encoder writes one: what follows it is refused above.)
                0 => self.inside = false,
                n => return Ok(n),
            }
        }
    }
}

impl<R: Read> Watched<R> {
    /// Fills `buf`; fewer bytes only at the end of the input.
    fn fill(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.magic_left > 0 && !buf.is_empty() {
            let n = self.magic_left.min(buf.len());
            let from = 4 - self.magic_left;
            buf[..n].copy_from_slice(&self.magic[from..from + n]);
            self.magic_left -= n;
            return Ok(n);
        }
        loop {
            match self.input.read(buf) {
                // The decoder does not begin again where it was interrupted.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // And takes this for the end of the frame.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(io::Error::other(e)),
                Ok(n) => {
                    self.ended |= n == 0 && !buf.is_empty();
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
