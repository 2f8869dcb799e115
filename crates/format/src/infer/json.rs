//! The columns of a JSON sample, of lines or of a document.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Candidates;
use crate::FormatError;
use crate::json::JsonForm;
use crate::json::split::{self, Splitter, Step};

/// How objects stand in the file that `sample` is the beginning of: lines or a document.
pub fn json_form(sample: &[u8]) -> JsonForm {
    split::form(sample, true).unwrap_or(JsonForm::Lines)
}

/// The columns of the file that `sample` is the beginning of: all fields of its records in order of
/// first appearance. Objects become ROW, arrays ARRAY; what is of several kinds becomes STRING.
/// `complete` says that it is the whole file, so that its last record is not cut. Records that are not
/// JSON objects are passed over as long as there are others.
///
/// # Errors
/// There is no JSON object.
pub fn infer_json(sample: &[u8], complete: bool, form: JsonForm) -> Result<SchemaRef, FormatError> {
    let sample = sample.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(sample);
    let document = match form {
        JsonForm::Auto => json_form(sample) == JsonForm::Document,
        JsonForm::Document => true,
        JsonForm::Lines => false,
    };
    let mut all = Shape::Null;
    let mut wrong = None;
    let mut see = |record: &[u8], what: &str, number: usize| match serde_json::from_slice::<Shape>(record) {
        Ok(shape @ Shape::Object(_)) => all = std::mem::replace(&mut all, Shape::Null).merge(shape),
        Ok(_) => wrong = wrong.take().or(Some(format!("{what} {number} is not an object"))),
        Err(e) => wrong = wrong.take().or(Some(format!("{what} {number}: {e}"))),
    };
    if document {
        let (mut splitter, mut at, mut number) = (Splitter::default(), 0, 1);
        while let Step::Record { start, end } = splitter.next(&sample[at..], complete) {
            see(&sample[at + start..at + end], "record", number);
            at += end;
            number += 1;
        }
    } else {
        let whole = if complete { sample.len() } else { memchr::memrchr(b'\n', sample).map_or(0, |n| n + 1) };
        for (i, line) in sample[..whole].split(|b| *b == b'\n').enumerate().filter(|(_, l)| !l.trim_ascii().is_empty()) {
            see(line, "line", i + 1);
        }
    }
    match all.data_type() {
        DataType::Struct(fields) => Ok(Arc::new(Schema::new(fields))),
        _ => Err(FormatError::data(match wrong {
            Some(wrong) if document => format!("cannot tell the columns: a JSON document needs objects, but {wrong}"),
            Some(wrong) => format!("cannot tell the columns: JSON needs one object a line, but {wrong}"),
            None if sample.trim_ascii().is_empty() => {
                "cannot tell the columns of an empty file; declare them with CREATE TABLE".to_string()
            }
            None => "cannot tell the columns: the sample holds no whole object with a field".to_string(),
        })),
    }
}

/// What is known of the values at one place.
#[derive(Debug)]
enum Shape {
    /// Nothing but nulls.
    Null,
    Scalar(Candidates),
    Array(Box<Shape>),
    Object(Object),
    /// Values of several kinds.
    Mixed,
}

#[derive(Debug, Default)]
struct Object {
    fields: Vec<(String, Shape)>,
    index: HashMap<String, usize>,
}

impl Object {
    fn add(&mut self, name: String, shape: Shape) {
        match self.index.get(&name) {
            Some(i) => {
                let known = &mut self.fields[*i].1;
                *known = std::mem::replace(known, Shape::Null).merge(shape);
            }
            None => {
                self.index.insert(name.clone(), self.fields.len());
                self.fields.push((name, shape));
            }
        }
    }
}

impl Shape {
    /// A string: it may hold a date or a timestamp, but a number or a boolean in quotes is text.
    fn text(text: &str) -> Shape {
        let mut candidates = Candidates::NEW;
        candidates.see(text.as_bytes());
        candidates.set &= super::DATE | super::TIMESTAMP;
        Shape::Scalar(candidates)
    }

    fn bare(text: &str) -> Shape {
        let mut candidates = Candidates::NEW;
        candidates.see(text.as_bytes());
        Shape::Scalar(candidates)
    }

    fn merge(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Null, shape) | (shape, Shape::Null) => shape,
            (Shape::Scalar(mut a), Shape::Scalar(b)) => {
                a.merge(b);
                Shape::Scalar(a)
            }
            (Shape::Array(a), Shape::Array(b)) => Shape::Array(Box::new(a.merge(*b))),
            (Shape::Object(mut a), Shape::Object(b)) => {
                b.fields.into_iter().for_each(|(name, shape)| a.add(name, shape));
                Shape::Object(a)
            }
            _ => Shape::Mixed,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Shape::Scalar(candidates) => candidates.data_type(),
            Shape::Array(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Shape::Object(object) if !object.fields.is_empty() => DataType::Struct(
                object.fields.into_iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect::<Fields>(),
            ),
            // An object without fields has no columns; as STRING its text is kept.
            Shape::Null | Shape::Mixed | Shape::Object(_) => DataType::Utf8,
        }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::bare("true"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::bare("1"))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Shape, E> {
        Ok(Shape::bare(if i64::try_from(v).is_ok() { "1" } else { "18446744073709551615" }))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::bare("0.5"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
        Ok(Shape::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut all = Shape::Null;
        while let Some(item) = items.next_element::<Shape>()? {
            all = all.merge(item);
        }
        Ok(Shape::Array(Box::new(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut object = Object::default();
        while let Some(name) = entries.next_key::<String>()? {
            if object.index.contains_key(&name) {
                entries.next_value::<IgnoredAny>()?; // a name that stands twice; once is enough to know it
            } else {
                object.add(name, entries.next_value()?);
            }
        }
        Ok(Shape::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::type_name;

    #[track_caller]
    fn check(sample: &str, expect: &str) {
        let schema = infer_json(sample.as_bytes(), true, JsonForm::Auto).unwrap();
        assert_eq!(type_name(&DataType::Struct(schema.fields().clone())), format!("ROW<{expect}>"), "{sample}");
    }

    #[test]
    fn fields_in_order_of_first_appearance() {
        check("{\"z\":1,\"a\":\"x\"}\n\n{\"a\":null,\"m\":2.5,\"z\":2}\n", "z BIGINT, a STRING, m DOUBLE");
        check(
            r#"{"t":"2024-01-01 10:00:00","d":"2024-01-01","n":"12","b":true,"u":null}"#,
            "t TIMESTAMP(6), d DATE, n STRING, b BOOLEAN, u STRING",
        );
        check("{\"n\":1}\n{\"n\":1.5}", "n DOUBLE");
        check("{\"n\":1}\n{\"n\":\"one\"}", "n STRING");
        check("{\"n\":18446744073709551615}", "n STRING");
    }

    #[test]
    fn nested_values() {
        check(
            r#"{"o":{"x":1,"y":{"k":"v"}},"l":[1,null,2.5],"e":[],"q":{}}"#,
            "o ROW<x BIGINT, y ROW<k STRING>>, l ARRAY<DOUBLE>, e ARRAY<STRING>, q STRING",
        );
        check("{\"l\":[{\"a\":1}]}\n{\"l\":[{\"b\":true}]}", "l ARRAY<ROW<a BIGINT, b BOOLEAN>>");
        check("{\"m\":[1]}\n{\"m\":{\"a\":1}}\n{\"m\":2}", "m STRING");
    }

    #[test]
    fn lines_that_are_no_objects() {
        check("garbage\n{\"a\":1}\n[1]\n", "a BIGINT");
        let schema = infer_json(b"{\"a\":1}\n{\"a\":\"cu", false, JsonForm::Auto).unwrap();
        assert_eq!(schema.field(0).data_type(), &DataType::Int64);
        let error = |sample: &str| infer_json(sample.as_bytes(), true, JsonForm::Lines).unwrap_err().to_string();
        assert!(error("[{\"a\":1}]").ends_with("line 1 is not an object"));
        assert!(error("\n{\"a\"").contains("line 2: "));
        assert!(error(" \n").contains("empty file"));
    }
    #[test]
    fn documents() {
        check("[{\"z\":1,\"a\":\"x\"},\n {\"m\":2.5}]", "z BIGINT, a STRING, m DOUBLE");
        check("{\n  \"a\": 1,\n  \"o\": {\"b\": [1]}\n}\n{\"c\": true}", "a BIGINT, o ROW<b ARRAY<BIGINT>>, c BOOLEAN");
        check("[1, {\"a\": 1}, {\"b\"}]", "a BIGINT");
        let cut = infer_json(b"[{\"a\":1},{\"b\":1", false, JsonForm::Auto).unwrap();
        assert_eq!(cut.fields().len(), 1);
        let error = |sample: &str| infer_json(sample.as_bytes(), true, JsonForm::Auto).unwrap_err().to_string();
        assert!(error("[1,2]").ends_with("a JSON document needs objects, but record 1 is not an object"));
        assert!(error("[]").contains("holds no whole object"));
    }
}
