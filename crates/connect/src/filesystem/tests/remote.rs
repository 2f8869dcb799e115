//! Files behind a network: archives, compressed text, SAS files and workbooks, in a bucket and on web servers that give ranges or
//! do not. The rows are those of the same bytes as a local file, whatever happens on the way: connections that are cut, files
//! that change, readers that go on in the middle.

use std::collections::BTreeMap;

use tidemill_store::emulator::{Behaviour, Emulator, Fault};

use super::archives::{tar, zip, zip_of};
use super::*;

#[path = "../../../../../tests/not_run.rs"]
mod not_run;
use not_run::not_run;

/// Rows of the texts, divided among two members where there are members.
const ROWS: usize = 40_000;
/// Bytes of a body after which its connection is cut: in the middle of each of the files, and of their first members.
const CUT: u64 = 5_000;
/// Rows asked for at once, so that a reader stands in the middle of each file at times.
const STEP: usize = 7_000;

/// A file to be read.
struct Sample {
    name: &'static str,
    format: &'static str,
    more: &'static [(&'static str, &'static str)],
    schema: SchemaRef,
    /// Whether it must be read here and there, and not from front to back.
    anywhere: bool,
    bytes: Vec<u8>,
    /// What it holds, read as a local file.
    rows: String,
}

impl Sample {
    /// Keeps the bytes in `dir`, and reads what they hold.
    fn new(dir: &Path, name: &'static str, format: &'static str, schema: SchemaRef, bytes: Vec<u8>) -> Self {
        let text = format == "csv";
        let more: &'static [(&'static str, &'static str)] = if text { &[("csv.header", "true")] } else { &[] };
        let mut sample = Sample { name, format, more, schema, anywhere: !text, bytes, rows: String::new() };
        let path = dir.join(name);
        fs::write(&path, &sample.bytes).unwrap();
        sample.rows = sample.all(&*sample.source(path.to_str().unwrap(), &[])).unwrap();
        assert!(sample.rows.lines().count() > 1_000, "{name}");
        sample
    }

    #[track_caller]
    fn source(&self, path: &str, more: &[(&str, &str)]) -> Box<dyn Source> {
        let mut raw = options(Path::new(path), self.format, &[self.more, more].concat());
        let source = CONNECTOR.source(&self.schema, &mut raw).unwrap();
        raw.finish().unwrap();
        source
    }

    /// Reads a split as far as it goes: its rows, the split as it stands behind the last of them, what is wrong.
    fn far(&self, source: &dyn Source, split: &Split) -> (String, Split, Option<String>) {
        let (mut out, mut split) = (String::new(), split.clone());
        let mut open = match Open::of(source, &split, ReadRequest::all(self.schema.clone())) {
            Ok(open) => open,
            Err(e) => return (out, split, Some(e)),
        };
        loop {
            match open.next(STEP) {
                Ok(Some(rows)) => {
                    assert_eq!(rows.bad, []);
                    out += &text::format(&Block::inserts(rows.batch, 0));
                    split.position = Some(open.reader.position());
                }
                Ok(None) => return (out, split, None),
                Err(e) => return (out, split, Some(e)),
            }
        }
    }

    /// The rows of all splits, or what is wrong.
    fn all(&self, source: &dyn Source) -> Result<String, String> {
        let mut out = String::new();
        for split in source.splits(1).map_err(|e| e.to_string())? {
            let (rows, _, error) = self.far(source, &split);
            out += &rows;
            if let Some(e) = error {
                return Err(e);
            }
        }
        Ok(out)
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("packed");
    pack(Compression::Gzip, bytes, &path);
    fs::read(path).unwrap()
}

/// What gzip has between its header of ten bytes and its trailer of eight.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let packed = gzip(bytes);
    packed[10..packed.len() - 8].to_vec()
}

fn csv(from: usize, to: usize) -> String {
    ["s,n\n".to_string()].into_iter().chain((from..to).map(|n| format!("r{n},{n}\n"))).collect()
}

/// The one file that a sink writes.
fn written(dir: &Path, format: &str, rows: &str) -> Vec<u8> {
    let out = dir.join(format);
    let sink = sink(&out, format, &[]);
    let mut writer = writer(&*sink, "run");
    writer.write(&block(rows)).unwrap();
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    fs::read(out.join(&names(&out)[0])).unwrap()
}

fn samples(dir: &Path) -> Vec<Sample> {
    let (one, two) = (csv(0, ROWS / 2), csv(ROWS / 2, ROWS));
    let members: [(&str, &[u8]); 2] = [("in/a.csv", one.as_bytes()), ("in/b.csv", two.as_bytes())];
    let files = [
        ("stored.zip", "csv", zip(&members)),
        ("deflated.zip", "csv", zip_of(&members, 8, &[], deflated)),
        ("x.tar.gz", "csv", gzip(&tar(&members))),
        ("x.csv.gz", "csv", gzip(csv(0, ROWS).as_bytes())),
        ("x.xpt", "xport", written(dir, "xport", &numbered(0, 2_000))),
        ("x.xlsx", "xlsx", written(dir, "xlsx", &numbered(0, 5_000))),
    ];
    let mut samples: Vec<Sample> = files.into_iter().map(|(name, format, bytes)| Sample::new(dir, name, format, schema(), bytes)).collect();
    let sas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sas/pandas/productsales.sas7bdat");
    match fs::read(&sas) {
        Ok(bytes) => {
            let schema = crate::filesystem::sas::schema_of("sas7bdat", sas.to_str().unwrap(), &BTreeMap::new()).unwrap();
            samples.push(Sample::new(dir, "x.sas7bdat", "sas7bdat", schema, bytes));
        }
        Err(_) => not_run(&format!("SAS7BDAT files behind a network ({} is missing)", sas.display())),
    }
    samples
}

/// Where files lie.
struct Server {
    emulator: Emulator,
    /// What addresses of files begin with.
    base: String,
    /// Whether parts of files can be asked for.
    ranges: bool,
}

impl Server {
    /// A bucket, a web server with ranges, one without.
    fn all() -> [Server; 3] {
        [("gs://b", true), ("", true), ("", false)].map(|(bucket, ranges)| {
            let emulator = Emulator::start("127.0.0.1:0", Behaviour { ranges, ..Behaviour::default() }).unwrap();
            let base = if bucket.is_empty() { format!("{}/b", emulator.endpoint()) } else { bucket.to_string() };
            Server { emulator, base, ranges }
        })
    }

    /// A file as it lies here, asked for in small pieces, looked at for the first time.
    #[track_caller]
    fn source(&self, sample: &Sample) -> Box<dyn Source> {
        let endpoint = self.emulator.endpoint();
        let store =
            [("store.endpoint", endpoint.as_str()), ("store.anonymous", "true"), ("store.retries", "3"), ("store.read-size", "64 kb")];
        sample.source(&format!("{}/{}", self.base, sample.name), &store)
    }

    /// Lets requests for the file go wrong from now on.
    fn fail(&self, sample: &Sample, fault: Fault, times: usize) {
        self.emulator.fail("GET", sample.name, fault, times);
    }
}

/// Does something with every file on every server that can give it.
fn each(check: impl Fn(&Server, &Sample)) {
    let dir = TempDir::new().unwrap();
    let samples = samples(dir.path());
    for server in &Server::all() {
        for sample in samples.iter().filter(|sample| server.ranges || !sample.anywhere) {
            server.emulator.put("b", sample.name, sample.bytes.clone());
            check(server, sample);
        }
    }
}

#[test]
fn rows_are_those_of_the_local_file() {
    each(|server, sample| {
        let source = server.source(sample);
        let members = server.ranges && sample.name.ends_with(".zip");
        assert_eq!(source.splits(1).unwrap().len(), if members { 2 } else { 1 }, "{}/{}", server.base, sample.name);
        assert!(sample.all(&*source).unwrap() == sample.rows, "{}/{}", server.base, sample.name);
    });
}

#[test]
fn what_must_be_read_anywhere_is_refused_without_ranges() {
    let dir = TempDir::new().unwrap();
    let [_, _, server] = Server::all();
    for sample in samples(dir.path()).iter().filter(|sample| sample.anywhere) {
        server.emulator.put("b", sample.name, sample.bytes.clone());
        let error = sample.all(&*server.source(sample)).unwrap_err();
        assert!(error.contains(sample.name) && error.contains("the server gives it as a whole only"), "{error}");
    }
}

#[test]
fn a_connection_that_is_cut_is_made_anew() {
    each(|server, sample| {
        let source = server.source(sample);
        let splits = source.splits(1).unwrap();
        server.fail(sample, Fault::CutAfter(CUT), 2);
        let mut rows = String::new();
        for split in &splits {
            let (more, _, error) = sample.far(&*source, split);
            assert_eq!(error, None, "{}/{}", server.base, sample.name);
            rows += &more;
        }
        server.emulator.forgive();
        assert!(rows == sample.rows, "{}/{}", server.base, sample.name);
    });
}

/// What was handed out before the failure, and what a reader gives that begins where the first one stood, is the whole file.
#[test]
fn a_failure_in_the_middle_loses_nothing_and_repeats_nothing() {
    let failures = [(Fault::Status(403), "access was denied"), (Fault::Touched, "has changed since it was listed")];
    each(|server, sample| {
        for (fault, why) in failures {
            let source = server.source(sample);
            let splits = source.splits(1).unwrap();
            server.fail(sample, Fault::CutAfter(CUT), 1);
            server.fail(sample, fault, 100);
            let (mut rows, first, error) = sample.far(&*source, &splits[0]);
            server.emulator.forgive();
            let error = error.expect("a failure");
            assert!(error.contains(sample.name) && error.contains(why), "{}: {error}", server.base);
            assert!(rows.len() < sample.rows.len() && sample.rows.starts_with(&rows), "{}/{}", server.base, sample.name);
            // As a job does that is started again; the file that was written anew has the same bytes.
            let again = server.source(sample);
            for split in [&first].into_iter().chain(&splits[1..]) {
                let (more, _, error) = sample.far(&*again, split);
                assert_eq!(error, None, "{}/{}", server.base, sample.name);
                rows += &more;
            }
            assert!(rows == sample.rows, "{}/{}: {why}", server.base, sample.name);
        }
    });
}

#[test]
fn a_resumed_reader_gives_exactly_the_rest() {
    each(|server, sample| {
        let mut rows = String::new();
        for mut split in server.source(sample).splits(1).unwrap() {
            // Resumes after one block, again and again, each time as a job that knows nothing but the position.
            loop {
                let mut open = Open::new(&*server.source(sample), &split, ReadRequest::all(sample.schema.clone()));
                let Some(block) = open.next(STEP).unwrap() else { break };
                rows += &text::format(&Block::inserts(block.batch, 0));
                split.position = Some(open.reader.position());
            }
        }
        assert!(rows == sample.rows, "{}/{}", server.base, sample.name);
    });
}

/// How long the header before a member is shows only there, so its stream may end too early: the rest is asked for.
#[test]
fn a_header_may_be_longer_than_thought() {
    let dir = TempDir::new().unwrap();
    // A field of a thousand bytes with a number that means nothing to anybody.
    let mut extra = vec![0xFE, 0xCA];
    extra.extend(1_000u16.to_le_bytes());
    extra.resize(extra.len() + 1_000, 0);
    let text = csv(0, ROWS);
    let bytes = zip_of(&[("a.csv", text.as_bytes())], 0, &extra, |bytes| bytes.to_vec());
    let sample = Sample::new(dir.path(), "x.zip", "csv", schema(), bytes);
    for server in Server::all() {
        server.emulator.put("b", sample.name, sample.bytes.clone());
        assert!(sample.all(&*server.source(&sample)).unwrap() == sample.rows, "{}", server.base);
    }
}
