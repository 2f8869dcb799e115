//! Archives from strangers: a zip by its directory and from front to back, and a tar. What a member says of its length
//! is so, and nothing depends on where the stream is cut.
//!
//! The first byte says how the stream is cut.

#![no_main]

use std::io::Read;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidemill_archive::{Container, Limits, ReadAt, Walk, zip_directory, zip_member};
use tidemill_format::compression::Compression;

/// Beyond this nobody reads on, bytes unpacked: a few kilobytes can hold a thousand times as much.
const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Bytes that come in pieces.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.piece.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Names and contents of the members that were read to their end, and whether an error ended it. (How far a damaged member
/// came, which errors say, does depend on the cut.)
fn walk(bytes: &[u8], container: Container, piece: usize, limits: Limits) -> (Vec<(String, Vec<u8>)>, bool) {
    let mut walk = Walk::new(Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece }), container, limits);
    let (mut all, mut left) = (Vec::new(), UNPACKED_BYTES_MAX);
    loop {
        let member = match walk.next() {
            Ok(Some(member)) => member,
            Ok(None) => return (all, false),
            Err(_) => return (all, true),
        };
        // Every third one is passed over.
        if member.index % 3 == 2 {
            continue;
        }
        let mut content = Vec::new();
        if (&mut walk).take(left as u64).read_to_end(&mut content).is_err() {
            return (all, true);
        }
        left -= content.len();
        if left == 0 {
            return (all, false);
        }
        assert!(!member.size_known() || content.len() as u64 == member.size);
        all.push((member.name, content));
    }
}

fuzz_target!(|data: &[u8]| {
    let [piece, bytes @ ..] = data else { return };
    let limits = Limits { members_max: 100, ratio_max: 2000, name_bytes_max: 200 };
    let file: Arc<dyn ReadAt> = Arc::new(bytes.to_vec());
    let mut left = UNPACKED_BYTES_MAX;
    for member in zip_directory(&*file, &limits).unwrap_or_default() {
        let Ok(reader) = zip_member(Arc::clone(&file), &member, &limits) else { continue };
        let mut content = Vec::new();
        if reader.take(left as u64).read_to_end(&mut content).is_ok() && content.len() < left {
            assert_eq!(content.len() as u64, member.size);
        }
        left -= content.len();
    }
    for container in [Container::Zip, Container::Tar(Compression::None)] {
        assert_eq!(walk(bytes, container, *piece as usize + 1, limits), walk(bytes, container, bytes.len().max(1), limits));
    }
});
