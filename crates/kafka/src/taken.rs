//! Messages that were taken to be decoded, whoever fetched them: librdkafka (`queue`), or we (`fetch`).

use tidemill_format::message::MessageDecoder;

/// Several messages.
pub trait Taken {
    /// One of them.
    type Entry<'a>: Message<'a>
    where
        Self: 'a;

    /// One of them, by its number.
    fn get(&self, index: usize) -> Self::Entry<'_>;

    /// Gives the values, and the keys if somebody wants them, of the messages with these numbers to their decoders; gives the
    /// bytes of both, wanted or not.
    fn push(&self, numbers: &[u32], values: &mut dyn MessageDecoder, mut keys: Option<&mut (dyn MessageDecoder + '_)>) -> usize {
        let mut bytes = 0;
        for number in numbers {
            let message = self.get(*number as usize);
            let (key, value) = (message.key(), message.value());
            bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            if let Some(keys) = &mut keys {
                keys.push(key);
            }
            values.push(value);
        }
        bytes
    }
}

/// A message, whose parts live for `'a`.
pub trait Message<'a>: Copy {
    /// The topic's name.
    fn topic(&self) -> &'a str;

    /// Its partition.
    fn partition(&self) -> i32;

    /// Where it stands in its partition.
    fn offset(&self) -> i64;

    /// The value; none is null.
    fn value(&self) -> Option<&'a [u8]>;

    /// The key; none is null.
    fn key(&self) -> Option<&'a [u8]>;

    /// Milliseconds since 1970, if the message has a time, and whose it is.
    fn timestamp(&self) -> (Option<i64>, &'static str);

    /// The leader's epoch, if it is known.
    fn leader_epoch(&self) -> Option<i32>;

    /// Calls `each` with name and value of every header.
    fn headers(&self, each: impl FnMut(&'a [u8], Option<&'a [u8]>));
}
