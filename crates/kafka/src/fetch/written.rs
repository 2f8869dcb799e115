//! Batches as tests write them.

use super::batch::HEAD_BYTES;
use super::crc::crc32c;

/// A batch to be written. Its times end at 9999 ms, its leader's epoch is 7.
pub struct Batch<'a> {
    pub base: i64,
    pub last_delta: i32,
    pub attributes: i16,
    pub first_time: i64,
    pub producer: i64,
    pub count: i32,
    /// As they are compressed.
    pub records: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Records from offset 0 on.
    pub fn new(count: i32, records: &'a [u8]) -> Self {
        Batch { base: 0, last_delta: count.saturating_sub(1), attributes: 0, first_time: 0, producer: -1, count, records }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut summed = self.attributes.to_be_bytes().to_vec();
        summed.extend(self.last_delta.to_be_bytes());
        for number in [self.first_time, 9999, self.producer] {
            summed.extend(number.to_be_bytes());
        }
        summed.extend([0; 6]);
        summed.extend(self.count.to_be_bytes());
        summed.extend(self.records);
        let mut bytes = self.base.to_be_bytes().to_vec();
        bytes.extend((summed.len() as i32 + 9).to_be_bytes());
        bytes.extend(7i32.to_be_bytes());
        bytes.push(2);
        bytes.extend(crc32c(&summed).to_be_bytes());
        bytes.extend(summed);
        assert_eq!(bytes.len(), HEAD_BYTES + self.records.len());
        bytes
    }
}

fn varlong(n: i64, out: &mut Vec<u8>) {
    let mut groups = ((n << 1) ^ (n >> 63)) as u64;
    while groups >= 0x80 {
        out.push(groups as u8 | 0x80);
        groups >>= 7;
    }
    out.push(groups as u8);
}

fn text(text: Option<&str>, out: &mut Vec<u8>) {
    varlong(text.map_or(-1, |t| t.len() as i64), out);
    out.extend(text.unwrap_or("").bytes());
}

/// A record: offset and time as they differ from the batch's.
pub fn record(offset: i64, time: i64, key: Option<&str>, value: Option<&str>, headers: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut body = vec![0];
    varlong(time, &mut body);
    varlong(offset, &mut body);
    text(key, &mut body);
    text(value, &mut body);
    varlong(headers.len() as i64, &mut body);
    for (name, value) in headers {
        text(Some(name), &mut body);
        text(*value, &mut body);
    }
    let mut out = Vec::new();
    varlong(body.len() as i64, &mut out);
    out.extend(body);
    out
}

/// The mark that ends a transaction.
pub fn mark(base: i64, producer: i64, commit: bool) -> Vec<u8> {
    // Its key: version 0, and what it is; a value of version and coordinator's epoch.
    let record = record(0, 0, Some(if commit { "\0\0\0\u{1}" } else { "\0\0\0\0" }), Some("\0\0\0\0\0\0"), &[]);
    Batch { base, attributes: 16 | 32, producer, ..Batch::new(1, &record) }.bytes()
}
