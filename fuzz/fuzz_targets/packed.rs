//! Compressed text from strangers, of every kind that files may have: the same bytes or an error however the reads are cut,
//! and no more memory than the readers set for themselves (libFuzzer's bound is far above it).
//!
//! The first byte says how it is compressed, the second how reads of it are cut, the third how those of the text are.

#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use tidemill_format::compression::{Compression, reader};

/// Beyond this nobody reads on, bytes unpacked: a few kilobytes can hold a thousand times as much.
const UNPACKED_BYTES_MAX: usize = 1 << 20;

const KINDS: [Compression; 6] =
    [Compression::None, Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz, Compression::Lz4];

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

/// The text, as far as anybody reads it; none if there is an error. (How far a damaged stream came does depend on the cut.)
fn run(bytes: &[u8], kind: Compression, piece: usize, step: usize) -> Option<Vec<u8>> {
    let input = Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece });
    let mut reader = reader(input, kind).ok()?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; step]);
    while text.len() < UNPACKED_BYTES_MAX {
        let step = buffer.len().min(UNPACKED_BYTES_MAX - text.len());
        match reader.read(&mut buffer[..step]).ok()? {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    Some(text)
}

fuzz_target!(|data: &[u8]| {
    let [kind, piece, step, bytes @ ..] = data else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let whole = run(bytes, kind, bytes.len().max(1), 64 << 10);
    // Not a byte at a time: a megabyte shall take milliseconds.
    let cut = run(bytes, kind, usize::from(*piece) + 1, (usize::from(*step) + 1) << 6);
    match (whole, cut) {
        (Some(whole), Some(cut)) => assert!(whole == cut, "the text depends on where it is cut"),
        (None, None) => {}
        // An error may lie behind what is read: how far ahead of it a decoder is depends on the cut.
        (Some(text), None) | (None, Some(text)) => assert_eq!(text.len(), UNPACKED_BYTES_MAX, "the error depends on where it is cut"),
    }
});
