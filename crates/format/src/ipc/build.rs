//! Arrays out of the buffers of a message. Buffers are shared, not copied, where their alignment allows it, and are
//! checked to the last offset and letter, unless whoever asks trusts the file.
//!
//! Of each buffer just what its column needs is taken, so that lengths agree before Arrow looks at anything: it panics
//! where they do not.

use std::collections::HashMap;

use arrow::array::{Array, ArrayData, ArrayRef, make_array, new_empty_array};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use arrow::ipc;
use bytes::Bytes;
use tidemill_block::ascii::Ascii;

use super::dictionary::Dictionary;
use super::held::Held;
use super::layout::{Layout, Node};
use super::unpack::Unpacker;
use super::{malformed, reason};
use crate::FormatError;

/// Makes the wanted columns of one file or stream.
pub(super) struct Columns {
    pub held: Held,
    /// For each column whether it is wanted.
    wanted: Vec<bool>,
    /// Whether nothing is checked but lengths.
    trusted: bool,
    /// The dictionaries that have come, of those that wanted columns use.
    dictionaries: HashMap<i64, Dictionary>,
    unpacker: Unpacker,
}

impl Columns {
    /// Of what `held` says.
    pub fn new(held: Held, wanted: Vec<bool>, trusted: bool) -> Self {
        assert_eq!(held.schema.fields().len(), wanted.len(), "each column is wanted or not");
        Columns { held, wanted, trusted, dictionaries: HashMap::new(), unpacker: Unpacker::default() }
    }

    /// Bounds what a batch or a dictionary may become when it is decompressed, bytes.
    pub fn limit(&mut self, bytes_max: u64) {
        self.unpacker.limit(bytes_max);
    }

    /// Bytes in memory of the dictionaries that have come.
    pub fn dictionary_bytes(&self) -> u64 {
        self.dictionaries.values().map(Dictionary::bytes).sum()
    }

    /// A dictionary, if it has come.
    pub fn dictionary_of(&self, id: i64) -> Option<&Dictionary> {
        self.dictionaries.get(&id)
    }

    /// Lets go of a dictionary that will be replaced.
    pub fn forget(&mut self, id: i64) {
        self.dictionaries.remove(&id);
    }

    /// Whether a wanted column has dictionaries.
    pub fn needs_dictionaries(&self) -> bool {
        self.wanted.iter().enumerate().any(|(column, wanted)| *wanted && !self.held.ids(column).is_empty())
    }

    /// Where the wanted columns of a batch lie in its body of `body` bytes.
    ///
    /// # Errors
    /// What contradicts what.
    pub fn layout(&self, batch: &ipc::RecordBatch<'_>, body: u64) -> Result<Layout, FormatError> {
        let types = self.held.schema.fields().iter().map(|field| field.data_type());
        Layout::of(batch, body, types.zip(self.wanted.iter().copied())).map_err(malformed)
    }

    /// The wanted columns of a batch, in the file's order; `buffers` are those of its layout.
    ///
    /// # Errors
    /// What is wrong with their values.
    pub fn build(&mut self, layout: &Layout, buffers: Vec<Buffer>) -> Result<Vec<ArrayRef>, FormatError> {
        self.unpacker.begin();
        let Columns { held, wanted, trusted, dictionaries, unpacker } = self;
        let mut build = Build { layout, nodes: layout.nodes.iter(), buffers: buffers.into_iter(), counts: layout.counts.iter(), unpacker };
        let mut columns = Vec::new();
        for (column, field) in held.schema.fields().iter().enumerate().filter(|(column, _)| wanted[*column]) {
            let mut ids = held.ids(column).iter();
            let data = build.array(field.data_type(), &mut ids, dictionaries, *trusted);
            columns.push(make_array(data.map_err(|why| malformed(format!("column '{}': {why}", field.name())))?));
        }
        Ok(columns)
    }

    /// Where the values of a dictionary lie; `None` if no wanted column uses it.
    ///
    /// # Errors
    /// As [`Columns::layout`]; no column has such a dictionary.
    pub fn dictionary_layout(&self, dictionary: &ipc::DictionaryBatch<'_>, body: u64) -> Result<Option<Layout>, FormatError> {
        let id = dictionary.id();
        let Some(values) = self.held.values(id) else {
            return Err(malformed(format!("no column has the dictionary {id}")));
        };
        let used = self.wanted.iter().enumerate().any(|(column, wanted)| *wanted && self.held.ids(column).contains(&id));
        if !used {
            return Ok(None);
        }
        let batch = dictionary.data().ok_or_else(|| malformed("a dictionary without values"))?;
        Layout::of(&batch, body, std::iter::once((values, true))).map(Some).map_err(malformed)
    }

    /// Takes a dictionary, which replaces, or with `delta` continues, the one of this id.
    ///
    /// # Errors
    /// What is wrong with its values.
    pub fn dictionary(&mut self, id: i64, delta: bool, layout: &Layout, buffers: Vec<Buffer>) -> Result<(), FormatError> {
        self.unpacker.begin();
        let Columns { held, trusted, dictionaries, unpacker, .. } = self;
        let wrong = |why: String| malformed(format!("dictionary {id}: {why}"));
        let data_type = held.values(id).ok_or_else(|| wrong("no column has it".to_string()))?;
        let mut build = Build { layout, nodes: layout.nodes.iter(), buffers: buffers.into_iter(), counts: layout.counts.iter(), unpacker };
        let values = make_array(build.array(data_type, &mut [].iter(), &mut HashMap::new(), *trusted).map_err(wrong)?);
        if !delta {
            dictionaries.insert(id, Dictionary::new(values));
            return Ok(());
        }
        let before = dictionaries.get_mut(&id).ok_or_else(|| wrong("what it continues has not come".to_string()))?;
        before.extend(values).map_err(|e| wrong(reason(&e.to_string()).to_string()))
    }
}

/// Whether texts without NULLs are ASCII, and their offsets, which are aligned, rise and stay within them: then none parts a
/// letter. Arrow looks at the offsets one by one, with a range and a letter for each, which takes several times as long as
/// these two passes; what is not plain is left to it.
fn are_plain(offsets: &[u8], texts: &[u8]) -> bool {
    // SAFETY: any four bytes are a number.
    let (before, offsets, behind) = unsafe { offsets.align_to::<i32>() };
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return false };
    let rising = offsets.iter().zip(&offsets[1..]).fold(true, |rising, (from, to)| rising & (from <= to));
    let within = *first >= 0 && usize::try_from(*last).is_ok_and(|last| last <= texts.len());
    before.is_empty() && behind.is_empty() && rising && within && texts.is_ascii()
}

/// A buffer that owns itself.
struct Owned(Buffer);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Goes over what a layout lists.
struct Build<'a> {
    layout: &'a Layout,
    nodes: std::slice::Iter<'a, Node>,
    buffers: std::vec::IntoIter<Buffer>,
    counts: std::slice::Iter<'a, usize>,
    unpacker: &'a mut Unpacker,
}

impl Build<'_> {
    fn array(
        &mut self,
        data_type: &DataType,
        ids: &mut std::slice::Iter<'_, i64>,
        dictionaries: &mut HashMap<i64, Dictionary>,
        trusted: bool,
    ) -> Result<ArrayData, String> {
        let Node { length, nulls } = *self.nodes.next().ok_or("a column is missing")?;
        let mut sound = false;
        let mut builder = ArrayData::builder(data_type.clone()).len(length).align_buffers(true);
        if *data_type != DataType::Null {
            let validity = self.next()?;
            if nulls > 0 {
                let bits = self.unpacked(validity)?;
                if bits.len().saturating_mul(8) < length {
                    return Err("the bitmap of its NULLs is too short".to_string());
                }
                builder = builder.null_bit_buffer(Some(bits)).null_count(nulls);
            }
        }
        builder = match data_type {
            DataType::Null => builder,
            DataType::Boolean => builder.add_buffer(self.exactly(length.div_ceil(8))?),
            DataType::Utf8 => {
                let (offsets, mut texts) = (self.offsets(length, 4)?, self.whole()?);
                sound = nulls == 0 && are_plain(&offsets, &texts);
                // Of a part of a larger piece of memory it must be seen that it keeps all of that.
                if sound && texts.capacity() <= texts.len() + texts.len() / 8 {
                    texts = Buffer::from(Bytes::from_owner(Ascii::new(Owned(texts))));
                }
                builder.add_buffer(offsets).add_buffer(texts)
            }
            DataType::Binary => builder.add_buffer(self.offsets(length, 4)?).add_buffer(self.whole()?),
            DataType::LargeUtf8 | DataType::LargeBinary => builder.add_buffer(self.offsets(length, 8)?).add_buffer(self.whole()?),
            DataType::Utf8View | DataType::BinaryView => {
                let count = *self.counts.next().ok_or("the count of its text buffers is missing")?;
                builder = builder.add_buffer(self.exactly(length.saturating_mul(16))?);
                for _ in 0..count {
                    builder = builder.add_buffer(self.whole()?);
                }
                builder
            }
            DataType::FixedSizeBinary(width) => {
                let width = usize::try_from(*width).map_err(|_| "values of a negative length")?;
                builder.add_buffer(self.exactly(length.saturating_mul(width))?)
            }
            DataType::Struct(fields) => {
                for field in fields {
                    builder = builder.add_child_data(self.array(field.data_type(), ids, dictionaries, trusted)?);
                }
                builder
            }
            DataType::List(item) | DataType::Map(item, _) => {
                let offsets = self.offsets(length, 4)?;
                builder.add_buffer(offsets).add_child_data(self.array(item.data_type(), ids, dictionaries, trusted)?)
            }
            DataType::LargeList(item) => {
                let offsets = self.offsets(length, 8)?;
                builder.add_buffer(offsets).add_child_data(self.array(item.data_type(), ids, dictionaries, trusted)?)
            }
            DataType::FixedSizeList(item, _) => builder.add_child_data(self.array(item.data_type(), ids, dictionaries, trusted)?),
            DataType::Dictionary(key, value) => {
                let width = key.primitive_width().ok_or("its dictionary's indices are no numbers")?;
                let indices = self.exactly(length.saturating_mul(width))?;
                let id = ids.next().ok_or("its dictionary has no id")?;
                let values = match dictionaries.get_mut(id) {
                    Some(dictionary) => dictionary.whole().map_err(|e| reason(&e.to_string()).to_string())?.to_data(),
                    // Where all values are NULL a writer may leave the dictionary out.
                    None if nulls == length => new_empty_array(value).to_data(),
                    None => return Err(format!("its dictionary ({id}) has not come before its values")),
                };
                builder.add_buffer(indices).add_child_data(values)
            }
            other => {
                let width = other.primitive_width().ok_or_else(|| format!("its type ({other}) is not taken"))?;
                builder.add_buffer(self.exactly(length.saturating_mul(width))?)
            }
        };
        if trusted || sound {
            // SAFETY: texts that are sound were looked at by `are_plain`. Whoever set 'arrow.trusted' answers for it that
            // offsets, indices and texts are what they must be, as they are in files that a writer of Arrow has finished;
            // lengths were compared above even so. Looking at every offset and letter is most of what reading a mapped
            // file of text costs.
            builder = unsafe { builder.skip_validation(true) };
        }
        builder.build().map_err(|e| reason(&e.to_string()).to_string())
    }

    /// The next buffer, as it lies there.
    fn next(&mut self) -> Result<Buffer, String> {
        self.buffers.next().ok_or_else(|| "a buffer is missing".to_string())
    }

    fn unpacked(&mut self, buffer: Buffer) -> Result<Buffer, String> {
        match self.layout.codec {
            Some(codec) => self.unpacker.unpack(codec, &buffer),
            None => Ok(buffer),
        }
    }

    /// The next buffer.
    fn whole(&mut self) -> Result<Buffer, String> {
        let buffer = self.next()?;
        self.unpacked(buffer)
    }

    /// The first so many bytes of the next buffer; what stands behind them is padding.
    fn exactly(&mut self, bytes: usize) -> Result<Buffer, String> {
        let buffer = self.whole()?;
        if buffer.len() < bytes {
            return Err(format!("a buffer of {} bytes, where its values need {bytes}", buffer.len()));
        }
        Ok(buffer.slice_with_length(0, bytes))
    }

    /// The offsets of so many values, of so many bytes each; where there are none, writers leave even the first one out.
    fn offsets(&mut self, length: usize, width: usize) -> Result<Buffer, String> {
        if length == 0 {
            self.next()?;
            return Ok(Buffer::from_vec(vec![0i64]).slice_with_length(0, width));
        }
        self.exactly((length + 1).saturating_mul(width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(offsets: &[i32], texts: &str, plain: bool) {
        let bytes = Buffer::from_slice_ref(offsets);
        assert_eq!(are_plain(&bytes, texts.as_bytes()), plain, "{offsets:?} in {texts:?}");
        // Where it says yes, Arrow does.
        let data = ArrayData::builder(DataType::Utf8).len(offsets.len().saturating_sub(1)).add_buffer(bytes);
        let data = data.add_buffer(Buffer::from(texts.as_bytes())).build();
        assert!(!plain || data.is_ok(), "{data:?}");
    }

    #[test]
    fn texts_that_are_plain() {
        check(&[0, 0, 2, 5], "abcde", true);
        check(&[1, 4], "abcde", true);
        check(&[0], "", true);
        check(&[0, 3, 2, 5], "abcde", false);
        check(&[-1, 2], "abcde", false);
        check(&[0, 6], "abcde", false);
        check(&[0, i32::MIN], "abcde", false);
        check(&[0, 1, 3], "éa", false);
        check(&[], "", false);
        // Not where a number may lie.
        let numbers = Buffer::from_slice_ref([0i32, 0, 0]);
        assert!(!are_plain(&numbers[1..9], b""));
    }
}
