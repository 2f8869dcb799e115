//! Regular expressions. A pattern is compiled once per thread and remembered.
//!
//! The syntax is that of the `regex` crate: linear time, without look-around and back references. A
//! literal pattern that it does not take is an error; one that comes from data gives NULL.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::Int32Type;
use datafusion_common::{Result, exec_err};
use regex::Regex;

use super::define::{Arg, Call, Def, Param::*, Returns, build, build_bool, build_text, def};
use super::regex_shape::Shape;

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("regexp", "REGEXP(text, pattern)", "Whether the pattern occurs in the text", &[Text, Text], Returns::Bool, regexp),
    def(
        "regexp_extract",
        "REGEXP_EXTRACT(text, pattern[, group])",
        "The first match, or a group of it (0: all of it); NULL if there is none",
        &[Text, Text, Int],
        Returns::Text,
        extract,
    )
    .optional(1),
    def(
        "regexp_extract_all",
        "REGEXP_EXTRACT_ALL(text, pattern[, group])",
        "The group (default 1) of each match, as an array",
        &[Text, Text, Int],
        Returns::Texts,
        extract_all,
    )
    .optional(1),
    def(
        "regexp_replace",
        "REGEXP_REPLACE(text, pattern, replacement)",
        "With each match replaced; $1 stands for a group",
        &[Text, Text, Text],
        Returns::Text,
        replace,
    ),
    def("regexp_count", "REGEXP_COUNT(text, pattern)", "The number of matches", &[Text, Text], Returns::Int, count),
    def(
        "regexp_instr",
        "REGEXP_INSTR(text, pattern)",
        "Where the first match begins (from 1); 0 if nowhere",
        &[Text, Text],
        Returns::Int,
        instr,
    ),
    def("regexp_substr", "REGEXP_SUBSTR(text, pattern)", "The first match; NULL if there is none", &[Text, Text], Returns::Text, substr),
];

/// Patterns a thread remembers; beyond this it forgets all of them.
const PATTERNS_MAX: usize = 256;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Option<Rc<Regex>>>> = RefCell::new(HashMap::new());
    static SHAPES: RefCell<HashMap<String, Option<Rc<Shape>>>> = RefCell::new(HashMap::new());
}

/// The compiled pattern, `None` if it is ill-formed. What its automaton has learned is kept with it.
fn compiled(pattern: &str) -> Option<Rc<Regex>> {
    PATTERNS.with_borrow_mut(|patterns| {
        if let Some(found) = patterns.get(pattern) {
            return found.clone();
        }
        let regex = Regex::new(pattern).ok().map(Rc::new);
        if patterns.len() >= PATTERNS_MAX {
            patterns.clear();
        }
        patterns.insert(pattern.to_string(), regex.clone());
        regex
    })
}

/// The shape of a pattern, if it needs no automaton.
fn shape(pattern: &str) -> Option<Rc<Shape>> {
    SHAPES.with_borrow_mut(|shapes| {
        if let Some(found) = shapes.get(pattern) {
            return found.clone();
        }
        let shape = Shape::of(pattern, compiled).map(Rc::new);
        if shapes.len() >= PATTERNS_MAX {
            shapes.clear();
        }
        shapes.insert(pattern.to_string(), shape.clone());
        shape
    })
}

/// The patterns of a block: one for all rows, or one a row.
enum Patterns {
    One(Option<Rc<Regex>>),
    Each(Arg<StringArray>, RefCell<Option<(String, Option<Rc<Regex>>)>>),
}

impl Patterns {
    fn of(call: &Call, position: usize) -> Result<Patterns> {
        let texts = call.text(position)?;
        if !texts.is_constant() {
            return Ok(Patterns::Each(texts, RefCell::new(None)));
        }
        let Some(pattern) = texts.get(0) else { return Ok(Patterns::One(None)) };
        match compiled(pattern) {
            Some(regex) => Ok(Patterns::One(Some(regex))),
            None => match Regex::new(pattern) {
                Ok(regex) => Ok(Patterns::One(Some(Rc::new(regex)))),
                Err(e) => exec_err!("{}: the regular expression '{pattern}' is not understood: {e}", call.name()),
            },
        }
    }

    /// What `f` makes of the pattern of a row; `None` if there is no pattern.
    #[inline]
    fn with<R>(&self, row: usize, f: impl FnOnce(&Regex) -> Option<R>) -> Option<R> {
        match self {
            Patterns::One(regex) => f(regex.as_ref()?),
            Patterns::Each(texts, last) => {
                let text = texts.get(row)?;
                let mut last = last.borrow_mut();
                if last.as_ref().is_none_or(|(t, _)| t != text) {
                    *last = Some((text.to_string(), compiled(text)));
                }
                f(last.as_ref()?.1.as_ref()?)
            }
        }
    }
}

fn regexp(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    build_bool(call.rows, |r| {
        let text = texts.get(r)?;
        patterns.with(r, |p| Some(p.is_match(text)))
    })
}

fn extract(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    let groups = if call.len() == 3 { Some(call.int(2)?) } else { None };
    let pattern = call.text(1)?;
    if let (true, Some(pattern)) = (pattern.is_constant(), pattern.get(0))
        && let Some(shape) = shape(pattern)
    {
        return build_text(call.rows, |r, out| {
            let text = texts.get(r)?;
            let group = usize::try_from(groups.as_ref().map_or(Some(0), |g| g.get(r))?).ok()?;
            let (from, to) = shape.find(text, group)?;
            out.extend_from_slice(&text.as_bytes()[from..to]);
            Some(())
        });
    }
    // One set of positions for all rows: a match then allocates nothing.
    let mut positions = match &patterns {
        Patterns::One(Some(regex)) => Some(regex.capture_locations()),
        _ => None,
    };
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        let group = usize::try_from(groups.as_ref().map_or(Some(0), |g| g.get(r))?).ok()?;
        patterns.with(r, |p| {
            let (from, to) = match (group, &mut positions) {
                (0, _) => p.find(text).map(|m| (m.start(), m.end()))?,
                (_, Some(positions)) => {
                    p.captures_read(positions, text)?;
                    positions.get(group)?
                }
                (_, None) => p.captures(text)?.get(group).map(|m| (m.start(), m.end()))?,
            };
            out.extend_from_slice(&text.as_bytes()[from..to]);
            Some(())
        })
    })
}

fn extract_all(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    let groups = if call.len() == 3 { Some(call.int(2)?) } else { None };
    let mut lists = ListBuilder::new(StringBuilder::new());
    for r in 0..call.rows {
        let found = texts.get(r).and_then(|text| {
            let group = usize::try_from(groups.as_ref().map_or(Some(1), |g| g.get(r))?).ok()?;
            patterns.with(r, |p| {
                if group >= p.captures_len() {
                    return None;
                }
                p.captures_iter(text).for_each(|c| lists.values().append_option(c.get(group).map(|m| m.as_str())));
                Some(())
            })
        });
        lists.append(found.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

/// A piece of a replacement.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Group(usize),
}

/// Reads a replacement as Java does: `$1`, `${name}`, and a backslash that makes what follows text.
/// A group number takes further digits as long as there is such a group.
fn replacement(text: &str, regex: &Regex) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let group = match c {
            '\\' => {
                let next = rest.chars().next()?;
                literal.push(next);
                rest = &rest[next.len_utf8()..];
                continue;
            }
            '$' if rest.starts_with('{') => {
                let (name, tail) = rest[1..].split_once('}')?;
                rest = tail;
                regex.capture_names().position(|n| n == Some(name))?
            }
            '$' => {
                let mut group = rest.chars().next()?.to_digit(10)? as usize;
                rest = &rest[1..];
                while let Some(digit) = rest.chars().next().and_then(|c| c.to_digit(10)) {
                    let longer = group * 10 + digit as usize;
                    if longer >= regex.captures_len() {
                        break;
                    }
                    group = longer;
                    rest = &rest[1..];
                }
                if group >= regex.captures_len() {
                    return None;
                }
                group
            }
            other => {
                literal.push(other);
                continue;
            }
        };
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Group(group));
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Some(pieces)
}

fn replace(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns, news) = (call.text(0)?, Patterns::of(call, 1)?, call.text(2)?);
    let constant = match (&patterns, news.is_constant(), news.get(0)) {
        (Patterns::One(Some(regex)), true, Some(new)) => match replacement(new, regex) {
            Some(pieces) => Some(pieces),
            None => return exec_err!("REGEXP_REPLACE: the replacement '{new}' names a group that the pattern does not have"),
        },
        _ => None,
    };
    build_text(call.rows, |r, out| {
        let (text, new) = (texts.get(r)?, news.get(r)?);
        patterns.with(r, |p| {
            let own;
            let pieces = match &constant {
                Some(pieces) => pieces,
                None => {
                    own = replacement(new, p)?;
                    &own
                }
            };
            let mut end = 0;
            if pieces.iter().all(|p| matches!(p, Piece::Text(_))) {
                for m in p.find_iter(text) {
                    out.extend_from_slice(&text.as_bytes()[end..m.start()]);
                    pieces.iter().for_each(|p| {
                        if let Piece::Text(t) = p {
                            out.extend_from_slice(t.as_bytes())
                        }
                    });
                    end = m.end();
                }
            } else {
                for c in p.captures_iter(text) {
                    let all = c.get(0)?;
                    out.extend_from_slice(&text.as_bytes()[end..all.start()]);
                    for piece in pieces {
                        match piece {
                            Piece::Text(t) => out.extend_from_slice(t.as_bytes()),
                            Piece::Group(g) => out.extend_from_slice(c.get(*g).map_or("", |m| m.as_str()).as_bytes()),
                        }
                    }
                    end = all.end();
                }
            }
            out.extend_from_slice(&text.as_bytes()[end..]);
            Some(())
        })
    })
}

fn count(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    build::<Int32Type>(call.rows, |r| {
        let text = texts.get(r)?;
        patterns.with(r, |p| Some(p.find_iter(text).count() as i32))
    })
}

fn instr(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    build::<Int32Type>(call.rows, |r| {
        let text = texts.get(r)?;
        patterns.with(r, |p| Some(p.find(text).map_or(0, |m| text[..m.start()].chars().count() as i32 + 1)))
    })
}

fn substr(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, Patterns::of(call, 1)?);
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        patterns.with(r, |p| {
            out.extend_from_slice(p.find(text)?.as_str().as_bytes());
            Some(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, failure};

    #[test]
    fn matches() {
        check("regexp", &["'foobar'", "'o+b'"], "TRUE");
        check("regexp", &["'foobar'", "NULL"], "NULL");
        check("regexp_extract", &["'foothebar'", "'foo(.*?)(bar)'", "2"], "bar");
        check("regexp_extract", &["'foothebar'", "'foo(.*?)(bar)'"], "foothebar");
        check("regexp_extract", &["'foothebar'", "'foo(.*?)(bar)'", "3"], "NULL");
        check("regexp_extract", &["'x'", "'y'"], "NULL");
        check("regexp_extract_all", &["'a1b2'", "'([a-z])([0-9])'", "2"], "[1, 2]");
        check("regexp_count", &["'abcabc'", "'b'"], "2");
        check("regexp_instr", &["'äbc'", "'c'"], "3");
        check("regexp_substr", &["'abc123'", "'[0-9]+'"], "123");
    }

    #[test]
    fn replacements() {
        check("regexp_replace", &["'foobar'", "'oo|ar'", "''"], "fb");
        check("regexp_replace", &["'john smith'", "'(\\w+) (\\w+)'", "'$2, $1'"], "smith, john");
        check("regexp_replace", &["'a1'", "'([a-z])'", "'$12'"], "a21");
        check("regexp_replace", &["'a'", "'a'", "'\\$1'"], "$1");
        check("regexp_replace", &["'ab'", "'(?<x>a)'", "'${x}${x}'"], "aab");
        check("regexp_replace", &["NULL", "'a'", "'b'"], "NULL");
    }

    #[test]
    fn mistakes() {
        assert!(failure("regexp", &["'a'", "'('"]).contains("REGEXP: the regular expression '(' is not understood"));
        assert!(failure("regexp_replace", &["'a'", "'a'", "'$1'"]).contains("names a group"));
    }
}
