//! A checksum of bytes that come in pieces, however they are cut.

/// Bytes a step: four numbers that do not wait for one another.
const STEP: usize = 32;

/// The checksum so far.
pub(crate) struct Checksum {
    lanes: [u64; 4],
    /// The last bytes, too few for a step.
    rest: Vec<u8>,
    length: u64,
}

impl Checksum {
    /// Of no bytes yet.
    pub fn new() -> Self {
        // Digits of pi, so that lanes that take in the same bytes differ.
        let lanes = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];
        Checksum { lanes, rest: Vec::with_capacity(STEP), length: 0 }
    }

    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::new();
        sum.update(bytes);
        sum.finish()
    }

    /// Takes in more bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if !self.rest.is_empty() {
            let (more, behind) = bytes.split_at(bytes.len().min(STEP - self.rest.len()));
            self.rest.extend_from_slice(more);
            bytes = behind;
            if self.rest.len() < STEP {
                return;
            }
            step(&mut self.lanes, &self.rest);
            self.rest.clear();
        }
        let (steps, rest) = bytes.split_at(bytes.len() - bytes.len() % STEP);
        let mut lanes = self.lanes;
        steps.chunks_exact(STEP).for_each(|chunk| step(&mut lanes, chunk));
        self.lanes = lanes;
        self.rest.extend_from_slice(rest);
    }

    /// The checksum of all bytes.
    pub fn finish(mut self) -> u64 {
        self.rest.resize(STEP, 0);
        step(&mut self.lanes, &self.rest);
        self.lanes.iter().fold(self.length, |sum, lane| crate::hash::mix(sum.rotate_left(17) ^ *lane))
    }
}

/// Multiplication carries a bit upwards, rotation brings it down again.
#[inline(always)]
fn step(lanes: &mut [u64; 4], bytes: &[u8]) {
    for (lane, word) in lanes.iter_mut().zip(bytes.chunks_exact(8)) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_do_not_show_and_changes_do() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7 % 251) as u8).collect();
        let whole = Checksum::of(&bytes);
        for size in [1, 7, 31, 32, 33, 64, 999] {
            let mut sum = Checksum::new();
            bytes.chunks(size).for_each(|piece| sum.update(piece));
            assert_eq!(sum.finish(), whole, "pieces of {size}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(Checksum::of(&other), whole, "byte {at}");
        }
        assert_ne!(Checksum::of(&[0]), Checksum::of(&[0, 0]));
        assert_ne!(Checksum::of(&[]), Checksum::of(&[0]));
    }
}
