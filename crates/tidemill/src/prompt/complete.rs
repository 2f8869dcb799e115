//! What the prompt knows while a statement is typed: where it ends, and what may come next.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use tidemill_sql::FileRequest;

use super::COMMANDS;
use crate::files::{self, look};

/// Words that statements are made of.
const KEYWORDS: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "ASC",
    "AVG",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "COUNT",
    "CREATE",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "FORMAT",
    "FROM",
    "FULL",
    "FUNCTION",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT",
    "NULL",
    "NULLIF",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "OVERWRITE",
    "PARTITION",
    "RESET",
    "RIGHT",
    "ROWS",
    "SELECT",
    "SET",
    "SHOW",
    "SUM",
    "TABLE",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TO",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
    "FALSE",
    "COALESCE",
    "EXTRACT",
    "READ_ARROW",
    "READ_CSV",
    "READ_FILES",
    "READ_JSON",
    "READ_PARQUET",
];

/// Paths whose columns are kept.
const FILES_MAX: usize = 64;

/// Completes and checks what is typed.
pub struct Typed {
    paths: FilenameCompleter,
    /// Tables and views, with their columns.
    pub relations: Vec<(String, Vec<String>)>,
    /// Columns of files that were named.
    files: RefCell<BTreeMap<String, Vec<String>>>,
}

impl Typed {
    /// Without tables.
    pub fn new() -> Self {
        Typed { paths: FilenameCompleter::new(), relations: Vec::new(), files: RefCell::default() }
    }

    /// The columns of the files that a text names in quotes.
    fn file_columns(&self, text: &str) -> Vec<String> {
        let mut files = self.files.borrow_mut();
        let mut columns = Vec::new();
        // Every second piece stands in quotes.
        for path in text.split('\'').skip(1).step_by(2) {
            // Files here are looked at quickly; a glob or what lies behind a network may take its time.
            if !files.contains_key(path) && look::is_plain(path) {
                let tables = files::resolve(&FileRequest::path(path)).unwrap_or_default();
                if files.len() >= FILES_MAX {
                    files.clear();
                }
                files.insert(path.to_string(), tables.iter().flat_map(|t| &t.columns).map(|c| c.name.clone()).collect());
            }
            columns.extend(files.get(path).into_iter().flatten().cloned());
        }
        columns
    }

    /// What the word before the cursor may become: where it begins, and the candidates.
    fn words(&self, line: &str, pos: usize) -> (usize, Vec<String>) {
        let before = &line[..pos];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let start = before.char_indices().rfind(|(_, c)| !is_word(*c)).map_or(0, |(at, c)| at + c.len_utf8());
        let word = &before[start..];
        if line.trim_start().starts_with('.') && !line.contains(' ') {
            let dot = line.find('.').unwrap_or(0);
            let typed = &line[dot..pos.max(dot)];
            let names = COMMANDS.iter().map(|(name, _)| name.split(' ').next().unwrap_or(name));
            return (dot, names.filter(|name| name.starts_with(typed)).map(str::to_string).collect());
        }
        let matches =
            |name: &str| name.len() >= word.len() && name.is_char_boundary(word.len()) && name[..word.len()].eq_ignore_ascii_case(word);
        let mut found: Vec<String> = Vec::new();
        let mut add = |name: Cow<'_, str>| {
            if matches(&name) && !found.iter().any(|known| *known == name) {
                found.push(name.into_owned());
            }
        };
        for (name, columns) in &self.relations {
            add(Cow::Borrowed(name));
            // Columns of tables that the statement does not name are of no use in it.
            if line.contains(name.as_str()) {
                columns.iter().for_each(|column| add(Cow::Borrowed(column)));
            }
        }
        self.file_columns(line).into_iter().for_each(|column| add(Cow::Owned(column)));
        let small = !word.is_empty() && word.chars().all(|c| !c.is_uppercase());
        if !word.is_empty() {
            KEYWORDS.iter().for_each(|k| add(if small { Cow::Owned(k.to_lowercase()) } else { Cow::Borrowed(k) }));
        }
        found.sort_unstable();
        (start, found)
    }
}

impl Completer for Typed {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        if state(&line[..pos]) == State::Quotes {
            return self.paths.complete_path(line, pos);
        }
        let (start, words) = self.words(line, pos);
        Ok((start, words.into_iter().map(|word| Pair { display: word.clone(), replacement: word }).collect()))
    }
}

impl Validator for Typed {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let whole = text.trim().is_empty() || text.trim_start().starts_with('.') || state(text) == State::Ended;
        Ok(if whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for Typed {
    type Hint = String;
}

impl Highlighter for Typed {}

impl Helper for Typed {}

/// Where the end of a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Within a statement.
    Open,
    /// Behind a semicolon.
    Ended,
    /// In single quotes.
    Quotes,
    /// In backticks.
    Name,
    /// Behind `--`.
    Line,
    /// In `/* … */`.
    Block,
}

fn state(text: &str) -> State {
    let mut state = State::Open;
    let mut rest = text.chars().peekable();
    // What a comment interrupts goes on behind it.
    let mut before = State::Open;
    while let Some(c) = rest.next() {
        state = match (state, c) {
            (State::Quotes, '\'') | (State::Name, '`') => State::Open,
            (State::Line, '\n') => before,
            (State::Block, '*') if rest.peek() == Some(&'/') => {
                rest.next();
                before
            }
            (State::Quotes | State::Name | State::Line | State::Block, _) => state,
            (_, '\'') => State::Quotes,
            (_, '`') => State::Name,
            (_, '-') if rest.peek() == Some(&'-') => {
                before = state;
                State::Line
            }
            (_, '/') if rest.peek() == Some(&'*') => {
                before = state;
                State::Block
            }
            (_, ';') => State::Ended,
            (State::Ended, c) if c.is_whitespace() => State::Ended,
            _ => State::Open,
        };
    }
    // A comment at the end of the text leaves it as it was before.
    if state == State::Line && before == State::Ended { State::Ended } else { state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: State) {
        assert_eq!(state(text), expect, "{text:?}");
    }

    #[test]
    fn statements_end_with_a_semicolon_of_their_own() {
        check("SELECT 1", State::Open);
        check("SELECT 1;", State::Ended);
        check("SELECT 1; \n", State::Ended);
        check("SELECT 1; -- done", State::Ended);
        check("SELECT ';", State::Quotes);
        check("SELECT 'it''s;'", State::Open);
        check("SELECT `;", State::Name);
        check("SELECT 1 -- ;\n", State::Open);
        check("SELECT 1 /* ; */", State::Open);
        check("SELECT 1 /* '", State::Block);
        check("SELECT 1 /* ' */;", State::Ended);
        check("SELECT 1; SELECT 2", State::Open);
    }

    fn words(line: &str) -> Vec<String> {
        let mut typed = Typed::new();
        typed.relations = vec![("orders".into(), vec!["id".into(), "customer".into()]), ("people".into(), vec!["name".into()])];
        typed.words(line, line.len()).1
    }

    #[test]
    fn words_are_completed() {
        assert_eq!(words("SELECT id FROM or"), ["or", "order", "orders"]);
        assert_eq!(words("SELECT cus"), Vec::<String>::new());
        assert_eq!(words("SELECT * FROM orders WHERE cus"), ["customer"]);
        assert_eq!(words("SEL"), ["SELECT"]);
        assert_eq!(words(".ti"), [".timing"]);
    }
}
