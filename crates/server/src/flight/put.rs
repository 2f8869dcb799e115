//! Publishers over Flight: a task a call, which decodes what comes, hands it to the stream and answers
//! with acknowledgements. While the stream's queue is full, or there is no room for another message, it reads nothing, and
//! HTTP/2 makes the publisher wait.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use arrow_flight::PutResult;
use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_hub::{Incoming, ROW_KIND, Refusal, Stream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

use super::messages::Messages;
use super::parser::Message;
use crate::auth::Access;
use crate::error::ApiError;
use crate::state::{AppState, Counts};
use crate::streams::{BatchDecoder, Inlet, Watch};

/// Answers that wait for a publisher which does not read them; a later acknowledgement takes the place of
/// those that do not fit.
const ANSWERS_MAX: usize = 4;

/// Messages that are taken in a row before anything else is looked at.
const MESSAGES_AT_ONCE: usize = 64;

/// How long the last answer may wait for a publisher that does not read.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What may stand in the metadata of a message with rows.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Note {
    /// The number of the first row.
    offset: Option<u64>,
    /// Where the publisher stands after the rows.
    position: Option<Value>,
    /// The publisher waits for the rows to be safe.
    urge: bool,
}

impl Note {
    fn of(metadata: &[u8]) -> Result<Note, ApiError> {
        if metadata.is_empty() {
            return Ok(Note::default());
        }
        serde_json::from_slice(metadata).map_err(|e| {
            ApiError::bad_request(format!(
                r#"the metadata of a message is not like {{"offset": 0, "position": …, "urge": true}} (all of them optional): {e}"#
            ))
            .because(Refusal::Malformed)
        })
    }
}

/// What may stand beside the schema.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Opening {
    /// The publisher leaves out columns that the job does not read, and wants to know if it does.
    projected: bool,
}

/// A call that publishes.
pub(super) struct Put {
    messages: Messages,
    decoder: BatchDecoder,
    inlet: Inlet,
    answers: mpsc::Sender<Result<PutResult, Status>>,
    watch: Watch,
    /// The acknowledgement that the publisher was told last.
    told: u64,
    stream: Arc<Stream>,
}

/// What comes back to the publisher.
pub(super) type Answers = mpsc::Receiver<Result<PutResult, Status>>;

impl Put {
    /// Begins with the first message, which holds the schema. Gives the task to run, and its answers.
    ///
    /// # Errors
    /// A schema that does not fit; nobody reads the stream.
    pub fn begin(
        first: &Message,
        messages: Messages,
        stream: &Arc<Stream>,
        id: &str,
        access: Access,
        state: &AppState,
    ) -> Result<(Put, Answers), ApiError> {
        let target = stream.inlet_schema().ok_or_else(|| state.no_reader(stream.name()))?;
        // Before the publisher is opened: that ends an earlier one of its name.
        let decoder = BatchDecoder::new(&first.header, target, state.limits.block_bytes)?;
        let inlet = Inlet::open(state, stream, id)?;
        if inlet.schema() != *decoder.target() {
            return Err(ApiError::unavailable(format!("the job that reads stream '{}' was just replaced", stream.name()))
                .with_help("connect again"));
        }
        // Libraries may put there what they like.
        let opening: Opening = serde_json::from_slice(&first.metadata).unwrap_or_default();
        if opening.projected
            && let Some(column) = lacking(stream, decoder.sent(), decoder.target())
        {
            return Err(ApiError::unavailable(format!(
                "the job that reads stream '{}' uses its column '{column}', which the publisher leaves out",
                stream.name()
            ))
            .with_help("ask again which columns it reads (GetFlightInfo)"));
        }
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        let told = inlet.acknowledged()?;
        let mark = inlet.mark();
        let welcome = answer(&json!({"offset": mark.offset, "acknowledged": told, "position": mark.position}));
        answers.try_send(Ok(welcome)).expect("there is room for the first");
        Ok((Put { messages, decoder, inlet, answers, watch: Watch::new(access), told, stream: stream.clone() }, receiver))
    }

    /// Publishes until the publisher ends, is gone or errs; the error that it is told is counted.
    pub async fn run(mut self, counts: Arc<Counts>) {
        let last = match self.publish().await {
            Ok(Some(acknowledged)) => Ok(answer(&json!({"acknowledged": acknowledged}))),
            // Nobody is there to be told.
            Ok(None) => return,
            Err(error) => {
                counts.refuse(error.status());
                error.count_in(&self.stream);
                Err(error.into())
            }
        };
        let _ = timeout(LAST_ANSWER_TIMEOUT, self.answers.send(last)).await;
    }

    /// Gives the last acknowledgement, or `None` if the publisher has gone.
    async fn publish(&mut self) -> Result<Option<u64>, ApiError> {
        loop {
            // What has come is taken without a look at anything else.
            for _ in 0..MESSAGES_AT_ONCE {
                let Some(message) = self.messages.message().now_or_never() else { break };
                match message {
                    Ok(Some(message)) => {
                        if !self.accept(message).await? {
                            return Ok(None);
                        }
                    }
                    Ok(None) => return self.finish().await,
                    Err(status) => return Err(broken(&status)),
                }
            }
            let owed = self.tell()?;
            let message = tokio::select! {
                message = self.messages.message() => message,
                () = self.inlet.woken() => continue,
                _ = self.answers.reserve(), if owed => continue,
                error = self.watch.expired() => return Err(error),
                () = self.answers.closed() => return Ok(None),
            };
            match message {
                Ok(Some(message)) => {
                    if !self.accept(message).await? {
                        return Ok(None);
                    }
                }
                Ok(None) => return self.finish().await,
                Err(status) => return Err(broken(&status)),
            }
        }
    }

    /// Takes a message, and waits until there is room in the queue beside it, until when its bytes count; false if the publisher
    /// has gone.
    async fn accept(&mut self, message: Message) -> Result<bool, ApiError> {
        self.take(message)?;
        while !self.inlet.has_room()? {
            if !self.pause().await? {
                return Ok(false);
            }
        }
        self.messages.settle();
        Ok(true)
    }

    /// Waits until something may have changed on the stream's side; false if the publisher has gone.
    async fn pause(&mut self) -> Result<bool, ApiError> {
        let owed = self.tell()?;
        tokio::select! {
            () = self.inlet.woken() => Ok(true),
            room = self.answers.reserve(), if owed => Ok(room.is_ok()),
            error = self.watch.expired() => Err(error),
            () = self.answers.closed() => Ok(false),
        }
    }

    /// Takes one message.
    fn take(&mut self, message: Message) -> Result<(), ApiError> {
        let arrival_ns = message.arrival_ns;
        let note = Note::of(&message.metadata)?;
        let bytes = (message.header.len() + message.body.len()) as u64;
        // A message may hold metadata alone.
        let batch = match message.header.is_empty() {
            true => None,
            false => self.decoder.decode(&message.header, message.body)?,
        };
        if let Some(batch) = batch {
            let bytes = bytes.max(self.decoder.unpacked());
            self.inlet.send_ahead(Incoming { batch, offset: note.offset, position: note.position, bytes, arrival_ns })?;
        }
        if note.urge {
            self.inlet.urge();
        }
        Ok(())
    }

    /// The publisher has sent everything: waits until it is safe.
    async fn finish(&mut self) -> Result<Option<u64>, ApiError> {
        self.inlet.urge();
        loop {
            let acknowledged = self.inlet.acknowledged()?;
            if acknowledged >= self.inlet.end() {
                return Ok(Some(acknowledged));
            }
            if !self.pause().await? {
                return Ok(None);
            }
        }
    }

    /// Tells the publisher of a new acknowledgement. Whether there was no room for the answer: then it is
    /// owed, and a later one says more.
    fn tell(&mut self) -> Result<bool, ApiError> {
        let acknowledged = self.inlet.acknowledged()?;
        if acknowledged > self.told && self.answers.try_send(Ok(answer(&json!({"acknowledged": acknowledged})))).is_ok() {
            self.told = acknowledged;
        }
        Ok(acknowledged > self.told)
    }
}

/// A column that the job reads and the publisher does not send.
fn lacking(stream: &Stream, sent: &Schema, all: &Schema) -> Option<String> {
    let lacks = |name: &&String| sent.field_with_name(name).is_err();
    match stream.inlet_wanted() {
        Some(wanted) => wanted.iter().find(lacks).cloned(),
        // Without a word of what they do rows are new ones.
        None => all.fields().iter().map(|f| f.name()).filter(|name| *name != ROW_KIND).find(lacks).cloned(),
    }
}

fn answer(text: &Value) -> PutResult {
    PutResult { app_metadata: text.to_string().into() }
}

/// What gRPC could not read: mostly a message beyond the limit.
fn broken(status: &Status) -> ApiError {
    match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
            ApiError::too_large(status.message()).with_help("send smaller record batches")
        }
        // It fell silent.
        tonic::Code::Unavailable => ApiError::unavailable(status.message()).with_help("connect again"),
        // Bytes that are no message of the protocol; anything else is a call that broke.
        tonic::Code::Internal | tonic::Code::InvalidArgument => ApiError::bad_request(status.message()).because(Refusal::Malformed),
        _ => ApiError::bad_request(status.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes() {
        let note = Note::of(br#"{"offset":5,"position":{"at":1},"urge":true}"#).unwrap();
        assert_eq!((note.offset, note.position, note.urge), (Some(5), Some(json!({"at": 1})), true));
        assert!(!Note::of(b"").unwrap().urge);
        for wrong in [&b"{"[..], br#"{"ofset":1}"#, br#"{"offset":-1}"#] {
            assert!(Note::of(wrong).is_err());
        }
    }
}
