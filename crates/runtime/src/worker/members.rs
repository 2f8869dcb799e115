//! The splits of a source after a restart, where they are as many as there are shards: members of a Kafka group. Which partitions a
//! member reads is the broker's affair, so a checkpoint has nothing that binds them.

use tidemill_block::NO_WATERMARK;
use tidemill_connect::{ConnectError, Source};

use super::source::SplitState;

/// The splits of a checkpoint, or those that there are now, if the source has another number of them for so many shards. That is
/// asked only of sources that replay nothing: what a position says is not needed to read on.
///
/// Which rows come to which of the new splits nobody knows. All begin at the lowest watermark there was, so no row is late that was not.
///
/// # Errors
/// As [`Source::splits`].
pub(crate) fn splits_now(source: &dyn Source, restored: Vec<SplitState>, width: usize) -> Result<Vec<SplitState>, ConnectError> {
    if source.replays() != Some(false) || source.bounded() {
        return Ok(restored);
    }
    let splits = source.splits(width)?;
    if splits.len() == restored.len() {
        return Ok(restored);
    }
    let watermark = restored.iter().map(|split| split.watermark).min().unwrap_or(NO_WATERMARK);
    Ok(splits.into_iter().map(|split| SplitState { watermark, ..SplitState::new(split) }).collect())
}

#[cfg(test)]
mod tests {
    use tidemill_connect::{Reader, ReaderContext, Split};

    use super::*;

    /// As many members as shards, or one split at most.
    struct Members {
        one: bool,
        replays: Option<bool>,
    }

    impl Source for Members {
        fn bounded(&self) -> bool {
            false
        }

        fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
            let members = if self.one { 1 } else { parallelism };
            Ok((0..members).map(|n| Split::new(format!("member {n}"))).collect())
        }

        fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
            Err(ConnectError::new("nobody reads"))
        }

        fn replays(&self) -> Option<bool> {
            self.replays
        }
    }

    /// A job that went from one shard to four read in one of them; one that went from four to one had four members in it.
    #[test]
    fn there_are_as_many_members_as_shards_after_a_restart() {
        let restored = |watermarks: &[i64]| -> Vec<SplitState> {
            let state = |(n, watermark): (usize, &i64)| {
                let split = Split { id: format!("member {n}"), position: Some(n.into()) };
                SplitState { watermark: *watermark, ..SplitState::new(split) }
            };
            watermarks.iter().enumerate().map(state).collect()
        };
        let shown = |splits: Vec<SplitState>| -> Vec<String> {
            splits.iter().map(|s| format!("{} {} {}", s.split.id, s.watermark, s.split.position.is_some())).collect()
        };
        let group = Members { one: false, replays: Some(false) };
        let now = |source: &Members, watermarks: &[i64], width| shown(splits_now(source, restored(watermarks), width).unwrap());
        assert_eq!(now(&group, &[5], 3), ["member 0 5 false", "member 1 5 false", "member 2 5 false"]);
        assert_eq!(now(&group, &[9, 4, 7], 1), ["member 0 4 false"]);
        assert_eq!(now(&group, &[9, 4], 2), ["member 0 9 true", "member 1 4 true"], "nothing has changed");
        let one = Members { one: true, replays: Some(false) };
        assert_eq!(now(&one, &[5], 3), ["member 0 5 true"], "one that has one split goes on with it");
        for replays in [None, Some(true)] {
            let partitions = Members { one: false, replays };
            assert_eq!(now(&partitions, &[9, 4, 7], 1).len(), 3, "partitions have positions");
        }
    }
}
