//! Writes the seeds of the target `arrow`: files and streams with columns of many kinds, plain and compressed.
//!
//!     cargo run --manifest-path fuzz/Cargo.toml --example arrow_seeds

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray};
use arrow::datatypes::Int32Type;
use tidemill_format::ipc::{ArrowCompression, ArrowFileWriter, ArrowForm, ArrowOptions};
use tidemill_format::options::{OptionSet, RawOptions};

fn batch() -> RecordBatch {
    let words = || (0..6).map(|row| (row % 4 > 0).then_some(if row % 2 > 0 { "a text of more than twelve bytes" } else { "b" }));
    let lists = (0..6).map(|row| (row % 3 > 0).then(|| (0..row).map(Some)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new((0..6).map(|row| (row % 4 > 0).then_some(row)).collect::<Int32Array>())),
        ("s", Arc::new(words().collect::<StringArray>())),
        ("large", Arc::new(words().collect::<LargeStringArray>())),
        ("view", Arc::new(words().collect::<StringViewArray>())),
        ("word", Arc::new(words().collect::<DictionaryArray<Int32Type>>())),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).expect("columns of one length")
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/arrow");
    std::fs::create_dir_all(&folder).expect("a folder for the seeds");
    let default = ArrowOptions::take(&mut RawOptions::default()).expect("options have defaults");
    for (name, compression, form) in [
        ("file", ArrowCompression::None, ArrowForm::File),
        ("stream", ArrowCompression::None, ArrowForm::Stream),
        ("lz4", ArrowCompression::Lz4, ArrowForm::File),
        ("zstd", ArrowCompression::Zstd, ArrowForm::Stream),
    ] {
        let out = File::create(folder.join(name)).expect("a file for the seed");
        let options = ArrowOptions { compression, form, ..default.clone() };
        let mut writer = ArrowFileWriter::new(Box::new(out), &batch().schema(), &options).expect("columns that can be written");
        writer.write(&batch()).expect("writing a seed");
        writer.write(&batch().slice(2, 3)).expect("writing a seed");
        writer.finish().expect("writing a seed");
    }
}
