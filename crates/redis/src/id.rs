//! IDs of entries: milliseconds since 1970, as the server's clock had them, and a number among those of a millisecond.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The ID of an entry. Those of a stream only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Counts within the millisecond.
    pub number: u64,
}

impl EntryId {
    /// Before every entry.
    pub const ZERO: EntryId = EntryId { ms: 0, number: 0 };

    /// The last that an entry before this time (milliseconds since 1970) can have.
    pub fn before(ms: u64) -> Self {
        ms.checked_sub(1).map_or(EntryId::ZERO, |ms| EntryId { ms, number: u64::MAX })
    }

    /// Reads `1526919030474-55`, or `1526919030474` for number 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-').unwrap_or((text, "0"));
        // `parse` would take a sign.
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        Some(EntryId { ms: plain(ms)?, number: plain(number)? })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl Serialize for EntryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        EntryId::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no ID of an entry")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_written_and_ordered() {
        let id = EntryId::parse("1526919030474-55").unwrap();
        assert_eq!((id.ms, id.number, id.to_string().as_str()), (1_526_919_030_474, 55, "1526919030474-55"));
        assert_eq!(EntryId::parse("7"), Some(EntryId { ms: 7, number: 0 }));
        for wrong in ["", "-", "7-", "-7", "+7-1", "7-1-2", "7-x", "18446744073709551616-0", "$"] {
            assert_eq!(EntryId::parse(wrong), None, "{wrong}");
        }
        assert!(EntryId { ms: 2, number: 0 } > EntryId { ms: 1, number: u64::MAX });
        assert_eq!(EntryId::before(8), EntryId { ms: 7, number: u64::MAX });
        assert_eq!(EntryId::before(0), EntryId::ZERO);
        assert_eq!(serde_json::from_str::<EntryId>("\"3-4\"").unwrap(), EntryId { ms: 3, number: 4 });
    }
}
