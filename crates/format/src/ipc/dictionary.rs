//! The values of one dictionary, which a writer may continue as it goes on. What is there is not copied whenever a few
//! values come: they are kept in pieces, and those at the end are joined before they become many.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, downcast_integer_array, new_null_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{ArrowNativeType, ArrowPrimitiveType, DataType};
use arrow::error::ArrowError;

use super::reason;

/// A dictionary.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// One at least. Each has twice as many values as the one behind it, or more: so there are few, and a value is moved a
    /// few times only.
    pieces: Vec<ArrayRef>,
}

impl Dictionary {
    /// Of these values.
    pub fn new(values: ArrayRef) -> Self {
        Dictionary { pieces: vec![values] }
    }

    /// Values that follow those which are there.
    ///
    /// # Errors
    /// They are of another type; together they are too long for their offsets.
    pub fn extend(&mut self, values: ArrayRef) -> Result<(), ArrowError> {
        if values.is_empty() {
            return Ok(());
        }
        let (mut from, mut behind) = (self.pieces.len(), values.len());
        while from > 0 && self.pieces[from - 1].len() < 2 * behind {
            from -= 1;
            behind += self.pieces[from].len();
        }
        self.pieces.push(values);
        self.join(from)
    }

    /// All values as one array.
    ///
    /// # Errors
    /// Together they are too long for their offsets.
    pub fn whole(&mut self) -> Result<&ArrayRef, ArrowError> {
        self.join(0)?;
        Ok(&self.pieces[0])
    }

    /// Makes one of the pieces from this one on.
    fn join(&mut self, from: usize) -> Result<(), ArrowError> {
        if self.pieces.len() - from > 1 {
            let joined = concat(&self.pieces[from..].iter().map(|piece| piece.as_ref()).collect::<Vec<_>>())?;
            self.pieces.truncate(from);
            self.pieces.push(joined);
        }
        Ok(())
    }

    /// Bytes in memory, those that stand unused behind values among them.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.get_buffer_memory_size() as u64).sum()
    }

    /// The values to which `keys` point; `left` bytes are borne, and fewer behind it.
    ///
    /// # Errors
    /// A key that points to no value; a type of values that is not taken; too much would become of it.
    pub fn plain(&self, keys: &dyn Array, left: &mut u64) -> Result<ArrayRef, String> {
        downcast_integer_array! {
            keys => self.pointed(keys, left),
            other => Err(format!("its dictionary's indices are {other}, no numbers")),
        }
    }

    fn pointed<K: ArrowPrimitiveType>(&self, keys: &PrimitiveArray<K>, left: &mut u64) -> Result<ArrayRef, String> {
        let mut values = 0;
        let mut ends = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            values += piece.len();
            ends.push(values);
        }
        let sizes = self.pieces.iter().map(|piece| Sizes::of(piece.as_ref())).collect::<Result<Vec<_>, _>>()?;
        // In which piece a value stands, and where in it.
        let find = |key: K::Native| {
            let key = ArrowNativeType::to_usize(key)?;
            let piece = ends.partition_point(|end| *end <= key);
            let begin = ends.get(piece)? - self.pieces[piece].len();
            Some((piece, key - begin))
        };
        let mut bytes = 0u64;
        for key in keys {
            let size = match key {
                None => sizes[0].of_null(),
                Some(key) => {
                    let (piece, at) = find(key).ok_or_else(|| format!("a row points to value {key:?} of a dictionary of {values}"))?;
                    sizes[piece].at(at)
                }
            };
            bytes = bytes.saturating_add(size);
        }
        *left = left.checked_sub(bytes).ok_or_else(|| {
            format!("its values would take {bytes} bytes without the dictionary, more than is borne; send fewer rows at once")
        })?;
        let made = match self.pieces.as_slice() {
            [values] => take(values.as_ref(), keys, None),
            pieces => {
                let null = new_null_array(pieces[0].data_type(), 1);
                let mut all: Vec<&dyn Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
                all.push(null.as_ref());
                let of_null = (pieces.len(), 0);
                let places: Vec<_> = keys.iter().map(|key| key.and_then(find).unwrap_or(of_null)).collect();
                interleave(&all, &places)
            }
        };
        made.map_err(|e| reason(&e.to_string()).to_string())
    }
}

/// The bytes that values take, about, if each row has its own.
enum Sizes<'a> {
    Each(u64),
    Offsets(&'a [i32]),
    Large(&'a [i64]),
    Views(&'a [u128]),
}

impl<'a> Sizes<'a> {
    fn of(values: &'a dyn Array) -> Result<Self, String> {
        Ok(match values.data_type() {
            DataType::Utf8 => Sizes::Offsets(values.as_string::<i32>().value_offsets()),
            DataType::Binary => Sizes::Offsets(values.as_binary::<i32>().value_offsets()),
            DataType::LargeUtf8 => Sizes::Large(values.as_string::<i64>().value_offsets()),
            DataType::LargeBinary => Sizes::Large(values.as_binary::<i64>().value_offsets()),
            DataType::Utf8View => Sizes::Views(&values.as_string_view().views()[..]),
            DataType::BinaryView => Sizes::Views(&values.as_binary_view().views()[..]),
            DataType::Boolean => Sizes::Each(1),
            other => Sizes::Each(other.primitive_width().ok_or_else(|| format!("a dictionary of {other} is not taken"))? as u64),
        })
    }

    fn at(&self, value: usize) -> u64 {
        match self {
            Sizes::Each(width) => *width,
            Sizes::Offsets(offsets) => (offsets[value + 1] - offsets[value]) as u64 + 8,
            Sizes::Large(offsets) => (offsets[value + 1] - offsets[value]) as u64 + 8,
            // The low half of a view is the length.
            Sizes::Views(views) => u64::from(views[value] as u32) + 16,
        }
    }

    fn of_null(&self) -> u64 {
        match self {
            Sizes::Each(width) => *width,
            Sizes::Offsets(_) | Sizes::Large(_) => 8,
            Sizes::Views(_) => 16,
        }
    }
}

#[cfg(test)]
mod tests;
