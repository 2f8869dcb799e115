//! How a worker sleeps: until somebody raises its signal, until an operator has something to do, or until there
//! is something to read in a socket that a reader has it wait for. So the bytes of a connection can wake the
//! worker itself, and not a thread that then wakes the worker.

use super::{Body, Instance, Worker};

impl Worker {
    /// Sleeps. `reads` says whether sources are polled afterwards; if not, their sockets are left alone, since
    /// what lies in them would not let the worker sleep.
    pub(super) fn sleep(&mut self, reads: bool) {
        let nap = self.nap();
        self.sockets.clear();
        if reads {
            for at in 0..self.sources.len() {
                let index = self.sources[at];
                if !self.blocked(index)
                    && let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index]
                {
                    task.wait_on(&mut self.sockets);
                }
            }
        }
        self.shared.signals[self.shard].wait(&mut self.sockets, nap);
    }
}
