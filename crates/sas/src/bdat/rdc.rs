//! Ross data compression of rows (`COMPRESS=BINARY`, `SASYZCR2` in a file): sixteen bits say of the next sixteen items
//! whether each is a byte to copy or a command: a run, or a repetition of what came before.
//! After Ed Ross, A Simple Data-Compression Technique, The C Users Journal 10 (10), 1992.

/// Unpacks a row; `false` if the bytes do not make one of exactly `out.len()` bytes.
pub(crate) fn unpack(input: &[u8], out: &mut [u8]) -> bool {
    unpacked(input, out).is_some()
}

fn unpacked(input: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut at, mut done) = (0, 0);
    // The bits of the items to come, the next one highest; how many there are.
    let (mut bits, mut left) = (0u16, 0);
    let byte = |at: &mut usize| -> Option<usize> {
        let byte = *input.get(*at)?;
        *at += 1;
        Some(byte as usize)
    };
    while done < out.len() {
        if left == 0 {
            bits = ((byte(&mut at)? << 8) | byte(&mut at)?) as u16;
            left = 16;
        }
        let command = bits & 0x8000 > 0;
        bits <<= 1;
        left -= 1;
        let first = byte(&mut at)?;
        if !command {
            out[done] = first as u8;
            done += 1;
            continue;
        }
        let (command, low) = (first >> 4, first & 0x0F);
        let second = byte(&mut at)?;
        match command {
            // A short run, a long run.
            0 => {
                out.get_mut(done..done + low + 3)?.fill(second as u8);
                done += low + 3;
            }
            1 => {
                let length = low + (second << 4) + 19;
                let repeated = byte(&mut at)?;
                out.get_mut(done..done + length)?.fill(repeated as u8);
                done += length;
            }
            // A long repetition, a short one: so many bytes from so far back.
            command => {
                let back = low + 3 + (second << 4);
                let length = if command == 2 { byte(&mut at)? + 16 } else { command };
                let from = done.checked_sub(back)?;
                if out.len() - done < length {
                    return None;
                }
                if back >= length {
                    out.copy_within(from..from + length, done);
                } else {
                    // What is repeated overlaps what it makes.
                    for i in 0..length {
                        out[done + i] = out[from + i];
                    }
                }
                done += length;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expect: &[u8]) {
        let mut out = vec![0xEE; expect.len()];
        assert!(unpack(input, &mut out), "{input:?}");
        assert_eq!(out, expect);
        assert!(!unpack(input, &mut vec![0; expect.len() + 1]));
        for cut in 0..input.len() {
            assert!(!unpack(&input[..cut], &mut out), "cut to {cut} bytes");
        }
    }

    #[test]
    fn items() {
        check(&[0, 0, b'a', b'b', b'c'], b"abc");
        // A run of 2 + 3; of 1 + (2 << 4) + 19.
        check(&[0x80, 0, 0x02, b'x'], b"xxxxx");
        check(&[0x80, 0, 0x11, 0x02, b'y'], &[b'y'; 52]);
        // Three bytes, then three from three back.
        check(&[0x10, 0, b'a', b'b', b'c', 0x30, 0x00], b"abcabc");
        // Four bytes, then fifteen from four back, which overlap.
        check(&[0x08, 0, b'a', b'b', b'c', b'd', 0xF1, 0x00], b"abcdabcdabcdabcdabc");
        // The second sixteen items: three bytes, then sixteen from nineteen back.
        let text: Vec<u8> = (b'a'..b'a' + 16).collect();
        let input = [&[0, 0][..], &text[..], &[0x10, 0, b'1', b'2', b'3', 0x20, 0x01, 0x00][..]].concat();
        check(&input, &[&text[..], &b"123"[..], &text[..]].concat());
    }

    #[test]
    fn a_repetition_of_what_is_not_there() {
        assert!(!unpack(&[0x40, 0, b'a', 0x30, 0x00], &mut [0; 4]));
        // A second control word after sixteen items.
        let input = [&[0, 0][..], &[b'a'; 16][..], &[0, 0, b'b'][..]].concat();
        let mut out = [0; 17];
        assert!(unpack(&input, &mut out));
        assert_eq!(&out, b"aaaaaaaaaaaaaaaab");
    }
}
