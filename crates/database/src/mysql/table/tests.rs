//! Tests of `table`.

use super::*;

#[test]
fn types_are_read() {
    for (text, kind) in [
        ("int(11) unsigned", Kind::Integer),
        ("bigint", Kind::Integer),
        ("year(4)", Kind::Integer),
        ("FLOAT", Kind::Float),
        ("double(10,2)", Kind::Double),
        ("decimal(38,10)", Kind::Decimal),
        ("bit(8)", Kind::Bit),
        ("datetime", Kind::DateTime(0)),
        ("datetime(6)", Kind::DateTime(6)),
        ("timestamp(3)", Kind::DateTime(3)),
        ("time(2)", Kind::Time(2)),
        ("date", Kind::Other),
        ("varchar(20)", Kind::Other),
        ("enum('time','bit')", Kind::Other),
        ("bitmap", Kind::Other),
    ] {
        assert_eq!(Kind::of(text), kind, "{text}");
    }
}

#[test]
fn unique_indexes_are_told_from_the_key() {
    let part = |index: &str, column: &str| (index.to_string(), column.to_string());
    let parts = [part("PRIMARY", "B"), part("PRIMARY", "a"), part("mail", "mail"), part("short", "")];
    let mut table = Table { columns: Vec::new(), unique: unique_indexes(parts.into_iter()) };
    assert!(table.has_key(&["a", "b"]) && !table.has_key(&["a"]) && table.has_other_unique(&["a", "b"]));
    table.unique.truncate(1);
    assert!(!table.has_other_unique(&["A", "b"]));
}

#[test]
fn columns_of_labels_are_known() {
    let labels = |text: &str| {
        let (name, type_text) = ("c".to_string(), text.to_string());
        Column { name, kind: Kind::of(text), type_text, collation: None, nullable: true }.has_labels()
    };
    assert!(labels("enum('time','bit')") && labels("SET('a')"));
    assert!(!labels("varchar(20)") && !labels("text") && !labels("set_of_points"));
}

#[test]
fn engines_are_asked_by_name() {
    assert!(engine_sql("t").contains("t.table_schema = DATABASE() AND t.table_name = 't'"));
    assert!(engine_sql("a.b'c").contains("t.table_schema = 'a' AND t.table_name = 'b''c'"));
}
