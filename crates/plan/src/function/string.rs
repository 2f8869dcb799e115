//! Text functions: parts, search, padding, case, joining.
//!
//! Positions and lengths count characters (code points), from 1 where SQL says so. Encodings and
//! digests live in `encoding`, regular expressions in `regex`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListBuilder, MAX_INLINE_VIEW_LEN, StringArray, StringBuilder, StringViewArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Int32Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Expr;
use tidemill_block::ascii;

use super::define::{Call, Def, Function, Param::*, Returns, build, build_bool, build_text, def};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("char_length", "CHAR_LENGTH(text)", "The number of characters", &[Text], Returns::Int, char_length)
        .alias(&["character_length", "length"])
        .views()
        .fuse(length_of_replaced),
    def("upper", "UPPER(text)", "In capitals", &[Text], Returns::Text, |c| cased(c, <[u8]>::make_ascii_uppercase, str::to_uppercase)),
    def("lower", "LOWER(text)", "In small letters", &[Text], Returns::Text, |c| cased(c, <[u8]>::make_ascii_lowercase, str::to_lowercase)),
    def("initcap", "INITCAP(text)", "Each word with a capital first letter, the rest small", &[Text], Returns::Text, initcap),
    def("btrim", "BTRIM(text[, chars])", "Without the blanks, or the characters given, at both ends", &[Text, Text], Returns::Text, |c| {
        trim(c, true, true)
    })
    .optional(1)
    .alias(&["trim"]),
    def(
        "ltrim",
        "LTRIM(text[, chars])",
        "Without the blanks, or the characters given, at the beginning",
        &[Text, Text],
        Returns::Text,
        |c| trim(c, true, false),
    )
    .optional(1),
    def("rtrim", "RTRIM(text[, chars])", "Without the blanks, or the characters given, at the end", &[Text, Text], Returns::Text, |c| {
        trim(c, false, true)
    })
    .optional(1),
    def("concat", "CONCAT(text, …)", "The texts one after another; NULL if one is NULL", &[Text], Returns::Text, concat).rest(Text),
    def(
        "concat_ws",
        "CONCAT_WS(separator, text, …)",
        "The texts that are not NULL, with the separator between them",
        &[Text],
        Returns::Text,
        concat_ws,
    )
    .rest(Text),
    def(
        "substr",
        "SUBSTRING(text, start[, length])",
        "A part; a negative start counts from the end",
        &[Text, Int, Int],
        Returns::Text,
        substr,
    )
    .optional(1)
    .alias(&["substring"]),
    def("left", "LEFT(text, n)", "The first n characters", &[Text, Int], Returns::Text, left),
    def("right", "RIGHT(text, n)", "The last n characters", &[Text, Int], Returns::Text, right),
    def(
        "split_index",
        "SPLIT_INDEX(text, delimiter, n)",
        "The part at n (from 0) of a text cut at each delimiter; NULL if there is none",
        &[Text, Any, Int],
        Returns::Text,
        split_index,
    ),
    def("split", "SPLIT(text, delimiter)", "The parts of a text cut at each delimiter", &[Text, Text], Returns::Texts, split),
    def(
        "locate",
        "LOCATE(part, text[, start])",
        "Where the part begins (from 1), looking from start; 0 if nowhere",
        &[Text, Text, Int],
        Returns::Int,
        locate,
    )
    .optional(1),
    def("instr", "INSTR(text, part)", "Where the part begins (from 1); 0 if nowhere", &[Text, Text], Returns::Int, instr)
        .alias(&["strpos"]),
    def("lpad", "LPAD(text, n, pad)", "Filled up in front, or cut, to n characters", &[Text, Int, Text], Returns::Text, |c| pad(c, true)),
    def("rpad", "RPAD(text, n, pad)", "Filled up at the end, or cut, to n characters", &[Text, Int, Text], Returns::Text, |c| {
        pad(c, false)
    }),
    def("repeat", "REPEAT(text, n)", "The text n times", &[Text, Int], Returns::Text, repeat),
    def("reverse", "REVERSE(text)", "The characters from last to first", &[Text], Returns::Text, reverse),
    def("replace", "REPLACE(text, old, new)", "With each occurrence of old replaced", &[Text, Text, Text], Returns::Text, replace),
    def("chr", "CHR(n)", "The character with the code n modulo 256", &[Int], Returns::Text, chr),
    def("ascii", "ASCII(text)", "The code of the first byte; 0 for an empty text", &[Text], Returns::Int, ascii),
    def("startswith", "STARTSWITH(text, start)", "Whether the text begins so", &[Text, Text], Returns::Bool, |c| {
        pairwise(c, |a, b| a.starts_with(b))
    })
    .alias(&["starts_with"]),
    def("endswith", "ENDSWITH(text, end)", "Whether the text ends so", &[Text, Text], Returns::Bool, |c| {
        pairwise(c, |a, b| a.ends_with(b))
    })
    .alias(&["ends_with"]),
    def("elt", "ELT(n, text, …)", "The n-th text (from 1); NULL if there is none", &[Int, Text], Returns::Text, elt).rest(Text),
    def("is_alpha", "IS_ALPHA(text)", "Whether it consists of letters", &[Text], Returns::Bool, |c| {
        consists(c, |s| s.chars().all(char::is_alphabetic))
    }),
    def("is_digit", "IS_DIGIT(text)", "Whether it consists of digits", &[Text], Returns::Bool, |c| {
        consists(c, |s| s.chars().all(char::is_numeric))
    }),
    def("is_decimal", "IS_DECIMAL(text)", "Whether it is a number", &[Text], Returns::Bool, |c| {
        consists(c, |s| super::cast::parse_double(s).is_some())
    }),
];

fn char_length(call: &Call) -> Result<ArrayRef> {
    if call.type_of(0) == DataType::Utf8View {
        let texts = call.arg(0)?;
        let views = texts.array.as_string_view();
        if views.len() == call.rows
            && let Some(lengths) = bytes_of_ascii(views)
        {
            return Ok(Arc::new(Int32Array::new(lengths.into(), views.nulls().cloned())));
        }
        return build::<Int32Type>(call.rows, |r| {
            let r = r & texts.mask;
            views.is_valid(r).then(|| characters(views.value(r)) as i32)
        });
    }
    let texts = call.text(0)?;
    let offsets = texts.array.offsets();
    if texts.array.len() == call.rows && is_ascii(&texts.array.value_data()[offsets[0] as usize..offsets[call.rows] as usize]) {
        // A byte is a character.
        let lengths: Vec<i32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        return Ok(Arc::new(Int32Array::new(lengths.into(), texts.array.nulls().cloned())));
    }
    build::<Int32Type>(call.rows, |r| Some(characters(texts.get(r)?) as i32))
}

/// The lengths of texts in bytes if they are known to be ASCII; whatever, where one is NULL.
fn bytes_of_ascii(texts: &StringViewArray) -> Option<Vec<i32>> {
    /// Of a view with a text of up to twelve bytes the highest bits of its bytes, which lie behind the length.
    const NOT_ASCII: u128 = 0x8080_8080_8080_8080_8080_8080_0000_0000;
    if !ascii::are_known(texts.data_buffers().iter().map(|buffer| buffer.as_slice())) {
        return None;
    }
    let mut found = 0;
    let lengths = texts.views().iter().map(|view| {
        let length = *view as u32;
        found |= if length <= MAX_INLINE_VIEW_LEN { view & NOT_ASCII } else { 0 };
        length as i32
    });
    let lengths = lengths.collect();
    (found == 0).then_some(lengths)
}

fn is_ascii(texts: &[u8]) -> bool {
    ascii::is_known(texts) || texts.is_ascii()
}

/// How long a text would be with each occurrence of one replaced. `CHAR_LENGTH(text) - CHAR_LENGTH(REPLACE(text, 'x', ''))` is how
/// occurrences are counted in SQL: nobody wants the text itself.
const REPLACED_LENGTH: Def = def(
    "char_length_replaced",
    "CHAR_LENGTH(REPLACE(text, old, new))",
    "The number of characters with each occurrence of old replaced",
    &[Text, Text, Text],
    Returns::Int,
    replaced_length,
);

/// `CHAR_LENGTH(REPLACE(text, old, new))` with a constant `old` that is not empty.
fn length_of_replaced(args: &[Expr]) -> Option<(Def, Vec<Expr>)> {
    let [Expr::ScalarFunction(inner)] = args else { return None };
    let [_, Expr::Literal(ScalarValue::Utf8(Some(old)), _), _] = inner.args.as_slice() else { return None };
    // Somebody may have a function of this name.
    let ours = inner.func.inner().is::<Function>() && inner.func.name() == "replace";
    (ours && !old.is_empty()).then(|| (REPLACED_LENGTH, inner.args.clone()))
}

fn replaced_length(call: &Call) -> Result<ArrayRef> {
    let (texts, olds, news) = (call.text(0)?, call.text(1)?, call.text(2)?);
    build::<Int32Type>(call.rows, |r| {
        let (text, old, new) = (texts.get(r)?, olds.get(r)?, news.get(r)?);
        let found = match old.as_bytes() {
            [byte] => memchr::memchr_iter(*byte, text.as_bytes()).count(),
            _ => text.matches(old).count(),
        };
        Some((characters(text) - found * characters(old) + found * characters(new)) as i32)
    })
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// The byte at which the character at `index` begins; the end of the text if it is shorter.
fn byte_of(text: &str, index: usize) -> usize {
    if text.is_ascii() { index.min(text.len()) } else { text.char_indices().nth(index).map_or(text.len(), |(i, _)| i) }
}

fn cased(call: &Call, ascii: fn(&mut [u8]), any: fn(&str) -> String) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let offsets = texts.array.offsets();
    let (from, until) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let all = &texts.array.value_data()[from..until];
    if texts.array.len() == call.rows && is_ascii(all) {
        // ASCII keeps its lengths: the column is changed as one text.
        let mut bytes = all.to_vec();
        ascii(&mut bytes);
        let offsets = match from {
            0 => offsets.clone(),
            _ => OffsetBuffer::from_lengths(offsets.lengths()),
        };
        return Ok(Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), texts.array.nulls().cloned())?));
    }
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        if text.is_ascii() {
            let start = out.len();
            out.extend_from_slice(text.as_bytes());
            ascii(&mut out[start..]);
        } else {
            out.extend_from_slice(any(text).as_bytes());
        }
        Some(())
    })
}

fn initcap(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        let mut inside = false;
        for c in texts.get(r)?.chars() {
            let mut buffer = [0; 4];
            if inside {
                c.to_lowercase().for_each(|c| out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()));
            } else {
                c.to_uppercase().for_each(|c| out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()));
            }
            inside = c.is_alphanumeric();
        }
        Some(())
    })
}

fn trim(call: &Call, front: bool, back: bool) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let chars = if call.len() == 2 { Some(call.text(1)?) } else { None };
    build_text(call.rows, |r, out| {
        let mut text = texts.get(r)?;
        let set = chars.as_ref().map_or(Some(" "), |c| c.get(r))?;
        if front {
            text = text.trim_start_matches(|c| set.contains(c));
        }
        if back {
            text = text.trim_end_matches(|c| set.contains(c));
        }
        out.extend_from_slice(text.as_bytes());
        Some(())
    })
}

fn concat(call: &Call) -> Result<ArrayRef> {
    let texts = (0..call.len()).map(|i| call.text(i)).collect::<Result<Vec<_>>>()?;
    build_text(call.rows, |r, out| texts.iter().try_for_each(|t| t.get(r).map(|t| out.extend_from_slice(t.as_bytes()))))
}

fn concat_ws(call: &Call) -> Result<ArrayRef> {
    let texts = (0..call.len()).map(|i| call.text(i)).collect::<Result<Vec<_>>>()?;
    build_text(call.rows, |r, out| {
        let separator = texts[0].get(r)?.as_bytes();
        for (i, text) in texts[1..].iter().filter_map(|t| t.get(r)).enumerate() {
            if i > 0 {
                out.extend_from_slice(separator);
            }
            out.extend_from_slice(text.as_bytes());
        }
        Some(())
    })
}

fn substr(call: &Call) -> Result<ArrayRef> {
    let (texts, starts) = (call.text(0)?, call.int(1)?);
    let lengths = if call.len() == 3 { Some(call.int(2)?) } else { None };
    build_text(call.rows, |r, out| {
        let (text, start) = (texts.get(r)?, starts.get(r)?);
        let length = lengths.as_ref().map_or(Some(i64::MAX), |l| l.get(r))?;
        if length < 0 {
            return None;
        }
        let from = match start {
            1.. => start - 1,
            0 => 0,
            _ => {
                let from = characters(text) as i64 + start;
                if from < 0 {
                    return Some(());
                }
                from
            }
        };
        let rest = &text[byte_of(text, usize::try_from(from).unwrap_or(usize::MAX))..];
        out.extend_from_slice(rest[..byte_of(rest, usize::try_from(length).unwrap_or(usize::MAX))].as_bytes());
        Some(())
    })
}

fn left(call: &Call) -> Result<ArrayRef> {
    let (texts, counts) = (call.text(0)?, call.int(1)?);
    build_text(call.rows, |r, out| {
        let (text, count) = (texts.get(r)?, counts.get(r)?.max(0) as usize);
        out.extend_from_slice(text[..byte_of(text, count)].as_bytes());
        Some(())
    })
}

fn right(call: &Call) -> Result<ArrayRef> {
    let (texts, counts) = (call.text(0)?, call.int(1)?);
    build_text(call.rows, |r, out| {
        let (text, count) = (texts.get(r)?, counts.get(r)?.max(0) as usize);
        out.extend_from_slice(text[byte_of(text, characters(text).saturating_sub(count))..].as_bytes());
        Some(())
    })
}

fn split_index(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    // The delimiter may be given as the code of a character.
    let code = !matches!(call.type_of(1), DataType::Utf8 | DataType::Utf8View) && call.type_of(1).is_integer();
    let (delimiters, codes) = if code { (None, Some(call.int(1)?)) } else { (Some(call.text(1)?), None) };
    let indexes = call.int(2)?;
    build_text(call.rows, |r, out| {
        let (text, index) = (texts.get(r)?, usize::try_from(indexes.get(r)?).ok()?);
        if text.is_empty() {
            return None;
        }
        let mut buffer = [0; 4];
        let delimiter = match (&delimiters, &codes) {
            (Some(delimiters), _) => delimiters.get(r)?,
            (None, Some(codes)) => char::from_u32(u32::try_from(codes.get(r)?).ok()?)?.encode_utf8(&mut buffer),
            (None, None) => return None,
        };
        let part = match delimiter.as_bytes() {
            [] => text.split_whitespace().nth(index)?,
            [one] => byte_part(text, *one, index)?,
            _ => text.split(delimiter).nth(index)?,
        };
        out.extend_from_slice(part.as_bytes());
        Some(())
    })
}

/// The part at `index` of a text cut at an ASCII character: the case that pays for a loop of its own.
fn byte_part(text: &str, delimiter: u8, mut index: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut start = 0;
    for (i, b) in bytes.iter().enumerate() {
        if *b == delimiter {
            if index == 0 {
                return Some(&text[start..i]);
            }
            index -= 1;
            start = i + 1;
        }
    }
    (index == 0).then(|| &text[start..])
}

fn split(call: &Call) -> Result<ArrayRef> {
    let (texts, delimiters) = (call.text(0)?, call.text(1)?);
    let mut lists = ListBuilder::new(StringBuilder::new());
    for r in 0..call.rows {
        let parts = texts.get(r).zip(delimiters.get(r));
        match parts {
            Some((text, "")) => text.char_indices().for_each(|(i, c)| lists.values().append_value(&text[i..i + c.len_utf8()])),
            Some((text, delimiter)) => text.split(delimiter).for_each(|p| lists.values().append_value(p)),
            None => {}
        }
        lists.append(parts.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

/// The position (from 1) of `part` in `text` at or after the character `start` (from 1).
fn position(text: &str, part: &str, start: i64) -> Option<i32> {
    let Ok(skipped) = usize::try_from(start - 1) else { return Some(0) };
    let from = byte_of(text, skipped);
    if from == text.len() && characters(text) < skipped {
        return Some(0);
    }
    Some(text[from..].find(part).map_or(0, |i| (characters(&text[..from + i]) + 1) as i32))
}

fn locate(call: &Call) -> Result<ArrayRef> {
    let (parts, texts) = (call.text(0)?, call.text(1)?);
    let starts = if call.len() == 3 { Some(call.int(2)?) } else { None };
    build::<Int32Type>(call.rows, |r| position(texts.get(r)?, parts.get(r)?, starts.as_ref().map_or(Some(1), |s| s.get(r))?))
}

fn instr(call: &Call) -> Result<ArrayRef> {
    let (texts, parts) = (call.text(0)?, call.text(1)?);
    build::<Int32Type>(call.rows, |r| position(texts.get(r)?, parts.get(r)?, 1))
}

fn pad(call: &Call, front: bool) -> Result<ArrayRef> {
    let (texts, lengths, pads) = (call.text(0)?, call.int(1)?, call.text(2)?);
    build_text(call.rows, |r, out| {
        let (text, pad) = (texts.get(r)?, pads.get(r)?);
        let length = usize::try_from(lengths.get(r)?).ok()?;
        if pad.is_empty() {
            return None;
        }
        let missing = length.saturating_sub(characters(text));
        let fill = |out: &mut Vec<u8>| {
            let whole = characters(pad);
            (0..missing / whole).for_each(|_| out.extend_from_slice(pad.as_bytes()));
            out.extend_from_slice(pad[..byte_of(pad, missing % whole)].as_bytes());
        };
        if front {
            fill(out);
        }
        out.extend_from_slice(text[..byte_of(text, length)].as_bytes());
        if !front {
            fill(out);
        }
        Some(())
    })
}

fn repeat(call: &Call) -> Result<ArrayRef> {
    let (texts, counts) = (call.text(0)?, call.int(1)?);
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?.as_bytes();
        // Past 2 GiB the column cannot be built, and says so: no need to fill memory first.
        let most = (i32::MAX as usize / text.len().max(1) + 1) as i64;
        (0..counts.get(r)?.min(most)).for_each(|_| out.extend_from_slice(text));
        Some(())
    })
}

fn reverse(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        let mut buffer = [0; 4];
        texts.get(r)?.chars().rev().for_each(|c| out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()));
        Some(())
    })
}

fn replace(call: &Call) -> Result<ArrayRef> {
    let (texts, olds, news) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let bytes = texts.array.value_offsets().last().zip(texts.array.value_offsets().first()).map_or(0, |(last, first)| last - first);
    build_text(call.rows, |r, out| {
        if r == 0 {
            // Mostly little is replaced.
            out.reserve(bytes as usize);
        }
        let (text, old, new) = (texts.get(r)?, olds.get(r)?, news.get(r)?);
        if let ([old], [] | [_]) = (old.as_bytes(), new.as_bytes()) {
            replace_byte(text.as_bytes(), *old, new.as_bytes().first().copied(), out);
            return Some(());
        }
        let mut end = 0;
        for (i, found) in text.match_indices(old) {
            out.extend_from_slice(text[end..i].as_bytes());
            out.extend_from_slice(new.as_bytes());
            end = i + found.len();
        }
        out.extend_from_slice(text[end..].as_bytes());
        Some(())
    })
}

/// Appends `text` with each `old` replaced by `new`, or left out: ASCII characters, so that no byte is
/// part of another one.
fn replace_byte(text: &[u8], old: u8, new: Option<u8>, out: &mut Vec<u8>) {
    match new {
        Some(new) => out.extend(text.iter().map(|byte| if *byte == old { new } else { *byte })),
        None => leave_out(text, old, out),
    }
}

/// Appends `text` without each `old`, eight bytes at a time: mostly none of them is one, or one is, and no branch depends
/// on which of the two it is.
fn leave_out(text: &[u8], old: u8, out: &mut Vec<u8>) {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let start = out.len();
    out.resize(start + text.len(), 0);
    let place = &mut out[start..];
    let mut kept = 0;
    let each = |bytes: &[u8], kept: &mut usize, place: &mut [u8]| {
        for byte in bytes {
            place[*kept] = *byte;
            *kept += usize::from(*byte != old);
        }
    };
    let (words, rest) = text.as_chunks::<8>();
    for bytes in words {
        let word = u64::from_le_bytes(*bytes);
        let differs = word ^ (ONES * u64::from(old));
        // The lowest mark is of an `old`; those above it may be of others.
        let marks = differs.wrapping_sub(ONES) & !differs & HIGH;
        if marks & marks.wrapping_sub(1) != 0 {
            each(bytes, &mut kept, place);
            continue;
        }
        // The bytes above the one that is left out move down; 64 if none is.
        let at = marks.trailing_zeros() & !7;
        let below = 1u64.checked_shl(at).map_or(u64::MAX, |bit| bit - 1);
        let joined = word & below | (word >> 8) & !below;
        place[kept..kept + 8].copy_from_slice(&joined.to_le_bytes());
        kept += 8 - usize::from(marks != 0);
    }
    each(rest, &mut kept, place);
    out.truncate(start + kept);
}

fn chr(call: &Call) -> Result<ArrayRef> {
    let codes = call.int(0)?;
    build_text(call.rows, |r, out| {
        let code = codes.get(r)?;
        if code >= 0 {
            let mut buffer = [0; 4];
            out.extend_from_slice(char::from(code as u8).encode_utf8(&mut buffer).as_bytes());
        }
        Some(())
    })
}

fn ascii(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    // A byte is signed where Flink runs.
    build::<Int32Type>(call.rows, |r| Some(texts.get(r)?.as_bytes().first().map_or(0, |b| *b as i8 as i32)))
}

fn pairwise(call: &Call, test: fn(&str, &str) -> bool) -> Result<ArrayRef> {
    let (a, b) = (call.text(0)?, call.text(1)?);
    build_bool(call.rows, |r| Some(test(a.get(r)?, b.get(r)?)))
}

fn elt(call: &Call) -> Result<ArrayRef> {
    let indexes = call.int(0)?;
    let texts = (1..call.len()).map(|i| call.text(i)).collect::<Result<Vec<_>>>()?;
    build_text(call.rows, |r, out| {
        let index = usize::try_from(indexes.get(r)? - 1).ok()?;
        out.extend_from_slice(texts.get(index)?.get(r)?.as_bytes());
        Some(())
    })
}

/// What is nothing, or NULL, consists of nothing: false.
fn consists(call: &Call, test: fn(&str) -> bool) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_bool(call.rows, |r| Some(texts.get(r).is_some_and(|t| !t.is_empty() && test(t))))
}

#[cfg(test)]
mod tests {
    use arrow::array::make_view;
    use datafusion_expr::expr::ScalarFunction;
    use datafusion_expr::{col, lit};

    use super::super::testing::{check, check_def, function, on_column};
    use super::*;

    #[test]
    fn parts() {
        check("substring", &["'abcdef'", "2", "3"], "bcd");
        check("substr", &["'äöü'", "-2"], "öü");
        check("substr", &["'abc'", "-5"], "");
        check("substr", &["'abc'", "0", "2"], "ab");
        check("substr", &["'abc'", "9"], "");
        check("substr", &["'abc'", "1", "-1"], "NULL");
        check("left", &["'äöü'", "2"], "äö");
        check("left", &["'abc'", "-1"], "");
        check("right", &["'äöü'", "2"], "öü");
        check("right", &["'abc'", "9"], "abc");
        check("split_index", &["'a,b,,d'", "','", "1"], "b");
        check("split_index", &["'a,b,,d'", "','", "2"], "");
        check("split_index", &["'a,b'", "','", "2"], "NULL");
        check("split_index", &["'a,b'", "','", "-1"], "NULL");
        check("split_index", &["'a--b'", "'--'", "1"], "b");
        check("split_index", &["'a,b'", "44", "1"], "b");
        check("split", &["'a,b'", "','"], "[a, b]");
        check("elt", &["2", "'a'", "'b'"], "b");
        check("elt", &["3", "'a'", "'b'"], "NULL");
    }

    #[test]
    fn search() {
        check("locate", &["'b'", "'abcb'"], "2");
        check("locate", &["'b'", "'abcb'", "3"], "4");
        check("locate", &["'b'", "'abcb'", "9"], "0");
        check("instr", &["'äöü'", "'ü'"], "3");
        check("instr", &["'abc'", "'x'"], "0");
        check("startswith", &["'abc'", "'ab'"], "TRUE");
        check("endswith", &["'abc'", "NULL"], "NULL");
    }

    #[test]
    fn shapes() {
        check("lpad", &["'hi'", "4", "'??'"], "??hi");
        check("lpad", &["'hi'", "1", "'?'"], "h");
        check("lpad", &["'hi'", "-1", "'?'"], "NULL");
        check("rpad", &["'hi'", "5", "'xy'"], "hixyx");
        check("rpad", &["'hi'", "5", "''"], "NULL");
        check("repeat", &["'ab'", "2"], "abab");
        check("repeat", &["'ab'", "-2"], "");
        check("reverse", &["'äb'"], "bä");
        check("replace", &["'aXbX'", "'X'", "'--'"], "a--b--");
        check("replace", &["'aXäX'", "'X'", "''"], "aä");
        check("replace", &["'aXä'", "'X'", "'y'"], "ayä");
        check("replace", &["'ab'", "''", "'-'"], "-a-b-");
        check("upper", &["'aß'"], "ASS");
        check("lower", &["'AB'"], "ab");
        check("initcap", &["'hello wORLD-x'"], "Hello World-X");
        check("trim", &["' a '"], "a");
        check("ltrim", &["'xxay'", "'xy'"], "ay");
        check("rtrim", &["'a  '"], "a");
    }

    #[test]
    fn bytes_are_left_out() {
        for length in 0..40 {
            for every in 1..10 {
                // Neighbours of 'c' among them, whose marks may be wrong.
                let text: Vec<u8> = (0..length).map(|i| if i % every == 0 { b'c' } else { b"bdxc\xc3\xa4"[i * 7 % 6] }).collect();
                let mut out = b"before".to_vec();
                leave_out(&text, b'c', &mut out);
                let expect: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'c').collect();
                assert_eq!(out, [b"before", expect.as_slice()].concat(), "{length}, {every}");
            }
        }
    }

    /// What is done with a whole column of ASCII at once, on a part of one.
    #[test]
    fn parts_of_columns() {
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some("ä"), Some("aB"), None, Some(""), Some("Xyz")]).slice(1, 4));
        assert_eq!(on_column("upper", &column), "AB, NULL, , XYZ");
        assert_eq!(on_column("lower", &column), "ab, NULL, , xyz");
        assert_eq!(on_column("char_length", &column), "2, NULL, 0, 3");
    }

    /// What is put in place of the length of a replaced text is that length.
    #[test]
    fn lengths_of_replaced_texts() {
        for text in ["", "x", "xx", "axbxc", "aXäxö", "äöäöä", "xyxyxyx", "no such thing"] {
            for old in ["x", "xy", "ä", "äö", "xyx", "n"] {
                for new in ["", "-", "ü", "xx", "äöü"] {
                    let expect = text.replace(old, new).chars().count().to_string();
                    check_def(REPLACED_LENGTH, &[text, old, new].map(|t| format!("'{t}'")).each_ref().map(String::as_str), &expect);
                }
            }
        }
        check_def(REPLACED_LENGTH, &["NULL", "'x'", "''"], "NULL");
        check_def(REPLACED_LENGTH, &["'x'", "'x'", "NULL"], "NULL");
        let fused = |name: &str, old: Expr| {
            let inner = ScalarFunction::new_udf(function("UTC", name), vec![col("text"), old, lit("")]);
            length_of_replaced(&[Expr::ScalarFunction(inner)]).map(|(def, args)| (def.name, args.len()))
        };
        assert_eq!(fused("replace", lit("x")), Some(("char_length_replaced", 3)));
        assert_eq!(fused("replace", lit("")), None, "one between all characters");
        assert_eq!(fused("replace", col("old")), None, "it may be empty");
        assert_eq!(fused("lpad", lit("x")), None);
        assert!(length_of_replaced(&[col("text")]).is_none());
    }

    /// Of texts that are known to be ASCII a byte is a character, of others it is not.
    #[test]
    fn lengths_of_views() {
        let (long, odd) = ("thirteen long", "äöü thirteen long");
        let texts = [Some("abc"), None, Some(""), Some("twelve bytes"), Some(long)];
        let views: StringViewArray = texts.into_iter().collect();
        assert_eq!(bytes_of_ascii(&views), None, "nobody has marked its memory");
        // Texts of up to twelve bytes have no memory but their views.
        let inline: StringViewArray = texts[..4].iter().copied().collect();
        let lengths = bytes_of_ascii(&inline).expect("ASCII");
        assert_eq!((lengths[0], lengths[2], lengths[3]), (3, 0, 12));
        assert_eq!(bytes_of_ascii(&["abc", "ä"].into_iter().map(Some).collect()), None);
        assert_eq!(bytes_of_ascii(&["abcdefghijk\u{7f}", "ijklmnopqr\u{80}"].into_iter().map(Some).collect()), None);

        struct Owned(Buffer);
        impl AsRef<[u8]> for Owned {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let text = Buffer::from(long.as_bytes());
        let mark = ascii::Ascii::new(Owned(text.clone()));
        let view = |buffer: u32, text: &str| make_view(text.as_bytes(), buffer, 0);
        let of = |buffers: Vec<Buffer>, views: Vec<u128>| StringViewArray::try_new(views.into(), buffers, None).expect("views");
        let known = of(vec![text.clone()], vec![view(0, "short"), view(0, long)]);
        assert_eq!(bytes_of_ascii(&known), Some(vec![5, 13]));
        assert_eq!(bytes_of_ascii(&known.slice(1, 1)), Some(vec![13]));
        assert_eq!(bytes_of_ascii(&of(vec![text.clone()], vec![view(0, "ä"), view(0, long)])), None);
        let mixed = of(vec![text, Buffer::from(odd.as_bytes())], vec![view(0, long), view(1, odd)]);
        assert_eq!(bytes_of_ascii(&mixed), None);
        drop(mark);
        assert_eq!(bytes_of_ascii(&known), None);
    }

    #[test]
    fn joining_and_nulls() {
        check("concat", &["'a'", "'b'", "1"], "ab1");
        check("concat", &["'a'", "NULL"], "NULL");
        check("concat_ws", &["'-'", "'a'", "NULL", "'b'"], "a-b");
        check("concat_ws", &["NULL", "'a'"], "NULL");
    }

    #[test]
    fn characters_and_kinds() {
        check("char_length", &["'äöü'"], "3");
        check("chr", &["97"], "a");
        check("chr", &["353"], "a");
        check("chr", &["-1"], "");
        check("ascii", &["'abc'"], "97");
        check("ascii", &["''"], "0");
        check("is_alpha", &["'abc'"], "TRUE");
        check("is_alpha", &["''"], "FALSE");
        check("is_digit", &["'12x'"], "FALSE");
        check("is_decimal", &["'-1.5e3'"], "TRUE");
        check("is_decimal", &["NULL"], "FALSE");
    }
}
