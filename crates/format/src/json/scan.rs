//! A cursor over the text of one JSON record: blanks, literals, numbers, strings, skipping.
//!
//! It knows no columns and builds nothing; [`super::column`] decides what a value becomes.

/// Why a record cannot be read. Made on the bad path only.
pub(super) type Fault = Box<str>;

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 256;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A position in the bytes of a record, which are valid UTF-8 without line end.
pub(super) struct Scan<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Scan { bytes, at: 0 }
    }

    /// The byte under the cursor; 0 at the end, which begins no JSON value.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    #[inline]
    pub fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    #[cold]
    pub fn expected(&self, what: &str) -> Fault {
        let place = self.at + 1;
        match std::str::from_utf8(self.rest()).ok().and_then(|r| r.chars().next()) {
            Some(found) => format!("not a JSON object: expected {what} but found {found:?} at byte {place} of the record").into(),
            None => format!("not a JSON object: it ends at byte {place} of the record where {what} was expected").into(),
        }
    }

    /// Takes `byte`, or fails with what it is.
    #[inline]
    pub fn take(&mut self, byte: u8, what: &str) -> Result<(), Fault> {
        if self.peek() != byte {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `true`, `false` or `null`.
    #[inline]
    pub fn literal(&mut self, word: &'static str) -> Result<(), Fault> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Takes a number and gives its text.
    #[inline]
    pub fn number(&mut self) -> Result<&'a [u8], Fault> {
        let from = self.at;
        self.at += (self.peek() == b'-') as usize;
        let zero = self.peek() == b'0';
        let digits = self.digits();
        if digits == 0 || (zero && digits > 1) {
            return Err(self.expected("a number"));
        }
        if self.peek() == b'.' {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.expected("a digit"));
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += matches!(self.peek(), b'+' | b'-') as usize;
            if self.digits() == 0 {
                return Err(self.expected("a digit"));
            }
        }
        Ok(&self.bytes[from..self.at])
    }

    #[inline]
    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at - from
    }

    /// The first byte at or behind `from` that does not simply belong to a string: a quote, a
    /// backslash, a control character. Eight bytes a step: most strings are short, which a call of
    /// `memchr` would not pay for.
    #[inline]
    fn special(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(chunk) = self.bytes.get(at..at + 8) {
            let x = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            let (quote, slash) = (x ^ (ONES * b'"' as u64), x ^ (ONES * b'\\' as u64));
            // The lowest flag is exact: a borrow reaches only bytes above a true hit.
            let hits =
                ((quote.wrapping_sub(ONES) & !quote) | (slash.wrapping_sub(ONES) & !slash) | (x.wrapping_sub(ONES * 0x20) & !x)) & HIGH;
            if hits != 0 {
                return at + hits.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while at < self.bytes.len() && !matches!(self.bytes[at], b'"' | b'\\' | 0..0x20) {
            at += 1;
        }
        at
    }

    /// Takes a string whose quote is under the cursor. Gives its content, from the record itself
    /// or, where there are escapes, from `scratch`.
    #[inline]
    pub fn string<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Fault>
    where
        'a: 's,
    {
        let from = self.at + 1;
        let end = self.special(from);
        if self.bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(&self.bytes[from..end]);
        }
        scratch.clear();
        self.string_into(scratch)?;
        Ok(scratch)
    }

    /// Takes a string whose quote is under the cursor and appends its content.
    #[inline]
    pub fn string_into(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.at += 1;
        loop {
            let end = self.special(self.at);
            out.extend_from_slice(&self.bytes[self.at..end]);
            self.at = end;
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape(out)?,
                _ => return Err(self.expected("the quote that ends a string")),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let from = self.at;
        self.at += 2;
        out.push(match self.bytes.get(from + 1) {
            Some(c @ (b'"' | b'\\' | b'/')) => *c,
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'u') => {
                let mut code = self.hex4()?;
                if (0xD800..0xDC00).contains(&code) && self.rest().starts_with(b"\\u") {
                    self.at += 2;
                    let low = self.hex4()?;
                    // Not a low half: 0xD800 itself then makes `from_u32` fail below.
                    if (0xDC00..0xE000).contains(&low) {
                        code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
                    }
                }
                let Some(c) = char::from_u32(code) else {
                    self.at = from;
                    return Err(self.expected("a whole character (this is half of a surrogate pair)"));
                };
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => {
                self.at = from;
                return Err(self.expected("an escape that JSON knows"));
            }
        });
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let code = self
            .bytes
            .get(self.at..self.at + 4)
            .and_then(|digits| digits.iter().try_fold(0, |code, d| Some(code << 4 | (*d as char).to_digit(16)?)));
        let code = code.ok_or_else(|| self.expected("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }

    fn skip_string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            self.at = self.special(self.at);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' if self.at + 1 < self.bytes.len() => self.at += 2,
                _ => return Err(self.expected("the quote that ends a string")),
            }
        }
    }

    /// Takes the value under the cursor, whatever it is.
    #[inline]
    pub fn skip(&mut self) -> Result<(), Fault> {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_nested(1),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            _ => Err(self.expected("a value")),
        }
    }

    /// Takes the array or object under the cursor.
    fn skip_nested(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(format!("arrays and objects nested more than {DEPTH_MAX} deep").into());
        }
        let (object, close) = if self.peek() == b'{' { (true, b'}') } else { (false, b']') };
        self.at += 1;
        self.blanks();
        if self.peek() == close {
            self.at += 1;
            return Ok(());
        }
        loop {
            if object {
                if self.peek() != b'"' {
                    return Err(self.expected("a field name"));
                }
                self.skip_string()?;
                self.colon()?;
            }
            match self.peek() {
                b'{' | b'[' => self.skip_nested(depth + 1)?,
                _ => self.skip()?,
            }
            if !self.more(close)? {
                return Ok(());
            }
        }
    }

    /// Takes the colon behind a field name and the blanks around it.
    #[inline]
    pub fn colon(&mut self) -> Result<(), Fault> {
        self.blanks();
        self.take(b':', "':'")?;
        self.blanks();
        Ok(())
    }

    /// Behind a value: takes a comma (true) or `close` (false), and blanks.
    #[inline]
    pub fn more(&mut self, close: u8) -> Result<bool, Fault> {
        self.blanks();
        match self.peek() {
            b',' => {
                self.at += 1;
                self.blanks();
                Ok(true)
            }
            c if c == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.expected(if close == b'}' { "',' or '}'" } else { "',' or ']'" })),
        }
    }
}
