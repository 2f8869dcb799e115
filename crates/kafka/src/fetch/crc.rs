//! CRC-32C (Castagnoli), the checksum of batches: by the processor's instruction where x86 has it, by tables of
//! 8 bytes at a time elsewhere.
//!
//! The instruction takes three cycles, and another may begin in each. So three stretches are summed side by side and their sums put
//! together: sums are linear, and what zeros behind a stretch make of its sum is in tables (Gopal et al., "Fast CRC Computation for
//! iSCSI Polynomial Using CRC32 Instruction", Intel 2011).

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

/// Bytes of a stretch: three of them are a small batch, and putting their sums together is a percent of summing them.
#[cfg(target_arch = "x86_64")]
const STRETCH: usize = 1024;

/// `ZEROS[k][b]`: what byte `k` of a sum, with the value `b`, adds to the sum of a stretch of zeros behind it.
#[cfg(target_arch = "x86_64")]
static ZEROS: [[u32; 256]; 4] = zeros();

#[cfg(target_arch = "x86_64")]
const fn zeros() -> [[u32; 256]; 4] {
    let table = tables()[0];
    let mut zeros = [[0; 256]; 4];
    let mut bit = 0;
    while bit < 32 {
        let mut value = 1u32 << bit;
        let mut byte = 0;
        while byte < STRETCH {
            value = (value >> 8) ^ table[(value & 0xff) as usize];
            byte += 1;
        }
        zeros[bit / 8][1 << (bit % 8)] = value;
        bit += 1;
    }
    let mut k = 0;
    while k < 4 {
        let mut byte = 1;
        while byte < 256 {
            let rest = byte & (byte - 1);
            zeros[k][byte] = zeros[k][rest] ^ zeros[k][byte ^ rest];
            byte += 1;
        }
        k += 1;
    }
    zeros
}

/// The sum with a stretch of zeros behind what it is of.
#[cfg(target_arch = "x86_64")]
#[inline]
fn behind_zeros(sum: u32) -> u32 {
    let bytes = sum.to_le_bytes();
    (0..4).fold(0, |all, k| all ^ ZEROS[k][bytes[k] as usize])
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
    let mut wide = u64::from(u32::MAX);
    let (triples, rest) = bytes.as_chunks::<{ 3 * STRETCH }>();
    for triple in triples {
        let (words, _none) = triple.as_chunks::<8>();
        let (first, behind) = words.split_at(STRETCH / 8);
        let (second, third) = behind.split_at(STRETCH / 8);
        let (mut a, mut b, mut c) = (wide, 0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
        wide = u64::from(behind_zeros(behind_zeros(a as u32) ^ b as u32) ^ c as u32);
    }
    let (words, rest) = rest.as_chunks::<8>();
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
        // Several stretches, and what is left of none, of one and of two.
        for length in [3071, 3072, 3073, 4096, 6143, 6144, 8200, 9216, 10_001] {
            let bytes: Vec<u8> = bytes.iter().cycle().take(length).copied().collect();
            assert_eq!(crc32c(&bytes), by_tables(&bytes), "{length}");
        }
    }
}
