//! Formats that give batches of rows (Parquet, Avro): decoded where they are polled, since that is compute and local
//! bytes come from the system's read-ahead; or, of files that lie behind a network, on a thread that waits for them.

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use tidemill_block::clock;

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

/// What there is of the next batch.
pub(super) enum Answer {
    /// A batch, and when it was read.
    Batch(RecordBatch, u64),
    /// Nothing at the moment; the waker will be called.
    Nothing,
    End,
}

type Message = Result<Option<(RecordBatch, u64)>, ConnectError>;

/// The batches of one file.
pub(super) enum Batches {
    /// Decoded by whoever asks.
    Here(Box<dyn Decode>),
    /// Decoded by a thread, which ends when this goes.
    Thread(Receiver<Message>, String),
}

impl Batches {
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
        Ok(Batches::Thread(receive, path.to_string()))
    }

    /// The next batch, if there is one.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn next(&mut self) -> Result<Answer, ConnectError> {
        match self {
            Batches::Here(decode) => Ok(decode.decode()?.map_or(Answer::End, |batch| Answer::Batch(batch, clock::now_ns()))),
            Batches::Thread(receive, path) => match receive.try_recv() {
                Ok(Ok(Some((batch, arrival_ns)))) => Ok(Answer::Batch(batch, arrival_ns)),
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
