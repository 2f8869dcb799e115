//! Cutting one text file into ranges that several readers take at once, and the ids of such splits.
//!
//! A range begins and ends exactly at record boundaries, so its reader needs to know nothing of its neighbours. Where a field may
//! hold line ends (quoted CSV), it must be known of each cut whether it stands in quotes. Of a small file all quotes are counted. In
//! a large one that would cost a fifth of the reading, or all of it a second time if it comes from a disk or a network; there what
//! comes behind each cut tells ([`Look`]): the quotes, by what stands beside them, or where they tell nothing the lines, by how many
//! fields they have. That could be wrong, of a long text or of stray quotes; so who reads a range sees whether a record
//! ends where the next range begins, and says so if none does ([`super::reader`]). Where it does not tell, all quotes are counted
//! after all, on as many threads as there will be readers. A file whose quotes do not stand where RFC 4180 wants them is then not cut.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidemill_archive::ReadAt;
use tidemill_format::text::TextFormat;

/// A file below this size (bytes) is not cut: one reader takes it in a few milliseconds.
pub(super) const CUT_BYTES_MIN: u64 = 4 << 20;
/// The largest of even ranges, bytes: small enough that the last one does not keep a reader busy alone.
const RANGE_BYTES_MAX: u64 = 32 << 20;
/// Even ranges that there are for each reader, so that fast and slow ones even out.
pub(super) const RANGES_PER_READER: u64 = 16;
/// What one reader takes at once at most, bytes, see [`share`], and for how many rounds of all readers as much must be left.
const SHARE_BYTES_MAX: u64 = 256 << 20;
const ROUNDS_LEFT: u64 = 3;
/// Bytes read at once while counting: they stay in a processor's own cache.
const CHUNK: usize = 256 << 10;
/// Of a file up to this size all quotes are counted, bytes.
const COUNTED_BYTES_MAX: u64 = 64 << 20;
/// So far behind a cut is looked at in larger files, bytes.
pub(super) const LOOK_BYTES: u64 = 256 << 10;
/// How many looks are taken at once at files that lie behind a network.
const DISTANT_LOOKS: usize = 16;
/// So many records behind a cut are compared with the first one of the file where quotes tell nothing.
const RECORDS: usize = 3;

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
        // Where a character begins, and which byte is a line end, is known from the beginning of the file only; and so is how
        // deep in a document something stands.
        if !format.encoding().0.is_utf8() || format.document() {
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

/// How it is found out whether a cut stands in quotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    /// All quotes are counted.
    Everywhere,
    /// In a large file by what comes behind the cut, if that tells.
    Near,
    /// As [`Look::Near`], of a file that lies behind a network, of which little is to be read: it is not cut if that does not tell.
    Distant,
    /// Not at all: the file is not cut where that must be known.
    Nowhere,
}

/// How large even ranges of `size` bytes are for so many readers.
pub(super) fn range_bytes(size: u64, readers: usize) -> u64 {
    (size / (readers.max(1) as u64 * RANGES_PER_READER)).clamp(CUT_BYTES_MIN, RANGE_BYTES_MAX)
}

/// How many bytes one reader of several takes at once where so many are left for all of them: to open a piece takes up to a ms where
/// there are a hundred columns, so pieces are large, and become smaller towards the end, which all reach together (guided
/// self-scheduling, Polychronopoulos and Kuck 1987).
fn share(left: u64, readers: usize) -> u64 {
    (left / (readers.max(1) as u64 * ROUNDS_LEFT)).min(SHARE_BYTES_MAX)
}

/// Where the ranges of a file of `size` bytes would begin if records did not matter, each of `range` bytes.
pub(super) fn even(size: u64, range: u64) -> Vec<u64> {
    (0..size.div_ceil(range)).map(|i| i * range).collect()
}

/// As [`even`], with ranges that are each a [`share`] of what is left to read from there, `left` bytes from where the file begins. They
/// are not below half of `range`, nor below [`CUT_BYTES_MIN`] or all of it, but for the last one.
pub(super) fn guided(size: u64, mut left: u64, range: u64, readers: usize) -> Vec<u64> {
    let least = (range / 2).max(range.clamp(1, CUT_BYTES_MIN));
    let (mut cuts, mut at) = (Vec::new(), 0);
    while at < size {
        cuts.push(at);
        let mut range = share(left, readers).max(least);
        // What is hardly worth an opening goes along.
        if size - at < range + least / 2 {
            range = size - at;
        }
        (at, left) = (at + range, left.saturating_sub(range));
    }
    cuts
}

/// Joins neighbouring pieces of files, of which lengths are given, to a [`share`] each of what is left.
pub(super) fn join<'a>(files: impl Iterator<Item = (u64, &'a mut Vec<Piece>)>, readers: usize) {
    let files: Vec<_> = files.collect();
    let mut left: u64 = files.iter().map(|(bytes, _)| bytes).sum();
    for (bytes, pieces) in files {
        let each = (bytes / pieces.len().max(1) as u64).max(1);
        let (mut joined, mut rest) = (Vec::new(), pieces.as_slice());
        while !rest.is_empty() {
            let count = usize::try_from(share(left, readers) / each).unwrap_or(usize::MAX).clamp(1, rest.len());
            joined.push(match (&rest[0], &rest[count - 1]) {
                (Piece::Rows(from, _), Piece::Rows(_, to)) => Piece::Rows(*from, *to),
                (whole, _) => whole.clone(),
            });
            rest = &rest[count..];
            left = left.saturating_sub(count as u64 * each);
        }
        *pieces = joined;
    }
}

/// Cuts the first `size` bytes into ranges that begin about where `cuts` are, of which the first is 0, each a whole number of records.
/// One range means that the file cannot or need not be cut.
///
/// # Errors
/// Reading the file failed.
pub(super) fn cut(file: &dyn ReadAt, size: u64, cuts: &[u64], how: Cut, threads: usize, look: Look) -> io::Result<Vec<(u64, u64)>> {
    let whole = vec![(0, size)];
    if cuts.len() < 2 || how == Cut::Never {
        return Ok(whole);
    }
    let looks = if look == Look::Distant { DISTANT_LOOKS } else { threads };
    let starts = match how {
        Cut::Quoted(quote, delimiter) => {
            let near = match look {
                Look::Distant => near_quotes(file, size, cuts, (quote, delimiter), LOOK_BYTES, looks)?,
                Look::Near if size > COUNTED_BYTES_MAX => near_quotes(file, size, cuts, (quote, delimiter), LOOK_BYTES, looks)?,
                _ => None,
            };
            match (near, look) {
                (Some(starts), _) => starts,
                (None, Look::Distant | Look::Nowhere) => return Ok(whole),
                (None, _) => {
                    let parts = parts(cuts, size, CUT_BYTES_MIN);
                    let Some(inside) = parities(file, size, &parts, quote, delimiter, threads)? else { return Ok(whole) };
                    let at_cut = |cut| inside[parts.binary_search(cut).expect("each cut begins a part")];
                    starts_of(file, size, cuts, &cuts.iter().map(at_cut).collect::<Vec<_>>(), Some(quote))?
                }
            }
        }
        _ => spread(cuts.len(), looks, |index| match cuts[index] {
            0 => Ok(0),
            at => record_start(file, size, at, false, None),
        })?,
    };
    Ok(between(&starts, size))
}

/// Ranges of a text as those of a file are found; with `look` by no more than so many bytes behind each cut, as those of a large
/// or a distant one, or one range if these do not tell. For fuzzing, whose texts are small.
///
/// # Errors
/// Reading failed.
#[doc(hidden)]
pub fn ranges_of(text: &dyn ReadAt, range: u64, format: &TextFormat, look: Option<u64>) -> io::Result<Vec<(u64, u64)>> {
    let (size, how) = (text.size(), Cut::of(format));
    match (how, look) {
        (Cut::Quoted(quote, delimiter), Some(look)) => {
            let starts = near_quotes(text, size, &even(size, range), (quote, delimiter), look, 1)?;
            Ok(starts.map_or_else(|| vec![(0, size)], |starts| between(&starts, size)))
        }
        _ => cut(text, size, &even(size, range), how, 1, Look::Everywhere),
    }
}

/// Where parts of ranges begin that are no larger than `most` bytes: so many are counted at once, however large ranges are.
fn parts(cuts: &[u64], size: u64, most: u64) -> Vec<u64> {
    let ends = cuts[1..].iter().chain([&size]);
    cuts.iter().zip(ends).flat_map(|(from, to)| even(to - from, most).into_iter().map(move |at| from + at)).collect()
}

/// The ranges between record starts, those left out that come again: a record longer than a range swallows cuts.
fn between(starts: &[u64], size: u64) -> Vec<(u64, u64)> {
    let mut begins: Vec<u64> = Vec::with_capacity(starts.len());
    for start in starts {
        if *start < size && begins.last().is_none_or(|last| start > last) {
            begins.push(*start);
        }
    }
    let ends = begins[1..].iter().copied().chain([size]);
    begins.iter().copied().zip(ends).collect()
}

/// Where the records begin that are the first behind the cuts.
fn starts_of(file: &dyn ReadAt, size: u64, cuts: &[u64], inside: &[bool], quote: Option<u8>) -> io::Result<Vec<u64>> {
    let mut starts = vec![0];
    for (at, inside) in cuts.iter().zip(inside).skip(1) {
        let last = starts[starts.len() - 1];
        starts.push(if *at > last { record_start(file, size, *at, *inside, quote)? } else { last });
    }
    Ok(starts)
}

/// As [`starts_of`], by no more than `look` bytes behind each cut; `None` if what comes there does not tell for one of them whether
/// it stands in quotes: quotes by their neighbours, or lines without quotes by having as many fields as the file's first record.
fn near_quotes(
    file: &dyn ReadAt,
    size: u64,
    cuts: &[u64],
    (quote, delimiter): (u8, u8),
    look: u64,
    threads: usize,
) -> io::Result<Option<Vec<u64>>> {
    let Some(delimiters) = first_delimiters(file, size, (quote, delimiter), look)? else { return Ok(None) };
    // One that does not tell is enough.
    let hopeless = AtomicBool::new(false);
    let starts = spread(cuts.len(), threads, |index| {
        let from = cuts[index];
        if index == 0 || hopeless.load(Ordering::Relaxed) {
            return Ok(Some(0));
        }
        let end = size.min(from.saturating_add(look));
        let mut buffer = vec![0; (end - from) as usize + 2];
        let part = count(file, size, from, end, quote, delimiter, &mut buffer)?;
        // All of it is in the buffer: a byte before the cut, and what comes behind.
        let text = &buffer[1..buffer.len() - 1];
        let inside = match (part.quotes, part.misplaced) {
            // A file does not end in quotes.
            (false, _) if end == size => Some(false),
            (_, [false, true]) => Some(false),
            (_, [true, false]) => Some(true),
            (_, [true, true]) => None,
            (_, [false, false]) => {
                let fits = |inside| fit(text, (buffer[0], inside), (quote, delimiter), delimiters);
                if fits(false) != fits(true) { Some(fits(true)) } else { None }
            }
        };
        let start = inside.and_then(|inside| match first_start(text, (buffer[0], inside), Some(quote)) {
            Ok(begin) => Some(from + begin as u64),
            Err(_) => (end == size).then_some(size),
        });
        hopeless.fetch_or(start.is_none(), Ordering::Relaxed);
        Ok(start)
    })?;
    Ok(if hopeless.into_inner() { None } else { starts.into_iter().collect() })
}

/// How many delimiters the first record of the file has, `None` if it does not end within `look` bytes.
fn first_delimiters(file: &dyn ReadAt, size: u64, (quote, delimiter): (u8, u8), look: u64) -> io::Result<Option<usize>> {
    let mut text = vec![0; look.min(size) as usize];
    read_exact_at(file, &mut text, 0)?;
    let Ok(end) = first_start(&text, (0, false), Some(quote)) else { return Ok(None) };
    let mut inside = false;
    let outside = text[..end].iter().filter(|b| {
        inside ^= **b == quote;
        **b == delimiter && !inside
    });
    Ok(Some(outside.count()))
}

/// Whether the first [`RECORDS`] records that begin in `text` are whole and have so many delimiters each, if it is known what stands
/// before it and whether that is inside quotes. Where a record has no delimiter, that says nothing.
fn fit(text: &[u8], before: (u8, bool), (quote, delimiter): (u8, u8), delimiters: usize) -> bool {
    let Ok(start) = first_start(text, before, Some(quote)) else { return false };
    let (mut records, mut found, mut inside) = (0, 0, false);
    for byte in &text[start..] {
        if *byte == quote {
            inside = !inside;
        } else if *byte == delimiter && !inside {
            found += 1;
        } else if *byte == b'\n' && !inside {
            if found != delimiters {
                return false;
            }
            (records, found) = (records + 1, 0);
            if records == RECORDS {
                return delimiters > 0;
            }
        }
    }
    false
}

/// Where in `text` the first record begins, if it is known what stands before it and whether that is inside quotes; if none does,
/// whether its end is inside quotes.
fn first_start(text: &[u8], (before, mut inside): (u8, bool), quote: Option<u8>) -> Result<usize, bool> {
    if !inside && before == b'\n' {
        return Ok(0);
    }
    let end = match quote {
        None => memchr::memchr(b'\n', text),
        Some(quote) => memchr::memchr2_iter(b'\n', quote, text).find(|i| {
            if text[*i] == quote {
                inside = !inside;
                return false;
            }
            !inside
        }),
    };
    end.map(|end| end + 1).ok_or(inside)
}

/// The first record start behind `from - 1`, which lies inside a quoted field or not; `size` if
/// there is none.
fn record_start(file: &dyn ReadAt, size: u64, from: u64, mut inside: bool, quote: Option<u8>) -> io::Result<u64> {
    // The byte before decides whether `from` itself is a start; it comes with the first that are looked at.
    let mut buffer = vec![0; 64 << 10];
    let mut at = from - 1;
    while at < size {
        let want = buffer.len().min((size - at) as usize);
        read_exact_at(file, &mut buffer[..want], at)?;
        match first_start(&buffer[1..want], (buffer[0], inside), quote) {
            Ok(start) => return Ok(at + 1 + start as u64),
            Err(now) => inside = now,
        }
        // The last one again, as the one before.
        at += (want - 1).max(1) as u64;
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
    /// Whether there is one.
    quotes: bool,
    /// Whether the number of quotes is odd.
    odd: bool,
    /// Whether some quote is misplaced, if the part begins outside quotes and inside.
    misplaced: [bool; 2],
}

/// For each of `starts` whether it lies inside quotes; `None` if the quotes are not regular: an
/// opening one not at the beginning of a field, a closing one not at its end, one left open.
fn parities(file: &dyn ReadAt, size: u64, starts: &[u64], quote: u8, delimiter: u8, threads: usize) -> io::Result<Option<Vec<bool>>> {
    let hopeless = AtomicBool::new(false);
    let parts = spread(starts.len(), threads, |index| {
        if hopeless.load(Ordering::Relaxed) {
            return Ok(Part::default());
        }
        let end = starts.get(index + 1).copied().unwrap_or(size);
        let part = count(file, size, starts[index], end, quote, delimiter, &mut vec![0; CHUNK + 2])?;
        if part.misplaced == [true, true] {
            hopeless.store(true, Ordering::Relaxed);
        }
        Ok(part)
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

/// Does some work for each number below `count`, on several threads.
fn spread<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> io::Result<T> + Sync) -> io::Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|number| *number < count);
        numbers.map(|number| Ok((number, work(number)?))).collect::<io::Result<Vec<(usize, T)>>>()
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(some)).collect();
        let mut done = some()?;
        for other in others {
            done.extend(other.join().expect("looking at quotes does not panic")?);
        }
        Ok::<_, io::Error>(done)
    })?;
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, found)| found).collect())
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
            part.quotes = true;
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
            let ranges = cut(&file, text.len() as u64, &even(text.len() as u64, range), how, threads, Look::Near).unwrap();
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

    /// The ranges of `text`, by the quotes near each cut; `None` if they do not tell.
    fn near(text: &str, range: u64, look: u64) -> Option<Vec<&str>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let (file, size) = (LocalFile::new(file).unwrap(), text.len() as u64);
        let [one, many] = [1, 3].map(|threads| near_quotes(&file, size, &even(size, range), (b'"', b','), look, threads).unwrap());
        assert_eq!(one, many);
        Some(between(&one?, size).iter().map(|(a, b)| &text[*a as usize..*b as usize]).collect())
    }

    #[test]
    fn quotes_near_a_cut_tell_where_it_stands() {
        let quoted = "a,\"x\ny\nz\"\nb,c\n";
        assert_eq!(near(quoted, 4, 100), Some(vec!["a,\"x\ny\nz\"\n", "b,c\n"]));
        assert_eq!(near("aa\nbb\ncc\n", 3, 100), Some(vec!["aa\n", "bb\n", "cc\n"]));
        // No quote in sight, nor a line.
        assert_eq!(near(quoted, 4, 2), None);
        // Lines, but of another number of fields.
        assert_eq!(near("a,b\nc,\"x\ny\nz\nu\nv\nw\nw\nw\nw\"\nb,c\n", 9, 9), None);
        // Lines in quotes that look like records: the reader of the first range will find that to be wrong.
        let alike = "a,b\nc,\"x\n1,2\n3,4\n5,6\n7,8\n9,0\"\nb,c\n";
        assert_eq!(near(alike, 9, 16), Some(vec!["a,b\nc,\"x\n", "1,2\n3,4\n5,6\n7,8\n9,0\"\n", "b,c\n"]));
        // Quotes that tell nothing, between lines that do.
        let empty = "a,\"\"\nb,c\nd,\"\"\ne,f\ng,h\n1,2\n3,4\n5,6\n";
        assert_eq!(near(empty, 7, 18), Some(vec!["a,\"\"\nb,c\n", "d,\"\"\n", "e,f\ng,h\n", "1,2\n3,4\n", "5,6\n"]));
        // As good inside as outside.
        assert_eq!(near("a,b\nc,\",\",d\n", 4, 100), None);
        // Good neither way.
        assert_eq!(near("a,b\nc,d\"e\n", 4, 100), None);
    }

    /// Rows with quotes, line ends and delimiters in every place, cut everywhere.
    #[test]
    fn near_quotes_cut_as_all_of_them_do() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut told = 0;
        for _ in 0..200 {
            let mut text = String::new();
            for _ in 0..30 {
                let row: Vec<String> = (0..3)
                    .map(|_| match next(4) {
                        0 => "plain".to_string(),
                        1 => format!("\"{}\"", ["", "x", "a\nb", ",", "\n", "\"\"", "say \"\"x\"\""][next(7) as usize]),
                        _ => "7".repeat(next(20) as usize),
                    })
                    .collect();
                text += &format!("{}\n", row.join(","));
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let (file, size) = (LocalFile::new(file).unwrap(), text.len() as u64);
            let range = 60 + next(100);
            let all: Vec<_> = cut(&file, size, &even(size, range), CSV, 1, Look::Everywhere)
                .unwrap()
                .iter()
                .map(|(a, b)| &text[*a as usize..*b as usize])
                .collect();
            if let Some(ranges) = near(&text, range, 300) {
                assert_eq!(ranges, all, "{text}");
                told += 1;
            }
        }
        assert!(told > 100, "{told} of 200 texts were cut by what is near");
    }

    #[test]
    fn ranges_become_smaller_towards_the_end() {
        const MB: u64 = 1 << 20;
        let sizes = |cuts: &[u64], size: u64| {
            let ends = cuts[1..].iter().copied().chain([size]);
            cuts.iter().zip(ends).map(|(from, to)| (to - from) / MB).collect::<Vec<_>>()
        };
        let cuts = guided(3000 * MB, 3000 * MB, 32 * MB, 2);
        assert_eq!(
            sizes(&cuts, 3000 * MB),
            [256, 256, 256, 256, 256, 256, 244, 203, 169, 141, 117, 98, 81, 68, 56, 47, 39, 32, 27, 22, 19, 16, 16, 16, 16, 16, 15]
        );
        // Much behind it, and nothing.
        assert_eq!(sizes(&guided(300 * MB, 3000 * MB, 32 * MB, 2), 300 * MB), [256, 44]);
        assert_eq!(sizes(&guided(20 * MB, 20 * MB, 8 * MB, 16), 20 * MB), [4; 5]);
        // The ranges of small files are no smaller than was asked for.
        assert_eq!(guided(10 * MB, 10 * MB, 4 * MB, 4), [0, 4 * MB, 8 * MB]);
        assert_eq!((guided(0, 0, 4, 2), guided(3, 3, 1, 2)), (vec![], vec![0, 1, 2]));
        // A little more than one share is one.
        assert_eq!(sizes(&guided(257 * MB, 6000 * MB, 32 * MB, 2), 257 * MB), [257]);
        assert_eq!(sizes(&guided(270 * MB, 6000 * MB, 32 * MB, 2), 270 * MB), [256, 14]);
    }

    #[test]
    fn quotes_are_counted_in_small_parts() {
        assert_eq!(parts(&[0, 10, 25], 31, 10), [0, 10, 20, 25]);
        assert!(parts(&[0], 0, 10).is_empty());
        assert_eq!(parts(&[0, 7], 8, 100), [0, 7]);
    }

    #[test]
    fn pieces_are_joined_but_for_the_last() {
        const MB: u64 = 1 << 20;
        let pieces = |count: u64| (0..count).map(|at| Piece::Rows(10 * at, 10 * at + 10)).collect::<Vec<_>>();
        let sizes = |pieces: &[Piece]| {
            let mut end = 0;
            let size = |piece: &Piece| match piece {
                Piece::Rows(from, to) => {
                    assert_eq!(*from, std::mem::replace(&mut end, *to), "nothing lies between them");
                    (to - from) / 10
                }
                _ => panic!("{piece:?}"),
            };
            pieces.iter().map(size).collect::<Vec<_>>()
        };
        let mut files = [(90 * 32 * MB, pieces(90)), (32 * MB, vec![Piece::Whole]), (9 * 32 * MB, pieces(9))];
        join(files.iter_mut().map(|(bytes, pieces)| (*bytes, pieces)), 2);
        assert_eq!(sizes(&files[0].1), [8, 8, 8, 8, 8, 8, 8, 7, 6, 5, 4, 3, 3, 2, 2, 2]);
        assert_eq!((&files[1].1[..], sizes(&files[2].1)), (&[Piece::Whole][..], vec![1; 9]));
        // Many small files behind a large one are not much to do.
        let mut mixed = vec![(300 * MB, pieces(75))];
        mixed.extend((0..500).map(|_| (MB / 50, vec![Piece::Whole])));
        join(mixed.iter_mut().map(|(bytes, pieces)| (*bytes, pieces)), 8);
        assert_eq!(sizes(&mixed[0].1)[0], 3);
        // Nothing, and of no length.
        join([(0, &mut Vec::new()), (0, &mut vec![Piece::Whole])].into_iter(), 2);
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
