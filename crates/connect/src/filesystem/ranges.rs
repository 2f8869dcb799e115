//! Cutting one text file into ranges that several readers take at once, and the ids of such splits.
//!
//! A range begins and ends exactly at record boundaries, so its reader needs to know nothing of its
//! neighbours. Where a field may hold line ends (quoted CSV), the quotes before each cut are counted
//! first, on as many threads as there will be readers; the count costs a pass of `memchr` over the
//! file. A file whose quotes do not stand where RFC 4180 wants them is not cut.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidemill_archive::ReadAt;
use tidemill_format::text::TextFormat;

/// A file below this size (bytes) is not cut: one reader takes it in a few milliseconds.
pub(super) const CUT_BYTES_MIN: u64 = 4 << 20;
/// The largest range, bytes: small enough that the last one does not keep a reader busy alone.
const RANGE_BYTES_MAX: u64 = 64 << 20;
/// Ranges a reader gets, so that fast and slow ones even out.
const RANGES_PER_READER: u64 = 8;
/// Bytes read at once while counting.
const CHUNK: usize = 1 << 20;

/// What decides where a record of a text format ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    /// At every line end.
    Lines,
    /// At line ends outside quotes; the quote and the field delimiter.
    Quoted(u8, u8),
    /// Not to be told from somewhere in the middle of a file.
    Never,
}

impl Cut {
    /// How files of this format may be cut.
    pub(super) fn of(format: &TextFormat) -> Self {
        // Where a character begins, and which byte is a line end, is known from the beginning of the file only.
        if !format.encoding().0.is_utf8() {
            return Cut::Never;
        }
        match format {
            TextFormat::Csv(csv) if !csv.disable_quote_character => {
                // An escaped quote, or one in a comment, would be counted as if it opened a field.
                if csv.escape_character.is_some()
                    || csv.allow_comments
                    || !csv.quote_character.is_ascii()
                    || !csv.field_delimiter.is_ascii()
                {
                    return Cut::Never;
                }
                Cut::Quoted(csv.quote_character as u8, csv.field_delimiter as u8)
            }
            _ => Cut::Lines,
        }
    }
}

/// How large the ranges of a file of `size` bytes are for so many readers.
pub(super) fn range_bytes(size: u64, readers: usize) -> u64 {
    (size / (readers.max(1) as u64 * RANGES_PER_READER)).clamp(CUT_BYTES_MIN, RANGE_BYTES_MAX)
}

/// Cuts the first `size` bytes into ranges of about `range` bytes, each a whole number of records.
/// One range means that the file cannot or need not be cut.
///
/// # Errors
/// Reading the file failed.
pub(super) fn cut(file: &dyn ReadAt, size: u64, range: u64, how: Cut, threads: usize) -> io::Result<Vec<(u64, u64)>> {
    assert!(range > 0, "a range holds at least a byte");
    let whole = vec![(0, size)];
    let tentative: Vec<u64> = (0..size.div_ceil(range)).map(|i| i * range).collect();
    if tentative.len() < 2 || how == Cut::Never {
        return Ok(whole);
    }
    let inside = match how {
        Cut::Quoted(quote, delimiter) => match parities(file, size, &tentative, quote, delimiter, threads)? {
            Some(inside) => inside,
            None => return Ok(whole),
        },
        _ => vec![false; tentative.len()],
    };
    let quote = if let Cut::Quoted(quote, _) = how { Some(quote) } else { None };
    let mut starts = vec![0];
    for (at, inside) in tentative.iter().zip(inside).skip(1) {
        // A cut that already lies behind this one (a record longer than a range) swallows it.
        if *at > starts[starts.len() - 1] {
            let start = record_start(file, size, *at, inside, quote)?;
            if start < size {
                starts.push(start);
            }
        }
    }
    let ends = starts[1..].iter().copied().chain([size]);
    let ranges: Vec<_> = starts.iter().copied().zip(ends).collect();
    debug_assert!(ranges.iter().all(|(start, end)| start < end), "{ranges:?}");
    Ok(ranges)
}

/// The first record start behind `from - 1`, which lies inside a quoted field or not; `size` if
/// there is none.
fn record_start(file: &dyn ReadAt, size: u64, from: u64, mut inside: bool, quote: Option<u8>) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    // The byte before decides whether `from` itself is a start.
    let mut at = from;
    if !inside {
        let mut before = [0];
        read_exact_at(file, &mut before, from - 1)?;
        if before[0] == b'\n' {
            return Ok(from);
        }
    }
    while at < size {
        let want = buffer.len().min((size - at) as usize);
        let got = file.read_at(at, &mut buffer[..want])?;
        if got == 0 {
            break;
        }
        let end = match quote {
            None => memchr::memchr(b'\n', &buffer[..got]),
            Some(quote) => memchr::memchr2_iter(b'\n', quote, &buffer[..got]).find(|i| {
                if buffer[*i] == quote {
                    inside = !inside;
                    return false;
                }
                !inside
            }),
        };
        if let Some(end) = end {
            return Ok(at + end as u64 + 1);
        }
        at += got as u64;
    }
    Ok(size)
}

fn read_exact_at(file: &dyn ReadAt, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(at + filled as u64, &mut buffer[filled..]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was cut while it was looked at")),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// What counting the quotes of one part of a file has found.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Whether the number of quotes is odd.
    odd: bool,
    /// Whether some quote is misplaced, if the part begins outside quotes and inside.
    misplaced: [bool; 2],
}

/// For each of `starts` whether it lies inside quotes; `None` if the quotes are not regular: an
/// opening one not at the beginning of a field, a closing one not at its end, one left open.
fn parities(file: &dyn ReadAt, size: u64, starts: &[u64], quote: u8, delimiter: u8, threads: usize) -> io::Result<Option<Vec<bool>>> {
    let next = AtomicUsize::new(0);
    let hopeless = AtomicBool::new(false);
    let work = || -> io::Result<Vec<(usize, Part)>> {
        let mut done = Vec::new();
        let mut buffer = vec![0; CHUNK + 2];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= starts.len() || hopeless.load(Ordering::Relaxed) {
                return Ok(done);
            }
            let end = starts.get(index + 1).copied().unwrap_or(size);
            let part = count(file, size, starts[index], end, quote, delimiter, &mut buffer)?;
            if part.misplaced == [true, true] {
                hopeless.store(true, Ordering::Relaxed);
            }
            done.push((index, part));
        }
    };
    let mut parts = vec![Part::default(); starts.len()];
    std::thread::scope(|scope| -> io::Result<()> {
        let others: Vec<_> = (1..threads.min(starts.len()).max(1)).map(|_| scope.spawn(work)).collect();
        let mut done = work()?;
        for other in others {
            done.extend(other.join().expect("counting quotes does not panic")?);
        }
        for (index, part) in done {
            parts[index] = part;
        }
        Ok(())
    })?;
    if hopeless.into_inner() {
        return Ok(None);
    }
    let mut inside = false;
    let mut answer = Vec::with_capacity(parts.len());
    for part in parts {
        if part.misplaced[inside as usize] {
            return Ok(None);
        }
        answer.push(inside);
        inside ^= part.odd;
    }
    Ok((!inside).then_some(answer))
}

/// Counts the quotes in `start..end` and looks at the neighbours of each.
fn count(file: &dyn ReadAt, size: u64, start: u64, end: u64, quote: u8, delimiter: u8, buffer: &mut [u8]) -> io::Result<Part> {
    let mut part = Part::default();
    let mut at = start;
    // The buffer holds one byte before and one behind the chunk; beyond the file they count as line ends.
    while at < end {
        let chunk = (buffer.len() - 2).min((end - at) as usize);
        let lead = usize::from(at > 0);
        buffer[0] = b'\n';
        let want = lead + chunk + usize::from(at + (chunk as u64) < size);
        let into = 1 - lead;
        read_exact_at(file, &mut buffer[into..into + want], at - lead as u64)?;
        if into + want < chunk + 2 {
            buffer[chunk + 1] = b'\n';
        }
        let mark = at == 0 && buffer[1..=chunk].starts_with(b"\xEF\xBB\xBF");
        for i in memchr::memchr_iter(quote, &buffer[1..=chunk]) {
            let (before, behind) = (buffer[i], buffer[i + 2]);
            // A byte order mark stands before the first field.
            let opens = before == delimiter || before == b'\n' || before == quote || (mark && i == 3);
            let closes = behind == delimiter || behind == b'\n' || behind == b'\r' || behind == quote;
            // Begun outside, an even quote opens and an odd one closes; begun inside, the reverse.
            part.misplaced[part.odd as usize] |= !opens;
            part.misplaced[!part.odd as usize] |= !closes;
            part.odd = !part.odd;
        }
        if part.misplaced == [true, true] {
            break;
        }
        at += chunk as u64;
    }
    Ok(part)
}

/// The part of a file that a split's id means.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// The whole file.
    Whole,
    /// These bytes.
    Bytes(u64, u64),
    /// These rows of a Parquet file (pages of a SAS7BDAT, batches of an Arrow file), counted from 0, the second not included.
    Rows(u64, u64),
}

/// The id of a split: `path`, `path#start-end` or `path#rows=from-to`.
pub(super) fn id(path: &str, piece: &Piece) -> String {
    match piece {
        Piece::Whole => path.to_string(),
        Piece::Bytes(start, end) => format!("{path}#{start}-{end}"),
        Piece::Rows(from, to) => format!("{path}#rows={from}-{to}"),
    }
}

/// What [`id`] wrote. `exists` says whether there is a file of that name: such a name is taken whole.
pub(super) fn parse_id(id: &str, exists: impl Fn(&str) -> bool) -> (&str, Piece) {
    fn pair(text: &str) -> Option<(u64, u64)> {
        let (a, b) = text.split_once('-')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    }
    if let Some((path, piece)) = id.rsplit_once('#') {
        let parsed = match piece.strip_prefix("rows=") {
            Some(rows) => pair(rows).map(|(a, b)| Piece::Rows(a, b)),
            None => pair(piece).map(|(a, b)| Piece::Bytes(a, b)),
        };
        if let Some(piece) = parsed
            && !exists(id)
        {
            return (path, piece);
        }
    }
    (id, Piece::Whole)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tidemill_archive::LocalFile;

    use super::*;

    const CSV: Cut = Cut::Quoted(b'"', b',');

    /// Cuts `text` into ranges of `range` bytes; `expect` are the pieces.
    #[track_caller]
    fn check(text: &str, range: u64, how: Cut, expect: &[&str]) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let file = LocalFile::new(file).unwrap();
        for threads in [1, 3] {
            let ranges = cut(&file, text.len() as u64, range, how, threads).unwrap();
            let pieces: Vec<_> = ranges.iter().map(|(a, b)| &text[*a as usize..*b as usize]).collect();
            assert_eq!(pieces, expect, "{threads} threads");
        }
    }

    #[test]
    fn cuts_stand_at_record_starts() {
        check("", 4, CSV, &[""]);
        check("a\nb\n", 10, CSV, &["a\nb\n"]);
        check("aa\nbb\ncc\n", 3, CSV, &["aa\n", "bb\n", "cc\n"]);
        check("aa\nbb\ncc", 4, Cut::Lines, &["aa\nbb\n", "cc"]);
        check("long line\nx\ny\n", 2, CSV, &["long line\n", "x\n", "y\n"]);
        check("aa\nbb\n", 3, Cut::Never, &["aa\nbb\n"]);
    }

    #[test]
    fn line_ends_in_quotes_are_no_cuts() {
        check("a,\"x\ny\nz\"\nb,c\n", 4, CSV, &["a,\"x\ny\nz\"\n", "b,c\n"]);
        check("\"a\"\"\nb\",c\nd,e\n", 5, CSV, &["\"a\"\"\nb\",c\n", "d,e\n"]);
        check("a,\"x\ny\"\n", 4, Cut::Lines, &["a,\"x\n", "y\"\n"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        check("\u{feff}\"a\"\n\"b\nc\"\nd\n", 9, CSV, &["\u{feff}\"a\"\n\"b\nc\"\n", "d\n"]);
    }

    #[test]
    fn irregular_quotes_are_not_cut() {
        check("a\"b\nc\"d\ne\n", 4, CSV, &["a\"b\nc\"d\ne\n"]);
        check("\"a\"b\nc\nd\n", 4, CSV, &["\"a\"b\nc\nd\n"]);
        check("\"a\nb\nc\n", 4, CSV, &["\"a\nb\nc\n"]);
    }

    #[test]
    fn ids_round_trip() {
        for piece in [Piece::Whole, Piece::Bytes(5, 70), Piece::Rows(0, 3)] {
            let id = id("/a/b#c.csv", &piece);
            assert_eq!(parse_id(&id, |_| false), ("/a/b#c.csv", piece), "{id}");
        }
        assert_eq!(parse_id("/a#1-2", |_| true), ("/a#1-2", Piece::Whole));
    }
}
