//! What operators see of a process: a [`Conversation`] with bounds and a time limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, RecordBatch};
use tidemill_operator::process::{Conversation, Handshake};
use tidemill_operator::{OperatorError, Wake};

use super::child::{Child, ChildSpec};

/// Bytes of messages that may be under way to a process.
const ASKED_BYTES_MAX: usize = 8 << 20;

/// What a conversation is made of.
#[derive(Clone)]
pub(crate) struct TalkSpec {
    /// The process.
    pub child: ChildSpec,
    /// How long it may take to start, to answer, and to end.
    pub timeout: Duration,
}

/// A conversation with a process that is started when it is needed.
pub(crate) struct Talk {
    spec: TalkSpec,
    wake: Wake,
    child: Option<Child>,
    handshake: Option<Handshake>,
    /// Bytes of each message that is not answered.
    asked: VecDeque<usize>,
    bytes: usize,
    /// Since when what is waited for now has been waited for.
    since: Instant,
    finishing: bool,
}

impl Talk {
    /// A conversation; nothing is started yet.
    pub fn new(spec: TalkSpec) -> Self {
        Talk {
            spec,
            wake: Arc::new(|| {}),
            child: None,
            handshake: None,
            asked: VecDeque::new(),
            bytes: 0,
            since: Instant::now(),
            finishing: false,
        }
    }

    fn child(&mut self) -> Result<&mut Child, OperatorError> {
        self.child.as_mut().ok_or_else(|| OperatorError::new("internal error: a process that was not started is asked"))
    }

    /// Fails if what is waited for has been waited for too long.
    fn check_time(&mut self, what: &str) -> Result<(), OperatorError> {
        if self.since.elapsed() < self.spec.timeout {
            return Ok(());
        }
        let what = format!("{what} within {:?}; it hangs, or the option 'timeout' is too short for it", self.spec.timeout);
        let told = self.child()?.told(&what);
        Err(OperatorError::new(told))
    }
}

/// Bytes of the values of a batch; a slice counts for what it holds.
fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

impl Conversation for Talk {
    fn attach(&mut self, wake: Wake) {
        self.wake = wake;
    }

    fn start(&mut self) -> Result<(), OperatorError> {
        if self.child.is_none() {
            self.child = Some(Child::start(self.spec.child.clone(), self.wake.clone()).map_err(OperatorError::new)?);
            self.since = Instant::now();
        }
        Ok(())
    }

    fn handshake(&mut self, wait: bool) -> Result<Option<Handshake>, OperatorError> {
        if self.handshake.is_none() {
            let until = wait.then(|| self.since + self.spec.timeout);
            self.handshake = self.child()?.handshake(until).map_err(OperatorError::new)?;
            match self.handshake {
                Some(_) => self.since = Instant::now(),
                None => self.check_time("its process has not written the schema of its answers")?,
            }
        }
        Ok(self.handshake)
    }

    fn full(&self) -> bool {
        self.asked.len() >= self.spec.child.in_flight || self.bytes >= ASKED_BYTES_MAX
    }

    fn ask(&mut self, message: RecordBatch) -> Result<(), OperatorError> {
        if self.asked.is_empty() && self.handshake.is_some() {
            self.since = Instant::now();
        }
        let bytes = batch_bytes(&message);
        self.child()?.send(message).map_err(OperatorError::new)?;
        self.asked.push_back(bytes);
        self.bytes += bytes;
        Ok(())
    }

    fn answer(&mut self, wait: bool) -> Result<Option<RecordBatch>, OperatorError> {
        if self.handshake(wait)?.is_none() {
            return Ok(None);
        }
        let until = wait.then(|| self.since + self.spec.timeout);
        if self.asked.is_empty() {
            return Ok(None);
        }
        match self.child()?.answer(until).map_err(OperatorError::new)? {
            Some(answer) => {
                self.bytes -= self.asked.pop_front().unwrap_or(0);
                self.since = Instant::now();
                Ok(Some(answer))
            }
            None => {
                self.check_time("its process has not answered")?;
                Ok(None)
            }
        }
    }

    fn finish(&mut self) -> Result<bool, OperatorError> {
        if self.child.is_none() {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.finishing, true) {
            self.since = Instant::now();
        }
        if self.child()?.finish().map_err(OperatorError::new)? {
            return Ok(true);
        }
        self.check_time("its input has ended, but its process has not")?;
        Ok(false)
    }

    fn memory(&self) -> usize {
        self.bytes + self.child.as_ref().map_or(0, Child::bytes)
    }
}
