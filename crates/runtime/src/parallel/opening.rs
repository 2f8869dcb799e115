//! Opens splits. Where that may take a round trip over a network, a thread does it, and whoever polls goes on with other
//! splits meanwhile; what is opened begins to fetch at once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader, ReaderContext, Sockets, Source, Split, Waker};

use super::readers::{Readers, Seat};

type Answer = Result<Box<dyn Reader>, ConnectError>;

/// A reader, there or on its way.
pub(crate) struct Opened {
    state: State,
    /// The split's, for messages.
    id: String,
    _seat: Option<Seat>,
}

enum State {
    Coming(Receiver<Answer>),
    Here(Box<dyn Reader>),
}

/// Wakes when it is dropped: also if the thread that has it panics.
struct WakeAtEnd(Waker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Opened {
    /// Opens a split, on a thread if the readers of its table are opened ahead.
    ///
    /// # Errors
    /// As [`Source::open`]; no thread can be started.
    pub fn new(
        source: &Arc<dyn Source>,
        split: &Split,
        context: ReaderContext,
        readers: Option<&Arc<Readers>>,
    ) -> Result<Self, ConnectError> {
        let seat = readers.map(Readers::seat);
        let state = match readers {
            Some(readers) if readers.ahead() => State::Coming(start(source.clone(), split.clone(), context)?),
            _ => State::Here(source.open(split, context)?),
        };
        Ok(Opened { state, id: split.id.clone(), _seat: seat })
    }

    /// As [`Reader::poll`].
    ///
    /// # Errors
    /// As [`Reader::poll`]; opening has failed.
    pub fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if let State::Coming(answer) = &self.state {
            match answer.try_recv() {
                Ok(reader) => self.state = State::Here(reader?),
                Err(TryRecvError::Empty) => return Ok(Polled::Pending),
                Err(TryRecvError::Disconnected) => {
                    return Err(ConnectError::new(format!("the thread that opens '{}' ended without saying why", self.id)));
                }
            }
        }
        match &mut self.state {
            State::Here(reader) => reader.poll(rows_max),
            State::Coming(_) => Ok(Polled::Pending),
        }
    }

    /// As [`Reader::wait_on`].
    pub fn wait_on(&mut self, sockets: &mut Sockets) {
        if let State::Here(reader) = &mut self.state {
            reader.wait_on(sockets);
        }
    }

    /// Whether it is on its way: not yet polled since it was opened.
    pub fn coming(&self) -> bool {
        matches!(self.state, State::Coming(_))
    }

    /// As [`Reader::position`]; none before it was opened: then it stands where it stood.
    pub fn position(&self) -> Option<Value> {
        match &self.state {
            State::Here(reader) => Some(reader.position()),
            State::Coming(_) => None,
        }
    }
}

fn start(source: Arc<dyn Source>, split: Split, context: ReaderContext) -> Result<Receiver<Answer>, ConnectError> {
    let (send, answer) = sync_channel(1);
    let id = split.id.clone();
    let work = move || {
        // Variables are dropped from the last to the first: the channel ends before the call.
        let _wake = WakeAtEnd(context.waker.clone());
        let out = send;
        let opened = source.open(&split, context).and_then(|mut reader| reader.fetch().map(|()| reader));
        // Whoever wanted it may be gone.
        let _ = out.send(opened);
    };
    std::thread::Builder::new()
        .name("split-opener".into())
        .spawn(work)
        .map_err(|e| ConnectError::io(format!("starting a thread to open '{id}'"), &e))?;
    Ok(answer)
}

#[cfg(test)]
mod tests;
