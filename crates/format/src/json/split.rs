//! Where the objects of a JSON document begin and end: an array of objects, or objects behind each other, over any number of
//! lines. A document of lines, an object each, is one, too, but lines are found faster.
//!
//! Ends are found by counting brackets outside of strings, byte by byte, whatever is in between: values are the decoder's
//! business. A text that is no JSON would make that count wrong, and all that follows one bad object. So what JSON never has
//! tells that an object is bad, and where the next one begins:
//!
//! - An object begins where the name of a field must stand: the one before was never closed.
//! - A line ends in a string, whose quote is missing then: the next object begins where a line begins with a brace that is
//!   indented no more than the bad object's own.
//! - A bracket closes more than was opened last: what lies in between is bad, and closed with it.

use super::JsonForm;
use crate::RECORD_BYTES_MAX;

/// A byte order mark, which may stand in front of everything.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// What comes next in a document; places are counted from the bytes given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record; the next one begins behind its end. It is an object, or nothing that may stand there.
    Record {
        /// Its first byte.
        start: usize,
        /// Behind its last byte.
        end: usize,
    },
    /// No whole record is there; so many bytes in front belong to none.
    More(usize),
    /// A record that begins here is longer than [`RECORD_BYTES_MAX`].
    TooLong(usize),
    /// The text ends in an array; so many bytes in front belong to no record.
    Unclosed(usize),
}

/// Whether records stand in an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Array {
    #[default]
    No,
    /// Its end has not come.
    Open,
    /// Reading began in the middle of the document: what comes will tell.
    Unknown,
}

/// Finds the records of a document in bytes that come in pieces.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    array: Array,
    /// The record that begins where the bytes given begin, if its end was not found yet.
    record: Option<Inside>,
    /// Bytes of it that were looked at.
    seen: usize,
    /// Where the bytes given begin, counted from the first.
    place: u64,
    /// Where the line begins that is looked at, counted likewise.
    line: u64,
}

/// How far into a record it was looked.
#[derive(Debug)]
struct Inside {
    /// The brackets that are open: whether they are those of objects. None for what is neither object nor array.
    open: Vec<bool>,
    /// How many of them are of arrays, and of objects.
    count: [usize; 2],
    /// In a string, and behind a backslash in it.
    string: bool,
    escaped: bool,
    /// The last byte outside of strings that is no blank, the quotes of strings included.
    last: u8,
    /// Where in its line it begins.
    column: u64,
    /// A string in it was not closed: brackets mean nothing any more.
    lost: bool,
    /// Of a lost one: nothing but blanks and commas stand before in the line.
    fresh: bool,
}

impl Inside {
    fn new(first: u8, column: u64) -> Self {
        let open = match first {
            b'{' => vec![true],
            b'[' => vec![false],
            _ => Vec::new(),
        };
        let count = [false, true].map(|object| open.iter().filter(|one| **one == object).count());
        Inside { open, count, string: first == b'"', escaped: false, last: first, column, lost: false, fresh: false }
    }

    /// Takes a byte outside of strings; whether the record ends before it or behind it.
    #[inline]
    fn take(&mut self, byte: u8, array: bool) -> Option<End> {
        match byte {
            b' ' | b'\t' | b'\r' => return None,
            // What is neither object nor array ends where another value may begin.
            b'\n' | b',' if self.open.is_empty() => return Some(End::Before),
            b'\n' => return None,
            b'"' => self.string = true,
            b'{' | b'[' => match self.open.last() {
                None => return Some(End::Before),
                Some(true) if byte == b'{' && self.last != b':' => return Some(End::Before),
                Some(_) => {
                    self.open.push(byte == b'{');
                    self.count[usize::from(byte == b'{')] += 1;
                }
            },
            b'}' | b']' => {
                let object = byte == b'}';
                if self.count[usize::from(object)] > 0 {
                    // Brackets of the other kind within it were not closed. Each is looked at once.
                    while let Some(top) = self.open.pop() {
                        self.count[usize::from(top)] -= 1;
                        if top == object {
                            break;
                        }
                    }
                    if self.open.is_empty() {
                        return Some(End::Behind);
                    }
                } else if !object && array {
                    // The end of the array in which it stands.
                    return Some(End::Before);
                }
            }
            _ => {}
        }
        self.last = byte;
        None
    }

    /// Takes a byte of a record that is lost, `column` of its line; whether it belongs to the record no more.
    fn is_behind(&mut self, byte: u8, column: u64, array: bool) -> bool {
        match byte {
            b'\n' => self.fresh = true,
            b' ' | b'\t' | b'\r' | b',' => {}
            _ if !self.fresh => {}
            b'{' => return column <= self.column,
            b']' if array => return column <= self.column,
            _ => self.fresh = false,
        }
        false
    }
}

/// Where a record ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Before,
    Behind,
}

impl Splitter {
    /// Of a document whose first bytes are not given: they were read before.
    pub fn in_the_middle() -> Self {
        Splitter { array: Array::Unknown, ..Splitter::default() }
    }

    /// The next step in `bytes`, which are what was given before and not passed over, and what has come since. Passed over are
    /// records to their end, and bytes of which the answer says that they belong to none. `finished` says that no more come.
    pub fn next(&mut self, bytes: &[u8], finished: bool) -> Step {
        let start = match self.record {
            Some(_) => 0,
            None => match self.begin(bytes, finished) {
                Ok(start) => start,
                Err(step) => return step,
            },
        };
        if self.seen > RECORD_BYTES_MAX {
            return self.pass(Step::TooLong(start));
        }
        match self.end(bytes, start) {
            Some(end) if end - start > RECORD_BYTES_MAX => {
                // Asked again, it says so again.
                self.seen = RECORD_BYTES_MAX + 1;
                self.pass(Step::TooLong(start))
            }
            Some(end) => self.pass(Step::Record { start, end }),
            None if finished => {
                // That it is not closed is said of the record; it would be said of the array once more.
                self.array = Array::No;
                self.pass(Step::Record { start, end: bytes.len() })
            }
            None => {
                self.seen = bytes.len() - start;
                self.pass(if self.seen > RECORD_BYTES_MAX { Step::TooLong(start) } else { Step::More(start) })
            }
        }
    }

    /// Notes what is passed over.
    fn pass(&mut self, step: Step) -> Step {
        self.place += match step {
            Step::Record { end, .. } => {
                (self.record, self.seen) = (None, 0);
                end
            }
            Step::More(passed) | Step::TooLong(passed) | Step::Unclosed(passed) => passed,
        } as u64;
        step
    }

    /// Passes over what stands between records, and begins the next one, whose place it gives.
    fn begin(&mut self, bytes: &[u8], finished: bool) -> Result<usize, Step> {
        let mut at = 0;
        if self.place == 0 {
            match bytes.starts_with(BOM) {
                true => at = BOM.len(),
                false if !finished && BOM.starts_with(bytes) => return Err(Step::More(0)),
                false => {}
            }
        }
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\n' => self.line = self.place + at as u64 + 1,
                b' ' | b'\t' | b'\r' => {}
                b',' if self.array != Array::No => self.array = Array::Open,
                b']' if self.array != Array::No => self.array = Array::No,
                b'[' if self.array != Array::Open => self.array = Array::Open,
                first => {
                    // A comma behind a bad object was passed already, with the line end behind it.
                    let column = (self.place + at as u64).saturating_sub(self.line);
                    self.record = Some(Inside::new(*first, column));
                    self.seen = 1;
                    return Ok(at);
                }
            }
            at += 1;
        }
        let step = if finished && self.array == Array::Open { Step::Unclosed(at) } else { Step::More(at) };
        Err(self.pass(step))
    }

    /// Where the record ends that begins at `start`, if that is there.
    fn end(&mut self, bytes: &[u8], start: usize) -> Option<usize> {
        let Splitter { array, record, seen, place, line } = self;
        let (record, array) = (record.as_mut()?, *array != Array::No);
        let mut at = start + *seen;
        while let Some(byte) = bytes.get(at).copied() {
            if record.string {
                if record.escaped && byte != b'\n' {
                    record.escaped = false;
                    at += 1;
                    continue;
                }
                let n = memchr::memchr3(b'"', b'\\', b'\n', &bytes[at..])?;
                at += n;
                match bytes[at] {
                    b'"' => (record.string, record.last) = (false, b'"'),
                    b'\\' => record.escaped = true,
                    _ => {
                        (record.string, record.escaped, record.lost, record.fresh) = (false, false, true, true);
                        *line = *place + at as u64 + 1;
                    }
                }
                at += 1;
                continue;
            }
            if record.lost {
                if record.is_behind(byte, (*place + at as u64).saturating_sub(*line), array) {
                    return Some(bare(bytes, start, at));
                }
            } else {
                match record.take(byte, array) {
                    Some(End::Before) => return Some(bare(bytes, start, at)),
                    Some(End::Behind) => return Some(at + 1),
                    None => {}
                }
            }
            if byte == b'\n' {
                *line = *place + at as u64 + 1;
            }
            at += 1;
        }
        None
    }
}

/// The end of what lies from `start` to `end`, blanks and commas behind it left out: who goes on there sees that it is no line.
fn bare(bytes: &[u8], start: usize, end: usize) -> usize {
    let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',');
    bytes[start..end].iter().rposition(|byte| !between(byte)).map_or(end, |last| start + last + 1)
}

/// The form of a text of which some records were read, and `bytes` come next; `None` if there are none yet. Lines end behind
/// their line ends, records of a document before what stands between them.
pub(crate) fn form_behind(bytes: &[u8], complete: bool) -> Option<JsonForm> {
    match bytes.first() {
        None => complete.then_some(JsonForm::Lines),
        Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b']') => Some(JsonForm::Document),
        // Records with nothing between them, or lines.
        Some(b'{') => form(bytes, complete),
        Some(_) => Some(JsonForm::Lines),
    }
}

/// The form of the text that begins with `bytes`; `None` if more of it must be seen and it is not `complete`. Lines are what
/// begins with an object that ends in its line, with nothing behind it in that line that could be another.
pub(crate) fn form(bytes: &[u8], complete: bool) -> Option<JsonForm> {
    if !complete && bytes.len() < BOM.len() && BOM.starts_with(bytes) {
        return None;
    }
    let text = bytes.strip_prefix(BOM).unwrap_or(bytes).trim_ascii_start();
    let line = memchr::memchr(b'\n', text).map(|end| &text[..end]);
    match text.first() {
        None => complete.then_some(JsonForm::Lines),
        Some(b'[' | b',' | b']') => Some(JsonForm::Document),
        Some(b'{') if line.is_none() && !complete && text.len() <= RECORD_BYTES_MAX => None,
        Some(b'{') => match Splitter::default().next(line.unwrap_or(text), false) {
            Step::Record { end, .. } => match line.unwrap_or(text)[end..].trim_ascii_start().first() {
                Some(b'{' | b'[' | b',') => Some(JsonForm::Document),
                _ => Some(JsonForm::Lines),
            },
            // An object that goes on in the next line, or of which no more is there.
            _ => Some(if line.is_some() { JsonForm::Document } else { JsonForm::Lines }),
        },
        Some(_) => Some(JsonForm::Lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a text cut at every `piece` bytes, and the last step.
    fn split(text: &[u8], piece: usize) -> (Vec<String>, Step) {
        let mut splitter = Splitter::default();
        let (mut records, mut from, mut to) = (Vec::new(), 0, 0);
        loop {
            let finished = to == text.len();
            match splitter.next(&text[from..to], finished) {
                Step::Record { start, end } => {
                    records.push(String::from_utf8_lossy(&text[from + start..from + end]).into_owned());
                    from += end;
                }
                Step::More(passed) if !finished => {
                    from += passed;
                    to = (to + piece).min(text.len());
                }
                last => return (records, last),
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        for piece in (1..=text.len().min(9)).chain([text.len().max(1)]) {
            let (records, last) = split(text.as_bytes(), piece);
            assert_eq!(records, expect, "{text:?} in pieces of {piece}");
            assert!(matches!(last, Step::More(_)), "{text:?} in pieces of {piece}: {last:?}");
        }
    }

    #[test]
    fn objects_in_arrays_and_without() {
        check("", &[]);
        check("[]", &[]);
        check(" [ ] \n", &[]);
        check("[{\"a\":1},{\"a\":2}]", &["{\"a\":1}", "{\"a\":2}"]);
        check("\u{feff}[\n  {\n    \"a\": 1\n  },\n  {}\n]\n", &["{\n    \"a\": 1\n  }", "{}"]);
        check("{\"a\":1}\n{\"a\":\n2}{}", &["{\"a\":1}", "{\"a\":\n2}", "{}"]);
        check("[{\"a\":{\"b\":[{},[]]}}\n,{\"s\":\"}]\\\"\\\\\"}]", &["{\"a\":{\"b\":[{},[]]}}", "{\"s\":\"}]\\\"\\\\\"}"]);
        check("[{}]\n[{\"a\":1}]", &["{}", "{\"a\":1}"]);
    }

    #[test]
    fn what_is_no_object_is_a_record_of_its_own() {
        check("[1, {}, \"a,]b\" , null,[{},2],{}]", &["1", "{}", "\"a,]b\"", "null", "[{},2]", "{}"]);
        check("{} x\n{}", &["{}", "x", "{}"]);
        check("{},{}", &["{}", ",", "{}"]);
        check("[{}}, {}]", &["{}", "}", "{}"]);
    }

    #[test]
    fn a_bad_object_harms_no_neighbour() {
        // A bracket that is missing.
        check("[{\"a\":[1},{\"a\":2}]", &["{\"a\":[1}", "{\"a\":2}"]);
        check("[{\"a\":1,{\"a\":2}]", &["{\"a\":1", "{\"a\":2}"]);
        check("[{\"a\":1, \"b\":]", &["{\"a\":1, \"b\":"]);
        check("[\n  {\n    \"a\": 1\n  ,\n  {\n    \"a\": 2\n  }\n]", &["{\n    \"a\": 1", "{\n    \"a\": 2\n  }"]);
        // A quote that is missing: what is indented more belongs to the bad one.
        check("[{\"a\":\"x},\n{\"a\":\"y\"}\n]", &["{\"a\":\"x}", "{\"a\":\"y\"}"]);
        check(
            "[\n  {\n    \"a\": \"x,\n    \"b\": [\n      {\"c\": 1}\n    ]\n  },\n  {\"a\": \"y\"}\n]",
            &["{\n    \"a\": \"x,\n    \"b\": [\n      {\"c\": 1}\n    ]\n  }", "{\"a\": \"y\"}"],
        );
        check("[\n{\"a\":\"x}\n]\n{}", &["{\"a\":\"x}", "{}"]);
    }

    #[test]
    fn what_is_cut_off_is_noticed() {
        for piece in 1..9 {
            let unclosed = |text: &str, expect: &[&str]| {
                let (records, last) = split(text.as_bytes(), piece);
                assert_eq!(records, expect, "{text:?}");
                last
            };
            assert!(matches!(unclosed("[{\"a\":1}, ", &["{\"a\":1}"]), Step::Unclosed(_)));
            assert!(matches!(unclosed("[", &[]), Step::Unclosed(_)));
            assert!(matches!(unclosed("[{\"a\":1},{\"a\"", &["{\"a\":1}", "{\"a\""]), Step::More(_)));
        }
    }

    #[test]
    fn reading_goes_on_in_the_middle() {
        let text = b"[{\"a\":1} , {\"a\":2}\n]\n{}";
        let mut splitter = Splitter::in_the_middle();
        let rest = &text[8..];
        assert_eq!(splitter.next(rest, true), Step::Record { start: 3, end: 10 });
        assert_eq!(splitter.next(&rest[10..], true), Step::Record { start: 3, end: 5 });
        assert_eq!(splitter.next(&rest[15..], true), Step::More(0));
        assert!(matches!(Splitter::in_the_middle().next(b" ,", true), Step::Unclosed(2)));
    }

    #[test]
    fn a_record_without_end() {
        let mut splitter = Splitter::default();
        let text = [b"[{\"a\":\"".as_slice(), &vec![b'x'; RECORD_BYTES_MAX]].concat();
        assert_eq!(splitter.next(&text, false), Step::TooLong(1));
        assert_eq!(splitter.next(&text[1..], true), Step::TooLong(0));
    }

    #[test]
    fn forms_are_told_apart() {
        #[track_caller]
        fn check(text: &str, expect: JsonForm) {
            assert_eq!(form(text.as_bytes(), true), Some(expect), "{text:?}");
            // What was decided before its end must not be another.
            for end in 0..text.len() {
                assert!(form(&text.as_bytes()[..end], false).is_none_or(|early| early == expect), "{text:?} up to {end}");
            }
        }
        check("", JsonForm::Lines);
        check("{\"a\":1}", JsonForm::Lines);
        check("\u{feff}\n{\"a\":1}\r\n[1]", JsonForm::Lines);
        check("{\"a\":\"\\\"}{\"}\n", JsonForm::Lines);
        check("no json\n[", JsonForm::Lines);
        check("{\"a\"", JsonForm::Lines);
        check("{\"a\":1}}\n", JsonForm::Lines);
        check(" \n[", JsonForm::Document);
        check("{\n}", JsonForm::Document);
        check("{\"a\":1} {\"a\":2}\n", JsonForm::Document);
        check("{\"a\":1},\n{\"a\":2}", JsonForm::Document);
        check(",{}", JsonForm::Document);
    }
}
