//! ORC files: options, and what their bytes may come from. `read` gives batches of the declared types and can begin at
//! any row, `write` writes; both rest on the crate `orc-rust`. In builds without the feature `orc`, `absent` stands
//! in for them and refuses every file.

#[cfg(not(feature = "orc"))]
mod absent;
#[cfg(feature = "orc")]
mod read;
#[cfg(all(test, feature = "orc"))]
mod tests;
#[cfg(feature = "orc")]
mod write;

use std::io;
use std::ops::Range;

use bytes::Bytes;

#[cfg(not(feature = "orc"))]
pub use absent::{OrcFileReader, OrcFileWriter, schema_in, stripes_in};
#[cfg(feature = "orc")]
pub use read::{OrcFileReader, schema_in, stripes_in};
#[cfg(feature = "orc")]
pub use write::OrcFileWriter;

use crate::options::ByteSize;
use crate::{option_enum, options};

option_enum! {
    /// How the streams of a file are compressed.
    pub enum OrcCompression {
        /// Zstandard.
        Zstd = "zstd",
        /// Deflate, which every reader of ORC knows.
        Zlib = "zlib",
        /// Snappy: fast.
        Snappy = "snappy",
        /// LZ4: fast.
        Lz4 = "lz4",
        /// Not at all.
        None = "none",
    }
}

options! {
    /// Options of the `orc` format. They matter for writing only.
    pub struct OrcOptions {
        /// How columns are compressed that are written; what is read says it itself.
        flink "orc.compress" => compress: OrcCompression = OrcCompression::Zlib;
        /// The size at which a stripe is closed, encoded and not yet compressed; about what the writer holds in memory.
        flink "orc.stripe.size" => stripe_size: ByteSize = ByteSize(64 << 20);
    }
}

/// The bytes of a file that need not be a local one.
pub trait OrcInput: Send {
    /// Its length, bytes.
    fn size(&self) -> u64;

    /// These bytes, all of which the file has.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;

    /// Several parts, in their order; best asked for at once where they lie far away.
    ///
    /// # Errors
    /// As [`OrcInput::read`].
    fn read_all(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        ranges.iter().map(|range| self.read(range.clone())).collect()
    }

    /// Says which parts will be read, stripe after stripe, each time all of a stripe's before those of the next.
    fn expect(&self, _stripes: Vec<Vec<Range<u64>>>) {}
}

impl OrcInput for Bytes {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        Ok(self.slice(range.start as usize..range.end as usize))
    }
}
