//! The reason codes of MQTT 5: what they mean, and whether the same would come of another attempt.

/// What a code means.
pub fn text(code: u8) -> &'static str {
    match code {
        0x01 | 0x84 => "it does not speak MQTT 5",
        0x81 => "a malformed packet",
        0x82 => "a protocol error",
        0x83 => "an error of its implementation",
        0x85 => "the client id is not valid",
        0x86 => "bad user name or password",
        0x87 => "not authorized",
        0x88 => "the server is unavailable",
        0x89 => "the server is busy",
        0x8a => "banned",
        0x8b => "the server is shutting down",
        0x8c => "bad authentication method",
        0x8d => "nothing came within the keep-alive time",
        0x8e => "another client has taken the session; each needs a 'client-id' of its own",
        0x8f => "the topic filter is not valid",
        0x90 => "the topic name is not valid",
        0x93 => "more messages at once than it takes",
        0x95 => "the packet is too large",
        0x96 => "messages come too fast",
        0x97 => "a quota is exceeded",
        0x98 => "an administrator has ended the connection",
        0x99 => "the payload is not of the form that was said",
        0x9a => "it does not retain messages",
        0x9b => "it does not have this quality of service",
        0x9c | 0x9d => "another server is to be used",
        0x9e => "it has no shared subscriptions",
        0x9f => "connections come too fast",
        0xa1 => "it has no subscription identifiers",
        0xa2 => "it has no wildcards",
        _ => "it gives no reason",
    }
}

/// Whether another attempt would end alike: it is the options that are to be changed.
pub fn lasting(code: u8) -> bool {
    matches!(code, 0x01 | 0x81 | 0x82 | 0x84..=0x87 | 0x8a | 0x8c | 0x8e..=0x90 | 0x95 | 0x99..=0x9e | 0xa1 | 0xa2)
}

/// A code with its meaning, and what the broker itself says about it.
pub fn shown(code: u8, said: &str) -> String {
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{} (reason code 0x{code:02x}){colon}{said}", text(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_attempt_may_change() {
        assert!([0x86, 0x87, 0x84, 0x01, 0x8e].into_iter().all(lasting));
        assert!(![0x80, 0x83, 0x88, 0x89, 0x8b, 0x8d, 0x97].into_iter().any(lasting));
        assert_eq!(shown(0x87, ""), "not authorized (reason code 0x87)");
        assert_eq!(shown(0xff, "no"), "it gives no reason (reason code 0xff): no");
    }
}
