//! `--from 'connector=filesystem,path=x.csv,format=csv'`: options of a table in one text, and the names of publishers that they make.

use tidemill_connect::stable_hash;

/// The longest name that a server takes of a publisher, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The options in a text: `key=value` between commas. A value that holds commas or blanks at its
/// ends stands in quotes, single or double, which are doubled inside; so may the whole pair.
///
/// # Errors
/// Says where the text cannot be read.
pub fn parse_options(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, value);
        if rest.starts_with(['"', '\'']) {
            // The whole pair in quotes.
            let pair;
            (pair, rest) = quoted(rest)?;
            let (k, v) = pair.split_once('=').ok_or_else(|| format!("'{pair}': expected KEY=VALUE"))?;
            (key, value) = (k.trim().to_string(), v.trim().to_string());
        } else {
            let end = rest.find(['=', ',']).filter(|i| rest.as_bytes()[*i] == b'=');
            let Some(end) = end else {
                let pair = rest.split(',').next().unwrap_or(rest);
                return Err(format!("'{}': expected KEY=VALUE", pair.trim()));
            };
            key = rest[..end].trim().to_string();
            rest = rest[end + 1..].trim_start();
            if rest.starts_with(['"', '\'']) {
                (value, rest) = quoted(rest)?;
            } else {
                let end = rest.find(',').unwrap_or(rest.len());
                value = rest[..end].trim_end().to_string();
                rest = &rest[end..];
            }
        }
        if key.is_empty() {
            return Err(format!("'={value}': the key is missing"));
        }
        if out.iter().any(|(k, _)| *k == key) {
            return Err(format!("'{key}' is given twice"));
        }
        out.push((key, value));
        rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => {
                rest = more.trim_start();
                if rest.is_empty() {
                    return Err("another option is missing behind the last comma".to_string());
                }
            }
            None if rest.is_empty() => {}
            None => return Err(format!("expected a comma before '{rest}'")),
        }
    }
    Ok(out)
}

/// The text in quotes at the beginning, and what follows it.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().expect("begins with a quote");
    let mut out = String::new();
    let mut rest = &text[1..];
    loop {
        let Some(end) = rest.find(quote) else { return Err(format!("a quote is not closed: {text}")) };
        out.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                out.push(quote);
                rest = more;
            }
            None => return Ok((out, rest)),
        }
    }
}

/// The name that options make: the same options make the same name, in whatever order, so that the
/// same command goes on where it stood. How rows are put into blocks does not matter, nor a token.
pub fn name_of(options: &[(String, String)]) -> String {
    let mut sorted: Vec<_> = options.iter().filter(|(key, _)| !matches!(key.as_str(), "block.size" | "block.linger" | "token")).collect();
    sorted.sort();
    // Keys hold no zero bytes, so no two lists of options are one text.
    let hash = stable_hash(sorted.iter().flat_map(|(key, value)| key.bytes().chain([0]).chain(value.bytes()).chain([0])));
    let connector = options.iter().find(|(key, _)| key == "connector").map_or("adapter", |(_, value)| value.as_str());
    format!("{connector}-{hash:016x}")
}

/// The name of the publisher of a split. Of a split with a long name, as files deep in directories have, the beginning is a hash:
/// a server takes no name that is longer than [`NAME_BYTES_MAX`].
pub(super) fn split_name(name: &str, split: &str) -> String {
    let whole = format!("{name}/{split}");
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    let begin = format!("{name}/{:016x}…", stable_hash(split.bytes()));
    // The end tells most.
    let mut from = split.len() - NAME_BYTES_MAX.saturating_sub(begin.len()).min(split.len());
    while !split.is_char_boundary(from) {
        from += 1;
    }
    begin + &split[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, &str)]) {
        let expect: Vec<_> = expect.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(parse_options(text).unwrap(), expect);
    }

    #[track_caller]
    fn wrong(text: &str, part: &str) {
        let why = parse_options(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }

    #[test]
    fn options_in_one_text() {
        check("connector=filesystem,path=x.csv,format=csv", &[("connector", "filesystem"), ("path", "x.csv"), ("format", "csv")]);
        check(" a = 1 , b=2 3 ", &[("a", "1"), ("b", "2 3")]);
        check(r#"a="1,2",b='x "y"',c="say ""hi""""#, &[("a", "1,2"), ("b", r#"x "y""#), ("c", r#"say "hi""#)]);
        check(r#""a=1,2",'b=3'"#, &[("a", "1,2"), ("b", "3")]);
        check("filter=a=b,x=", &[("filter", "a=b"), ("x", "")]);
        check("", &[]);
    }

    #[test]
    fn mistakes_are_named() {
        wrong("connector", "'connector': expected KEY=VALUE");
        wrong("a=1,b,c=2", "'b': expected KEY=VALUE");
        wrong("=1", "the key is missing");
        wrong("a=1,a=2", "'a' is given twice");
        wrong("a=1,", "behind the last comma");
        wrong(r#"a="1"#, "not closed");
        wrong(r#"a="1"x"#, "expected a comma");
    }

    /// Names live in checkpoints of servers: short ones must never change.
    #[test]
    fn names_of_splits_are_short_enough() {
        assert_eq!(split_name("csv-1", "/a/b.csv"), "csv-1//a/b.csv");
        let long = |end: &str| split_name("filesystem-0123456789abcdef", &format!("/data/{}/{end}", "year=2026/".repeat(30)));
        let (a, b) = (long("ä.csv"), long("b.csv"));
        assert!(a != b && a.ends_with("ä.csv") && a.len() <= NAME_BYTES_MAX, "{a} {b}");
        assert_eq!(a, long("ä.csv"));
        let of = |path: String| split_name("n", &path);
        assert_ne!(of(format!("/1/{}", "x".repeat(200))), of(format!("/2/{}", "x".repeat(200))));
    }

    #[test]
    fn the_same_options_make_the_same_name() {
        let name = |text: &str| name_of(&parse_options(text).unwrap());
        assert_eq!(name("connector=filesystem,path=a"), name("path=a,block.size=7,block.linger=1 s,connector=filesystem"));
        assert_ne!(name("connector=filesystem,path=a"), name("connector=filesystem,path=b"));
        assert_ne!(name("connector=x,a=b,c=d"), name("connector=x,a=bc,c=d"));
        assert!(name("connector=datagen").starts_with("datagen-"));
        // Names live in checkpoints of servers: they must never change.
        assert_eq!(name_of(&[]), "adapter-cbf29ce484222325");
    }
}
