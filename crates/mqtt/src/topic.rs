//! What names of topics and filters for them may be.

/// Names and filters have 16 bits for their length.
const BYTES_MAX: usize = 65_535;

/// Checks the name of a topic that is written to.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    check_text(name)?;
    match name.contains(['+', '#']) {
        true => Err("messages go to one topic: '+' and '#' are for filters".to_string()),
        false => Ok(()),
    }
}

/// Checks a filter that is subscribed to.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_filter(filter: &str) -> Result<(), String> {
    check_text(filter)?;
    let levels: Vec<&str> = filter.split('/').collect();
    let shared = levels[0] == "$share";
    if shared && (levels.len() < 3 || levels[1].is_empty() || levels[1].contains(['+', '#'])) {
        return Err("a shared subscription is written '$share/GROUP/FILTER'".to_string());
    }
    for (at, level) in levels.iter().enumerate() {
        if level.contains('+') && *level != "+" {
            return Err(format!("'+' stands for a whole level, not for a part of '{level}'"));
        }
        if level.contains('#') && (*level != "#" || at + 1 < levels.len()) {
            return Err("'#' stands for all further levels, so it can only be the last one".to_string());
        }
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".to_string());
    }
    if text.len() > BYTES_MAX {
        return Err(format!("it has {} bytes, and {BYTES_MAX} are the most", text.len()));
    }
    if text.contains('\0') {
        return Err("it holds the character U+0000".to_string());
    }
    Ok(())
}

/// The filters in the option `topic` of a source, which `;` divides.
///
/// # Errors
/// Names the filter and what is wrong with it; there is none.
pub fn filters(text: &str) -> Result<Vec<String>, String> {
    let mut filters: Vec<String> = Vec::new();
    for filter in text.split(';').map(str::trim).filter(|f| !f.is_empty()) {
        check_filter(filter).map_err(|why| format!("'{filter}': {why}"))?;
        if !filters.iter().any(|known| known == filter) {
            filters.push(filter.to_string());
        }
    }
    if filters.is_empty() { Err("expected a topic filter, such as 'sensors/+/temperature'".to_string()) } else { Ok(filters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn filter(text: &str, expect: Result<(), &str>) {
        match (check_filter(text), expect) {
            (Ok(()), Ok(())) => {}
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{text:?}: {found:?}"),
        }
    }

    #[test]
    fn filters_have_wildcards_in_whole_levels() {
        filter("a", Ok(()));
        filter("/", Ok(()));
        filter("a/+/b/#", Ok(()));
        filter("+", Ok(()));
        filter("#", Ok(()));
        filter("$share/g/a/#", Ok(()));
        filter("", Err("empty"));
        filter("a+/b", Err("a whole level"));
        filter("a/#/b", Err("the last one"));
        filter("a#", Err("the last one"));
        filter("a\0", Err("U+0000"));
        filter("$share/a", Err("$share/GROUP/FILTER"));
        filter(&"x".repeat(65_536), Err("65536 bytes"));
    }

    #[test]
    fn names_have_none() {
        assert!(check_name("a/b c/d").is_ok());
        assert!(check_name("a/+").unwrap_err().contains("filters"));
        assert!(check_name("").unwrap_err().contains("empty"));
    }

    #[test]
    fn several_filters() {
        assert_eq!(filters(" a/+ ;b;; a/+").unwrap(), ["a/+", "b"]);
        assert!(filters(" ; ").unwrap_err().contains("expected a topic filter"));
        assert!(filters("a;b#").unwrap_err().starts_with("'b#': "));
    }
}
