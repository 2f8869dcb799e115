//! Numbers and pieces out of bytes that nobody has vouched for: every read is checked, and none allocates.

/// Bytes being read.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes` from `at` on.
    #[inline]
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at }
    }

    /// Where the next byte is.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `count` bytes; none where there are fewer.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let piece = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(piece)
    }

    /// As many bytes, the most significant first where they are a number.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// 16 bits.
    #[inline]
    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// 32 bits.
    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// 64 bits.
    #[inline]
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// Groups of seven bits, the lowest first; none where it has more than 64 or breaks off.
    #[inline]
    fn groups(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let second = *self.bytes.get(self.at)?;
        self.at += 1;
        let value = u64::from(first & 0x7f) | (u64::from(second & 0x7f) << 7);
        if second < 0x80 { Some(value) } else { self.more_groups(value) }
    }

    fn more_groups(&mut self, mut value: u64) -> Option<u64> {
        for shift in (14..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            // Of the tenth group one bit counts.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number of variable length, small ones of either sign being short (zigzag).
    #[inline]
    pub fn varlong(&mut self) -> Option<i64> {
        let n = self.groups()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// The same with 32 bits.
    #[inline]
    pub fn varint(&mut self) -> Option<i32> {
        i32::try_from(self.varlong()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length() {
        let check = |bytes: &[u8], expect: Option<i64>| assert_eq!(Cursor::new(bytes, 0).varlong(), expect, "{bytes:?}");
        check(&[0], Some(0));
        check(&[1], Some(-1));
        check(&[2], Some(1));
        check(&[0xc8, 1], Some(100));
        check(&[0xc8], None);
        check(&[0x80, 0x80, 0x80, 0x80, 0x10], Some(1 << 31));
        check(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some(i64::MAX));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some(i64::MIN));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], None);
        check(&[0xff; 11], None);
        assert_eq!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x10], 0).varint(), None, "more than 32 bits");
    }

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut cursor = Cursor::new(&[0, 1, 2], 0);
        assert_eq!((cursor.i16(), cursor.i16(), cursor.take(usize::MAX)), (Some(1), None, None));
        assert_eq!((cursor.take(1), cursor.at()), (Some(&[2][..]), 3));
        assert_eq!(Cursor::new(&[1], 9).take(0), None);
    }
}
