//! Patterns for names of members.

/// Whether the name of a member fits a pattern: `?` is one character and `*` any number of them within a
/// folder, `**` any number across folders; `**/` may also be no folder at all. All else stands for itself.
///
/// Takes time in proportion to both lengths multiplied, at worst.
pub fn matches(glob: &str, member: &str) -> bool {
    let (pattern, text) = (glob.as_bytes(), member.as_bytes());
    let (mut i, mut j) = (0, 0);
    // Where to go on in the pattern behind the last `*`, and from where in the text: it may take more.
    let mut star: Option<(usize, usize)> = None;
    // The same for the last `**`; `true`: it takes whole folders. Only the last of each kind need ever take
    // more, since what stood before it was matched as early as possible.
    let mut deep: Option<(usize, usize, bool)> = None;
    loop {
        match pattern.get(i) {
            None if j == text.len() => return true,
            Some(b'*') if pattern.get(i + 1) == Some(&b'*') => {
                let mut after = i;
                while pattern.get(after) == Some(&b'*') {
                    after += 1;
                }
                let folders = (i == 0 || pattern[i - 1] == b'/') && pattern.get(after) == Some(&b'/');
                i = after + usize::from(folders);
                (star, deep) = (None, Some((i, j, folders)));
                continue;
            }
            Some(b'*') => {
                i += 1;
                star = Some((i, j));
                continue;
            }
            Some(b'?') if j < text.len() && text[j] != b'/' => {
                i += 1;
                j += char_bytes(text[j]);
                continue;
            }
            Some(c) if *c != b'?' && text.get(j) == Some(c) => {
                i += 1;
                j += 1;
                continue;
            }
            _ => {}
        }
        if let Some((after, from)) = &mut star
            && *from < text.len()
            && text[*from] != b'/'
        {
            *from += char_bytes(text[*from]);
            (i, j) = (*after, *from);
            continue;
        }
        let Some((after, from, folders)) = &mut deep else { return false };
        if *from >= text.len() {
            return false;
        }
        if *folders {
            let Some(slash) = text[*from..].iter().position(|b| *b == b'/') else { return false };
            *from += slash + 1;
        } else {
            *from += char_bytes(text[*from]);
        }
        (i, j, star) = (*after, *from, None);
    }
}

/// The length of the character that begins with this byte of UTF-8.
fn char_bytes(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0.. => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[track_caller]
    fn check(glob: &str, yes: &[&str], no: &[&str]) {
        for name in yes {
            assert!(matches(glob, name), "'{glob}' should match '{name}'");
        }
        for name in no {
            assert!(!matches(glob, name), "'{glob}' should not match '{name}'");
        }
    }

    #[test]
    fn stars_stay_within_a_folder() {
        check("*", &["a", "a.csv", "ü", ""], &["a/b", "/"]);
        check("NASDAQ*.txt", &["NASDAQ.txt", "NASDAQ_2005.txt", "NASDAQ.txt.txt"], &["x/NASDAQ.txt", "NASDAQ/a.txt", "NASDAQ.txtx"]);
        check("*/*.csv", &["a/b.csv", "/.csv"], &["b.csv", "a/b/c.csv"]);
        check("a*b*c", &["abc", "aXbYc", "abbcbc", "aabbcc"], &["ab", "ac", "abcd", "ab/c"]);
        check("", &[""], &["a"]);
    }

    #[test]
    fn a_question_mark_is_one_character() {
        check("?.csv", &["a.csv", "ü.csv", "€.csv", "😀.csv"], &[".csv", "ab.csv", "/.csv"]);
        check("*??", &["ab", "a€", "abc"], &["a", "€", "😀"]);
    }

    #[test]
    fn two_stars_go_across() {
        check("**", &["", "a", "a/b/c"], &[]);
        check("**/*.csv", &["a.csv", "d/a.csv", "d/e/a.csv"], &["a.txt", "d/a.csv/x"]);
        check("**/x", &["x", "a/x", "a/b/x"], &["ax", "a/bx", "x/a"]);
        check("d/**", &["d/", "d/a", "d/e/a"], &["d", "e/d/a"]);
        check("d/**/a", &["d/a", "d/e/a", "d/e/f/a"], &["da", "d/ea", "a"]);
        check("a**b", &["ab", "a/b", "a/x/yb"], &["a/bc", "b"]);
        check("**/2005/**/*.txt", &["2005/a.txt", "x/2005/y/z/a.txt", "2004/2005/a.txt"], &["2005.txt", "x2005/a.txt"]);
        check("**a*/**/c", &["a/c", "x/ya1/c", "a/b/a/c"], &["b/c", "a/bc"]);
    }

    #[test]
    fn patterns_made_to_be_slow_are_not() {
        let text = "a".repeat(4096);
        assert!(!matches(&"*a".repeat(50).replace("*a", "*a*a*a*a"), &format!("{text}b")));
        assert!(!matches(&"**a".repeat(100), &format!("{text}b")));
    }
}
