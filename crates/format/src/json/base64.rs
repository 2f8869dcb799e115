//! Base64 with padding (RFC 4648, section 4), the text form of BYTES in JSON.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value of each character, 255 for those that are none.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut i = 0;
    while i < 64 {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// Appends the text of `bytes`.
pub fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for i in 0..3 {
            bits = bits << 8 | group.get(i).copied().unwrap_or(0) as u32;
        }
        for i in 0..4 {
            out.push(if i <= group.len() { ALPHABET[(bits >> (18 - 6 * i) & 63) as usize] } else { b'=' });
        }
    }
}

/// The text of `bytes`.
pub fn text(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    write(&mut out, bytes);
    String::from_utf8(out).expect("letters, digits and signs")
}

/// Appends the bytes that `text` stands for; padding may be missing. `None` if it is not base64;
/// what was appended by then is the caller's to take back.
pub fn read(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    out.reserve(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let mut bits = 0u32;
        for i in 0..4 {
            let value = group.get(i).map_or(0, |b| VALUES[*b as usize]);
            if value == 255 {
                return None;
            }
            bits = bits << 6 | value as u32;
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_pairs_both_ways() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="), ("\u{fb}", "w7s=")]
        {
            let (mut written, mut back) = (Vec::new(), Vec::new());
            write(&mut written, bytes.as_bytes());
            assert_eq!(written, text.as_bytes());
            read(text.as_bytes(), &mut back).unwrap();
            assert_eq!(back, bytes.as_bytes());
        }
        assert!(["Z", "Zm9v!", "Z===", "Zm 9"].iter().all(|t| read(t.as_bytes(), &mut Vec::new()).is_none()));
    }
}
