//! Which partition opens which splits.

use tidemill_connect::{ConnectError, Reader};

use super::*;

/// Splits behind a network, without rows.
struct Far;

struct NoRows;

impl Source for Far {
    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _: usize) -> std::result::Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> std::result::Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(NoRows))
    }
}

impl Reader for NoRows {
    fn poll(&mut self, _: usize) -> std::result::Result<Polled, ConnectError> {
        Ok(Polled::Pending)
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The partition that asked first opened as many as it might, and of few splits none were left to decode for the others.
#[test]
fn few_splits_are_divided_among_the_partitions() {
    for (splits, at_once, expect) in [(8, 32, [4, 4]), (3, 32, [2, 1]), (1, 32, [1, 0]), (8, 4, [2, 2])] {
        let schema: SchemaRef = Arc::new(Schema::empty());
        let queue: VecDeque<Split> = (0..splits).map(|n| Split::new(n.to_string())).collect();
        let each = queue.len().div_ceil(2);
        let queue = Arc::new(Mutex::new(queue));
        let readers = Readers::new(Fetching::Network, AtOnce::Fixed(at_once), 2, None);
        let open = [0, 1].map(|shard| {
            let mut scan = Scan {
                table: "far".into(),
                source: Arc::new(Far),
                on_error: OnError::Fail,
                queue: queue.clone(),
                context: ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema.clone()), shard, shards: 2 },
                order: Vec::new(),
                schema: schema.clone(),
                metrics: Arc::default(),
                readers: Some(readers.clone()),
                each,
                task: Arc::default(),
                row_bytes: RowBytes::default(),
                open: VecDeque::new(),
                changes: None,
                fold: None,
                folded: VecDeque::new(),
            };
            scan.next().unwrap();
            scan.open.len()
        });
        assert_eq!(open, expect, "{splits} splits, {at_once} at once");
    }
}
