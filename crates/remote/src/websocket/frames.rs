//! Where the bytes of a peer stand among its frames (RFC 6455, section 5.2). What frames hold is tungstenite's business, which
//! does not tell whether it has a part of a message.

/// The bytes of a head up to the longest length; a mask counts with the payload.
const HEAD_BYTES_MAX: usize = 10;
const MASK_BYTES: u64 = 4;

/// See the module.
#[derive(Default)]
pub struct Frames {
    /// What has come of a head.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// What is still to come of a frame whose head is there.
    left: u64,
    /// The last frame of data says that its message goes on.
    unfinished: bool,
}

impl Frames {
    /// Takes note of what has come.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let passed = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            bytes = rest;
            if let Some(left) = behind_head(&self.head[..self.head_bytes]) {
                (self.head_bytes, self.left) = (0, left);
                // Control frames stand between those of a message and end none.
                if self.head[0] & 0x08 == 0 {
                    self.unfinished = self.head[0] & 0x80 == 0;
                }
            }
        }
    }

    /// Whether a message or a frame has begun that is not complete.
    pub fn is_partial(&self) -> bool {
        self.unfinished || self.left > 0 || self.head_bytes > 0
    }
}

/// How many bytes follow a head; none if it is not complete.
fn behind_head(head: &[u8]) -> Option<u64> {
    let (&second, length) = head.get(1..)?.split_first()?;
    let payload = match second & 0x7f {
        126 => u64::from(u16::from_be_bytes(*length.first_chunk()?)),
        127 => u64::from_be_bytes(*length.first_chunk()?),
        short => u64::from(short),
    };
    let mask = if second & 0x80 == 0 { 0 } else { MASK_BYTES };
    // No peer sends as many, but a head may say so.
    Some(payload.saturating_add(mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a mask.
    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut head = match payload {
            0..126 => vec![first, 0x80 | payload as u8],
            126..0x1_0000 => [&[first, 0xfe][..], &(payload as u16).to_be_bytes()].concat(),
            _ => [&[first, 0xff][..], &(payload as u64).to_be_bytes()].concat(),
        };
        head.resize(head.len() + 4 + payload, b'x');
        head
    }

    #[test]
    fn what_has_come_in_part() {
        for payload in [0, 1, 125, 126, 300, 70_000] {
            let whole = frame(0x81, payload);
            for cut in (0..=whole.len()).filter(|cut| cut % 997 < 20 || cut + 20 > whole.len()) {
                let mut frames = Frames::default();
                // Behind the end of another, as it may come in one read.
                frames.pass(&[&frame(0x82, 5)[..], &whole[..cut]].concat());
                assert_eq!(frames.is_partial(), (1..whole.len()).contains(&cut), "{cut} of {} bytes", whole.len());
                frames.pass(&whole[cut..]);
                assert!(!frames.is_partial(), "{cut} of {} bytes", whole.len());
            }
        }
        // In several frames, with a ping between them, byte by byte.
        let mut frames = Frames::default();
        let parts = [frame(0x01, 10), frame(0x00, 200), frame(0x89, 3), frame(0x80, 0)];
        for (number, part) in parts.iter().enumerate() {
            part.iter().for_each(|byte| frames.pass(&[*byte]));
            assert_eq!(frames.is_partial(), number < 3);
        }
        // A server sets no mask.
        frames.pass(&[0x81, 2, b'{', b'}']);
        assert!(!frames.is_partial());
    }
}
