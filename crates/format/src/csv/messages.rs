//! CSV messages to batches and back: each message is a record, without the line end. One that holds
//! several lines is as many rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use tidemill_block::Block;

use super::{CsvDecoder, CsvEncoder, CsvOptions, ENCODING};
use crate::encoding::{TextEncoding, lacks};
use crate::message::{BYTES_MAX, MessageBuffer, MessageDecoder, MessageEncoder, Messages, Origins, too_many_bytes};
use crate::{Decoder, FormatError};

/// Decodes messages that are each a CSV record. As in Flink, a null value makes no row.
pub(crate) struct CsvMessages {
    decoder: CsvDecoder,
    schema: SchemaRef,
    encoding: TextEncoding,
    /// Of the records, good and bad: their messages. `None` while each message is one.
    origins: Origins,
    /// Records so far since the decoder began, and at the last take.
    records: u64,
    taken: u64,
    /// Bytes pushed since the last take.
    bytes: usize,
    bad: Vec<(u32, String)>,
}

impl CsvMessages {
    /// # Errors
    /// As [`CsvDecoder::new`].
    pub fn new(options: &CsvOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        Ok(CsvMessages {
            decoder: CsvDecoder::new(options, physical, projection)?.without_header(),
            schema: Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>())),
            encoding: options.encoding,
            origins: Origins::default(),
            records: 0,
            taken: 0,
            bytes: 0,
            bad: Vec::new(),
        })
    }

    fn read(&mut self, message: &[u8]) -> Result<usize, String> {
        let decoded;
        let text = if self.encoding.is_utf8() {
            message
        } else {
            decoded = self.encoding.decode(message, ENCODING).map_err(|e| e.to_string())?;
            decoded.as_bytes()
        };
        self.bytes += text.len() + 1;
        if self.bytes > BYTES_MAX {
            return Err(too_many_bytes());
        }
        if text.is_empty() {
            return Err("the message is empty".into());
        }
        self.decoder.push_message(text).map_err(String::from)
    }
}

impl MessageDecoder for CsvMessages {
    fn push(&mut self, message: Option<&[u8]>) {
        let records = match message.map_or(Ok(0), |message| self.read(message)) {
            Ok(records) => records,
            Err(reason) => {
                self.bad.push((self.origins.messages(), reason));
                0
            }
        };
        self.records += records as u64;
        self.origins.push(records);
    }

    fn pending(&self) -> usize {
        self.origins.messages() as usize
    }

    fn take(&mut self) -> Result<Messages, FormatError> {
        let expected = (self.records - self.taken) as usize;
        let first = std::mem::replace(&mut self.taken, self.records);
        self.bytes = 0;
        let (mut origins, mut bad) = (self.origins.take(), std::mem::take(&mut self.bad));
        let Some(decoded) = self.decoder.next(usize::MAX)? else {
            return Ok(Messages { batch: RecordBatch::new_empty(self.schema.clone()), kinds: None, origins, bad });
        };
        assert_eq!(decoded.batch.num_rows() + decoded.bad.len(), expected, "records are counted as they come");
        if !decoded.bad.is_empty() {
            // Bad records leave a gap; a message with a bad record among several is told once.
            let of_record = origins.take().unwrap_or_else(|| (0..expected as u32).collect());
            let mut good = vec![true; expected];
            for record in decoded.bad {
                let at = (record.record - first) as usize;
                good[at] = false;
                bad.push((of_record[at], record.reason));
            }
            bad.sort_by_key(|(message, _)| *message);
            bad.dedup_by_key(|(message, _)| *message);
            origins = Some(of_record.into_iter().zip(good).filter(|(_, good)| *good).map(|(message, _)| message).collect());
        }
        Ok(Messages { batch: decoded.batch, kinds: None, origins, bad })
    }
}

/// Writes each row as a message.
pub(crate) struct CsvMessageEncoder {
    encoder: CsvEncoder,
    encoding: TextEncoding,
    /// Messages in UTF-8, on their way into another encoding.
    texts: MessageBuffer,
}

impl CsvMessageEncoder {
    /// # Errors
    /// As [`CsvEncoder::new`].
    pub fn new(options: &CsvOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        Ok(CsvMessageEncoder { encoder: CsvEncoder::new(options, schema)?, encoding: options.encoding, texts: MessageBuffer::default() })
    }

    fn rows(&self, block: &Block, out: &mut MessageBuffer) {
        let MessageBuffer { bytes, ends } = out;
        self.encoder.rows(block, bytes, |bytes| ends.push(bytes.len()));
    }
}

impl MessageEncoder for CsvMessageEncoder {
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError> {
        if self.encoding.is_utf8() {
            self.rows(block, out);
            return Ok(());
        }
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        self.rows(block, &mut texts);
        for message in texts.iter() {
            out.bytes.extend_from_slice(self.encoding.mark());
            let text =
                std::str::from_utf8(message).map_err(|e| FormatError::data(format!("internal error: a message is not UTF-8: {e}")))?;
            self.encoding.encode(text, &mut out.bytes).map_err(|character| lacks(character, self.encoding, ENCODING, block))?;
            out.ends.push(out.bytes.len());
        }
        self.texts = texts;
        Ok(())
    }
}
