//! MD5 (RFC 1321), SHA-1 and SHA-2 (FIPS 180-4).
//!
//! The constants of SHA-2 are the first bits of the fractions of square and cube roots of primes,
//! those of MD5 of sines; they are computed once rather than typed.

use std::sync::OnceLock;

/// Appends the padding that all these digests share: a one bit, zeros, the length in bits.
fn padded(bytes: &[u8], block: usize, length_bytes: usize, little: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2 * block);
    out.extend_from_slice(bytes);
    out.push(0x80);
    while out.len() % block != block - length_bytes {
        out.push(0);
    }
    let bits = bytes.len() as u128 * 8;
    if little {
        out.extend_from_slice(&bits.to_le_bytes()[..length_bytes]);
    } else {
        out.extend_from_slice(&bits.to_be_bytes()[16 - length_bytes..]);
    }
    out
}

/// The MD5 digest.
pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
    static SINES: OnceLock<[u32; 64]> = OnceLock::new();
    let sines = SINES.get_or_init(|| std::array::from_fn(|i| (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32));
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(bytes, 64, 8, true).chunks_exact(64) {
        let words: [u32; 16] = std::array::from_fn(|i| u32::from_le_bytes(block[4 * i..4 * i + 4].try_into().expect("four bytes")));
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mix, word) = match i / 16 {
                0 => (b & c | !b & d, i),
                1 => (d & b | !d & c, (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), 7 * i % 16),
            };
            let turned = a.wrapping_add(mix).wrapping_add(sines[i]).wrapping_add(words[word]).rotate_left(SHIFTS[i / 16][i % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d]) {
            *s = s.wrapping_add(v);
        }
    }
    let mut out = [0; 16];
    out.chunks_exact_mut(4).zip(state).for_each(|(o, s)| o.copy_from_slice(&s.to_le_bytes()));
    out
}

/// The SHA-1 digest.
pub(super) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(bytes, 64, 8, false).chunks_exact(64) {
        let mut words = [0u32; 80];
        words.iter_mut().zip(block.chunks_exact(4)).for_each(|(w, b)| *w = u32::from_be_bytes(b.try_into().expect("four bytes")));
        for i in 16..80 {
            words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (mix, constant) = match i / 20 {
                0 => (b & c | !b & d, 0x5a82_7999u32),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a.rotate_left(5).wrapping_add(mix).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e]) {
            *s = s.wrapping_add(v);
        }
    }
    let mut out = [0; 20];
    out.chunks_exact_mut(4).zip(state).for_each(|(o, s)| o.copy_from_slice(&s.to_be_bytes()));
    out
}

/// The integer part of the square (`n` = 2) or cube (`n` = 3) root of `v` · 2^(64·`n`), modulo 2^64: the first
/// 64 bits of the root's fraction.
fn root_fraction(v: u64, n: u32) -> u64 {
    // Bit by bit from the top; the root of a prime below 512 lies below 2^5.
    let mut root: u128 = 0;
    for bit in (0..69).rev() {
        let candidate = root | 1 << bit;
        if power_at_most(candidate, n, v) {
            root = candidate;
        }
    }
    root as u64
}

/// Whether `x`^`n` <= `v` · 2^(64·`n`), for `x` below 2^69. Numbers in 32-bit limbs, lowest first.
fn power_at_most(x: u128, n: u32, v: u64) -> bool {
    let limbs: Vec<u64> = (0..3).map(|i| (x >> (32 * i)) as u64 & 0xffff_ffff).collect();
    let mut power = vec![1u64];
    for _ in 0..n {
        let mut product = vec![0u64; power.len() + limbs.len()];
        for (i, a) in power.iter().enumerate() {
            let mut carry = 0;
            for (j, b) in limbs.iter().enumerate() {
                let sum = product[i + j] + a * b + carry;
                product[i + j] = sum & 0xffff_ffff;
                carry = sum >> 32;
            }
            product[i + limbs.len()] += carry;
        }
        power = product;
    }
    let mut bound = vec![0u64; 2 * n as usize];
    bound.push(v);
    bound.resize(power.len().max(bound.len()), 0);
    power.resize(bound.len(), 0);
    power.iter().rev().le(bound.iter().rev())
}

struct Roots {
    /// Fractions of the square roots of the first 16 primes.
    square: [u64; 16],
    /// Fractions of the cube roots of the first 80 primes.
    cube: [u64; 80],
}

fn roots() -> &'static Roots {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let primes: Vec<u64> = (2..410).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0)).collect();
        Roots { square: std::array::from_fn(|i| root_fraction(primes[i], 2)), cube: std::array::from_fn(|i| root_fraction(primes[i], 3)) }
    })
}

fn sha2_32(bytes: &[u8], mut state: [u32; 8]) -> [u32; 8] {
    let constants = &roots().cube;
    for block in padded(bytes, 64, 8, false).chunks_exact(64) {
        let mut words = [0u32; 64];
        words.iter_mut().zip(block.chunks_exact(4)).for_each(|(w, b)| *w = u32::from_be_bytes(b.try_into().expect("four bytes")));
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let low = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let high = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            words[i] = words[i - 16].wrapping_add(low).wrapping_add(words[i - 7]).wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for i in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let t1 = h.wrapping_add(s1).wrapping_add(e & f ^ !e & g).wrapping_add((constants[i] >> 32) as u32).wrapping_add(words[i]);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let t2 = s0.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *s = s.wrapping_add(v);
        }
    }
    state
}

fn sha2_64(bytes: &[u8], mut state: [u64; 8]) -> [u64; 8] {
    let constants = &roots().cube;
    for block in padded(bytes, 128, 16, false).chunks_exact(128) {
        let mut words = [0u64; 80];
        words.iter_mut().zip(block.chunks_exact(8)).for_each(|(w, b)| *w = u64::from_be_bytes(b.try_into().expect("eight bytes")));
        for i in 16..80 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let low = a.rotate_right(1) ^ a.rotate_right(8) ^ a >> 7;
            let high = b.rotate_right(19) ^ b.rotate_right(61) ^ b >> 6;
            words[i] = words[i - 16].wrapping_add(low).wrapping_add(words[i - 7]).wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for i in 0..80 {
            let s1 = e.rotate_right(14) ^ e.rotate_right(18) ^ e.rotate_right(41);
            let t1 = h.wrapping_add(s1).wrapping_add(e & f ^ !e & g).wrapping_add(constants[i]).wrapping_add(words[i]);
            let s0 = a.rotate_right(28) ^ a.rotate_right(34) ^ a.rotate_right(39);
            let t2 = s0.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *s = s.wrapping_add(v);
        }
    }
    state
}

/// The state's bytes, cut to the length of the digest.
fn bytes_of<const N: usize>(state: impl IntoIterator<Item = impl AsRef<[u8]>>) -> [u8; N] {
    let all: Vec<u8> = state.into_iter().flat_map(|w| w.as_ref().to_vec()).collect();
    all[..N].try_into().expect("the state is at least as long as the digest")
}

/// The SHA-224 digest.
pub(super) fn sha224(bytes: &[u8]) -> [u8; 28] {
    let start = std::array::from_fn(|i| roots().square[i + 8] as u32);
    bytes_of(sha2_32(bytes, start).map(u32::to_be_bytes))
}

/// The SHA-256 digest.
pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let start = std::array::from_fn(|i| (roots().square[i] >> 32) as u32);
    bytes_of(sha2_32(bytes, start).map(u32::to_be_bytes))
}

/// The SHA-384 digest.
pub(super) fn sha384(bytes: &[u8]) -> [u8; 48] {
    let start = std::array::from_fn(|i| roots().square[i + 8]);
    bytes_of(sha2_64(bytes, start).map(u64::to_be_bytes))
}

/// The SHA-512 digest.
pub(super) fn sha512(bytes: &[u8]) -> [u8; 64] {
    let start = std::array::from_fn(|i| roots().square[i]);
    bytes_of(sha2_64(bytes, start).map(u64::to_be_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(digest: &[u8], expect: &str) {
        assert_eq!(digest.iter().map(|b| format!("{b:02x}")).collect::<String>(), expect);
    }

    #[test]
    fn known_digests() {
        check(&md5(b""), "d41d8cd98f00b204e9800998ecf8427e");
        check(&md5(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        check(&sha1(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(&sha224(b"abc"), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        check(&sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check(&sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(&sha384(b"abc"), "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7");
        check(
            &sha512(b"abc"),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        );
    }

    #[test]
    fn more_than_a_block() {
        let text = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        check(&sha256(text), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check(&sha1(text), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    }
}
