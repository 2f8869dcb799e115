//! Tests of `diagnostic`.

use super::*;

#[track_caller]
fn check_offset(text: &str, line: u64, column: u64, expect: &str) {
    let index = LineIndex::new(text);
    let offset = index.offset(Location::new(line, column)).expect("a position");
    assert_eq!(&text[offset..], expect);
    assert_eq!(index.line_column(offset), (line as usize, column as usize));
}

#[test]
fn positions() {
    check_offset("abc", 1, 1, "abc");
    check_offset("abc", 1, 4, "");
    check_offset("a\nbc\n", 2, 2, "c\n");
    check_offset("é😀x\r\ny", 1, 3, "x\r\ny");
    check_offset("é😀x\r\ny", 2, 1, "y");
    check_offset("a\n", 2, 1, "");
    assert_eq!(LineIndex::new("a").offset(Location::empty()), None);
    assert_eq!(LineIndex::new("a").offset(Location::new(9, 1)), None);
}

#[test]
fn render_points_at_the_place() {
    let script = "SELECT a\nFROM tt\nWHERE x";
    let text = SqlError::at(Span::new(14, 16), "there is no table tt").with_help("did you mean t?").render("job.sql", script, false);
    assert_eq!(text, "error: there is no table tt\n --> job.sql:2:6\n  |\n2 | FROM tt\n  |      ^^\n  |\n  = help: did you mean t?");
}

#[test]
fn render_never_panics_on_odd_spans() {
    for script in ["", "é", "a\n", "a\n\n", "😀"] {
        for (start, end) in [(0, 0), (0, 1), (1, 2), (1, 1), (99, 100)] {
            let error = SqlError::at(Span::new(start, end), "x\u{1b}[31m");
            assert!(error.render("f", script, false).contains("error: x"), "{script:?} {start} {end}");
        }
    }
    assert!(SqlError::new("m").with_help("h").render("f", "", true).contains('m'));
}
