//! From the bodies of answers to rows: all that arrived since the last look at once, so that the decoder
//! and the columns are set up once for many.
//!
//! A row belongs to the key it was asked for. Where an answer names the key's columns itself, they must say
//! the same, or the row is no match; where it does not, they are filled in.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{and, concat_batches, filter_record_batch, is_null, take};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use tidemill_connect::{ConnectError, Failure, Found};
use tidemill_format::message::{MessageDecoder, MessageFormat};

use super::path::Path;

/// Bytes of answers that are decoded at once, unless one alone has more.
const ROUND_BYTES: usize = 64 << 20;

/// An answer: the keys that were asked for, and the body.
pub(super) struct Body {
    pub call: u64,
    pub keys: RecordBatch,
    pub bytes: Vec<u8>,
}

/// Reads answers.
pub(super) struct Answers {
    decoder: Box<dyn MessageDecoder>,
    /// Where the rows stand; `None` if the whole body is one message.
    path: Option<Path>,
    columns: SchemaRef,
    /// No rows of them.
    empty: RecordBatch,
    keys: SchemaRef,
    /// The key columns among `columns`.
    places: Vec<usize>,
    /// Of keys as bytes, where a request asks for several.
    several: Option<RowConverter>,
    ranges: Vec<Range<usize>>,
}

fn internal(e: impl std::fmt::Display) -> ConnectError {
    ConnectError::new(format!("putting answers together: {e}"))
}

impl Answers {
    /// For answers with rows of `columns`, asked for by `keys`, some of `columns`.
    ///
    /// # Errors
    /// A column that the format cannot read.
    pub fn new(
        format: &MessageFormat,
        path: Option<Path>,
        columns: SchemaRef,
        keys: SchemaRef,
        several: bool,
    ) -> Result<Self, ConnectError> {
        let mut places = Vec::with_capacity(keys.fields().len());
        for key in keys.fields() {
            let place = columns.fields().iter().position(|c| c.name() == key.name() && c.data_type() == key.data_type());
            places.push(place.ok_or_else(|| ConnectError::new(format!("internal error: there is no column {} to ask by", key.name())))?);
        }
        // An answer need not repeat its keys, even if they are NOT NULL.
        let read: Schema = Schema::new(
            columns
                .fields()
                .iter()
                .enumerate()
                .map(|(i, f)| if places.contains(&i) { Arc::new(f.as_ref().clone().with_nullable(true)) } else { f.clone() })
                .collect::<Vec<_>>(),
        );
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        let decoder = format.decoder(&Arc::new(read), &all)?;
        let several = if several {
            let fields = keys.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
            Some(RowConverter::new(fields).map_err(internal)?)
        } else {
            None
        };
        let empty = RecordBatch::new_empty(columns.clone());
        Ok(Answers { decoder, path, columns, empty, keys, places, several, ranges: Vec::new() })
    }

    /// No rows.
    pub fn none(&self) -> RecordBatch {
        self.empty.clone()
    }

    /// What the answers say, for each in order: the rows found, or what is wrong with the answer.
    ///
    /// # Errors
    /// What is no fault of an answer.
    pub fn read(&mut self, bodies: &[Body]) -> Result<Vec<Result<Found, Failure>>, ConnectError> {
        let mut results = Vec::with_capacity(bodies.len());
        let mut rest = bodies;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|body| {
                bytes += body.bytes.len();
                bytes <= ROUND_BYTES
            });
            let (now, later) = rest.split_at(fit.count().max(1));
            self.round(now, &mut results)?;
            rest = later;
        }
        Ok(results)
    }

    fn round(&mut self, bodies: &[Body], results: &mut Vec<Result<Found, Failure>>) -> Result<(), ConnectError> {
        let mut wrong: Vec<Option<String>> = vec![None; bodies.len()];
        // The answer that each message is a part of.
        let mut answers: Vec<u32> = Vec::with_capacity(bodies.len());
        for (answer, body) in bodies.iter().enumerate() {
            let Some(path) = &self.path else {
                self.decoder.push(Some(&body.bytes));
                answers.push(answer as u32);
                continue;
            };
            self.ranges.clear();
            match path.rows(&body.bytes, &mut self.ranges) {
                Ok(()) => {
                    for range in self.ranges.drain(..) {
                        self.decoder.push(Some(&body.bytes[range]));
                        answers.push(answer as u32);
                    }
                }
                Err(why) => wrong[answer] = Some(why),
            }
        }
        let messages = self.decoder.take()?;
        for (message, why) in messages.bad {
            wrong[answers[message as usize] as usize].get_or_insert(why);
        }
        // The answer of each row, ascending.
        let of: Vec<u32> = match messages.origins {
            Some(origins) => origins.into_iter().map(|message| answers[message as usize]).collect(),
            None => answers,
        };
        let (rows, of, origins) = if self.several.is_some() {
            self.match_several(bodies, &messages.batch, &of)?
        } else {
            let (rows, of) = self.match_one(bodies, &messages.batch, of)?;
            let origins = vec![0; of.len()];
            (rows, of, origins)
        };
        let mut from = 0;
        for (answer, wrong) in wrong.into_iter().enumerate() {
            let until = from + of[from..].partition_point(|a| *a as usize == answer);
            results.push(match wrong {
                Some(why) => Err(Failure::lasting(why)),
                None => Ok(Found { rows: rows.slice(from, until - from), origins: origins[from..until].to_vec() }),
            });
            from = until;
        }
        Ok(())
    }

    /// The rows with their keys filled in, without those that say another key than was asked for.
    fn match_one(&self, bodies: &[Body], batch: &RecordBatch, of: Vec<u32>) -> Result<(RecordBatch, Vec<u32>), ConnectError> {
        let asked = concat_batches(&self.keys, bodies.iter().map(|body| &body.keys)).map_err(internal)?;
        let indices = UInt32Array::from(of);
        let mut columns = batch.columns().to_vec();
        let mut equal: Option<BooleanArray> = None;
        for (key, place) in self.places.iter().enumerate() {
            let asked = take(asked.column(key), &indices, None).map_err(internal)?;
            let given = &columns[*place];
            if given.null_count() == given.len() {
                columns[*place] = asked;
                continue;
            }
            let filled: ArrayRef = if given.null_count() == 0 {
                given.clone()
            } else {
                zip(&is_null(given.as_ref()).map_err(internal)?, &asked, given).map_err(internal)?
            };
            let same = eq(&filled, &asked).map_err(internal)?;
            equal = Some(match equal {
                Some(others) => and(&others, &same).map_err(internal)?,
                None => same,
            });
            columns[*place] = filled;
        }
        let rows = self.batch(columns, batch.num_rows())?;
        let of = indices.values().to_vec();
        match equal {
            Some(mask) if mask.true_count() < mask.len() => {
                let of = of.into_iter().zip(mask.iter()).filter_map(|(a, same)| (same == Some(true)).then_some(a)).collect();
                Ok((filter_record_batch(&rows, &mask).map_err(internal)?, of))
            }
            _ => Ok((rows, of)),
        }
    }

    /// The rows by the key of their request that they name, without those that name none of them: rows, the
    /// answer of each, and the key of each, ascending within an answer.
    fn match_several(&self, bodies: &[Body], batch: &RecordBatch, of: &[u32]) -> Result<(RecordBatch, Vec<u32>, Vec<u32>), ConnectError> {
        let Some(converter) = &self.several else { return Err(internal("requests of one key")) };
        let columns: Vec<ArrayRef> = self.places.iter().map(|place| batch.column(*place).clone()).collect();
        let named = converter.convert_columns(&columns).map_err(internal)?;
        let (mut picks, mut answers, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        let mut from = 0;
        for (answer, body) in bodies.iter().enumerate() {
            let until = from + of[from..].partition_point(|a| *a as usize == answer);
            let asked = converter.convert_columns(body.keys.columns()).map_err(internal)?;
            let mut rows: HashMap<&[u8], Vec<u32>> = HashMap::new();
            for row in from..until {
                rows.entry(named.row(row).data()).or_default().push(row as u32);
            }
            for (origin, key) in asked.iter().enumerate() {
                for row in rows.get(key.data()).into_iter().flatten() {
                    picks.push(*row);
                    answers.push(answer as u32);
                    origins.push(origin as u32);
                }
            }
            from = until;
        }
        let picks = UInt32Array::from(picks);
        let taken = batch.columns().iter().map(|c| take(c, &picks, None)).collect::<Result<Vec<_>, _>>().map_err(internal)?;
        Ok((self.batch(taken, picks.len())?, answers, origins))
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ConnectError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.columns.clone(), columns, &options).map_err(internal)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type};
    use tidemill_format::options::RawOptions;

    use super::*;

    fn answers(several: bool, path: &str) -> Answers {
        let columns = Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]);
        let keys = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        let mut raw = RawOptions::new("table 't'", [("format".to_string(), "json".to_string())]);
        let format = MessageFormat::take(&mut raw, "").unwrap().unwrap();
        Answers::new(&format, Some(Path::parse(path).unwrap()), Arc::new(columns), Arc::new(keys), several).unwrap()
    }

    fn body(call: u64, ids: &[i64], text: &str) -> Body {
        let keys = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(ids.to_vec())) as ArrayRef)]).unwrap();
        Body { call, keys, bytes: text.as_bytes().to_vec() }
    }

    fn shown(result: &Result<Found, Failure>) -> String {
        match result {
            Ok(found) => {
                let (ids, names) = (found.rows.column(0).as_primitive::<Int64Type>(), found.rows.column(1).as_string::<i32>());
                let row =
                    |i: usize| format!("{}:{}={}", found.origins[i], ids.value(i), if names.is_null(i) { "null" } else { names.value(i) });
                (0..found.origins.len()).map(row).collect::<Vec<_>>().join(" ")
            }
            Err(failure) => format!("{}{}", failure.reason, if failure.retry { " (again)" } else { "" }),
        }
    }

    #[test]
    fn rows_belong_to_the_key_asked_for() {
        let bodies = [
            body(0, &[7], "{\"name\": \"without its key\"}"),
            body(1, &[8], "[{\"id\": 8, \"name\": \"a\"}, {\"id\": 9, \"name\": \"another key\"}, {\"id\": 8}]"),
            body(2, &[9], "[]"),
            body(3, &[10], "<html>"),
            body(4, &[11], "[{\"name\": \"good\"}, {\"id\": \"x\"}]"),
            body(5, &[12], "{\n  \"id\": null\n}"),
        ];
        let results = answers(false, "").read(&bodies).unwrap();
        let shown: Vec<String> = results.iter().map(shown).collect();
        assert_eq!(shown[0], "0:7=without its key");
        assert_eq!(shown[1], "0:8=a 0:8=null");
        assert_eq!(shown[2], "");
        assert_eq!(shown[3], "expected an object or an array of objects at byte 1 of the answer");
        assert!(shown[4].contains("id"), "{}", shown[4]);
        assert_eq!(shown[5], "0:12=null");
    }

    #[test]
    fn rows_name_the_key_where_several_are_asked_for() {
        let bodies = [
            body(
                0,
                &[3, 1, 3],
                "{\"rows\": [{\"id\": 1, \"name\": \"a\"}, {\"id\": 3, \"name\": \"b\"}, {\"id\": 1, \"name\": \"c\"}, {\"id\": 5}]}",
            ),
            body(1, &[5], "{\"rows\": [{\"id\": 5}, {\"name\": \"nobody's\"}]}"),
        ];
        let results = answers(true, "$.rows").read(&bodies).unwrap();
        assert_eq!(shown(&results[0]), "0:3=b 1:1=a 1:1=c 2:3=b");
        assert_eq!(shown(&results[1]), "0:5=null");
    }
}
