//! Where a split stands, as it is written into checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_connect::{ConnectError, Split};

use crate::id::EntryId;

/// Where a stream is being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The key of the stream.
    pub stream: String,
    /// The last entry that was read.
    pub after: EntryId,
    /// How many of the entries that were ever added are read or not wanted, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// The last entry that is to be read, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<EntryId>,
}

impl Position {
    /// As a checkpoint keeps it.
    pub fn value(&self) -> Value {
        serde_json::to_value(self).expect("plain data")
    }

    /// What a checkpoint kept.
    ///
    /// # Errors
    /// It is something else.
    pub fn of(value: &Value) -> Result<Self, ConnectError> {
        serde_json::from_value(value.clone())
            .map_err(|e| ConnectError::new(format!("the checkpoint's position {value} is none of a stream: {e}; --fresh begins anew")))
    }

    /// The split that stands there.
    pub fn split(&self) -> Split {
        Split { id: self.stream.clone(), position: Some(self.value()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_a_checkpoint() {
        let position = Position { stream: "s".into(), after: EntryId { ms: 7, number: 1 }, read: Some(3), stop: None };
        assert_eq!(position.value(), serde_json::json!({"stream": "s", "after": "7-1", "read": 3}));
        assert_eq!(Position::of(&position.value()).unwrap(), position);
        let error = Position::of(&serde_json::json!({"stream": "s"})).unwrap_err().to_string();
        assert!(error.contains("--fresh"), "{error}");
    }
}
