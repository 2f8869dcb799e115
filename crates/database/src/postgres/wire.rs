//! Numbers out of the bytes that PostgreSQL sends. All are big-endian.

/// Bytes not yet read.
pub(super) struct Wire<'a>(pub &'a [u8]);

impl<'a> Wire<'a> {
    /// The next `n` bytes.
    ///
    /// # Errors
    /// There are fewer: the server sent something that is not the type it announced.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], String> {
        let Some((head, tail)) = self.0.split_at_checked(n) else { return Err("is cut short".into()) };
        self.0 = tail;
        Ok(head)
    }

    /// The next bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let Some((head, tail)) = self.0.split_first_chunk::<N>() else { return Err("is cut short".into()) };
        self.0 = tail;
        Ok(*head)
    }

    #[inline]
    pub fn i16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub fn i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }
}

/// A value that is nothing but a number of `N` bytes.
#[inline]
pub(super) fn whole<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes.try_into().map_err(|_| format!("has {} bytes instead of {N}", bytes.len()))
}
