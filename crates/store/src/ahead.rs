//! What all open readers of the process may fetch ahead together, divided so that readers which stand still keep little and
//! those which wait for the network get the rest. How many requests a reader would make is [`crate::pace`]'s to say; how many
//! bytes they may ask for is said here.
//!
//! Half of the bytes is divided evenly: each reader has a share, of which its next [`ALWAYS`] requests are made, smaller ones
//! the more readers there are. The other half is for readers whose pace has shown that more requests bring more, and for parts
//! of files that are fetched before they are wanted; who finds nothing left there goes without.
//!
//! A reader without a request always gets one, of [`PIECE_MIN`] at least (or what is left of the file): so none ever waits for
//! bytes that another holds, which in a merge by time may not be read before this one's are. Beyond the bytes of both halves
//! there is thus at most [`PIECE_MIN`] for each reader.

use std::sync::Mutex;

use crate::pace::ALWAYS;
use crate::runtime::lock;

/// What a request asks for at least, bytes, unless less is left of the file: a thousand readers hold 256 MB.
pub(crate) const PIECE_MIN: u64 = 256 << 10;

/// The bytes, and who has them.
pub(crate) struct Ahead {
    /// Half of the bytes.
    half: u64,
    /// [`PIECE_MIN`]; less in tests.
    piece_min: u64,
    used: Mutex<Used>,
}

struct Used {
    readers: u64,
    /// Bytes of the half that is divided.
    shares: u64,
    /// Bytes of the half for everybody.
    common: u64,
}

impl Ahead {
    pub const fn new(bytes_max: u64, piece_min: u64) -> Self {
        Ahead { half: bytes_max / 2, piece_min, used: Mutex::new(Used { readers: 0, shares: 0, common: 0 }) }
    }

    /// Takes bytes of the half for everybody, if they are there.
    pub fn reserve(&'static self, bytes: u64) -> Option<Ticket> {
        let mut used = lock(&self.used);
        if used.common + bytes > self.half {
            return None;
        }
        used.common += bytes;
        Some(Ticket { ahead: self, bytes, common: true })
    }

    /// Bytes taken, and readers.
    #[cfg(test)]
    pub fn used(&self) -> (u64, u64) {
        let used = lock(&self.used);
        (used.shares + used.common, used.readers)
    }
}

/// A reader among those that share. It is one no longer when dropped.
pub(crate) struct Member(&'static Ahead);

impl Member {
    pub fn new(ahead: &'static Ahead) -> Self {
        lock(&ahead.used).readers += 1;
        Member(ahead)
    }

    /// The bytes of the next request: `wanted`, or fewer. `flying` are the tickets of the requests under way; `fast` says that
    /// more than [`ALWAYS`] of them have been found worthwhile. `None` if it should be made later; never without one under way.
    pub fn ask<'a>(&self, wanted: u64, flying: impl Iterator<Item = &'a Ticket>, fast: bool) -> Option<Ticket> {
        let ahead = self.0;
        let (mut requests, mut held) = (0_u64, 0);
        for ticket in flying {
            requests += 1;
            held += if ticket.common { 0 } else { ticket.bytes };
        }
        let mut used = lock(&ahead.used);
        let share = ahead.half / used.readers.max(1);
        let piece = wanted.min((share / ALWAYS as u64).max(ahead.piece_min));
        let left = ahead.half.saturating_sub(used.shares);
        let bytes = match requests {
            0 => Some(if piece <= left { piece } else { wanted.min(ahead.piece_min) }),
            _ => (piece <= left && held + piece <= share).then_some(piece),
        };
        if let Some(bytes) = bytes {
            used.shares += bytes;
            return Some(Ticket { ahead, bytes, common: false });
        }
        drop(used);
        if fast { ahead.reserve(wanted) } else { None }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.0.used).readers -= 1;
    }
}

/// Bytes of an [`Ahead`], given back when dropped.
pub(crate) struct Ticket {
    ahead: &'static Ahead,
    bytes: u64,
    common: bool,
}

impl Ticket {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut used = lock(&self.ahead.used);
        match self.common {
            true => used.common -= self.bytes,
            false => used.shares -= self.bytes,
        }
    }
}

#[cfg(test)]
mod tests;
