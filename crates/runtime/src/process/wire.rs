//! Messages on the pipes: Arrow IPC streams, checked before anything is made of them.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_format::ipc::{BatchDecoder, Framed, frame};
use tidemill_operator::process::conversation::STATE;
use tidemill_operator::process::{Handshake, StateKind};
use tidemill_sql::types::flink_type;

/// The version of the protocol, in the metadata of both schemas.
pub const PROTOCOL: (&str, &str) = ("tidemill.protocol", "1");
/// The longest body of a message, bytes: what no block of rows comes near.
const BODY_BYTES_MAX: usize = 1 << 30;
/// How much of what was not to be there is shown.
const SHOWN_MAX: usize = 60;

/// What the messages to the process are about, for the metadata of their schema.
pub fn ask_schema(columns: &Schema, function: &str, table: bool, keys: &[String], time: Option<&str>) -> SchemaRef {
    let mut metadata = HashMap::from([
        (PROTOCOL.0.to_string(), PROTOCOL.1.to_string()),
        ("tidemill.function".to_string(), function.to_string()),
        ("tidemill.kind".to_string(), if table { "table" } else { "value" }.to_string()),
    ]);
    if table {
        metadata.insert("tidemill.keys".to_string(), serde_json::to_string(keys).unwrap_or_default());
    }
    if let Some(time) = time {
        metadata.insert("tidemill.time".to_string(), time.to_string());
    }
    let fields: Vec<Field> = columns.fields().iter().map(|f| Field::new(f.name(), f.data_type().clone(), true)).collect();
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

/// Reads the answers of a process.
pub struct AnswerReader<R> {
    from: R,
    decoder: Option<BatchDecoder>,
    expected: SchemaRef,
    /// Columns are told apart by name: a function of tables.
    named: bool,
}

impl<R: Read> AnswerReader<R> {
    /// Answers of the columns `expected`.
    pub fn new(from: R, expected: SchemaRef, named: bool) -> Self {
        AnswerReader { from, decoder: None, expected, named }
    }

    /// Reads the schema and what it says of the process; `None` if the output ended before it.
    ///
    /// # Errors
    /// What came is something else, or not what was declared; one sentence.
    pub fn handshake(&mut self) -> Result<Option<Handshake>, String> {
        let Some((header, _)) = self.message()? else { return Ok(None) };
        let decoder = BatchDecoder::new(&header).map_err(|e| e.to_string())?;
        let schema = decoder.schema().clone();
        let says = |key: &str| schema.metadata().get(key).map(String::as_str);
        match says(PROTOCOL.0) {
            Some(version) if version == PROTOCOL.1 => {}
            Some(other) => return Err(format!("it speaks version {other} of the protocol, and this program version {}", PROTOCOL.1)),
            None => {
                return Err(format!(
                    "the schema of its answers lacks the metadata '{}' = '{}' (in pyarrow: schema.with_metadata({{'{0}': '{1}'}}))",
                    PROTOCOL.0, PROTOCOL.1
                ));
            }
        }
        let state = match says("tidemill.state") {
            None | Some("none") => StateKind::None,
            Some("keyed") => StateKind::Keyed,
            Some("opaque") => StateKind::Opaque,
            Some(other) => return Err(format!("its metadata say 'tidemill.state' = '{other}'; there are none, keyed and opaque")),
        };
        let watermarks = match says("tidemill.watermarks") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(format!("its metadata say 'tidemill.watermarks' = '{other}'; there are true and false")),
        };
        let handshake = Handshake { watermarks, state };
        if !self.named && handshake != Handshake::default() {
            return Err("a function of values has neither state nor watermarks; one of tables has: RETURNS TABLE (…)".into());
        }
        self.check(&schema, state)?;
        self.decoder = Some(decoder);
        Ok(Some(handshake))
    }

    /// Whether the answers have the columns that were declared.
    fn check(&self, schema: &Schema, state: StateKind) -> Result<(), String> {
        let mut expected: Vec<(String, DataType)> =
            self.expected.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
        if state != StateKind::None {
            expected.push((STATE.to_string(), DataType::Binary));
        }
        let shown =
            |columns: &[(String, DataType)]| columns.iter().map(|(n, t)| format!("{n} {}", flink_type(t))).collect::<Vec<_>>().join(", ");
        let given: Vec<(String, DataType)> = schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
        let same = |(a, b): (&(String, DataType), &(String, DataType))| a.1 == b.1 && (a.0 == b.0 || !self.named);
        if given.len() == expected.len() && given.iter().zip(&expected).all(same) {
            return Ok(());
        }
        // Types that look alike in SQL are told by their names in Arrow.
        let alike = shown(&given) == shown(&expected);
        let (given, expected) = if alike { (format!("{given:?}"), format!("{expected:?}")) } else { (shown(&given), shown(&expected)) };
        Err(format!("its answers have the columns ({given}), and those declared are ({expected})"))
    }

    /// The next answer and its size in bytes; `None` at the end of the stream.
    ///
    /// # Errors
    /// What came is no message, or ends within one; one sentence.
    pub fn next(&mut self) -> Result<Option<(RecordBatch, usize)>, String> {
        loop {
            let Some((header, body)) = self.message()? else { return Ok(None) };
            let decoder = self.decoder.as_mut().expect("the handshake came first");
            if let Some(batch) = decoder.decode(&header, &body).map_err(|e| e.to_string())? {
                return Ok(Some((batch, body.len().max(decoder.unpacked() as usize))));
            }
        }
    }

    /// Header and body of the next message.
    fn message(&mut self) -> Result<Option<(Vec<u8>, Buffer)>, String> {
        let mut bytes = vec![0; 8];
        match self.fill(&mut bytes, 0)? {
            0 => return Ok(None),
            8 => {}
            some => return Err(rubbish(&bytes[..some])),
        }
        if bytes[..4] != [0xff; 4] {
            return Err(rubbish(&bytes));
        }
        let frame = loop {
            match frame(&bytes).map_err(|e| e.to_string())? {
                Framed::End(_) => return Ok(None),
                Framed::Message(frame) => break frame,
                Framed::Part(length) => {
                    let there = bytes.len();
                    bytes.resize(length, 0);
                    if self.fill(&mut bytes, there)? < length {
                        return Err("its output ends within a message".into());
                    }
                }
            }
        };
        if frame.body > BODY_BYTES_MAX {
            return Err(format!("it wrote a message of {} bytes; the most is {BODY_BYTES_MAX}", frame.body));
        }
        let mut body = MutableBuffer::from_len_zeroed(frame.body);
        if self.fill(body.as_slice_mut(), 0)? < frame.body {
            return Err("its output ends within a message".into());
        }
        Ok(Some((bytes.split_off(frame.before), body.into())))
    }

    /// Fills `into` from `at` on; how much is filled when nothing more comes.
    fn fill(&mut self, into: &mut [u8], mut at: usize) -> Result<usize, String> {
        while at < into.len() {
            match self.from.read(&mut into[at..]) {
                Ok(0) => break,
                Ok(read) => at += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("its output cannot be read: {e}")),
            }
        }
        Ok(at)
    }
}

/// The error for bytes that begin no message.
fn rubbish(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(SHOWN_MAX).collect();
    format!("it wrote {text:?} to its standard output, which is for Arrow IPC alone; what people shall read belongs on standard error")
}
