//! Calls of Rust functions by threads that may wait: for [`ProcessFunction::calls`] of an embedding program.
//!
//! [`ProcessFunction::calls`]: tidemill_operator::process::ProcessFunction::calls

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use arrow::array::RecordBatch;
use tidemill_operator::call::{Answered, Calls, Failure, Found};
use tidemill_operator::{OperatorError, Wake};

/// Makes calls by a function that waits for its answer, several at once.
pub struct ThreadCalls {
    desk: Arc<Desk>,
}

struct Desk {
    papers: Mutex<Papers>,
    more: Condvar,
}

#[derive(Default)]
struct Papers {
    /// The operator bounds them.
    waiting: VecDeque<(u64, RecordBatch)>,
    cancelled: HashSet<u64>,
    answered: Vec<Answered>,
    closed: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadCalls {
    /// `threads` threads that call `function` with the rows of a call.
    ///
    /// # Errors
    /// They cannot be started.
    pub fn start(
        threads: usize,
        wake: Wake,
        function: impl Fn(&RecordBatch) -> Result<Found, Failure> + Send + Sync + 'static,
    ) -> Result<Self, OperatorError> {
        let desk = Arc::new(Desk { papers: Mutex::default(), more: Condvar::new() });
        let calls = ThreadCalls { desk: desk.clone() };
        let function = Arc::new(function);
        for number in 0..threads.max(1) {
            let (desk, wake, function) = (desk.clone(), wake.clone(), function.clone());
            let work = move || serve(&desk, &wake, function.as_ref());
            thread::Builder::new()
                .name(format!("call-{number}"))
                .spawn(work)
                .map_err(|e| OperatorError::new(format!("starting a thread for calls: {e}")))?;
        }
        Ok(calls)
    }
}

fn serve(desk: &Desk, wake: &Wake, function: &dyn Fn(&RecordBatch) -> Result<Found, Failure>) {
    loop {
        let mut papers = desk.lock();
        let (call, rows) = loop {
            if papers.closed {
                return;
            }
            if let Some(next) = papers.waiting.pop_front() {
                break next;
            }
            papers = desk.more.wait(papers).unwrap_or_else(PoisonError::into_inner);
        };
        drop(papers);
        let asked = std::panic::AssertUnwindSafe(|| function(&rows));
        let result = std::panic::catch_unwind(asked)
            .unwrap_or_else(|_| Err(Failure { reason: "the function that makes calls panicked".into(), retry: false, after: None }));
        let mut papers = desk.lock();
        if !papers.cancelled.remove(&call) {
            papers.answered.push(Answered { call, result });
        }
        drop(papers);
        wake();
    }
}

impl Calls for ThreadCalls {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), OperatorError> {
        self.desk.lock().waiting.push_back((call, keys.clone()));
        self.desk.more.notify_one();
        Ok(())
    }

    fn cancel(&mut self, call: u64) {
        let mut papers = self.desk.lock();
        let known = papers.waiting.len() + papers.answered.len();
        papers.waiting.retain(|(c, _)| *c != call);
        papers.answered.retain(|a| a.call != call);
        // Neither waiting nor answered: a thread has it.
        if papers.waiting.len() + papers.answered.len() == known {
            papers.cancelled.insert(call);
        }
    }

    fn finished(&mut self, into: &mut Vec<Answered>) {
        into.append(&mut self.desk.lock().answered);
    }
}

impl Drop for ThreadCalls {
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.more.notify_all();
    }
}
