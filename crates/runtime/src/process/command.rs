//! A command line: words, quotes, no shell.

use std::path::{Path, PathBuf};

/// The words of a command line. Words are parted by white space; `'…'` and `"…"` hold it together, and a
/// backslash outside of single quotes makes the next character an ordinary one. Nothing is expanded.
///
/// # Errors
/// A quote that is never closed, or no word at all.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => match chars.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("nothing follows the last backslash".into()),
            },
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("the quote {quote} is never closed"));
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) {
        return Err("no program is named".into());
    }
    Ok(words)
}

/// Looks for a program before anything is started, so that a wrong name is known at planning. A path is
/// meant from `directory`, a mere name is looked for in `PATH`.
///
/// # Errors
/// It is not there.
pub fn find(program: &str, directory: Option<&Path>) -> Result<(), String> {
    if program.contains('/') {
        let path = match directory {
            Some(directory) => directory.join(program),
            None => PathBuf::from(program),
        };
        return if path.is_file() { Ok(()) } else { Err(format!("there is no program '{}'", path.display())) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        true => Ok(()),
        false => Err(format!("there is no program '{program}' in the directories of PATH")),
    }
}
