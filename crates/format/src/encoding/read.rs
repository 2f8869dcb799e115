//! Readers and decoders of text in any encoding. Whoever resumes at an offset counts the bytes of the text in UTF-8,
//! as of one that was decompressed: then a text can be continued exactly in every encoding, by decoding it again from
//! its beginning. ([`super::Transcoder`] does the work.)

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;

use super::{Malformed, TextEncoding, Transcoder};
use crate::{Decoded, Decoder, FormatError};

/// Bytes read at once.
const INPUT_BYTES: usize = 64 << 10;

/// Reads what the input holds in an encoding as UTF-8. Bytes that are no text are an error of kind `InvalidData`, which
/// holds a [`Malformed`]; it comes behind all text that stands before them.
pub struct DecodingReader {
    input: Box<dyn Read + Send>,
    transcoder: Transcoder,
    packed: Vec<u8>,
    /// Decoded, and what of it was given.
    text: String,
    given: usize,
    /// Where the input may grow: its end is not the end of the text, and bytes read of it are counted.
    grows: Option<Arc<AtomicU64>>,
    ended: bool,
    failure: Option<Malformed>,
}

impl DecodingReader {
    /// Reads `input` from its beginning; `option` says the encoding, for messages. If the input `grows`, what it lacks at
    /// its end may come later; the counter gets the bytes read of it.
    pub fn new(input: Box<dyn Read + Send>, encoding: TextEncoding, option: &'static str, grows: Option<Arc<AtomicU64>>) -> Self {
        let transcoder = Transcoder::new(encoding, option);
        let packed = vec![0; INPUT_BYTES];
        DecodingReader { input, transcoder, packed, text: String::new(), given: 0, grows, ended: false, failure: None }
    }
}

impl Read for DecodingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let rest = &self.text.as_bytes()[self.given..];
            if !rest.is_empty() {
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                self.given += length;
                return Ok(length);
            }
            if let Some(failure) = &self.failure {
                return Err(io::Error::new(io::ErrorKind::InvalidData, failure.clone()));
            }
            if self.ended {
                return Ok(0);
            }
            let got = self.input.read(&mut self.packed)?;
            match &self.grows {
                Some(_) if got == 0 => return Ok(0),
                Some(read) => {
                    read.fetch_add(got as u64, Ordering::Relaxed);
                }
                None => self.ended = got == 0,
            }
            self.text.clear();
            self.given = 0;
            self.failure = self.transcoder.feed(&self.packed[..got], self.ended, &mut self.text).err();
        }
    }
}

/// A decoder of text in an encoding. Its offsets are those of the text in UTF-8.
pub(crate) struct Transcoded {
    inner: Box<dyn Decoder>,
    transcoder: Transcoder,
    /// Room for what comes, and the text in it.
    packed: Vec<u8>,
    text: String,
    failure: Option<Malformed>,
    finished: bool,
}

impl Transcoded {
    /// Of text from its beginning; `inner` decodes it in UTF-8.
    pub fn new(inner: Box<dyn Decoder>, encoding: TextEncoding, option: &'static str) -> Self {
        let transcoder = Transcoder::new(encoding, option);
        Transcoded { inner, transcoder, packed: Vec::new(), text: String::new(), failure: None, finished: false }
    }

    /// Takes so many bytes of the room, the last of all or not.
    fn feed(&mut self, bytes: usize, last: bool) {
        if self.failure.is_none() {
            self.text.clear();
            self.failure = self.transcoder.feed(&self.packed[..bytes], last, &mut self.text).err();
            self.inner.push(self.text.as_bytes());
        }
    }
}

impl Decoder for Transcoded {
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.packed.resize(self.packed.len().max(bytes), 0);
        &mut self.packed[..bytes]
    }

    fn filled(&mut self, bytes: usize) {
        self.feed(bytes, false);
    }

    fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.feed(0, true);
            // The record in which the text ends to be text is not whole.
            if self.failure.is_none() {
                self.inner.finish();
            }
        }
    }

    fn next(&mut self, rows_max: usize) -> Result<Option<Decoded>, FormatError> {
        match (self.inner.next(rows_max)?, &self.failure) {
            (None, Some(failure)) => Err(failure.clone().into()),
            (decoded, _) => Ok(decoded),
        }
    }

    fn buffered(&self) -> usize {
        self.inner.buffered()
    }

    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}
