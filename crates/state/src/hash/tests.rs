//! Tests of `hash`.

use super::*;
use arrow::array::{Int64Array, StringArray};
use std::sync::Arc;

/// Checkpoints written by earlier versions are divided by these values: they must not change.
#[test]
fn hashes_are_stable() {
    let mut out = Vec::new();
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), Some(42), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "SPY", "a longer key than eight"]));
    rows(std::slice::from_ref(&ints), 3, &mut out).unwrap();
    let single = out.clone();
    assert_eq!(single[2], NULL);
    rows(&[ints, texts], 3, &mut out).unwrap();
    assert_ne!(single, out);
    assert_eq!((mix(1), mix(43), bytes(b"SPY")), (0x5692161d100b05e5, 0x4f0a61d9c798d8ca, 0xc50db00353fcb697));
}

/// A tail counts as eight bytes that end in zeros, but for the length.
#[test]
fn tails() {
    let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
    for length in 1..text.len() {
        let mut state = 0x2545_f491_4f6c_dd1d ^ length as u64;
        for chunk in text[..length].chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            state = (state ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        assert_eq!(bytes(&text[..length]), mix(state), "{length}");
    }
}

#[test]
fn shards_cover_the_range() {
    assert_eq!((shard(0, 3), shard(u64::MAX / 2, 3), shard(u64::MAX, 3)), (0, 1, 2));
}
