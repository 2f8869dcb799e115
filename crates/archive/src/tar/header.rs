//! The blocks before members of a tar archive, and the records of pax.

use crate::ArchiveError;

/// The unit in which tars are written, bytes.
pub(super) const BLOCK_BYTES: usize = 512;

/// What stands before a member.
pub(super) struct Header {
    pub name: Vec<u8>,
    pub size: u64,
    /// `0` a file, `5` a folder, and so on.
    pub kind: u8,
}

impl Header {
    /// From a block at the offset `at`.
    pub fn parse(block: &[u8; BLOCK_BYTES], at: u64) -> Result<Header, ArchiveError> {
        check_sum(block, at)?;
        let damaged = |what: &str| ArchiveError::Damaged(format!("the archive is damaged at byte {at}: {what} is no number"));
        let kind = block[156];
        // Links and the like have no data; what their size says is of no matter, and not always a number.
        let size = match kind {
            b'1'..=b'6' => 0,
            _ => number(&block[124..136]).ok_or_else(|| damaged("a length"))?,
        };
        let mut name = text(&block[..100]).to_vec();
        // Only POSIX's ustar has the front of long names here; GNU's has times.
        let prefix = text(&block[345..500]);
        if block[257..263] == *b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        Ok(Header { name, size, kind })
    }
}

/// The sum of a header's bytes, its own field counted as spaces. Some old writers added signed bytes.
fn check_sum(block: &[u8; BLOCK_BYTES], at: u64) -> Result<(), ArchiveError> {
    let told = number(&block[148..156]);
    let (mut unsigned, mut signed) = (0i64, 0i64);
    for (i, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&i) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte as i8);
    }
    match told.and_then(|told| i64::try_from(told).ok()) {
        Some(told) if told == unsigned || told == signed => Ok(()),
        _ if at == 0 => Err(ArchiveError::Damaged("this is no tar archive: the checksum of its first block is wrong".to_string())),
        _ => Err(ArchiveError::Damaged(format!("the archive is damaged at byte {at}: the checksum of a header is wrong"))),
    }
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    &field[..end]
}

/// A number in octal digits, or, with the first bit set, in binary (big endian), as GNU writes large ones.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 > 0 {
        // A second bit set is a negative number.
        let first = u64::from(field[0] & 0x7F);
        return field[1..].iter().try_fold(first, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let digits = field.iter().skip_while(|b| **b == b' ').take_while(|b| !matches!(**b, b' ' | 0));
    digits.copied().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// What the extended headers of POSIX say of the file behind them.
#[derive(Default)]
pub(super) struct Pax {
    pub path: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub sparse: bool,
}

impl Pax {
    /// Reads records `length key=value\n`, whose length counts the record with itself; of the header at `at`.
    pub fn read(&mut self, records: &[u8], at: u64) -> Result<(), ArchiveError> {
        let damaged = || ArchiveError::Damaged(format!("the archive is damaged at byte {at}: an extended header does not add up"));
        let mut rest = records;
        while !rest.is_empty() {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let length = decimal(&rest[..digits]).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= rest.len()).ok_or_else(damaged)?;
            if length < digits + 2 || rest[digits] != b' ' || rest[length - 1] != b'\n' {
                return Err(damaged());
            }
            let record = &rest[digits + 1..length - 1];
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(damaged)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value).ok_or_else(damaged)?),
                _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
            rest = &rest[length..];
        }
        Ok(())
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}
