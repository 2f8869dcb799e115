//! The lookup of a shard: makes requests of keys, hands them to the pool, and turns what comes back into
//! answers. Runs on the shard's own thread, and never waits.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use hyper::body::Bytes;
use tidemill_connect::{Answer, ConnectError, Failure, Found, Lookup, Waker, drive};

use super::decode::{Answers, Body};
use super::pool::{self, Link, Order};
use super::server::{Job, Outcome, Server};
use super::template::{Form, object};
use super::{RequestBody, Requests, threads};

/// Asks a server for keys.
pub(super) struct HttpLookup {
    requests: Requests,
    answers: Answers,
    link: Arc<Link>,
    /// Until the first request.
    server: Option<Server>,
    /// The keys of calls under way. An answer to any other is dropped.
    asked: HashMap<u64, RecordBatch>,
    done: Vec<(u64, Outcome)>,
    text: String,
}

impl HttpLookup {
    pub fn new(requests: Requests, server: Server, answers: Answers, wake: Waker) -> Self {
        HttpLookup {
            requests,
            answers,
            link: Arc::new(Link::new(wake)),
            server: Some(server),
            asked: HashMap::new(),
            done: Vec::new(),
            text: String::new(),
        }
    }

    fn body(&mut self, keys: &RecordBatch) -> Bytes {
        let Some(body) = &self.requests.body else { return Bytes::new() };
        self.text.clear();
        match body {
            RequestBody::Template(template) => template.fill(keys, 0, Form::Json, &mut self.text),
            RequestBody::Object => object(keys, 0, &mut self.text),
            RequestBody::Objects => {
                for row in 0..keys.num_rows() {
                    self.text.push(if row == 0 { '[' } else { ',' });
                    object(keys, row, &mut self.text);
                }
                self.text.push(']');
            }
        }
        Bytes::copy_from_slice(self.text.as_bytes())
    }

    /// A failure with the request in front of its reason.
    fn failed(&self, keys: &RecordBatch, failure: Failure) -> Failure {
        let mut place = format!("{} ", self.requests.method);
        self.requests.shown.fill(keys, 0, Form::Encoded, &mut place);
        if keys.num_rows() > 1 {
            place.push_str(&format!(" for {} keys", keys.num_rows()));
        }
        Failure { reason: format!("{place}: {}", failure.reason), ..failure }
    }
}

impl Lookup for HttpLookup {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), ConnectError> {
        if let Some(server) = &self.server {
            let place = threads::place(server.tls.is_none())?;
            let (server, link) = (self.server.take(), self.link.clone());
            place.spawn(move |wants| async move {
                if let Some(server) = server {
                    pool::serve(link, server, wants).await;
                }
            })?;
        }
        self.text.clear();
        self.requests.target.fill(keys, 0, Form::Encoded, &mut self.text);
        let target = Bytes::copy_from_slice(self.text.as_bytes());
        let body = self.body(keys);
        self.asked.insert(call, keys.clone());
        self.link.order(Order::Ask(Job { call, target, body, again: false }));
        Ok(())
    }

    fn flush(&mut self) {
        // A worker that drives writes them.
        if let Some(drive) = drive::current() {
            drive.write();
        }
    }

    fn cancel(&mut self, call: u64) {
        if self.asked.remove(&call).is_some() {
            self.link.order(Order::Cancel(call));
        }
    }

    fn finished(&mut self, into: &mut Vec<Answer>) {
        let mut done = std::mem::take(&mut self.done);
        self.link.take_done(&mut done);
        if done.is_empty()
            && let Some(drive) = drive::current()
        {
            // Somebody asks whom no answer has woken: the worker was held up, or one is given up unless it lies there.
            drive.turn();
            self.link.take_done(&mut done);
        }
        let mut bodies = Vec::with_capacity(done.len());
        for (call, outcome) in done.drain(..) {
            let Some(keys) = self.asked.remove(&call) else { continue };
            let result = match outcome {
                Outcome::Body(bytes) => {
                    bodies.push(Body { call, keys, bytes });
                    continue;
                }
                Outcome::Nothing => Ok(Found { rows: self.answers.none(), origins: Vec::new() }),
                Outcome::Failed(failure) => Err(self.failed(&keys, failure)),
                Outcome::Cancelled => continue,
            };
            into.push(Answer { call, result });
        }
        self.done = done;
        match self.answers.read(&bodies) {
            Ok(results) => {
                for (body, result) in bodies.into_iter().zip(results) {
                    let result = result.map_err(|failure| self.failed(&body.keys, failure));
                    into.push(Answer { call: body.call, result });
                }
            }
            Err(e) => {
                for body in bodies {
                    let result = Err(self.failed(&body.keys, Failure::lasting(e.to_string())));
                    into.push(Answer { call: body.call, result });
                }
            }
        }
    }
}

impl Drop for HttpLookup {
    fn drop(&mut self) {
        self.link.close();
    }
}
