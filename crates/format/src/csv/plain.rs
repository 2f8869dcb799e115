//! Columns of ASCII records without a quote, as most are: a field is what lies between two separators, and the frequent
//! types are read many bytes at a time. What does not look as usual is left to the parsers of [`super::field`].

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, MAX_INLINE_VIEW_LEN, StringArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use bytes::Bytes;
use tidemill_block::ascii::Ascii;

use super::field::{Kind, parse_f64, parse_i64};

/// Values and which of them are there.
type Parts<T> = (Vec<T>, Option<NullBuffer>);

/// What views of texts that do not stand in them point to.
#[derive(Default)]
pub(super) struct Long {
    /// The memory of a part of the buffer, known to be ASCII, and where in it that part begins. Without it texts are copied beside each
    /// other.
    pub shared: Option<(Buffer, usize)>,
    /// How many bytes such texts have, of all columns so far.
    pub bytes: usize,
}

/// Builds a column of `rows` fields that lie in `buffer` at `spans` (from, to), or gives `None` for a type that has no
/// faster way. An empty field is NULL if `empty_is_null`; `bad(row)` is told of a field that does not parse.
pub(super) fn build(
    kind: &Kind,
    buffer: &[u8],
    rows: usize,
    spans: impl Iterator<Item = (usize, usize)> + Clone,
    empty_is_null: bool,
    long: &mut Long,
    bad: &mut impl FnMut(usize),
) -> Option<ArrayRef> {
    #[cfg(target_arch = "x86_64")]
    if crate::processor::wide() {
        // SAFETY: the processor has all that the function is compiled for.
        return unsafe { build_wide(kind, buffer, rows, spans, empty_is_null, long, bad) };
    }
    build_by(kind, buffer, rows, spans, empty_is_null, long, bad)
}

/// As [`build_by`], with the instructions for masks and shifts that most processors have.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn build_wide(
    kind: &Kind,
    buffer: &[u8],
    rows: usize,
    spans: impl Iterator<Item = (usize, usize)> + Clone,
    empty_is_null: bool,
    long: &mut Long,
    bad: &mut impl FnMut(usize),
) -> Option<ArrayRef> {
    build_by(kind, buffer, rows, spans, empty_is_null, long, bad)
}

#[inline(always)]
fn build_by(
    kind: &Kind,
    buffer: &[u8],
    rows: usize,
    spans: impl Iterator<Item = (usize, usize)> + Clone,
    empty_is_null: bool,
    long: &mut Long,
    bad: &mut impl FnMut(usize),
) -> Option<ArrayRef> {
    Some(match kind {
        Kind::Int64 => {
            let (values, nulls) = numbers::<i64>(buffer, rows, spans, parse_i64, bad);
            Arc::new(Int64Array::new(values.into(), nulls))
        }
        Kind::Float64 => {
            let (values, nulls) = numbers::<f64>(buffer, rows, spans, parse_f64, bad);
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        Kind::Text => text(buffer, rows, spans, empty_is_null)?,
        Kind::View => views(buffer, spans, empty_is_null, long)?,
        _ => return None,
    })
}

#[inline(always)]
fn numbers<T: Usual>(
    buffer: &[u8],
    rows: usize,
    spans: impl Iterator<Item = (usize, usize)>,
    parse: impl Fn(&[u8]) -> Option<T>,
    bad: &mut impl FnMut(usize),
) -> Parts<T> {
    let mut valid: Option<Vec<bool>> = None;
    let value = |(row, (from, to)): (usize, (usize, usize))| match T::usual(buffer, from, to) {
        Some(value) => value,
        None if from == to => {
            valid.get_or_insert_with(|| vec![true; rows])[row] = false;
            T::default()
        }
        None => parse(&buffer[from..to]).unwrap_or_else(|| {
            bad(row);
            T::default()
        }),
    };
    (spans.enumerate().map(value).collect(), valid.map(NullBuffer::from))
}

/// `None` if there is more text than offsets can reach.
#[inline(always)]
fn text(buffer: &[u8], rows: usize, spans: impl Iterator<Item = (usize, usize)> + Clone, empty_is_null: bool) -> Option<ArrayRef> {
    /// Most texts are not longer; so many bytes are copied without asking how many there are.
    const SHORT: usize = 16;

    let mut offsets: Vec<i32> = Vec::with_capacity(rows + 1);
    offsets.push(0);
    let (mut length, mut empty) = (0, false);
    for (from, to) in spans.clone() {
        length += to - from;
        empty |= from == to;
        offsets.push(i32::try_from(length).ok()?);
    }
    let mut data: Vec<u8> = Vec::with_capacity(length + SHORT);
    let room = data.spare_capacity_mut();
    let mut at = 0;
    for (from, to) in spans.clone() {
        let bytes = to - from;
        match buffer.get(from..from + SHORT) {
            Some(short) if bytes <= SHORT => room[at..at + SHORT].write_copy_of_slice(short),
            _ => room[at..at + bytes].write_copy_of_slice(&buffer[from..to]),
        };
        at += bytes;
    }
    assert_eq!(at, length, "the spans are the same each time");
    // SAFETY: there is room for more than `length` bytes, and so many were written, text beside text.
    unsafe { data.set_len(length) };
    let nulls = (empty && empty_is_null).then(|| spans.map(|(from, to)| from < to).collect::<NullBuffer>());
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    // SAFETY: all bytes are ASCII, so any piece of them is UTF-8.
    Some(Arc::new(unsafe { StringArray::new_unchecked(offsets, Buffer::from_vec(data), nulls) }))
}

/// Views of texts: short ones stand in them, the others where they are shared or copied to. `None` if a view cannot point
/// to one of them.
#[inline(always)]
fn views(buffer: &[u8], spans: impl Iterator<Item = (usize, usize)> + Clone, empty_is_null: bool, long: &mut Long) -> Option<ArrayRef> {
    const INLINE: usize = MAX_INLINE_VIEW_LEN as usize;
    /// So many bytes are read of a short text, whether they are its own or not.
    const READ: usize = 16;
    /// The lowest bytes, as many as a short text has.
    const OWN: [u128; INLINE + 1] = {
        let mut masks = [0; INLINE + 1];
        let mut bytes = 1;
        while bytes <= INLINE {
            masks[bytes] = masks[bytes - 1] << 8 | 0xff;
            bytes += 1;
        }
        masks
    };
    let length = |(from, to): (usize, usize)| if to - from > INLINE { to - from } else { 0 };
    let (shared, before) = (long.shared.as_ref().map(|(part, begin)| *begin..begin + part.len()), long.bytes);
    let mut data: Vec<u8> = Vec::new();
    let (mut empty, mut unreachable) = (false, false);
    let view = |(from, to): (usize, usize)| {
        let bytes = to - from;
        empty |= bytes == 0;
        if bytes <= INLINE {
            let text = match buffer.get(from..from + READ) {
                Some(read) => u128::from_le_bytes(*read.first_chunk().expect("as many")) & OWN[bytes],
                None => buffer[from..to].iter().rev().fold(0, |text, byte| text << 8 | u128::from(*byte)),
            };
            return text << 32 | bytes as u128;
        }
        long.bytes += bytes;
        let at = match &shared {
            Some(part) => {
                unreachable |= from < part.start || to > part.end;
                from.wrapping_sub(part.start)
            }
            None => {
                if data.is_empty() {
                    data.reserve_exact(spans.clone().map(length).sum());
                }
                data.extend_from_slice(&buffer[from..to]);
                data.len() - bytes
            }
        };
        unreachable |= i32::try_from(at.wrapping_add(bytes)).is_err();
        let start = u32::from_le_bytes(*buffer[from..to].first_chunk().expect("it is longer"));
        // The number of the buffer, 0, stands in between.
        bytes as u128 | u128::from(start) << 32 | (at as u128) << 96
    };
    let views: Vec<u128> = spans.clone().map(view).collect();
    if unreachable {
        return None;
    }
    let nulls = (empty && empty_is_null).then(|| spans.map(|(from, to)| from < to).collect::<NullBuffer>());
    // Functions that count characters need not look at them again.
    let data = match &long.shared {
        // Without a buffer it is known that all stand in their views, and they are compared like numbers.
        Some((part, _)) if long.bytes > before => vec![part.clone()],
        Some(_) => Vec::new(),
        None if data.is_empty() => Vec::new(),
        None => vec![Buffer::from(Bytes::from_owner(Ascii::new(data)))],
    };
    // SAFETY: a view has its text within it or says where in the only buffer that begins; all bytes are ASCII, so any piece of them is
    // UTF-8, and those behind a short text are zero.
    Some(Arc::new(unsafe { StringViewArray::new_unchecked(views.into(), data, nulls) }))
}

/// The digits of a number side by side in a word, a byte (lane) each: `$bytes` of them in `$word`. Most numbers have eight digits
/// at most, and half of the word is half of the work.
macro_rules! lanes {
    ($name:ident, $word:ty, $bytes:literal, $number:expr) => {
        mod $name {
            pub const LANES: usize = $bytes;
            const ONES: $word = <$word>::from_le_bytes([1; LANES]);
            const HIGH: $word = ONES << 7;
            const ZEROS: $word = <$word>::from_le_bytes([b'0'; LANES]);
            const POINTS: $word = <$word>::from_le_bytes([b'.'; LANES]);

            /// Which lanes lie at or above one.
            #[inline(always)]
            fn lanes_from(lane: usize) -> $word {
                const LANES_FROM: [u8; 2 * LANES] = {
                    let mut bytes = [0; 2 * LANES];
                    let mut at = LANES;
                    while at < 2 * LANES {
                        bytes[at] = 0xff;
                        at += 1;
                    }
                    bytes
                };
                // A load is cheaper than a shift of 128 bits.
                <$word>::from_le_bytes(*LANES_FROM[LANES - lane..].first_chunk().expect("twice as many"))
            }

            /// The bytes `from..to` at the upper end of a word, zeros ('0') before them; `None` if there is none or there are too
            /// many of them, or too few bytes before `to`.
            #[inline(always)]
            fn lanes(buffer: &[u8], from: usize, to: usize) -> Option<$word> {
                let unused = LANES.wrapping_sub(to - from);
                if unused >= LANES {
                    return None;
                }
                let all = <$word>::from_le_bytes(buffer.get(to.checked_sub(LANES)?..to)?.try_into().ok()?);
                let mask = lanes_from(unused);
                Some(all & mask | ZEROS & !mask)
            }

            /// The number that the digits stand for; `None` if a byte is no digit.
            #[inline(always)]
            fn digits(lanes: $word) -> Option<u64> {
                // With '0' taken off, digits are 0 to 9, and adding 118 reaches the high bit from 10 on.
                let values = lanes ^ ZEROS;
                let too_large = ((values & !HIGH) + <$word>::from_le_bytes([118; LANES])) | values;
                if too_large & HIGH != 0 {
                    return None;
                }
                let number: fn($word) -> u64 = $number;
                Some(number(values))
            }

            /// The whole number at `from..to`.
            #[inline(always)]
            pub fn whole(buffer: &[u8], from: usize, to: usize) -> Option<u64> {
                digits(lanes(buffer, from, to)?)
            }

            /// The number at `from..to` without its point, and how many digits are behind that.
            #[inline(always)]
            pub fn with_point(buffer: &[u8], from: usize, to: usize) -> Option<(u64, usize)> {
                let lanes = lanes(buffer, from, to)?;
                // The lowest lane that is marked holds a point; those above it may be marked wrongly, and are not looked at.
                let differs = lanes ^ POINTS;
                let points = differs.wrapping_sub(ONES) & !differs & HIGH;
                if points == 0 {
                    return Some((digits(lanes)?, 0));
                }
                let lane = points.trailing_zeros() as usize / 8;
                // The digits before the point move up by one.
                let before = lanes & !lanes_from(lane);
                let behind = lanes & lanes_from(lane + 1);
                Some((digits(before << 8 | behind | <$word>::from(b'0'))?, LANES - 1 - lane))
            }
        }
    };
}
lanes!(short, u64, 8, super::eight);
lanes!(long, u128, 16, |digits| super::eight(digits as u64) * 100_000_000 + super::eight((digits >> 64) as u64));

/// The number of eight digits: to pairs, to fours, to one number, each step with one multiplication for all.
#[inline(always)]
fn eight(digits: u64) -> u64 {
    const PAIRS: u64 = 0x0000_00FF_0000_00FF;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let upper = (pairs & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let lower = (pairs >> 16 & PAIRS).wrapping_mul(1 + (10_000 << 32));
    upper.wrapping_add(lower) >> 32
}

/// Numbers as they are usually written.
trait Usual: Default {
    /// The number at `from..to`; `None` if it is written otherwise, or is none.
    fn usual(buffer: &[u8], from: usize, to: usize) -> Option<Self>;
}

/// An optional minus sign and 1 to 16 digits.
impl Usual for i64 {
    #[inline(always)]
    fn usual(buffer: &[u8], from: usize, to: usize) -> Option<Self> {
        let negative = from < to && buffer[from] == b'-';
        let from = from + usize::from(negative);
        let value = if to - from <= short::LANES { short::whole(buffer, from, to)? } else { long::whole(buffer, from, to)? } as i64;
        Some(if negative { -value } else { value })
    }
}

/// An optional minus sign, and digits with a point among or behind them, less than 2^53 without the point: such a number
/// and the power of ten to divide it by are exact, so the quotient is the nearest double (Clinger 1990).
impl Usual for f64 {
    #[inline(always)]
    fn usual(buffer: &[u8], from: usize, to: usize) -> Option<Self> {
        const POWERS: [f64; long::LANES] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
        let negative = from < to && buffer[from] == b'-';
        let from = from + usize::from(negative);
        let (value, decimals) =
            if to - from <= short::LANES { short::with_point(buffer, from, to)? } else { long::with_point(buffer, from, to)? };
        // What has no digit before the point is for others to judge.
        if value >= 1 << 53 || buffer[from] == b'.' {
            return None;
        }
        let value = value as f64 / POWERS[decimals];
        Some(if negative { -value } else { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;

    /// Texts of all lengths, at the end of the buffer too, and where an empty one is NULL.
    #[test]
    fn texts_are_what_stands_between_separators() {
        for (longest, empty_is_null) in [(0, false), (0, true), (40, false), (40, true)] {
            let texts: Vec<String> = (0..=longest).map(|n| "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"[..n].to_string()).collect();
            let texts: Vec<&String> = texts.iter().chain(texts.iter().rev()).collect();
            let mut buffer = Vec::new();
            let mut spans = Vec::new();
            for text in &texts {
                let from = buffer.len();
                buffer.extend_from_slice(text.as_bytes());
                spans.push((from, buffer.len()));
                buffer.push(b',');
            }
            let build = |kind, long: &mut Long| build(&kind, &buffer, spans.len(), spans.iter().copied(), empty_is_null, long, &mut |_| ());
            let column = |kind| build(kind, &mut Long::default()).unwrap();
            let expect: StringArray = texts.iter().map(|text| (!empty_is_null || !text.is_empty()).then_some(text.as_str())).collect();
            assert_eq!(column(Kind::Text).as_string::<i32>(), &expect);
            let views = column(Kind::View);
            views.to_data().validate_full().unwrap();
            assert_eq!(views.as_string_view(), &StringViewArray::from(&expect));
            let bytes = texts.iter().map(|text| text.len()).filter(|bytes| *bytes > 12).sum::<usize>();
            for begin in [0, 3, 40] {
                let mut long = Long { shared: Some((Buffer::from(buffer.get(begin..).unwrap_or_default()), begin)), bytes: 0 };
                let pointing = build(Kind::View, &mut long).unwrap();
                pointing.to_data().validate_full().unwrap();
                assert_eq!((pointing.as_string_view(), long.bytes), (views.as_string_view(), bytes));
                assert_eq!(pointing.as_string_view().data_buffers().len(), usize::from(bytes > 0));
            }
            // Long texts outside of what is shared.
            let outside = |part: std::ops::Range<usize>| Long { shared: Some((Buffer::from(&buffer[part.clone()]), part.start)), bytes: 0 };
            if bytes > 0 {
                assert!(build(Kind::View, &mut outside(0..buffer.len() / 2)).is_none());
                assert!(build(Kind::View, &mut outside(buffer.len() / 2..buffer.len())).is_none());
            }
        }
    }

    /// Everything that looks usual has the value that the general parsers give.
    #[test]
    fn usual_numbers_are_what_others_read() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let (mut ints, mut floats) = (0, 0);
        for _ in 0..200_000 {
            let length = random(20) as usize;
            let odd = random(3) == 0;
            let text: Vec<u8> = (0..length)
                .map(|i| match random(12) {
                    0 if odd => b"+-. e/:\xff~"[random(9) as usize],
                    1 if i == 0 => b'-',
                    2 => b'.',
                    _ => b'0' + random(10) as u8,
                })
                .collect();
            let mut buffer = vec![b'9'; random(20) as usize];
            let from = buffer.len();
            buffer.extend_from_slice(&text);
            let to = buffer.len();
            buffer.extend_from_slice(b",7");
            let shown = String::from_utf8_lossy(&text);
            if let Some(value) = i64::usual(&buffer, from, to) {
                ints += 1;
                assert_eq!(parse_i64(&text), Some(value), "{shown}");
            }
            if let Some(value) = f64::usual(&buffer, from, to) {
                floats += 1;
                assert_eq!(parse_f64(&text).map(f64::to_bits), Some(value.to_bits()), "{shown}");
            }
        }
        assert!(ints > 10_000 && floats > 10_000, "{ints} {floats}");
    }

    #[test]
    fn the_ends_of_what_is_usual() {
        let at = |text: &str| (format!("{:16}{text}", ""), 16, 16 + text.len());
        for (text, int, float) in [
            ("0", Some(0), Some(0.0)),
            ("-0", Some(0), Some(-0.0)),
            ("1700000000000", Some(1_700_000_000_000), Some(1.7e12)),
            ("9999999999999999", Some(9_999_999_999_999_999), None),
            ("-9999999999999999", Some(-9_999_999_999_999_999), None),
            ("12345678901234567", None, None),
            ("112.1055", None, Some(112.1055)),
            ("-0.1", None, Some(-0.1)),
            ("5.", None, Some(5.0)),
            (".5", None, None),
            (".", None, None),
            ("1.2.3", None, None),
            ("-", None, None),
            ("", None, None),
            ("1e5", None, None),
            ("9007199254740993", Some(9_007_199_254_740_993), None),
        ] {
            let (buffer, from, to) = at(text);
            assert_eq!(i64::usual(buffer.as_bytes(), from, to), int, "{text}");
            assert_eq!(f64::usual(buffer.as_bytes(), from, to).map(f64::to_bits), float.map(f64::to_bits), "{text}");
        }
    }
}
