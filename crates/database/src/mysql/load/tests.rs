//! Tests of `load`.

use arrow::array::{ArrayRef, BinaryArray, BooleanArray, StringArray};

use super::super::table::{Column, Table};
use super::*;

#[test]
fn bytes_and_bits_go_through_variables() {
    let column = |name: &str, type_text: &str| Column {
        name: name.into(),
        type_text: type_text.into(),
        kind: Kind::of(type_text),
        collation: None,
        nullable: true,
    };
    let columns = vec![column("s", "text"), column("b", "blob"), column("f", "bit(1)")];
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["x"])),
        Arc::new(BinaryArray::from(vec![&b"x"[..]])),
        Arc::new(BooleanArray::from(vec![true])),
    ];
    let table = Arc::new(Table { columns, unique: Vec::new() });
    let checked = Checked { table, columns: vec![0, 1, 2], rows: Arc::new(Prepared { arrays, rows: 1 }) };
    assert_eq!(
        load_statement("`t`", &checked),
        "LOAD DATA LOCAL INFILE 'rows' INTO TABLE `t` CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' ENCLOSED BY '' \
         ESCAPED BY '\\\\' LINES STARTING BY '' TERMINATED BY '\\n' (`s`, @t1, @t2) \
         SET `b` = UNHEX(@t1), `f` = CAST(@t2 AS UNSIGNED)"
    );
}
