//! CRC-32C (Castagnoli), the checksum of batches: by the processor's instruction where x86 has it, by tables of
//! 8 bytes at a time elsewhere.

/// The polynomial, its bits reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: what byte `b` adds with `k` bytes behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { by_instruction(bytes) };
    }
    by_tables(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(u32::MAX);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    let mut value = wide as u32;
    for byte in rest {
        value = _mm_crc32_u8(value, *byte);
    }
    !value
}

fn by_tables(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut value = u32::MAX;
    for word in words {
        let mixed = (u64::from_le_bytes(*word) ^ u64::from(value)).to_le_bytes();
        value = (0..8).fold(0, |sum, k| sum ^ TABLES[7 - k][mixed[k] as usize]);
    }
    for byte in rest {
        value = (value >> 8) ^ TABLES[0][((value ^ u32::from(*byte)) & 0xff) as usize];
    }
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // The first is the check value of the polynomial's definition, the others are in RFC 3720, B.4.
        let cases: [(&[u8], u32); 4] = [(b"123456789", 0xe306_9283), (&[0; 32], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43), (b"", 0)];
        for (bytes, expect) in cases {
            assert_eq!((crc32c(bytes), by_tables(bytes)), (expect, expect), "{bytes:?}");
        }
    }

    #[test]
    fn both_ways_agree() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in 0..100 {
            assert_eq!(crc32c(&bytes[length..length * 10]), by_tables(&bytes[length..length * 10]), "{length}");
        }
    }
}
