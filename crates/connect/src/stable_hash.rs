//! A hash that is the same in every process, on every machine and in every version: for names and marks that are kept.

/// FNV-1a (Fowler, Noll, Vo) of 64 bits.
pub fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
