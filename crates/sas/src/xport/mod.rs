//! XPORT, the transport form of SAS data sets: published by SAS (TS-140 for version 5, its successor for version 8),
//! read by every statistics program, asked for by the FDA. Read and written here.
//!
//! A file is records of 80 bytes: headers of text, a description of 140 bytes a column (NAMESTR), then rows one
//! after the other without regard to records, and blanks to the end of the last record. Numbers are IBM's
//! ([`ibm`]). Version 8 adds names of up to 32 bytes and longer labels and texts. [`head`] reads what stands before the
//! rows, [`read`] the rows, [`write`](mod@write) makes files.

mod head;
pub(crate) mod ibm;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use self::read::{XportFile, XportRows};
pub use self::write::{XportEncoder, XportOptions, XportVersion};

/// Bytes of a record.
const RECORD: usize = 80;
/// What every header record begins with.
const HEADER: &[u8; 20] = b"HEADER RECORD*******";
/// What stands behind the name of a header record.
const HEADER_MARK: &[u8; 20] = b"HEADER RECORD!!!!!!!";

/// The name in a header record, without the blanks behind it; `None` if the record is no header.
fn header_name(record: &[u8]) -> Option<&str> {
    let rest = record.strip_prefix(HEADER.as_slice())?;
    let name = rest.get(..8)?;
    if !rest[8..].starts_with(HEADER_MARK) {
        return None;
    }
    std::str::from_utf8(name).ok().map(str::trim_end)
}

/// Where the record after byte `at` begins, or `at` if one begins there.
fn next_record(at: u64) -> u64 {
    at.next_multiple_of(RECORD as u64)
}
