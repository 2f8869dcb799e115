//! What encoders write, in any encoding. ([`TextEncoding::encode`] does the work.)

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use tidemill_block::Block;

use super::TextEncoding;
use crate::csv::shown;
use crate::{Encoder, FormatError};

/// Writes what another encoder writes in UTF-8. What stands behind the last row is the same in all encodings: nothing,
/// in the formats that have an encoding.
pub(crate) struct Reencoded {
    inner: Box<dyn Encoder>,
    encoding: TextEncoding,
    /// The option that says the encoding, for messages.
    option: &'static str,
    /// What stands before the first row, encoded.
    head: Vec<u8>,
    text: Vec<u8>,
}

impl Reencoded {
    /// Writes what `inner` writes; `option` says the encoding, for messages.
    ///
    /// # Errors
    /// The header line has a character that the encoding lacks.
    pub fn new(mut inner: Box<dyn Encoder>, encoding: TextEncoding, option: &'static str) -> Result<Self, FormatError> {
        let mut text = Vec::new();
        inner.begin(&mut text);
        let mut head = encoding.mark().to_vec();
        encoding.encode(&String::from_utf8_lossy(&text), &mut head).map_err(|character| {
            let name = encoding.name();
            FormatError::data(format!(
                "the header line has the character {character:?}, which {name} lacks; set '{option}' to one that has it, such as UTF-8"
            ))
        })?;
        Ok(Reencoded { inner, encoding, option, head, text })
    }
}

/// The error about a character of a block that an encoding lacks, with the value that it stands in.
#[cold]
pub(crate) fn lacks(character: char, encoding: TextEncoding, option: &str, block: &Block) -> FormatError {
    let what = format!("has the character {character:?}, which {} lacks; set '{option}' to one that has it", encoding.name());
    let texts = block.batch.columns().iter().enumerate().filter(|(_, column)| column.data_type() == &DataType::Utf8);
    let first = texts
        .filter_map(|(at, column)| {
            let values = column.as_string::<i32>();
            let row = (0..values.len()).find(|row| values.is_valid(*row) && values.value(*row).contains(character))?;
            Some((row, at, values.value(row)))
        })
        .min_by_key(|(row, at, _)| (*row, *at));
    FormatError::data(match first {
        Some((_, at, value)) => format!("column '{}': '{}' {what}", block.schema().field(at).name(), shown(value.as_bytes())),
        None => format!("a line {what}"),
    })
}

impl Encoder for Reencoded {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.text.clear();
        self.inner.encode(block, &mut self.text)?;
        let text = std::str::from_utf8(&self.text).map_err(|e| FormatError::data(format!("internal error: a line is not UTF-8: {e}")))?;
        self.encoding.encode(text, out).map_err(|character| lacks(character, self.encoding, self.option, block))
    }
}
