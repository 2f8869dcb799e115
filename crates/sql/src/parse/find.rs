//! Looks for words in a script, for errors of later stages that know a construct and not its place.

use sqlparser::tokenizer::Token;

use super::script::Script;
use crate::diagnostic::{Span, SqlError};

/// The words of a script with their places: comments are none of them, and a text in quotes is one.
pub struct Finder<'t> {
    script: Script<'t>,
}

impl<'t> Finder<'t> {
    /// Reads a script.
    ///
    /// # Errors
    /// It is no sequence of words: a text or a comment is never closed.
    pub fn new(text: &'t str) -> Result<Self, SqlError> {
        Ok(Finder { script: Script::new(text)? })
    }

    /// The first place within a part of the script where these stand one behind the other: words without regard to
    /// case, signs, texts in single quotes, with a space between each. A name in backticks is found as it is spelt.
    pub fn find(&self, within: Span, words: &str) -> Option<Span> {
        let words: Vec<&str> = words.split_whitespace().collect();
        if words.is_empty() {
            return None;
        }
        let stands = |at: &usize| self.script.tokens[*at..].iter().zip(&words).all(|(token, word)| is(&token.token, word));
        let at = (0..(self.script.tokens.len() + 1).saturating_sub(words.len()))
            .filter(|at| self.script.span(*at).start >= within.start && self.script.span(at + words.len() - 1).end <= within.end)
            .find(stands)?;
        Some(self.script.range_span(at..at + words.len()))
    }
}

/// Whether a token is written like this.
fn is(token: &Token, word: &str) -> bool {
    match token {
        Token::Word(w) if w.quote_style.is_some() => w.value == word,
        Token::Word(w) => w.value.eq_ignore_ascii_case(word),
        Token::SingleQuotedString(text) => word.strip_prefix('\'').and_then(|w| w.strip_suffix('\'')) == Some(text.as_str()),
        other => other.to_string() == word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_they_are_code() {
        let text = "SELECT 'ORDER BY a' /* order by a */, `NTILE` -- ORDER BY a\nFROM border ORDER  -- x\n by a; SELECT x ORDER BY b";
        let finder = Finder::new(text).expect("it is a script");
        let all = Span::new(0, text.len());
        let found = |within: Span, words: &str| finder.find(within, words).map(|span| span.text(text));
        assert_eq!(found(all, "ORDER BY"), Some("ORDER  -- x\n by"));
        assert_eq!(found(all, "order by B"), Some("ORDER BY b"));
        assert_eq!(found(all, "ntile"), None, "it is a name");
        assert_eq!(found(all, "'ORDER BY a'"), None, "the spaces divide what is looked for");
        assert_eq!(found(all, ""), None);
        let second = Span::new(text.find("SELECT x").expect("it is there"), text.len());
        assert_eq!(found(second, "ORDER BY"), Some("ORDER BY"));
        assert_eq!(found(second, "FROM"), None);
        assert_eq!(found(all, "b ; SELECT"), None);
        assert_eq!(found(all, "a ; SELECT"), Some("a; SELECT"));
    }

    #[test]
    fn options_are_found_in_their_quotes() {
        let text = "CREATE TABLE t (pth INT) WITH ('pth' = 'x')";
        let finder = Finder::new(text).expect("it is a script");
        let found = finder.find(Span::new(0, text.len()), "'pth'").expect("it is there");
        assert_eq!((found.start, found.text(text)), (31, "'pth'"));
    }
}
