//! The part of TOML that a price file needs: tables, texts and numbers. A file in it is TOML for every other program, too; what
//! TOML has beyond that (lists, dates, tables in lines) is an error that says so.

use std::collections::BTreeMap;

/// What stands behind `=`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Number(f64),
}

/// A value and the line it stands in.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub line: usize,
    pub value: Value,
}

/// A table: `[storage.bucket]` and what follows up to the next. What comes before the first is a table without a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The parts of its name.
    pub name: Vec<String>,
    /// The line of its head; 0 for the one without a name.
    pub line: usize,
    pub entries: BTreeMap<String, Entry>,
}

/// The tables of a text, in their order; the first is the one without a name.
///
/// # Errors
/// What is wrong in which line.
pub fn parse(text: &str) -> Result<Vec<Table>, String> {
    let mut tables = vec![Table::default()];
    for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        let wrong = |what: String| format!("line {number}: {what}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = head(rest).map_err(wrong)?;
            if tables.iter().any(|t| t.name == name) {
                return Err(wrong(format!("there is a table [{}] already", name.join("."))));
            }
            tables.push(Table { name, line: number, entries: BTreeMap::new() });
            continue;
        }
        let (key, rest) = line.split_once('=').ok_or_else(|| wrong(format!("expected 'name = value' or '[table]', not '{line}'")))?;
        let key = bare(key.trim()).map_err(wrong)?;
        let value = value(rest.trim()).map_err(wrong)?;
        let table = tables.last_mut().expect("there is the table without a name");
        if table.entries.insert(key.clone(), Entry { line: number, value }).is_some() {
            return Err(wrong(format!("'{key}' has a value already")));
        }
    }
    Ok(tables)
}

/// The parts of the name in `storage.bucket] # comment`.
fn head(rest: &str) -> Result<Vec<String>, String> {
    let (name, behind) = rest.split_once(']').ok_or("expected ']' behind the name of the table")?;
    if name.starts_with('[') {
        return Err("lists of tables, '[[…]]', are not read here; give each table a name".to_string());
    }
    end(behind)?;
    name.split('.').map(|part| bare(part.trim())).collect()
}

/// A name without quotes.
fn bare(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("'{name}' is no name: letters, digits, '-' and '_'"));
    }
    Ok(name.to_string())
}

/// Nothing but a comment may stand there.
fn end(behind: &str) -> Result<(), String> {
    match behind.trim_start() {
        "" => Ok(()),
        comment if comment.starts_with('#') => Ok(()),
        other => Err(format!("'{other}' stands behind what the line says")),
    }
}

fn value(text: &str) -> Result<Value, String> {
    if text.starts_with("\"\"\"") || text.starts_with("'''") {
        return Err("texts of several lines are not read here".to_string());
    }
    if let Some(rest) = text.strip_prefix('\'') {
        let (literal, behind) = rest.split_once('\'').ok_or("a text without its closing quote")?;
        end(behind)?;
        return Ok(Value::Text(literal.to_string()));
    }
    if let Some(rest) = text.strip_prefix('"') {
        return quoted(rest);
    }
    let (number, behind) = text.split_at(text.find([' ', '\t', '#']).unwrap_or(text.len()));
    end(behind)?;
    let why = || format!("expected a number such as 0.05 or a text in quotes, not '{number}'");
    // What f64 reads beyond numbers of TOML: "inf", "NaN", "5.".
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') || !number.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(why());
    }
    match number.replace('_', "").parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Value::Number(number)),
        _ => Err(why()),
    }
}

/// What follows an opening `"`.
fn quoted(rest: &str) -> Result<Value, String> {
    let mut text = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                end(chars.as_str())?;
                return Ok(Value::Text(text));
            }
            '\\' => text.push(match chars.next() {
                Some(c @ ('"' | '\\')) => c,
                Some('n') => '\n',
                Some('t') => '\t',
                other => {
                    return Err(format!("'\\{}' is not read here; known are \\\" \\\\ \\n \\t", other.map_or(String::new(), String::from)));
                }
            }),
            c => text.push(c),
        }
    }
    Err("a text without its closing quote".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: &str) {
        match parse(line) {
            Ok(tables) => assert_eq!(format!("{:?}", tables[0].entries["a"].value), expect),
            Err(why) => assert!(why.contains(expect) && why.starts_with("line 1: "), "{why}"),
        }
    }

    #[test]
    fn values() {
        check("a = 1_000.5 # one", "Number(1000.5)");
        check("a=-1e-3", "Number(-0.001)");
        check(r#"a = "x # \"y\"" # z"#, r#"Text("x # \"y\"")"#);
        check(r"a = 'c:\x'", r#"Text("c:\\x")"#);
        check("a = inf", "expected a number");
        check("a = 5.", "expected a number");
        check("a = [1]", "expected a number");
        check("a = true", "expected a number");
        check("a = 1 2", "'2' stands behind");
        check("a = \"x", "closing quote");
        check("a.b = 1", "'a.b' is no name");
        check("a", "expected 'name = value'");
        check("[a", "expected ']'");
        check("[[a]]", "lists of tables");
    }

    #[test]
    fn tables_have_names_and_lines() {
        let tables = parse("x = 1\n\n[s.a] # first\nx = 2\n[s.b]\n").unwrap();
        let names: Vec<(String, usize, usize)> = tables.iter().map(|t| (t.name.join("."), t.line, t.entries.len())).collect();
        assert_eq!(names, [(String::new(), 0, 1), ("s.a".to_string(), 3, 1), ("s.b".to_string(), 5, 0)]);
        assert_eq!(tables[1].entries["x"], Entry { line: 4, value: Value::Number(2.0) });
        assert!(parse("[a]\n[a]").unwrap_err().contains("line 2: there is a table [a] already"));
        assert!(parse("a = 1\na = 2").unwrap_err().contains("line 2: 'a' has a value already"));
    }
}
