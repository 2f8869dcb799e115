//! Where the rows stand in a JSON answer: paths such as `$.data.items[0]`, and the pieces of text they
//! lead to. What is passed over on the way is looked at only as far as finding its end needs; rows are
//! checked by the format that reads them.

use std::ops::Range;

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 256;

/// A path into a JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Element(usize),
}

impl Path {
    /// Reads a path: `$`, then `.name`, `['name']` or `[number]`; a `[*]` at the end says what is so anyhow.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{text}': {what}; expected a path such as $.data.items or $[0].user");
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').unwrap_or(rest);
        rest = rest.strip_suffix("[*]").unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (inside, behind) = inner.split_once(']').ok_or_else(|| wrong("a ] is missing"))?;
                let inside = inside.trim();
                let quoted = ['\'', '"'].iter().find_map(|q| inside.strip_prefix(*q)?.strip_suffix(*q));
                steps.push(match quoted {
                    Some(name) => Step::Field(name.to_string()),
                    None => Step::Element(inside.parse().map_err(|_| wrong("between [ and ] stands a number or a name in quotes"))?),
                });
                rest = behind;
            } else {
                let name = match rest.strip_prefix('.') {
                    Some(name) => name,
                    None if steps.is_empty() && !text.trim().starts_with('$') => rest,
                    None => return Err(wrong("a . is missing")),
                };
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 || name[..end].contains(['*', '?', '(', '@', ']']) {
                    return Err(wrong("a name is missing, or something that is not supported"));
                }
                steps.push(Step::Field(name[..end].to_string()));
                rest = &name[end..];
            }
        }
        Ok(Path { steps })
    }

    /// The places of the rows in `body`: of the object that the path leads to, or of each in the array.
    ///
    /// # Errors
    /// What the body is instead.
    pub fn rows(&self, body: &[u8], rows: &mut Vec<Range<usize>>) -> Result<(), String> {
        let mut cursor = Cursor { bytes: body, at: 0 };
        cursor.blanks();
        for step in &self.steps {
            let found = match step {
                Step::Field(name) => cursor.field(name)?,
                Step::Element(index) => cursor.element(*index)?,
            };
            if !found {
                return Ok(());
            }
        }
        match cursor.peek() {
            b'{' => rows.push(cursor.value()?),
            b'[' => {
                cursor.at += 1;
                cursor.blanks();
                while cursor.peek() != b']' {
                    match cursor.peek() {
                        b'{' => rows.push(cursor.value()?),
                        b'n' => _ = cursor.value()?,
                        _ => return Err(cursor.expected("an object in the array of rows")),
                    }
                    cursor.comma(b']')?;
                }
                cursor.at += 1;
            }
            b'n' => _ = cursor.value()?,
            _ => return Err(cursor.expected("an object or an array of objects")),
        }
        cursor.blanks();
        if self.steps.is_empty() && cursor.at < body.len() {
            return Err(cursor.expected("nothing more"));
        }
        Ok(())
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    #[cold]
    fn expected(&self, what: &str) -> String {
        match self.bytes.get(self.at) {
            Some(_) => format!("expected {what} at byte {} of the answer", self.at + 1),
            None => format!("the answer ends where {what} was expected"),
        }
    }

    /// Behind an element: takes the comma, or stays at `end`.
    fn comma(&mut self, end: u8) -> Result<(), String> {
        self.blanks();
        match self.peek() {
            b',' => {
                self.at += 1;
                self.blanks();
                if self.peek() == end { Err(self.expected("a value")) } else { Ok(()) }
            }
            found if found == end => Ok(()),
            _ => Err(self.expected("a comma")),
        }
    }

    /// Goes to the value of a field of the object here; whether there is one. What is no object has none if
    /// it is null.
    fn field(&mut self, name: &str) -> Result<bool, String> {
        if self.peek() == b'n' {
            return self.value().map(|_| false);
        }
        if self.peek() != b'{' {
            return Err(self.expected(&format!("an object with '{name}'")));
        }
        self.at += 1;
        self.blanks();
        while self.peek() != b'}' {
            let key = self.string()?;
            self.blanks();
            if self.peek() != b':' {
                return Err(self.expected("a colon"));
            }
            self.at += 1;
            self.blanks();
            if is_name(&self.bytes[key], name) {
                return Ok(true);
            }
            self.value()?;
            self.comma(b'}')?;
        }
        Ok(false)
    }

    fn element(&mut self, index: usize) -> Result<bool, String> {
        if self.peek() == b'n' {
            return self.value().map(|_| false);
        }
        if self.peek() != b'[' {
            return Err(self.expected("an array"));
        }
        self.at += 1;
        self.blanks();
        let mut number = 0;
        while self.peek() != b']' {
            if number == index {
                return Ok(true);
            }
            self.value()?;
            self.comma(b']')?;
            number += 1;
        }
        Ok(false)
    }

    /// Takes a string; the place of its text between the quotes, escapes as they are.
    fn string(&mut self) -> Result<Range<usize>, String> {
        if self.peek() != b'"' {
            return Err(self.expected("a name in quotes"));
        }
        let from = self.at + 1;
        let mut at = from;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    self.at = self.bytes.len();
                    return Err(self.expected("the end of a text"));
                }
            }
        }
        self.at = at + 1;
        Ok(from..at)
    }

    /// Takes a value; its place.
    fn value(&mut self) -> Result<Range<usize>, String> {
        let from = self.at;
        let mut open: Vec<u8> = Vec::new();
        loop {
            match self.peek() {
                b'"' => _ = self.string()?,
                bracket @ (b'{' | b'[') => {
                    if open.len() == DEPTH_MAX {
                        return Err(format!("the answer nests more than {DEPTH_MAX} deep"));
                    }
                    open.push(if bracket == b'{' { b'}' } else { b']' });
                    self.at += 1;
                }
                bracket @ (b'}' | b']') => {
                    if open.pop() != Some(bracket) {
                        return Err(self.expected("a value"));
                    }
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if !open.is_empty() => self.at += 1,
                b't' | b'f' | b'n' | b'-' | b'0'..=b'9' => {
                    while matches!(self.peek(), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.') {
                        self.at += 1;
                    }
                }
                _ => return Err(self.expected("a value")),
            }
            if open.is_empty() {
                return Ok(from..self.at);
            }
        }
    }
}

/// Whether a key, escapes as they are, is this name.
fn is_name(key: &[u8], name: &str) -> bool {
    if !key.contains(&b'\\') {
        return key == name.as_bytes();
    }
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|text| text == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, body: &str, expect: &[&str]) {
        let mut rows = Vec::new();
        Path::parse(path).unwrap().rows(body.as_bytes(), &mut rows).unwrap();
        assert_eq!(rows.into_iter().map(|r| &body[r]).collect::<Vec<_>>(), expect, "{path} in {body}");
    }

    #[test]
    fn rows_where_the_path_leads() {
        check("", r#" {"a": 1} "#, &[r#"{"a": 1}"#]);
        check("$", r#"[{"a": "]}"}, null, {"b": [1, {"c": "\\\""}]}]"#, &[r#"{"a": "]}"}"#, r#"{"b": [1, {"c": "\\\""}]}"#]);
        check("$.data.items[*]", r#"{"n": [1, 2], "data": {"x": {}, "items": [{"a": 1}]}}"#, &[r#"{"a": 1}"#]);
        check("data['an item'][1]", r#"{"data": {"an item": [{"a": 1}, {"b": 2}], "more": 3}}"#, &[r#"{"b": 2}"#]);
        check("$[0].user", r#"[{"user": {"id": 7}}]"#, &[r#"{"id": 7}"#]);
        check("$.caf\u{e9}", r#"{"caf\u00e9": {"a": 1}}"#, &[r#"{"a": 1}"#]);
    }

    #[test]
    fn what_is_missing_is_no_match() {
        for (path, body) in [
            ("", "null"),
            ("", "[]"),
            ("$.a", "{}"),
            ("$.a", r#"{"b": {"a": {}}}"#),
            ("$.a.b", r#"{"a": null}"#),
            ("$.a", r#"{"a": null}"#),
            ("$[3]", "[{}, {}]"),
        ] {
            check(path, body, &[]);
        }
    }

    #[test]
    fn rubbish_is_an_error() {
        let fails = |path: &str, body: &str| {
            let mut rows = Vec::new();
            Path::parse(path).unwrap().rows(body.as_bytes(), &mut rows).unwrap_err()
        };
        assert_eq!(fails("", "<html>"), "expected an object or an array of objects at byte 1 of the answer");
        assert_eq!(fails("", ""), "the answer ends where an object or an array of objects was expected");
        assert_eq!(fails("", "{} {}"), "expected nothing more at byte 4 of the answer");
        assert_eq!(fails("$.a", "7"), "expected an object with 'a' at byte 1 of the answer");
        assert_eq!(fails("$.a", r#"{"a": "text"}"#), "expected an object or an array of objects at byte 7 of the answer");
        assert_eq!(fails("", r#"[{"a": 1]"#), "expected a value at byte 9 of the answer");
        assert_eq!(fails("", "[1]"), "expected an object in the array of rows at byte 2 of the answer");
        let deep = "[".repeat(300);
        for broken in [r#"{"a": "#, r#"{"a": 1"#, r#"[{"a": 1}"#, r#"{"a"#, "[{},]", deep.as_str()] {
            fails("", broken);
        }
        for path in ["$.", "$x", "$[", "$[x]", "$.a[*].b", "a..b", "$.a[?(@.b)]"] {
            Path::parse(path).unwrap_err();
        }
    }
}
