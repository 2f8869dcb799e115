//! What lies behind a network is opened by a thread.

use std::sync::mpsc::channel;

use arrow::datatypes::Schema;
use tidemill_connect::{Fetching, ReadRequest};

use super::*;
use crate::parallel::AtOnce;

/// Opens every split but `bad`; its readers have nothing to read.
struct Empty;

struct Nothing(bool);

impl Source for Empty {
    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, split: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        match split.id.as_str() {
            "bad" => Err(ConnectError::new("no such file")),
            "worse" => panic!("a bug"),
            _ => Ok(Box::new(Nothing(false))),
        }
    }
}

impl Reader for Nothing {
    fn poll(&mut self, _: usize) -> Result<Polled, ConnectError> {
        Ok(Polled::End)
    }

    fn fetch(&mut self) -> Result<(), ConnectError> {
        self.0 = true;
        Ok(())
    }

    fn position(&self) -> Value {
        self.0.into()
    }
}

/// Opens a split and waits for it: what polling gives, and whether it was told to fetch.
fn open(id: &str, fetching: Fetching) -> (Result<bool, String>, Option<Value>) {
    let readers = Readers::new(fetching, AtOnce::Auto, 1, None);
    let (wake, woken) = channel();
    let waker = Waker::new(move || {
        let _ = wake.send(());
    });
    let context = ReaderContext { waker, request: ReadRequest::all(Arc::new(Schema::empty())), shard: 0, shards: 1 };
    let source: Arc<dyn Source> = Arc::new(Empty);
    let mut opened = match Opened::new(&source, &Split::new(id), context, Some(&readers)) {
        Ok(opened) => opened,
        Err(e) => return (Err(e.to_string()), None),
    };
    if readers.ahead() {
        assert!(opened.coming() && opened.position().is_none());
        woken.recv().expect("whoever opens wakes at its end");
    }
    let polled = opened.poll(1).map(|polled| matches!(polled, Polled::End)).map_err(|e| e.to_string());
    (polled, opened.position())
}

#[test]
fn what_lies_behind_a_network_is_opened_by_a_thread_and_told_to_fetch() {
    assert_eq!(open("a", Fetching::Local), (Ok(true), Some(Value::Bool(false))));
    assert_eq!(open("a", Fetching::Network), (Ok(true), Some(Value::Bool(true))));
    for fetching in [Fetching::Local, Fetching::Network] {
        assert_eq!(open("bad", fetching).0, Err("no such file".to_string()));
    }
    assert_eq!(open("worse", Fetching::Network).0, Err("the thread that opens 'worse' ended without saying why".to_string()));
}
