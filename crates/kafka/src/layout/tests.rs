//! Tests of `layout`.

use arrow::datatypes::DataType;

use super::*;

fn taken(options: &[(&str, &str)], fields: &[&str], prefix: &str, include: FieldsInclude) -> Result<Layout, String> {
    let field = |name: &str| Field::new(name, DataType::Utf8, true);
    let schema: SchemaRef = Arc::new(Schema::new(vec![field("k_id"), field("a"), field("b")]));
    let mut raw = RawOptions::new("table 't'", options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let keys = KeyOptions { fields: fields.iter().map(|f| f.to_string()).collect(), prefix, include, required: false };
    Layout::take(&schema, &keys, "topic", &mut raw).map_err(|e| e.to_string())
}

#[test]
fn columns_of_key_and_value() {
    let layout = taken(&[("format", "json")], &[], "", FieldsInclude::All).unwrap();
    assert!(layout.key.is_none());
    assert_eq!(layout.value.columns, [0, 1, 2]);
    let options = [("key.format", "json"), ("value.format", "json")];
    let layout = taken(&options, &["k_id"], "k_", FieldsInclude::ExceptKey).unwrap();
    let key = layout.key.unwrap();
    assert_eq!((key.columns.as_slice(), key.schema.field(0).name().as_str()), (&[0][..], "id"));
    assert_eq!(layout.value.columns, [1, 2]);
}

#[test]
fn what_does_not_fit_together() {
    let check = |options: &[(&str, &str)], fields: &[&str], prefix: &str, expect: &str| {
        let error = taken(options, fields, prefix, FieldsInclude::All).err().unwrap_or_default();
        assert!(error.contains(expect), "{error}");
    };
    check(&[], &[], "", "'format' is required");
    check(&[("format", "json"), ("value.format", "json")], &[], "", "give one of them");
    check(&[("format", "json"), ("key.format", "json")], &[], "", "need each other");
    check(&[("format", "json")], &["a"], "", "need each other");
    check(&[("format", "json"), ("key.format", "json")], &["c"], "", "there is no column 'c'");
    check(&[("format", "json"), ("key.format", "json")], &["k_id"], "k_", "EXCEPT_KEY");
    check(&[("format", "json"), ("key.format", "debezium-json")], &["a"], "", "keys are not changes");
}
