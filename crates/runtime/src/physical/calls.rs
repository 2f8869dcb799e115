//! Calls of operators made by the lookups of connectors: neither knows of the other.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_connect::{Answer, Lookup, LookupContext, LookupTable, Waker};
use tidemill_operator::OperatorError;
use tidemill_operator::call::{Answered, Calls, Failure, Found};
use tidemill_operator::lookup::OpenCalls;

/// Calls that ask a table by the columns `keys` for its columns `columns`.
pub(super) fn calls_of(table: Arc<dyn LookupTable>, keys: SchemaRef, columns: SchemaRef) -> OpenCalls {
    Arc::new(move |wake, shard, shards| {
        let context = LookupContext { keys: keys.clone(), columns: columns.clone(), wake: Waker::new(move || wake()), shard, shards };
        let lookup = table.open(context).map_err(|e| OperatorError::new(e.to_string()))?;
        Ok(Box::new(LookupCalls { lookup, answers: Vec::new() }) as Box<dyn Calls>)
    })
}

struct LookupCalls {
    lookup: Box<dyn Lookup>,
    /// Kept for its memory.
    answers: Vec<Answer>,
}

impl Calls for LookupCalls {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), OperatorError> {
        self.lookup.start(call, keys).map_err(|e| OperatorError::new(e.to_string()))
    }

    fn flush(&mut self) {
        self.lookup.flush();
    }

    fn cancel(&mut self, call: u64) {
        self.lookup.cancel(call);
    }

    fn prepares(&self) -> bool {
        self.lookup.prepares()
    }

    fn finished(&mut self, into: &mut Vec<Answered>) {
        self.lookup.finished(&mut self.answers);
        into.extend(self.answers.drain(..).map(|answer| Answered {
            call: answer.call,
            result: match answer.result {
                Ok(found) => Ok(Found { rows: found.rows, origins: found.origins }),
                Err(why) => Err(Failure { reason: why.reason, retry: why.retry, after: why.after }),
            },
        }));
    }
}
