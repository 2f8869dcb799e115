//! Where a split stands, as it is written into checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_connect::ConnectError;

/// Stands for the oldest message that is there.
pub const EARLIEST: i64 = -2;

/// Where a partition is being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset of the next message, or [`EARLIEST`].
    pub offset: i64,
    /// The first offset that is no longer read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<i64>,
    /// The id that the topic had, so that one created anew under its name is told from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
}

impl Position {
    /// `topic:partition`: the split's id, and what messages call it.
    pub fn split(&self) -> String {
        format!("{}:{}", self.topic, self.partition)
    }

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
            .map_err(|e| ConnectError::new(format!("the checkpoint's position {value} is none of a partition: {e}; --fresh begins anew")))
    }
}

/// How far a member of a group has read what was assigned to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPosition {
    /// Topic, partition, offset of the next message.
    pub group: Vec<(String, i32, i64)>,
}
