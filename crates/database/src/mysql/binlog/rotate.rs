//! The event that names the file of the log that follows.
//!
//! The server makes one up in front of each file, also of the first, where nobody has yet said whether events end with
//! checksums: that stands in the event behind it. MariaDB adds one nevertheless, even if its log has none. So what is at
//! the end of such an event is looked at itself: whether it is the checksum of what is before it.

use std::borrow::Cow;
use std::io;

use ::mysql::binlog::events::{BinlogEventFooter, Event, FormatDescriptionEvent};
use ::mysql::binlog::{BinlogChecksumAlg, BinlogVersion};

use super::catalog::numbered;
use super::damaged;
use crate::cdc::position::Offset;
use crate::driver::DbError;

/// How the checksum is made, where there is one.
const CRC32: BinlogChecksumAlg = BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32;
/// Bytes of the place in front of the name.
const PLACE_BYTES: usize = 8;

/// Where the log goes on.
///
/// # Errors
/// The event is damaged, or its name is none.
pub(super) fn next(event: &Event) -> Result<Offset, DbError> {
    let body = body(event).map_err(|e| damaged(&e))?;
    let Some((at, name)) = body.split_first_chunk::<PLACE_BYTES>() else {
        return Err(damaged(&io::Error::new(io::ErrorKind::UnexpectedEof, "a change of files without a name")));
    };
    let (_, file) = numbered(&String::from_utf8_lossy(name))?;
    Ok(Offset { file, at: u64::from_le_bytes(*at) })
}

/// What is in the event, without its checksum if it has one.
fn body(event: &Event) -> io::Result<Cow<'_, [u8]>> {
    let data = event.data();
    if let Some(last) = event.checksum() {
        // The log has checksums, and these bytes were taken for one.
        return Ok(if is_checksum(event) { Cow::Borrowed(data) } else { Cow::Owned([data, last.as_slice()].concat()) });
    }
    if data.len() < PLACE_BYTES + BinlogEventFooter::BINLOG_CHECKSUM_LEN {
        return Ok(Cow::Borrowed(data));
    }
    let mut bytes = Vec::new();
    event.write(BinlogVersion::Version4, &mut bytes)?;
    let format = FormatDescriptionEvent::new(BinlogVersion::Version4).with_footer(BinlogEventFooter::new(CRC32));
    let summed = Event::read(&format, bytes.as_slice())?;
    Ok(if is_checksum(&summed) { Cow::Owned(summed.data().to_vec()) } else { Cow::Borrowed(data) })
}

/// Whether what was taken for the checksum of an event is it.
fn is_checksum(event: &Event) -> bool {
    event.checksum().map(u32::from_le_bytes) == Some(event.calc_checksum(CRC32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event as MariaDB 10.11 sends it in front of everything: to `binlog.000002`, byte 559, with a checksum.
    const SUMMED: &[u8] = b"\0\0\0\0\x04\x01\0\0\0,\0\0\0\0\0\0\0 \0\x2f\x02\0\0\0\0\0\0binlog.000002\x92[)\xf4";

    /// The same without.
    fn plain() -> Vec<u8> {
        let mut bytes = SUMMED[..SUMMED.len() - 4].to_vec();
        bytes[9] -= 4;
        bytes
    }

    #[track_caller]
    fn check(alg: BinlogChecksumAlg, bytes: &[u8]) {
        let format = FormatDescriptionEvent::new(BinlogVersion::Version4).with_footer(BinlogEventFooter::new(alg));
        let event = Event::read(&format, bytes).unwrap();
        assert_eq!(next(&event).unwrap(), Offset { file: 2, at: 559 });
    }

    #[test]
    fn checksums_are_no_names() {
        for alg in [BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_OFF, CRC32] {
            check(alg, SUMMED);
            check(alg, &plain());
        }
    }

    #[test]
    fn names_are_names() {
        let format = FormatDescriptionEvent::new(BinlogVersion::Version4);
        let mut wrong = plain();
        wrong.truncate(19 + PLACE_BYTES - 1);
        wrong[9] = wrong.len() as u8;
        assert!(next(&Event::read(&format, wrong.as_slice()).unwrap()).is_err());
        let mut wrong = SUMMED.to_vec();
        wrong[30] ^= 1;
        assert!(next(&Event::read(&format, wrong.as_slice()).unwrap()).is_err());
    }
}
