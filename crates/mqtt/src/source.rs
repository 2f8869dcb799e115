//! The source: one session, whose messages are acknowledged when a checkpoint holds them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arrow::datatypes::DataType;
use serde_json::Value;
use tidemill_connect::socket::peer::{Peers, spawn};
use tidemill_connect::{Changelog, ConnectError, Reader, ReaderContext, Source, Split};
use tidemill_format::message::MessageFormat;

use crate::inbox::Inbox;
use crate::ledger::Ledger;
use crate::options::{MqttOptions, Quality};
use crate::reader::{MqttReader, taken};
use crate::rows::{RowMaker, metadata_columns};
use crate::session::Session;
use crate::target::{Target, Wanted};

/// How long the last acknowledgements may take.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(2);

/// The least that is fetched ahead, bytes.
const PREFETCH_MIN: u64 = 64 << 10;

/// A name that no other client has.
pub fn some_client_id() -> String {
    format!("tidemill-{:016x}", RandomState::new().build_hasher().finish())
}

/// A session that is followed.
struct Followed {
    inbox: Arc<Inbox>,
    peers: Arc<Peers>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.inbox.end(GOODBYE_PATIENCE);
        // Whoever still waits for the broker does so no longer.
        self.peers.stop();
    }
}

/// The source.
pub struct MqttSource {
    options: MqttOptions,
    format: MessageFormat,
    target: Arc<Target>,
    filters: Vec<String>,
    client_id: String,
    /// Of the reader that was opened last.
    followed: Mutex<Option<Followed>>,
    /// Bytes of messages that may be held, if memory is limited.
    memory: OnceLock<u64>,
}

impl MqttSource {
    /// A source of these topics.
    pub fn new(options: MqttOptions, format: MessageFormat, target: Target, filters: Vec<String>) -> Self {
        let client_id = options.client_id.clone().unwrap_or_else(some_client_id);
        MqttSource { options, format, target: Arc::new(target), filters, client_id, followed: Mutex::default(), memory: OnceLock::new() }
    }

    /// Bytes of messages that are fetched ahead.
    fn ahead(&self) -> u64 {
        self.memory.get().map_or(self.options.prefetch.0, |bytes| self.options.prefetch.0.min((*bytes).max(PREFETCH_MIN)))
    }

    fn followed(&self) -> MutexGuard<'_, Option<Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for MqttSource {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(self.target.to_string())])
    }

    fn one_split(&self) -> bool {
        true
    }

    fn changelog(&self) -> Changelog {
        if self.format.changelog() { Changelog::All } else { Changelog::Append }
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let maker = RowMaker::new(&self.format, &context.request)?;
        let last = split.position.as_ref().and_then(taken).unwrap_or(0);
        let inbox = Arc::new(Inbox::new(self.ahead(), last, context.waker));
        let peers = Arc::new(Peers::default());
        let session = Session {
            target: self.target.clone(),
            inbox: inbox.clone(),
            peers: peers.clone(),
            wanted: Wanted {
                client_id: self.client_id.clone(),
                clean_start: self.options.clean_start,
                expiry_s: self.options.expiry_s(),
                receive_max: self.options.max_inflight,
            },
            filters: self.filters.clone(),
            quality: self.options.quality,
            packet_max: self.options.packet_max(),
            last,
            resumed: split.position.is_some(),
            ledger: Ledger::default(),
        };
        // One broker's session has one connection: the earlier one first gives it up.
        drop(self.followed().take());
        spawn("tidemill-mqtt", move || session.run())?;
        *self.followed() = Some(Followed { inbox: inbox.clone(), peers });
        Ok(Box::new(MqttReader::new(inbox, maker, last)))
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata_columns()
    }

    fn committed(&self, positions: &[Value]) {
        if let (Some(followed), Some(number)) = (&*self.followed(), positions.iter().filter_map(taken).max()) {
            followed.inbox.commit(number);
        }
    }

    /// What is acknowledged does not come again, and what is not the broker gives by itself.
    fn replays(&self) -> Option<bool> {
        Some(false)
    }

    fn limit_memory(&self, bytes: u64) -> u64 {
        let _ = self.memory.set(bytes);
        self.ahead()
    }

    /// The broker sends no more than so many messages that are not acknowledged.
    fn wants_checkpoint(&self) -> bool {
        let most = u64::from(self.options.max_inflight);
        self.options.quality == Quality::AtLeastOnce
            && self.followed().as_ref().is_some_and(|followed| followed.inbox.uncommitted() >= most.div_ceil(2))
    }
}
