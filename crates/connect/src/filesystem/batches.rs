//! Formats that give batches of rows (Parquet, Avro): decoded where they are polled, since that is compute and local
//! bytes come from the system's read-ahead; or, of files that lie behind a network, on a thread that waits for them. Whoever
//! polls gets as many rows as it asks for.

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use tidemill_block::clock;

use super::directory::Place;
use super::feed::WakeAtEnd;
use crate::{ConnectError, Waker};

/// Rows decoded at once; blocks asked for smaller are slices of such a batch.
pub(super) const BATCH_ROWS: usize = 8192;
/// Batches that wait for the reader at most, decoded; the thread has one more in hand.
const WAITING_MAX: usize = 1;

/// Decodes a file.
pub(super) trait Decode: Send {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError>;
}

/// What there is of the next rows.
pub(super) enum Answer {
    /// Rows, and when they were read.
    Rows(RecordBatch, u64),
    /// Nothing at the moment; the waker will be called.
    Nothing,
    End,
}

type Message = Result<Option<(RecordBatch, u64)>, ConnectError>;

/// The rows of one file.
pub(super) struct Batches {
    decoder: Decoder,
    /// Rows decoded and not yet handed out, with the time at which they were read.
    left: Option<(RecordBatch, u64)>,
}

/// Who decodes.
enum Decoder {
    /// Whoever asks.
    Here(Box<dyn Decode>),
    /// A thread, which ends when this goes; with the file, for messages.
    Thread(Receiver<Message>, String),
}

impl Batches {
    /// Decodes a local file where it is asked for rows, another on a thread. `path` is the file, for messages.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn of(place: &Place, path: &str, decode: Box<dyn Decode>, waker: Waker) -> Result<Self, ConnectError> {
        match place {
            Place::Local => Ok(Batches::here(decode)),
            Place::Remote(..) => Batches::thread(path, decode, waker),
        }
    }

    /// Decodes where it is asked for rows.
    pub fn here(decode: Box<dyn Decode>) -> Self {
        Batches { decoder: Decoder::Here(decode), left: None }
    }

    /// Decodes on a thread of its own. `path` is the file, for messages.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn thread(path: &str, mut decode: Box<dyn Decode>, waker: Waker) -> Result<Self, ConnectError> {
        let (send, receive) = bounded::<Message>(WAITING_MAX);
        let work = move || {
            // Variables are dropped from the last to the first: the channel ends before the last call.
            let waker = WakeAtEnd(waker);
            let out = send;
            loop {
                let message = decode.decode().map(|batch| batch.map(|batch| (batch, clock::now_ns())));
                let last = !matches!(message, Ok(Some(_)));
                if out.send(message).is_err() {
                    return;
                }
                waker.0.wake();
                if last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("file-decoder".into())
            .spawn(work)
            .map_err(|e| ConnectError::io(format!("starting a thread to read '{path}'"), &e))?;
        Ok(Batches { decoder: Decoder::Thread(receive, path.to_string()), left: None })
    }

    /// The next rows, if there are some: at most so many (at least one), and none beyond those of a batch as it was decoded,
    /// which may be empty.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn next_rows(&mut self, rows_max: usize) -> Result<Answer, ConnectError> {
        let (batch, arrival_ns) = match self.left.take() {
            Some(left) => left,
            None => match self.decoder.next()? {
                Answer::Rows(batch, arrival_ns) => (batch, arrival_ns),
                other => return Ok(other),
            },
        };
        let take = rows_max.max(1);
        if take >= batch.num_rows() {
            return Ok(Answer::Rows(batch, arrival_ns));
        }
        self.left = Some((batch.slice(take, batch.num_rows() - take), arrival_ns));
        Ok(Answer::Rows(batch.slice(0, take), arrival_ns))
    }
}

impl Decoder {
    /// The next batch, if there is one.
    fn next(&mut self) -> Result<Answer, ConnectError> {
        match self {
            Decoder::Here(decode) => Ok(decode.decode()?.map_or(Answer::End, |batch| Answer::Rows(batch, clock::now_ns()))),
            Decoder::Thread(receive, path) => match receive.try_recv() {
                Ok(Ok(Some((batch, arrival_ns)))) => Ok(Answer::Rows(batch, arrival_ns)),
                Ok(Ok(None)) => Ok(Answer::End),
                Ok(Err(e)) => Err(e),
                Err(TryRecvError::Empty) => Ok(Answer::Nothing),
                Err(TryRecvError::Disconnected) => {
                    Err(ConnectError::new(format!("the thread that reads '{path}' ended without saying why")))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
