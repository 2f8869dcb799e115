//! Hashes of key columns, the same in every process and version: they decide which shard owns a
//! key, so a checkpoint depends on them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;

const NULL: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, OOPSLA 2014): a bijection in which every input bit reaches every output bit.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hash of a byte string, eight bytes a step.
#[inline]
pub fn bytes(text: &[u8]) -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1d ^ text.len() as u64;
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = match text.last_chunk::<8>() {
            // The last eight bytes, less those that are in the state already.
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => short(rest),
        };
        state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    mix(state)
}

/// One to seven bytes as a number, the first the lowest: reads that overlap instead of a copy of a
/// length that is not known.
#[inline]
fn short(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (text.len() - 4));
    }
    let (first, middle, last) = (text[0], text[text.len() / 2], text[text.len() - 1]);
    u64::from(first) | u64::from(middle) << (8 * (text.len() / 2)) | u64::from(last) << (8 * (text.len() - 1))
}

/// Hashes of the rows of `columns` into `out` (cleared first). No columns: every row hashes alike.
///
/// # Errors
/// A column type that cannot be a key.
pub fn rows(columns: &[ArrayRef], rows: usize, out: &mut Vec<u64>) -> Result<(), ArrowError> {
    out.clear();
    out.resize(rows, 0);
    for (i, column) in columns.iter().enumerate() {
        combine(column, i == 0, out)?;
    }
    Ok(())
}

/// Which of `shards` owns a key of this hash.
#[inline]
pub fn shard(hash: u64, shards: usize) -> usize {
    ((u128::from(hash) * shards as u128) >> 64) as usize
}

fn combine(column: &ArrayRef, first: bool, out: &mut [u64]) -> Result<(), ArrowError> {
    #[inline]
    fn fold(first: bool, state: &mut u64, hash: u64) {
        *state = if first { hash } else { mix(state.rotate_left(17) ^ hash) };
    }
    fn each(first: bool, nulls: Option<&arrow::buffer::NullBuffer>, out: &mut [u64], hash: impl Fn(usize) -> u64) {
        match nulls.filter(|n| n.null_count() > 0) {
            None => out.iter_mut().enumerate().for_each(|(i, s)| fold(first, s, hash(i))),
            Some(nulls) => out.iter_mut().enumerate().for_each(|(i, s)| fold(first, s, if nulls.is_valid(i) { hash(i) } else { NULL })),
        }
    }
    macro_rules! primitive {
        ($($pattern:pat => $type:ident),* $(,)?) => {
            match column.data_type() {
                $($pattern => {
                    let values = column.as_primitive::<arrow::datatypes::$type>().values();
                    each(first, column.nulls(), out, |i| mix((values[i] as i64 as u64).wrapping_add(1)));
                })*
                DataType::Utf8 => {
                    let values = column.as_string::<i32>();
                    each(first, column.nulls(), out, |i| bytes(values.value(i).as_bytes()));
                }
                DataType::Binary => {
                    let values = column.as_binary::<i32>();
                    each(first, column.nulls(), out, |i| bytes(values.value(i)));
                }
                DataType::Boolean => {
                    let values = column.as_boolean();
                    each(first, column.nulls(), out, |i| mix(u64::from(values.value(i)) + 1));
                }
                DataType::Float64 => {
                    let values = column.as_primitive::<arrow::datatypes::Float64Type>().values();
                    // -0.0 and 0.0 are the same key.
                    each(first, column.nulls(), out, |i| mix((values[i] + 0.0).to_bits()));
                }
                DataType::Float32 => {
                    let values = column.as_primitive::<arrow::datatypes::Float32Type>().values();
                    each(first, column.nulls(), out, |i| mix(f64::from(values[i] + 0.0).to_bits()));
                }
                DataType::Decimal128(..) => {
                    let values = column.as_primitive::<arrow::datatypes::Decimal128Type>().values();
                    each(first, column.nulls(), out, |i| mix((values[i] as u64) ^ mix((values[i] >> 64) as u64)));
                }
                DataType::Null => each(first, None, out, |_| NULL),
                _ => {
                    // Nested types: by their text, which is slow and right.
                    let options = arrow::util::display::FormatOptions::new().with_null("\0");
                    let text = arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options)?;
                    each(first, column.nulls(), out, |i| bytes(text.value(i).to_string().as_bytes()));
                }
            }
        };
    }
    primitive! {
        DataType::Int64 => Int64Type,
        DataType::Int32 => Int32Type,
        DataType::Int16 => Int16Type,
        DataType::Int8 => Int8Type,
        DataType::UInt64 => UInt64Type,
        DataType::UInt32 => UInt32Type,
        DataType::Date32 => Date32Type,
        DataType::Time32(TimeUnit::Millisecond) => Time32MillisecondType,
        DataType::Timestamp(TimeUnit::Second, _) => TimestampSecondType,
        DataType::Timestamp(TimeUnit::Millisecond, _) => TimestampMillisecondType,
        DataType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => TimestampNanosecondType,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
