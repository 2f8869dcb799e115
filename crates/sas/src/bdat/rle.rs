//! Run-length compression of rows (`COMPRESS=CHAR`, `SASYZCRL` in a file): a byte of command and length, then bytes
//! to copy or a byte to repeat. SAS has published nothing of it; what each command does is known from files.

/// Unpacks a row; `false` if the bytes do not make one of exactly `out.len()` bytes.
pub(crate) fn unpack(input: &[u8], out: &mut [u8]) -> bool {
    let (mut at, mut done) = (0, 0);
    while done < out.len() {
        let Some(control) = input.get(at).copied() else { return false };
        at += 1;
        let (command, low) = (control >> 4, (control & 0x0F) as usize);
        // A second byte of length stands behind the commands 0, 1 and 4 to 7.
        let mut length = low;
        if matches!(command, 0 | 1 | 4..=7) {
            let Some(more) = input.get(at).copied() else { return false };
            at += 1;
            length = low * 256 + more as usize;
        }
        let (length, byte) = match command {
            0x0 => (length + 64, None),
            0x1 => (length + 64 + 4096, None),
            0x2 => (length + 96, None),
            0x4 => (length + 18, Some(input.get(at).copied())),
            0x5 => (length + 17, Some(Some(b'@'))),
            0x6 => (length + 17, Some(Some(b' '))),
            0x7 => (length + 17, Some(Some(0))),
            0x8 => (length + 1, None),
            0x9 => (length + 17, None),
            0xA => (length + 33, None),
            0xB => (length + 49, None),
            0xC => (length + 3, Some(input.get(at).copied())),
            0xD => (length + 2, Some(Some(b'@'))),
            0xE => (length + 2, Some(Some(b' '))),
            0xF => (length + 2, Some(Some(0))),
            _ => return false,
        };
        let Some(target) = out.get_mut(done..done + length) else { return false };
        match byte {
            None => {
                let Some(source) = input.get(at..at + length) else { return false };
                target.copy_from_slice(source);
                at += length;
            }
            Some(Some(byte)) => {
                target.fill(byte);
                at += usize::from(matches!(command, 0x4 | 0xC));
            }
            Some(None) => return false,
        }
        done += length;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        #[track_caller]
        fn check(input: &[u8], expect: &[u8]) {
            let mut out = vec![0xEE; expect.len()];
            assert!(unpack(input, &mut out), "{input:?}");
            assert_eq!(out, expect);
            // One byte more or less is no row.
            assert!(!unpack(input, &mut vec![0; expect.len() + 1]));
            assert!(!unpack(input, &mut vec![0; expect.len() - 1]));
            for cut in 0..input.len() {
                assert!(!unpack(&input[..cut], &mut out), "cut to {cut} bytes");
            }
        }
        let text: Vec<u8> = (0..=255).cycle().take(6000).collect();
        let copies: [(&[u8], usize); 9] = [
            (&[0x00, 0x00], 64),
            (&[0x01, 0x02], 64 + 256 + 2),
            (&[0x10, 0x05], 64 + 4096 + 5),
            (&[0x2F], 96 + 15),
            (&[0x81], 2),
            (&[0x8F], 16),
            (&[0x90], 17),
            (&[0xAF], 33 + 15),
            (&[0xB1], 50),
        ];
        for (head, length) in copies {
            check(&[head, &text[..length]].concat(), &text[..length]);
        }
        check(&[0x41, 0x02, b'x'], &[b'x'; 18 + 256 + 2]);
        check(&[0x50, 0x00], &[b'@'; 17]);
        check(&[0x62, 0x01], &[b' '; 17 + 512 + 1]);
        check(&[0x70, 0xFF], &[0; 17 + 255]);
        check(&[0xC2, b'y'], b"yyyyy");
        check(&[0xD0], b"@@");
        check(&[0xE1], b"   ");
        check(&[0xF3], &[0; 5]);
        check(&[0x82, b'a', b'b', b'c', 0xE0, 0x80, b'd', 0xF0], b"abc  d\0\0");
    }

    #[test]
    fn a_command_that_does_not_exist() {
        assert!(!unpack(&[0x30, 0, 0, 0], &mut [0; 4]));
    }
}
