//! Arrow files as tables: divided, resumed, compressed as a whole, changed while they are mapped. Their decoding is tested
//! where it is done.

use super::*;
use crate::filesystem::directory::Place;
use crate::filesystem::ipc::{Manner, pieces, schema_of, shape_of};
use crate::filesystem::ranges;
use tidemill_format::ipc::ArrowOptions;
use tidemill_format::options::OptionSet;

/// A directory with one file of 100,000 rows in batches of 30,000.
fn written(more: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "arrow", &[&[("arrow.batch-rows", "30000")][..], more].concat());
    let mut writer = writer(&*sink, "run");
    for from in (0..100_000).step_by(7_000) {
        writer.write(&block(&numbered(from, (from + 7_000).min(100_000)))).unwrap();
    }
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    dir
}

#[test]
fn files_are_resumed_and_divided_by_batches() {
    let dir = written(&[]);
    for map in ["true", "false"] {
        let source = source(dir.path(), "arrow", &[("arrow.memory-map", map)]);
        assert_eq!(source.rows_hint(), Some(100_000));
        let whole = source.splits(1).unwrap().remove(0);
        let options = ArrowOptions::take(&mut RawOptions::default()).unwrap();
        let manner = Manner::new(&options, Compression::None, false, Default::default());
        let pieces = pieces(&whole.id, &Place::Local, &manner, 1).unwrap();
        assert_eq!(pieces.len(), 4);
        let splits: Vec<_> = pieces.iter().map(|p| Split::new(ranges::id(&whole.id, p))).collect();
        assert!(read(&*source, &splits, 5000) == numbered(0, 100_000));
        let mut open = Open::new(&*source, &splits[1], ReadRequest::all(schema()));
        assert_eq!(open.next(1234).unwrap().unwrap().batch.num_rows(), 1234);
        let resumed = Split { position: Some(open.reader.position()), ..splits[1].clone() };
        assert!(read(&*source, &[resumed], 100_000) == numbered(31_234, 60_000));
        let beyond = Split { position: Some(serde_json::json!({ "row": 30_001 })), ..splits[1].clone() };
        let (_, _, error) = Open::new(&*source, &beyond, ReadRequest::all(schema())).all(100);
        assert!(error.unwrap().contains("fewer rows than before"));
    }
    let file = dir.path().join(&names(dir.path())[0]);
    let shape = shape_of(file.to_str().unwrap()).unwrap().unwrap();
    assert_eq!((shape.rows, shape.batches, shape.compression, shape.dictionaries), (100_000, 4, None, 0));
    assert_eq!(schema_of(dir.path().to_str().unwrap(), &Default::default()).unwrap(), schema());
}

#[test]
fn what_is_compressed_as_a_whole_is_read_from_the_front() {
    for more in [&[][..], &[("arrow.form", "stream")][..]] {
        let dir = written(more);
        let name = names(dir.path()).remove(0);
        let plain = fs::read(dir.path().join(&name)).unwrap();
        fs::remove_file(dir.path().join(&name)).unwrap();
        pack(Compression::Gzip, &plain, &dir.path().join(format!("{name}.gz")));
        let source = source(dir.path(), "arrow", &[]);
        let mut split = source.unordered_splits(2).unwrap().remove(0);
        assert!(read(&*source, std::slice::from_ref(&split), 10_000) == numbered(0, 100_000), "{name}");
        split.position = Some(serde_json::json!({ "row": 61_000 }));
        assert!(read(&*source, &[split], 10_000) == numbered(61_000, 100_000), "{name}");
        assert_eq!(schema_of(dir.path().to_str().unwrap(), &Default::default()).unwrap(), schema());
        // Cut in the middle of what is packed.
        pack(Compression::Gzip, &plain[..plain.len() - 20], &dir.path().join(format!("{name}.gz")));
        let split = source.splits(1).unwrap().remove(0);
        let (_, _, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(10_000);
        assert!(error.unwrap().contains("it was cut short"), "{name}");
    }
}

/// A file that is cut while it is mapped would end the process where it is touched behind its end, so it is looked at
/// before each batch.
#[test]
fn a_file_that_changes_is_an_error() {
    let dir = written(&[]);
    let file = dir.path().join(&names(dir.path())[0]);
    let source = source(dir.path(), "arrow", &[]);
    let split = source.splits(1).unwrap().remove(0);
    let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
    open.next(10).unwrap();
    let length = fs::metadata(&file).unwrap().len();
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(&[0; 1000]).unwrap();
    let (_, _, error) = open.all(100_000);
    assert!(error.unwrap().contains("it was changed while it was read"));
    // What is left has no footer at its end.
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length - 1).unwrap();
    let error = source.open(&split, context()).err().expect("an error").to_string();
    assert!(error.contains("has no footer: it was cut short"), "{error}");
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = TempDir::new().unwrap();
    let refused = |path: &str, more: &[(&str, &str)]| {
        let mut raw = options(&dir.path().join(path), "arrow", more);
        CONNECTOR.sink(&schema(), &mut raw).err().expect("an error").to_string()
    };
    assert!(refused("x", &[("arrow.batch-rows", "0")]).contains("'arrow.batch-rows' must be greater than 0"));
    assert!(refused("x", &[("compression", "gzip")]).contains("use 'arrow.compression'"));
    assert!(refused("x.arrow.gz", &[("sink.single-file", "true")]).contains("use 'arrow.compression'"));
}
