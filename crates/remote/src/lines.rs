//! From a JSON text to JSON lines, in place: the values of an array, or values that may span lines.

/// Makes the values of `text` stand one a line: those of an array, or those that stand one after the
/// other. Nothing moves; what divides values becomes a line end, and line ends within them become
/// blanks. Only where values begin and end is looked at, not whether they are right: that is the
/// decoder's work, record by record.
///
/// # Errors
/// The text ends within a value, or commas and brackets are not where they can be; `text` is then of no
/// use.
pub(crate) fn split_values(text: &mut [u8]) -> Result<(), String> {
    let mut begin = 0;
    if text.starts_with(b"\xEF\xBB\xBF") {
        text[..3].fill(b' '); // a byte order mark
        begin = 3;
    }
    while text.get(begin).is_some_and(u8::is_ascii_whitespace) {
        begin += 1;
    }
    let array = text.get(begin) == Some(&b'[');
    if array {
        text[begin] = b' ';
        begin += 1;
    }
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    // Of an array: a value stands behind the last comma; there was a comma; it was closed.
    let (mut value, mut comma, mut closed) = (false, false, false);
    for at in begin..text.len() {
        let byte = text[at];
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'\n' | b'\r' if depth > 0 || array => text[at] = b' ',
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ if closed => return Err(format!("something stands behind the end of the array, at byte {at}")),
            b',' if array && depth == 0 => {
                if !value {
                    return Err(format!("a comma stands where a value is expected, at byte {at}"));
                }
                text[at] = b'\n';
                (value, comma) = (false, true);
            }
            b']' if array && depth == 0 => {
                if comma && !value {
                    return Err(format!("a value is missing behind the last comma, at byte {at}"));
                }
                text[at] = b' ';
                closed = true;
            }
            b'{' | b'[' => (depth, value) = (depth + 1, true),
            b'}' | b']' => depth = depth.checked_sub(1).ok_or_else(|| format!("a '{}' too many, at byte {at}", byte as char))?,
            b'"' => (quoted, value) = (true, true),
            _ => value = true,
        }
    }
    if quoted || depth > 0 {
        return Err("the text ends within a value".to_string());
    }
    if array && !closed {
        return Err("the array is not closed".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines without the blanks around them, those that are empty left out.
    #[track_caller]
    fn check(text: &str, expect: Result<&[&str], &str>) {
        let mut bytes = text.as_bytes().to_vec();
        let split = split_values(&mut bytes);
        let lines = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match (split, expect) {
            (Ok(()), Ok(expect)) => assert_eq!(lines, expect, "{text}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
            (found, _) => panic!("{text}: {found:?}, {lines:?}"),
        }
    }

    #[test]
    fn values_one_a_line() {
        check("", Ok(&[]));
        check(" [ ] \n", Ok(&[]));
        check("[{\"a\":1},{\"a\":[2,3]}]", Ok(&["{\"a\":1}", "{\"a\":[2,3]}"]));
        check("\u{feff}\n[\n {\"a\":\n \"],\\\"}\"} ,3, \"x,y\"\n]\n", Ok(&["{\"a\":  \"],\\\"}\"}", "3", "\"x,y\""]));
        check("{\"a\":1}\n{\"a\":\n2\r\n}\n7", Ok(&["{\"a\":1}", "{\"a\": 2  }", "7"]));
        // Not told apart here, and a bad record for the decoder.
        check("[{} {}, 1 2]", Ok(&["{} {}", "1 2"]));
        check("{}, {}", Ok(&["{}, {}"]));
    }

    #[test]
    fn texts_that_cannot_be_divided() {
        check("[{\"a\":1}", Err("not closed"));
        check("[{\"a\":1]", Err("not closed"));
        check("[{\"a\":1}, ]", Err("behind the last comma"));
        check("[,1]", Err("where a value is expected, at byte 1"));
        check("[1,,2]", Err("where a value is expected"));
        check("[1] 2", Err("behind the end of the array, at byte 4"));
        check("{\"a\": \"b", Err("within a value"));
        check("{\"a\": {}", Err("within a value"));
        check("{}}", Err("a '}' too many"));
    }
}
