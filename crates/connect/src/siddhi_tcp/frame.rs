//! The frames of the wire: finding them in bytes that are cut anywhere.
//!
//! ```text
//! 0x02 | i32 size | i32 s | session id | i32 c | channel id | i32 d | payload      all big-endian
//!                   `----------------- size = 12 + s + c + d bytes -------------'
//! ```
//!
//! The lengths must add up; bytes of which they do not are no frames, and nothing behind them can be
//! told apart. What a payload holds is the business of [`super::decode`].

use std::fmt;

use crate::socket::room::Share;

/// The first byte of every frame.
pub const PROTOCOL: u8 = 2;
/// The protocol byte and the size.
pub const PREFIX_BYTES: usize = 5;
/// The three lengths that every frame has.
const LENGTHS_BYTES: usize = 12;

/// What stands at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A complete frame.
    Frame(Frame),
    /// The beginning of a frame; it takes this many bytes at least.
    More(usize),
}

/// Where the parts of a frame lie, counted from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The first byte of the channel id.
    pub channel: usize,
    /// The byte behind the channel id.
    pub channel_end: usize,
    /// The first byte of the payload, which goes to the end of the frame.
    pub payload: usize,
    /// Bytes of the frame.
    pub length: usize,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first byte is another.
    Protocol(u8),
    /// No frame has this size.
    Size(i32),
    /// The frame would have this many bytes, more than it may.
    TooLong { bytes: usize, bytes_max: usize },
    /// A length is negative, or the lengths do not add up to the size.
    Length { what: &'static str, length: i32, size: i32 },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Protocol(byte) => {
                write!(f, "the frame begins with byte {byte:#04x}, not with {PROTOCOL:#04x}: this is not Siddhi's TCP transport")
            }
            FrameError::Size(size) => write!(f, "the frame gives its size as {size}; a frame has {LENGTHS_BYTES} bytes at least"),
            FrameError::TooLong { bytes, bytes_max } => {
                write!(f, "the frame has {bytes} bytes, more than the {bytes_max} that 'max-frame-size' allows")
            }
            FrameError::Length { what, length, size } => {
                write!(f, "the length of the {what}, {length}, contradicts the size of the frame, {size}")
            }
        }
    }
}

/// The four bytes at `at`, if there are as many.
#[inline]
fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|four| i32::from_be_bytes(*four))
}

/// A length of which at most `room` bytes can be, or the error about it.
#[inline]
fn length(what: &'static str, length: i32, room: usize, size: i32) -> Result<usize, FrameError> {
    match usize::try_from(length) {
        Ok(n) if n <= room => Ok(n),
        _ => Err(FrameError::Length { what, length, size }),
    }
}

/// The frame at the beginning of `bytes`, of `bytes_max` bytes at most. A fault is told as soon as
/// its bytes are there, so that nobody waits for the rest of what is no frame.
///
/// # Errors
/// The bytes are no frame.
#[inline]
pub fn split(bytes: &[u8], bytes_max: usize) -> Result<Cut, FrameError> {
    match bytes.first() {
        None => return Ok(Cut::More(PREFIX_BYTES)),
        Some(&PROTOCOL) => {}
        Some(&other) => return Err(FrameError::Protocol(other)),
    }
    let Some(size) = int(bytes, 1) else { return Ok(Cut::More(PREFIX_BYTES)) };
    let Some(parts) = usize::try_from(size).ok().and_then(|n| n.checked_sub(LENGTHS_BYTES)) else {
        return Err(FrameError::Size(size));
    };
    let whole = PREFIX_BYTES + LENGTHS_BYTES + parts;
    if whole > bytes_max {
        return Err(FrameError::TooLong { bytes: whole, bytes_max });
    }
    let more = Ok(Cut::More(whole));
    let Some(session) = int(bytes, PREFIX_BYTES) else { return more };
    let session = length("session id", session, parts, size)?;
    let at = PREFIX_BYTES + 4 + session;
    let Some(channel) = int(bytes, at) else { return more };
    let channel_bytes = length("channel id", channel, parts - session, size)?;
    let (channel, channel_end) = (at + 4, at + 4 + channel_bytes);
    let Some(payload) = int(bytes, channel_end) else { return more };
    let left = parts - session - channel_bytes;
    if length("payload", payload, left, size)? != left {
        return Err(FrameError::Length { what: "payload", length: payload, size });
    }
    if bytes.len() < whole {
        return more;
    }
    Ok(Cut::Frame(Frame { channel, channel_end, payload: channel_end + 4, length: whole }))
}

/// The bytes of a connection that are not worked off, in one piece.
#[derive(Default)]
pub struct Assembly {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// The last read filled all there was.
    filled: bool,
    /// Of the memory of all connections: what a longer frame than is usually read at once takes, or more once it was waited
    /// for. What is usually read at once counts apart, for it stays.
    share: Share,
}

/// What a connection that says little takes for its buffer.
const BUFFER_BYTES_MIN: usize = 16 << 10;

impl Assembly {
    /// Nothing has come of a connection whose buffer is part of `share`.
    pub fn sharing(share: Share) -> Self {
        Assembly { share, ..Assembly::default() }
    }

    /// As [`Assembly::try_space`] where no memory is shared, and frames have any length.
    pub fn space(&mut self, bytes_max: usize) -> &mut [u8] {
        self.try_space(bytes_max, usize::MAX).expect("there is always room where no memory is shared")
    }

    /// Room for further bytes, never empty. The buffer grows to `bytes_max` with a peer that fills
    /// it, as far as there is memory for such buffers, and beyond that only with the bytes that have come of a longer frame, of
    /// `frame_bytes_max` at most: a peer that announces much and sends little costs little. None if other
    /// connections hold so much that this frame cannot go on.
    pub fn try_space(&mut self, bytes_max: usize, frame_bytes_max: usize) -> Option<&mut [u8]> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            // A long frame gives back what it took.
            if self.bytes.len() > bytes_max || self.share.is_counted() {
                self.bytes = Vec::new();
                self.share.set(0);
                self.share.set_spare(0);
            }
        } else if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let length = self.bytes.len();
        if length < bytes_max && (self.filled || length == 0) {
            let more = (length * 4).clamp(BUFFER_BYTES_MIN.min(bytes_max), bytes_max);
            if self.share.set_spare(more) {
                self.grow(more);
            }
        }
        if self.end == self.bytes.len() {
            let more = self.needed(frame_bytes_max);
            if !self.share.set(more) {
                return None;
            }
            self.grow(more);
        }
        Some(&mut self.bytes[self.end..])
    }

    /// Waits for what [`Assembly::try_space`] did not get; false if there is no room for long, as [`Share::wait`] says.
    pub fn wait_for_space(&mut self, frame_bytes_max: usize) -> bool {
        let needed = self.needed(frame_bytes_max);
        self.share.wait(needed)
    }

    /// What it holds of the memory of all connections.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Bytes of a buffer in which more of a frame has place than has come.
    fn needed(&self, frame_bytes_max: usize) -> usize {
        (self.end * 2).max(BUFFER_BYTES_MIN).min(frame_bytes_max.max(self.end + 1))
    }

    /// Makes the buffer that long, and takes no more memory for it.
    fn grow(&mut self, length: usize) {
        self.bytes.reserve_exact(length - self.bytes.len());
        self.bytes.resize(length, 0);
    }

    /// So many bytes of the space were filled.
    pub fn advance(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.bytes.len(), "more bytes than there was space for");
        self.filled = self.end == self.bytes.len();
    }

    /// The bytes that are there.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// The first so many bytes are worked off.
    pub fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
        assert!(self.begin <= self.end, "more bytes than there were");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::socket::room::Room;

    fn frame(session: &[u8], channel: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = vec![PROTOCOL];
        out.extend(((LENGTHS_BYTES + session.len() + channel.len() + payload.len()) as i32).to_be_bytes());
        for part in [session, channel, payload] {
            out.extend((part.len() as i32).to_be_bytes());
            out.extend(part);
        }
        out
    }

    #[test]
    fn a_frame_is_found_once_it_is_complete() {
        for (session, channel, payload) in [("me", "app/in", "12345678"), ("", "", ""), ("s", "c", "")] {
            let mut bytes = frame(session.as_bytes(), channel.as_bytes(), payload.as_bytes());
            let whole = bytes.len();
            for cut in 0..whole {
                let need = if cut < PREFIX_BYTES { PREFIX_BYTES } else { whole };
                assert_eq!(split(&bytes[..cut], 1000), Ok(Cut::More(need)), "{cut} of {whole} bytes");
            }
            bytes.extend(b"next");
            let Ok(Cut::Frame(found)) = split(&bytes, 1000) else { panic!("no frame") };
            assert_eq!(found.length, whole);
            assert_eq!(&bytes[found.channel..found.channel_end], channel.as_bytes());
            assert_eq!(&bytes[found.payload..found.length], payload.as_bytes());
        }
    }

    #[track_caller]
    fn check_error(bytes: &[u8], expect: &str) {
        let error = split(bytes, 100).expect_err("no frame");
        assert_eq!(error.to_string(), expect);
        // Told at once, and not only when more has come.
        assert_eq!(split(&[bytes, &[0; 200][..]].concat(), 100), Err(error));
    }

    #[test]
    fn what_is_no_frame() {
        let ints = |numbers: &[i32]| [&[PROTOCOL][..], &numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>()].concat();
        check_error(b"GET /", "the frame begins with byte 0x47, not with 0x02: this is not Siddhi's TCP transport");
        check_error(&ints(&[-1]), "the frame gives its size as -1; a frame has 12 bytes at least");
        check_error(&ints(&[11]), "the frame gives its size as 11; a frame has 12 bytes at least");
        check_error(&ints(&[96]), "the frame has 101 bytes, more than the 100 that 'max-frame-size' allows");
        check_error(&ints(&[i32::MAX]), "the frame has 2147483652 bytes, more than the 100 that 'max-frame-size' allows");
        check_error(&ints(&[20, -1]), "the length of the session id, -1, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 9]), "the length of the session id, 9, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 4, 0, 5]), "the length of the channel id, 5, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 4, 0, i32::MIN]), "the length of the channel id, -2147483648, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 0, 0, 7]), "the length of the payload, 7, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 0, 0, 9]), "the length of the payload, 9, contradicts the size of the frame, 20");
        check_error(&ints(&[20, 0, 0, -8]), "the length of the payload, -8, contradicts the size of the frame, 20");
    }

    #[test]
    fn bytes_cut_anywhere_come_together() {
        let mut assembly = Assembly::default();
        let all: Vec<u8> = (0..200_000u32).map(|i| (i * 7) as u8).collect();
        let (mut sent, mut seen) = (0, Vec::new());
        for step in (1..).map(|i| i * 37 % 5000 + 1) {
            let space = assembly.space(64 << 10);
            let n = step.min(space.len()).min(all.len() - sent);
            space[..n].copy_from_slice(&all[sent..sent + n]);
            assembly.advance(n);
            sent += n;
            let taken = assembly.data().len() / 3 * 2;
            seen.extend_from_slice(&assembly.data()[..taken]);
            assembly.consume(taken);
            if sent == all.len() {
                break;
            }
        }
        seen.extend_from_slice(assembly.data());
        assert!(seen == all, "every byte once and in order");
    }

    #[test]
    fn a_buffer_grows_with_what_comes_and_shrinks_again() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.space(1 << 20).len(), BUFFER_BYTES_MIN);
        assembly.advance(100);
        assert_eq!(assembly.space(1 << 20).len(), BUFFER_BYTES_MIN - 100, "not filled");
        while assembly.data().len() < 4 << 20 {
            let all = assembly.space(1 << 20).len();
            assert!(all <= (1 << 20).max(assembly.data().len() + 1), "no more than has come");
            assembly.advance(all);
        }
        assembly.consume(assembly.data().len());
        assert!(assembly.space(1 << 20).len() <= 1 << 20);
    }

    #[test]
    fn a_buffer_is_no_longer_than_the_longest_frame() {
        let (mut assembly, come) = (Assembly::default(), 299_999);
        while assembly.data().len() < come {
            let left = come - assembly.data().len();
            let space = assembly.try_space(1 << 10, come + 1).unwrap().len();
            assembly.advance(space.min(left));
        }
        assert_eq!(assembly.bytes.len(), come + 1);
    }

    /// Reads until `count` bytes are there, each time as many as there is space for.
    fn fill(assembly: &mut Assembly, bytes_max: usize, count: usize) {
        while assembly.data().len() < count {
            let left = count - assembly.data().len();
            let space = assembly.try_space(bytes_max, 1 << 20).expect("there is room").len();
            assembly.advance(space.min(left));
        }
    }

    /// The memory for frames that are not complete was full of buffers that were empty.
    #[test]
    fn a_buffer_without_a_frame_takes_nothing_from_frames() {
        let room = Arc::new(Room::new(Arc::default(), 0));
        room.limit(1 << 20, Duration::ZERO);
        let buffer_bytes = 512 << 10;
        let [mut one, mut two] = [(); 2].map(|()| Assembly::sharing(Share::new(&room)));
        fill(&mut one, buffer_bytes, buffer_bytes);
        assert_eq!((one.bytes.len(), room.taken()), (buffer_bytes, 0));
        one.consume(buffer_bytes);
        // No memory is left for buffers: a frame of some length takes that of frames, and gives it back.
        fill(&mut two, buffer_bytes, 100 << 10);
        assert_eq!(room.taken(), 128 << 10);
        two.consume(100 << 10);
        assert!(two.try_space(buffer_bytes, 1 << 20).is_some());
        assert_eq!(room.taken(), 0);
    }
}
