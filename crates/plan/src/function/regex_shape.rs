//! Patterns of a shape that needs no automaton: a literal, perhaps only behind a certain character or at
//! the beginning, then all up to another character.
//!
//! `(&|^)key=([^&]*)` is how a parameter is cut out of an address. A search for the literal, which looks at
//! many bytes a step, and two comparisons find what the automaton would.

use std::rc::Rc;

use regex::Regex;

/// `(b|^)literal([^x]*)`.
pub(super) struct Shape {
    /// The character that may stand in front, or the beginning of the text; `None` if anything may.
    front: Option<u8>,
    /// Whether what stands in front is a group of its own, the first.
    front_is_group: bool,
    literal: String,
    finder: Rc<Regex>,
    /// The character at which the last group ends.
    until: u8,
    /// Whether the last group may be empty.
    may_be_empty: bool,
}

/// Whether a character stands for itself in a pattern.
fn plain(c: u8) -> bool {
    c.is_ascii_graphic() && !b"\\.+*?()|[]{}^$".contains(&c)
}

impl Shape {
    /// The shape of a pattern, if it has this one. `compile` makes the finder of the literal.
    pub(super) fn of(pattern: &str, compile: impl FnOnce(&str) -> Option<Rc<Regex>>) -> Option<Shape> {
        let bytes = pattern.as_bytes();
        let (front, front_is_group, rest) = match bytes {
            [b'(', b'?', b':', c, b'|', b'^', b')', rest @ ..] | [b'(', b'?', b':', b'^', b'|', c, b')', rest @ ..] => {
                (Some(*c), false, rest)
            }
            [b'(', c, b'|', b'^', b')', rest @ ..] | [b'(', b'^', b'|', c, b')', rest @ ..] => (Some(*c), true, rest),
            _ => (None, false, bytes),
        };
        let length = rest.iter().take_while(|c| plain(**c)).count();
        let (literal, tail) = rest.split_at(length);
        let (until, may_be_empty) = match tail {
            [b'(', b'[', b'^', x, b']', b'*', b')'] => (*x, true),
            [b'(', b'[', b'^', x, b']', b'+', b')'] => (*x, false),
            _ => return None,
        };
        // If the literal began with the character in front of it, the order of the alternatives mattered.
        if literal.is_empty() || !plain(until) || front.is_some_and(|c| !plain(c) || c == literal[0]) {
            return None;
        }
        let literal = std::str::from_utf8(literal).ok()?.to_string();
        let finder = compile(&regex::escape(&literal))?;
        Some(Shape { front, front_is_group, literal, finder, until, may_be_empty })
    }

    /// Where a group of the first match in `text` lies; `None` if there is no match or no such group.
    #[inline]
    pub(super) fn find(&self, text: &str, group: usize) -> Option<(usize, usize)> {
        let bytes = text.as_bytes();
        let mut from = 0;
        loop {
            let at = self.finder.find_at(text, from)?.start();
            let start = at + self.literal.len();
            let behind = match self.front {
                None => Some(at),
                Some(_) if at == 0 => Some(0),
                Some(c) => (bytes[at - 1] == c).then_some(at - 1),
            };
            if let Some(begin) = behind {
                let length = bytes[start..].iter().position(|b| *b == self.until).unwrap_or(bytes.len() - start);
                if length > 0 || self.may_be_empty {
                    return match (group, self.front_is_group) {
                        (0, _) => Some((begin, start + length)),
                        (1, true) => Some((begin, at)),
                        (1, false) | (2, true) => Some((start, start + length)),
                        _ => None,
                    };
                }
            }
            // The literal is ASCII: the next byte begins a character.
            from = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pattern: &str) -> Option<Shape> {
        Shape::of(pattern, |text| Regex::new(text).ok().map(Rc::new))
    }

    /// Every text of some letters gives what the automaton gives.
    #[test]
    fn as_the_automaton() {
        for pattern in ["(&|^)ab=([^&]*)", "(?:^|&)ab=([^&]+)", "ab=([^=]+)", "(^|&)aa([^b]*)", "a([^ä]*)", "b([^a]*)"] {
            let Some(shape) = shape(pattern) else {
                assert!(pattern.contains('ä'), "{pattern}");
                continue;
            };
            let regex = Regex::new(pattern).unwrap();
            for number in 0..6_usize.pow(5) {
                let mut n = number;
                let text: String = (0..5)
                    .map(|_| {
                        let letter = ['a', 'b', '=', '&', 'ä', '\n'][n % 6];
                        n /= 6;
                        letter
                    })
                    .collect();
                let captures = regex.captures(&text);
                for group in 0..4 {
                    let expect = captures.as_ref().and_then(|c| c.get(group)).map(|m| (m.start(), m.end()));
                    assert_eq!(shape.find(&text, group), expect, "{pattern} in {text:?}, group {group}");
                }
            }
        }
    }

    #[test]
    fn other_shapes() {
        for pattern in
            ["", "ab", "a.b([^&]*)", "(&|^)&a([^&]*)", "(&|$)a([^x]*)", "a([^&]*)b", "a+([^&]*)", "a([^&]*?)", "([^&]*)", "(?i)a([^&]*)"]
        {
            assert!(shape(pattern).is_none(), "{pattern}");
        }
    }
}
