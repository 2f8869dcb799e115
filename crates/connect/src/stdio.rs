//! The connectors `stdin` and `stdout`: rows as text through the pipes of the process.

use std::io::{self, Read, Write};
use std::thread;

use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, clock};
use tidemill_format::Encoder;
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;

use crate::registry::Connector;
use crate::socket::intake::{self, Event, Intake};
use crate::{Changelog, Committable, ConnectError, Reader, ReaderContext, Sink, SinkContext, Source, Split, Writer, WriterStats};

/// The source.
pub static STDIN: Connector = Connector {
    name: "stdin",
    help: "Reads rows from standard input until its end. What was read cannot be read again, so a job that goes on from a checkpoint sees only what follows.",
    specs: Vec::new,
    takes_format: true,
    source: Some(source),
    sink: None,
    lookup: None,
};

/// The sink.
pub static STDOUT: Connector = Connector {
    name: "stdout",
    help: "Writes rows to standard output in a text format.",
    specs: Vec::new,
    takes_format: true,
    source: None,
    sink: Some(sink),
    lookup: None,
};

/// A buffer is handed on when it holds this many bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// The text format that the option `format` names, which must be there.
///
/// # Errors
/// It is not there, is no text format, or an option of it is wrong.
pub fn text_format(raw: &mut RawOptions) -> Result<TextFormat, ConnectError> {
    let name = raw.take::<String>("format")?;
    let name = name.ok_or_else(|| ConnectError::new(format!("{}: option 'format' is required; it can be csv or json", raw.owner())))?;
    Ok(TextFormat::take(&name, raw)?)
}

/// As [`text_format`], for connectors whose rows are all inserts and whose text is UTF-8, with csv or json in it.
///
/// # Errors
/// As there, and a format of changes, fixed-width text, another encoding.
pub fn required_format(raw: &mut RawOptions) -> Result<TextFormat, ConnectError> {
    let format = text_format(raw)?;
    if let TextFormat::Changes(changes) = &format {
        return Err(ConnectError::new(format!(
            "{}: 'format' = '{}' is of changes, which this connector does not carry; the connectors filesystem, socket, stdin and stdout do",
            raw.owner(),
            changes.name()
        )));
    }
    let only = |what: &str| {
        let others = "the connectors filesystem, socket, stdin and stdout do";
        Err(ConnectError::new(format!("{}: {what}, which this connector does not carry; {others}", raw.owner())))
    };
    match format.encoding() {
        _ if matches!(format, TextFormat::Fixed(_)) => only("'format' = 'fixed' is fixed-width text"),
        (encoding, option) if !encoding.is_utf8() => only(&format!("'{option}' = '{}' is not UTF-8", encoding.name())),
        _ => Ok(format),
    }
}

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let format = text_format(raw)?;
    // So that a column that cannot be read is found now.
    format.decoder(schema, &[]).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    Ok(Box::new(Stdin { format }))
}

fn sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let format = text_format(raw)?;
    format.encoder(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    Ok(Box::new(StdoutSink { format }))
}

struct Stdin {
    format: TextFormat,
}

impl Source for Stdin {
    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new("stdin")])
    }

    fn changelog(&self) -> Changelog {
        if self.format.changelog() { Changelog::All } else { Changelog::Append }
    }

    fn open(&self, _split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(read_all(io::stdin(), "stdin", &self.format, context)?))
    }
}

/// A reader of everything that `input` gives, by a thread of its own since reading may wait.
///
/// Nothing can wake a thread that reads a pipe: it outlives its reader until the next bytes come.
fn read_all(
    mut input: impl Read + Send + 'static,
    name: &'static str,
    format: &TextFormat,
    context: ReaderContext,
) -> Result<Intake, ConnectError> {
    let waker = context.waker.clone();
    let (sender, reader) = Intake::new(format.clone(), context);
    let pump = move || {
        let send = |event| {
            let sent = sender.send(event).is_ok();
            waker.wake();
            sent
        };
        if !send(Event::Opened { peer: 0, place: name.to_string() }) {
            return;
        }
        let mut buffer = vec![0; intake::CHUNK_BYTES];
        let end = loop {
            match input.read(&mut buffer) {
                Ok(0) => break Event::Ended,
                Ok(n) => {
                    if !send(Event::Bytes { peer: 0, bytes: buffer[..n].to_vec(), arrival_ns: clock::now_ns() }) {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Event::Failed(ConnectError::io(format_args!("reading {name}"), &e)),
            }
        };
        // At the end of a pipe the last record may lack its line end, as in files.
        let _ = send(Event::Closed { peer: 0, unfinished: None }) && send(end);
    };
    thread::Builder::new()
        .name(name.into())
        .spawn(pump)
        .map_err(|e| ConnectError::io(format_args!("starting the thread that reads {name}"), &e))?;
    Ok(reader)
}

struct StdoutSink {
    format: TextFormat,
}

impl Sink for StdoutSink {
    fn accepts_updates(&self) -> bool {
        self.format.changelog()
    }

    fn parallelism(&self) -> Option<usize> {
        Some(1)
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let mut encoder = self.format.encoder(&context.schema)?;
        let mut output = Output::stdout();
        encoder.begin(output.buffer());
        Ok(Box::new(TextWriter { encoder, output }))
    }
}

struct TextWriter {
    encoder: Box<dyn Encoder>,
    output: Output,
}

impl Writer for TextWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.encoder.encode(block, self.output.buffer())?;
        self.output.written()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.output.flush()
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.output.flush()?;
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        self.output.stats()
    }
}

/// A buffer in front of standard output or standard error. Whole lines go out in one call, so that
/// parallel writers don't tear each other's lines.
pub(crate) struct Output {
    target: Box<dyn Write + Send>,
    name: &'static str,
    buffer: Vec<u8>,
    /// Bytes handed on.
    bytes: u64,
}

impl Output {
    /// To standard output.
    pub(crate) fn stdout() -> Self {
        Output::new(io::stdout(), "standard output")
    }

    /// To standard error.
    pub(crate) fn stderr() -> Self {
        Output::new(io::stderr(), "standard error")
    }

    /// To `target`, called `name` in messages.
    pub(crate) fn new(target: impl Write + Send + 'static, name: &'static str) -> Self {
        Output { target: Box::new(target), name, buffer: Vec::with_capacity(BUFFER_BYTES), bytes: 0 }
    }

    /// Where to append.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Says that a block stands in the buffer; hands it on if there is enough.
    pub(crate) fn written(&mut self) -> Result<(), ConnectError> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Hands on what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), ConnectError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.target.write_all(&self.buffer).and_then(|()| self.target.flush());
        match written {
            Ok(()) => {
                self.bytes += self.buffer.len() as u64;
                self.buffer.clear();
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(ConnectError::new(format!(
                "writing to {}: its reader is gone (broken pipe) after {} bytes; let it read to the end, or limit the rows in the query",
                self.name, self.bytes
            ))),
            Err(e) => Err(ConnectError::io(format_args!("writing to {}", self.name), &e)),
        }
    }

    /// Bytes handed on and waiting.
    pub(crate) fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.buffer.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Polled, ReadRequest, Waker};
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::Duration;
    use tidemill_block::text;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
    }

    fn csv() -> TextFormat {
        TextFormat::take("csv", &mut RawOptions::new("table 't'", [])).unwrap()
    }

    /// Gives its bytes a few at a time.
    struct Trickle(&'static [u8], usize);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[track_caller]
    fn check_read(input: &'static [u8], step: usize, rows_max: usize, expect: &str, bad: &[&str]) {
        let (sender, receiver) = mpsc::channel();
        let waker = Waker::new(move || {
            let _ = sender.send(());
        });
        let context = ReaderContext { waker, request: ReadRequest::all(schema()), shard: 0, shards: 1 };
        let mut reader = read_all(Trickle(input, step), "stdin", &csv(), context).unwrap();
        let (mut lines, mut places, mut bytes) = (String::new(), Vec::new(), 0);
        loop {
            match reader.poll(rows_max).unwrap() {
                Polled::Rows(rows) => {
                    assert!(rows.batch.num_rows() <= rows_max);
                    places.extend(rows.places);
                    bytes += rows.bytes;
                    lines += &text::format(&Block::inserts(rows.batch, 0));
                }
                Polled::Pending => receiver.recv_timeout(Duration::from_secs(10)).unwrap(),
                Polled::End => break,
            }
        }
        assert_eq!((lines.as_str(), bytes), (expect, input.len() as u64));
        assert_eq!(places, bad);
    }

    #[test]
    fn standard_input_is_read_to_its_end() {
        for step in [1, 3, 1000] {
            for rows_max in [1, 100] {
                check_read(b"a,1\nb,2\nc,3\n", step, rows_max, "+I a 1\n+I b 2\n+I c 3\n", &[]);
                check_read(b"a,1\nb,2", step, rows_max, "+I a 1\n+I b 2\n", &[]);
                check_read(b"a,1\nb,x\nc,3\n", step, rows_max, "+I a 1\n+I c 3\n", &["stdin record 2"]);
                check_read(b"", step, rows_max, "", &[]);
            }
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rows_go_out_when_flushed_or_many() {
        let shared = Shared::default();
        let mut writer = TextWriter { encoder: csv().encoder(&schema()).unwrap(), output: Output::new(shared.clone(), "standard output") };
        let written = || String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        writer.write(&text::parse(&schema(), "a 1\nb NULL")).unwrap();
        assert_eq!((written().as_str(), writer.stats().bytes), ("", 7));
        writer.flush().unwrap();
        assert_eq!(written(), "a,1\nb,\n");
        while writer.stats().bytes <= BUFFER_BYTES as u64 + 7 {
            writer.write(&text::parse(&schema(), "abc 12345")).unwrap();
        }
        assert!(written().len() > BUFFER_BYTES);
        writer.prepare(true).unwrap();
        assert_eq!(written().len() as u64, writer.stats().bytes);
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_broken_pipe_is_told() {
        let mut output = Output::new(Broken, "standard output");
        output.flush().unwrap();
        output.buffer().extend_from_slice(b"a\n");
        let error = output.flush().unwrap_err().to_string();
        assert!(error.starts_with("writing to standard output: its reader is gone (broken pipe) after 0 bytes;"), "{error}");
    }

    #[test]
    fn a_format_is_required() {
        let error = STDIN.source(&schema(), &mut RawOptions::new("table 't'", [])).err().unwrap().to_string();
        assert_eq!(error, "table 't': option 'format' is required; it can be csv or json");
    }
}
