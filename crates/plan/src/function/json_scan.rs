//! Finding values in JSON text by path, in one pass and without building a tree.
//!
//! The whole text is checked on the way: ill-formed JSON is found even behind the value that was
//! looked for. What the functions make of the values found lives in `json`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Arrays and objects inside one another that a text may have.
const DEPTH_MAX: usize = 256;
/// Paths a thread remembers.
const PATHS_MAX: usize = 256;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name` or `['name']`.
    Key(String),
    /// `[n]`; from the end if negative.
    Index(i64),
    /// `[*]` or `.*`.
    All,
}

/// A compiled path such as `$.a.b[0]['c d']`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    steps: Vec<Step>,
    /// Whether it may lead to several values.
    pub many: bool,
}

thread_local! {
    static PATHS: RefCell<HashMap<String, Result<Rc<Path>, String>>> = RefCell::new(HashMap::new());
}

impl Path {
    /// The compiled form of a path, remembered by the thread.
    ///
    /// # Errors
    /// A message that says what is wrong with the path.
    pub(super) fn get(text: &str) -> Result<Rc<Path>, String> {
        PATHS.with_borrow_mut(|paths| {
            if let Some(found) = paths.get(text) {
                return found.clone();
            }
            let path = Path::compile(text).map(Rc::new);
            if paths.len() >= PATHS_MAX {
                paths.clear();
            }
            paths.insert(text.to_string(), path.clone());
            path
        })
    }

    fn compile(text: &str) -> Result<Path, String> {
        let wrong = |what: &str| Err(format!("the JSON path '{text}' {what}"));
        let trimmed = text.trim();
        let mode = trimmed.get(..6).map(str::to_ascii_lowercase);
        let mut rest = match mode.as_deref() {
            Some("strict") => trimmed[6..].trim_start(),
            Some(m) if m.starts_with("lax ") => trimmed[4..].trim_start(),
            _ => trimmed,
        };
        let Some(tail) = rest.strip_prefix('$') else { return wrong("has to begin with $") };
        rest = tail;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('.') {
                let end = tail.find(['.', '[']).unwrap_or(tail.len());
                let name = tail[..end].trim();
                match name {
                    "" => return wrong("has an empty name; '..' is not supported"),
                    "*" => steps.push(Step::All),
                    _ if name.ends_with(')') => return wrong("calls a function, which is not supported"),
                    _ => steps.push(Step::Key(name.trim_matches('"').to_string())),
                }
                rest = &tail[end..];
            } else if let Some(tail) = rest.strip_prefix('[') {
                let tail = tail.trim_start();
                if let Some(quote @ ('\'' | '"')) = tail.chars().next() {
                    let Some(end) = tail[1..].find(quote) else { return wrong("has a quote that is not closed") };
                    steps.push(Step::Key(tail[1..1 + end].to_string()));
                    let Some(after) = tail[end + 2..].trim_start().strip_prefix(']') else {
                        return wrong("has a bracket that is not closed");
                    };
                    rest = after;
                } else {
                    let Some((inside, after)) = tail.split_once(']') else { return wrong("has a bracket that is not closed") };
                    match (inside.trim(), inside.trim().parse()) {
                        ("*", _) => steps.push(Step::All),
                        (_, Ok(index)) => steps.push(Step::Index(index)),
                        _ => return wrong("has something else than a number, * or a quoted name in brackets"),
                    }
                    rest = after;
                }
            } else {
                return wrong("has something else than .name or [n]");
            }
        }
        let many = steps.contains(&Step::All);
        Ok(Path { steps, many })
    }
}

/// The text is no JSON.
#[derive(Debug, PartialEq)]
pub(super) struct IllFormed;

/// The values that the path leads to, as they stand in the text.
pub(super) fn find<'a>(text: &'a str, path: &Path) -> Result<Vec<&'a str>, IllFormed> {
    let mut found = Vec::new();
    let mut scanner = Scanner { text: text.as_bytes(), at: 0, depth: 0 };
    scanner.blanks();
    scanner.walk(&path.steps, &mut found)?;
    scanner.blanks();
    if scanner.at != text.len() {
        return Err(IllFormed);
    }
    // The limits of a value are ASCII characters, so these are limits of characters too.
    Ok(found.into_iter().map(|(from, to)| &text[from..to]).collect())
}

/// The last of the values that the path leads to, which of doubled names is the one that counts.
pub(super) fn find_one<'a>(text: &'a str, path: &Path) -> Result<Option<&'a str>, IllFormed> {
    Ok(find(text, path)?.pop())
}

/// The first character of a JSON text, and thereby its kind; nothing if it is no JSON.
pub(super) fn kind(text: &str) -> Option<u8> {
    let root = Path { steps: Vec::new(), many: false };
    find_one(text, &root).ok()??.bytes().next()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), IllFormed> {
        if self.peek() != Some(byte) {
            return Err(IllFormed);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes a value, and adds what the steps lead to from it.
    fn walk(&mut self, steps: &[Step], found: &mut Vec<(usize, usize)>) -> Result<(), IllFormed> {
        let Some((step, rest)) = steps.split_first() else {
            let from = self.at;
            self.skip()?;
            found.push((from, self.at));
            return Ok(());
        };
        // Of doubled names the last counts: what an earlier one led to is forgotten.
        let before = found.len();
        match (self.peek(), step) {
            (Some(b'{'), Step::Key(wanted)) => self.object(|s, key| {
                if !key.is(wanted) {
                    return s.skip();
                }
                found.truncate(before);
                s.walk(rest, found)
            }),
            (Some(b'{'), Step::All) => self.object(|s, _| s.walk(rest, found)),
            (Some(b'['), Step::Index(_) | Step::All) => {
                let wanted = match step {
                    Step::Index(n) if *n < 0 => {
                        let start = self.at;
                        let mut count = 0i64;
                        self.array(|s, _| {
                            count += 1;
                            s.skip()
                        })?;
                        self.at = start;
                        Some(count + n)
                    }
                    Step::Index(n) => Some(*n),
                    _ => None,
                };
                self.array(|s, i| if wanted.is_none_or(|w| w == i) { s.walk(rest, found) } else { s.skip() })
            }
            _ => self.skip(),
        }
    }

    fn object(&mut self, mut each: impl FnMut(&mut Self, Key<'a>) -> Result<(), IllFormed>) -> Result<(), IllFormed> {
        self.enter()?;
        self.blanks();
        if self.peek() == Some(b'}') {
            return self.leave();
        }
        loop {
            let from = self.at;
            let escaped = self.string()?;
            let key = Key { raw: &self.text[from + 1..self.at - 1], escaped };
            self.blanks();
            self.expect(b':')?;
            self.blanks();
            each(self, key)?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return self.leave(),
                _ => return Err(IllFormed),
            }
            self.blanks();
        }
    }

    fn array(&mut self, mut each: impl FnMut(&mut Self, i64) -> Result<(), IllFormed>) -> Result<(), IllFormed> {
        self.enter()?;
        self.blanks();
        if self.peek() == Some(b']') {
            return self.leave();
        }
        for index in 0.. {
            each(self, index)?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(IllFormed),
            }
            self.blanks();
        }
        self.leave()
    }

    fn enter(&mut self) -> Result<(), IllFormed> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(IllFormed) } else { Ok(()) }
    }

    fn leave(&mut self) -> Result<(), IllFormed> {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// Passes a value.
    fn skip(&mut self) -> Result<(), IllFormed> {
        match self.peek().ok_or(IllFormed)? {
            b'{' => self.object(|s, _| s.skip()),
            b'[' => self.array(|s, _| s.skip()),
            b'"' => self.string().map(|_| ()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(IllFormed),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), IllFormed> {
        if !self.text[self.at..].starts_with(word) {
            return Err(IllFormed);
        }
        self.at += word.len();
        Ok(())
    }

    fn digits(&mut self) -> Result<(), IllFormed> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err(IllFormed) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), IllFormed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Passes a string and says whether it has escapes.
    fn string(&mut self) -> Result<bool, IllFormed> {
        self.expect(b'"')?;
        let mut escaped = false;
        loop {
            match self.peek().ok_or(IllFormed)? {
                b'"' => {
                    self.at += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    match self.text.get(self.at + 1).ok_or(IllFormed)? {
                        b'u' => {
                            let digits = self.text.get(self.at + 2..self.at + 6).ok_or(IllFormed)?;
                            if !digits.iter().all(u8::is_ascii_hexdigit) {
                                return Err(IllFormed);
                            }
                            self.at += 6;
                        }
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                        _ => return Err(IllFormed),
                    }
                }
                0..0x20 => return Err(IllFormed),
                _ => self.at += 1,
            }
        }
    }
}

/// A name of an object, without its quotes.
struct Key<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl Key<'_> {
    #[inline]
    fn is(&self, wanted: &str) -> bool {
        if !self.escaped {
            return self.raw == wanted.as_bytes();
        }
        std::str::from_utf8(self.raw).is_ok_and(|raw| unescape(raw) == wanted)
    }
}

/// The text that the inside of a JSON string stands for. Halves of surrogate pairs that stand alone
/// become U+FFFD.
pub(super) fn unescape(inside: &str) -> Cow<'_, str> {
    if !inside.contains('\\') {
        return Cow::Borrowed(inside);
    }
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    let unit = |t: &str| t.get(..4).and_then(|h| u16::from_str_radix(h, 16).ok());
    while let Some(i) = rest.find('\\') {
        out.push_str(&rest[..i]);
        let Some(c) = rest[i + 1..].chars().next() else { break };
        rest = &rest[i + 1 + c.len_utf8()..];
        match c {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let Some(first) = unit(rest) else { continue };
                rest = &rest[4..];
                let second = if (0xD800..0xDC00).contains(&first) {
                    rest.strip_prefix("\\u").and_then(unit).filter(|u| (0xDC00..0xE000).contains(u))
                } else {
                    None
                };
                match second {
                    Some(second) => {
                        rest = &rest[6..];
                        out.extend(char::decode_utf16([first, second]).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
                    }
                    None => out.push(char::from_u32(first as u32).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
            other => out.push(other),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Appends a text as a JSON string with its quotes.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut from = 0;
    for (i, b) in text.bytes().enumerate() {
        let short = match b {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x0C => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[from..i]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(format!("{b:04x}").as_bytes());
        }
        from = i + 1;
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    out.push(b'"');
}

/// Appends a JSON value without blanks outside of its strings, the strings with no more escapes
/// than they need.
pub(super) fn compact(value: &str, out: &mut Vec<u8>) {
    let bytes = value.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b' ' | b'\t' | b'\n' | b'\r' => i += 1,
            b'"' => {
                let from = i + 1;
                i = from;
                let mut escaped = false;
                while bytes[i] != b'"' {
                    escaped |= bytes[i] == b'\\';
                    i += 1 + (bytes[i] == b'\\') as usize;
                }
                if escaped {
                    quote(&unescape(&value[from..i]), out);
                } else {
                    out.extend_from_slice(&bytes[from - 1..=i]);
                }
                i += 1;
            }
            b => {
                out.push(b);
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_values() {
        #[track_caller]
        fn check(text: &str, path: &str, expect: Option<&[&str]>) {
            let path = Path::compile(path).unwrap();
            assert_eq!(find(text, &path).ok().as_deref(), expect);
        }
        let text = r#" {"a": {"b": [10, {"c d": "x"}, [1 , 2]]}, "e\u0066": null, "n": -1.5e3} "#;
        check(text, "$.a.b[0]", Some(&["10"]));
        check(text, "lax $.a.b[1]['c d']", Some(&["\"x\""]));
        check(text, "$.a.b[-1]", Some(&["[1 , 2]"]));
        check(text, "$.a.b[2][*]", Some(&["1", "2"]));
        check(text, "$.ef", Some(&["null"]));
        check(text, "$.n", Some(&["-1.5e3"]));
        check(text, "$.a[0]", Some(&[]));
        check(text, "$.a.b.c", Some(&[]));
        check("[1]", "$", Some(&["[1]"]));
        check(r#"{"a":1,"a":2}"#, "$.a", Some(&["2"]));
        check(r#"{"a":1} x"#, "$.a", None);
        check(r#"{"a":1,}"#, "$.a", None);
        check(r#"{"a":01}"#, "$.b", None);
        check("", "$", None);
        check(r#"{"a":{"x":1},"b":{"x":2}}"#, "$.*.x", Some(&["1", "2"]));
    }

    #[test]
    fn paths_that_are_none() {
        for path in ["", "a", "$.", "$..a", "$[", "$['a", "$[x]", "$a", "$.size()"] {
            assert!(Path::compile(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn deep_texts_are_refused_rather_than_followed() {
        assert_eq!(kind(&"[".repeat(100_000)), None);
        assert_eq!(kind(&format!("{}{}", "[".repeat(200), "]".repeat(200))), Some(b'['));
    }

    #[test]
    fn strings() {
        assert_eq!(unescape(r"a\n\u00e9\ud83d\ude00\ud83d!"), "a\né😀\u{fffd}!");
        let mut out = Vec::new();
        quote("a\"\\\n\u{1}é", &mut out);
        assert_eq!(std::str::from_utf8(&out).unwrap(), r#""a\"\\\n\u0001é""#);
        out.clear();
        compact(r#"{ "a b" : [ 1 , "\u0041\"" ] }"#, &mut out);
        assert_eq!(std::str::from_utf8(&out).unwrap(), r#"{"a b":[1,"A\""]}"#);
    }
}
