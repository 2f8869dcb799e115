//! Rows sent in requests: the writer fills bodies, threads of its own send them and wait for answers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};

use super::Format;
use super::batch::{Filler, Limits, Outbox};
use super::options::HttpOptions;
use super::post::Post;

/// The sink.
pub struct HttpSink {
    options: HttpOptions,
    format: Format,
    /// Shared by the writers.
    post: Arc<Post>,
}

impl HttpSink {
    /// A sink whose requests are made by `post`.
    pub fn new(options: HttpOptions, format: Format, post: Post) -> Self {
        HttpSink { options, format, post: Arc::new(post) }
    }
}

impl Sink for HttpSink {
    /// Who waits for answers need not be a worker.
    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let filler = match &self.format {
            Format::Text(format) => Filler::Text(format.encoder(&context.schema)?),
            Format::Arrow => Filler::Arrow(context.schema.clone()),
        };
        let outbox = Arc::new(Outbox::new(Limits {
            rows: self.options.batch_rows,
            bytes: self.options.batch_bytes.0 as usize,
            linger: self.options.linger,
            waiting: self.options.parallel,
        }));
        // Made first: its end stops the threads, should one of them not start.
        let writer = HttpWriter { outbox: outbox.clone(), filler, cancelled: context.cancelled };
        let key: Arc<str> = format!("{}-{}", context.run_id, context.shard).into();
        for _ in 0..self.options.parallel {
            let (post, outbox, key) = (self.post.clone(), outbox.clone(), key.clone());
            let send = move || {
                while let Some(body) = outbox.take() {
                    let mut sending = Sending { outbox: &outbox, outcome: Err(DIED.to_string()) };
                    sending.outcome = post.send(&body, &format!("{key}-{}", body.number), &outbox);
                }
            };
            thread::Builder::new()
                .name("tidemill-http".into())
                .spawn(send)
                .map_err(|e| ConnectError::io(format_args!("starting a thread that sends rows to {}", self.post.place()), &e))?;
        }
        Ok(Box::new(writer))
    }
}

const DIED: &str = "internal error: a thread that sends rows has ended; its message is above";

/// A body that a thread has taken: the writer learns what became of it, even if the thread dies.
struct Sending<'a> {
    outbox: &'a Outbox,
    outcome: Result<(), String>,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.outbox.sent(std::mem::replace(&mut self.outcome, Ok(())));
    }
}

struct HttpWriter {
    outbox: Arc<Outbox>,
    filler: Filler,
    cancelled: Arc<AtomicBool>,
}

impl Writer for HttpWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.outbox.write(block, &mut self.filler, &self.cancelled)
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.outbox.flush(&self.cancelled)
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.outbox.drain(&self.cancelled)?;
        if last {
            self.outbox.stop();
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.outbox.bytes() }
    }
}

impl Drop for HttpWriter {
    /// For a writer that is given up: its threads end when their requests are answered or take too long.
    fn drop(&mut self) {
        self.outbox.stop();
    }
}
