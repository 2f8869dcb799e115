//! The generators of a column's values: random numbers in a range, sequences, texts, times. Each is
//! a closure made once a column; called once a poll, it loops over the rows without branches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Decimal128Type, TimeUnit};

use super::counter::{Nulls, Span, Stream, below};

/// Makes the values of some rows. The second argument is the time of the poll, ns since 1970, for
/// columns that follow the clock.
pub type Generator = Arc<dyn Fn(Span, i64) -> ArrayRef + Send + Sync>;

/// A generator that does not look at the clock.
pub fn timeless(of: impl Fn(Span) -> ArrayRef + Send + Sync + 'static) -> Generator {
    Arc::new(move |span, _| of(span))
}

/// A generator of values of a fixed width: `of_row` gets the row number and the time of the poll.
pub fn primitive<P: ArrowPrimitiveType>(
    data_type: &DataType,
    nulls: Option<Arc<Nulls>>,
    of_row: impl Fn(u64, i64) -> P::Native + Send + Sync + 'static,
) -> Generator {
    let data_type = data_type.clone();
    // Types with parameters (time zone, precision) must be told; for the others that would be waste.
    let plain = P::DATA_TYPE == data_type;
    Arc::new(move |span, now| {
        let values = span.collect(|row| of_row(row, now));
        let array = PrimitiveArray::<P>::new(values.into(), nulls.as_ref().map(|n| n.of(span)));
        Arc::new(if plain { array } else { array.with_data_type(data_type.clone()) })
    })
}

/// Random booleans.
pub fn booleans(stream: Stream, nulls: Option<Arc<Nulls>>) -> Generator {
    Arc::new(move |span, _| {
        let values = span.bits(|row| stream.at(row) >> 63 == 1);
        Arc::new(BooleanArray::new(values, nulls.as_ref().map(|n| n.of(span))))
    })
}

/// Random integers of a type, uniform over a range that includes both ends.
macro_rules! integers {
    ($primitive:ty, $data_type:expr, $nulls:expr, $stream:expr, $min:expr, $max:expr) => {{
        type Native = <$primitive as ArrowPrimitiveType>::Native;
        let (stream, min, span) = ($stream, $min as i64, ($max as i64).wrapping_sub($min as i64).wrapping_add(1) as u64);
        match span {
            // The range is that of all 64-bit numbers: every number will do as it is.
            0 => primitive::<$primitive>($data_type, $nulls, move |row, _| stream.at(row) as Native),
            _ => primitive::<$primitive>($data_type, $nulls, move |row, _| min.wrapping_add(below(stream.at(row), span) as i64) as Native),
        }
    }};
}
pub(crate) use integers;

/// Random decimals, uniform over the unscaled range that includes both ends.
pub fn decimals(data_type: &DataType, nulls: Option<Arc<Nulls>>, stream: Stream, min: i128, max: i128) -> Generator {
    assert!(min <= max, "an empty range of decimals");
    // Not beyond 2 * 10^38, which is less than 2^128.
    let span = (max - min) as u128 + 1;
    match u64::try_from(span) {
        Ok(span) => primitive::<Decimal128Type>(data_type, nulls, move |row, _| min + below(stream.at(row), span) as i128),
        Err(_) => primitive::<Decimal128Type>(data_type, nulls, move |row, _| {
            let (high, low) = (stream.at(row), stream.at(!row));
            min + (((high as u128) << 64 | low as u128) % span) as i128
        }),
    }
}

/// How long texts and byte strings are.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The longest, in characters or bytes; at least 1.
    pub max: usize,
    /// Whether the length is random, 1 to `max`, rather than always `max`.
    pub variable: bool,
}

impl Length {
    #[inline]
    fn of(self, stream: Stream, row: u64) -> usize {
        if self.variable { 1 + below(stream.at(row), self.max as u64) as usize } else { self.max }
    }
}

/// The two hexadecimal digits of every byte.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        pairs[i] = [digits[i >> 4], digits[i & 15]];
        i += 1;
    }
    pairs
};

/// Appends `length` bytes, `word` by `word` of `WIDTH` bytes each.
#[inline]
fn write_words<const WIDTH: usize>(out: &mut Vec<u8>, length: usize, first_word: u64, word: impl Fn(u64) -> [u8; WIDTH]) {
    let mut left = length;
    let mut index = first_word;
    while left >= WIDTH {
        out.extend_from_slice(&word(index));
        index = index.wrapping_add(1);
        left -= WIDTH;
    }
    if left > 0 {
        out.extend_from_slice(&word(index)[..left]);
    }
}

/// Random texts of hexadecimal digits, as Flink makes them.
pub fn hex_texts(data_type: &DataType, nulls: Option<Arc<Nulls>>, values: Stream, lengths: Stream, length: Length) -> Generator {
    let words = length.max.div_ceil(16) as u64;
    texts(data_type, nulls, length.max, move |row, out| {
        write_words(out, length.of(lengths, row), row.wrapping_mul(words), |index| {
            let mut digits = [0; 16];
            for (pair, byte) in digits.chunks_exact_mut(2).zip(values.at(index).to_le_bytes()) {
                pair.copy_from_slice(&HEX[byte as usize]);
            }
            digits
        });
    })
}

/// Random byte strings.
pub fn byte_strings(data_type: &DataType, nulls: Option<Arc<Nulls>>, values: Stream, lengths: Stream, length: Length) -> Generator {
    let words = length.max.div_ceil(8) as u64;
    let data_type = data_type.clone();
    Arc::new(move |span, _| {
        let (offsets, bytes) = bytes_of(span, length.max, |row, out| {
            write_words(out, length.of(lengths, row), row.wrapping_mul(words), |index| values.at(index).to_le_bytes());
        });
        let array = BinaryArray::new(offsets, bytes, nulls.as_ref().map(|n| n.of(span)));
        as_type(Arc::new(array), &data_type)
    })
}

/// Texts of any type of string column: `write` appends that of a row. `bytes_max` is the most that
/// it appends, in bytes.
pub fn texts(
    data_type: &DataType,
    nulls: Option<Arc<Nulls>>,
    bytes_max: usize,
    write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'static,
) -> Generator {
    let data_type = data_type.clone();
    Arc::new(move |span, _| {
        let (offsets, bytes) = bytes_of(span, bytes_max, &write);
        let nulls: Option<NullBuffer> = nulls.as_ref().map(|n| n.of(span));
        as_type(Arc::new(StringArray::new(offsets, bytes, nulls)), &data_type)
    })
}

fn bytes_of(span: Span, bytes_max: usize, write: impl Fn(u64, &mut Vec<u8>)) -> (OffsetBuffer<i32>, Buffer) {
    let mut bytes = Vec::with_capacity(span.rows * bytes_max);
    let mut offsets = Vec::with_capacity(span.rows + 1);
    offsets.push(0i32);
    for (first, count) in span.ranges() {
        for k in 0..count as u64 {
            write(first.wrapping_add(k), &mut bytes);
            offsets.push(bytes.len() as i32);
        }
    }
    assert!(bytes.len() <= i32::MAX as usize, "the reader bounds the bytes of a block");
    (OffsetBuffer::new(offsets.into()), bytes.into())
}

/// The strings in another layout of the same kind (large, view), if the column wants one.
fn as_type(array: ArrayRef, data_type: &DataType) -> ArrayRef {
    if array.data_type() == data_type {
        return array;
    }
    arrow::compute::cast(&array, data_type).expect("strings have all layouts of strings")
}

/// Nanoseconds in a unit of a timestamp.
pub fn ns_per(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
