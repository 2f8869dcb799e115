//! What partial matches have taken: rows and their symbols, as chains from the last row to the first.
//!
//! Partial matches that began alike share what they have in common (the versioned buffer of SASE:
//! Agrawal, Diao, Gyllstrom, Immerman: Efficient pattern matching over event streams, SIGMOD 2008). A
//! link costs 16 bytes, and the registers of the conditions that look back.

/// No link: nothing was taken yet.
pub(super) const NONE: u32 = u32::MAX;

/// A row that a match took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Number of the row in its partition.
    pub row: u32,
    pub symbol: u8,
    pub excluded: bool,
}

/// All links, by number.
pub(super) struct Chains {
    previous: Vec<u32>,
    taken: Vec<Taken>,
    references: Vec<u32>,
    registers: Vec<u64>,
    /// Registers a link.
    stride: usize,
    free: Vec<u32>,
}

impl Chains {
    /// No links yet; each has `stride` registers.
    pub fn new(stride: usize) -> Self {
        Chains { previous: Vec::new(), taken: Vec::new(), references: Vec::new(), registers: Vec::new(), stride, free: Vec::new() }
    }

    /// A link behind `previous`, held once; `registers` are copied.
    #[inline]
    pub fn add(&mut self, previous: u32, taken: Taken, registers: &[u64]) -> u32 {
        if previous != NONE {
            self.references[previous as usize] += 1;
        }
        let link = match self.free.pop() {
            Some(link) => {
                self.previous[link as usize] = previous;
                self.taken[link as usize] = taken;
                self.references[link as usize] = 1;
                link
            }
            None => {
                self.previous.push(previous);
                self.taken.push(taken);
                self.references.push(1);
                self.registers.resize(self.registers.len() + self.stride, 0);
                self.previous.len() as u32 - 1
            }
        };
        let from = link as usize * self.stride;
        self.registers[from..from + self.stride].copy_from_slice(registers);
        link
    }

    /// Holds a link once more.
    #[inline]
    pub fn hold(&mut self, link: u32) {
        if link != NONE {
            self.references[link as usize] += 1;
        }
    }

    /// Lets go of a link; links that nobody holds are gone.
    #[inline]
    pub fn release(&mut self, mut link: u32) {
        while link != NONE {
            let references = &mut self.references[link as usize];
            *references -= 1;
            if *references > 0 {
                return;
            }
            self.free.push(link);
            link = self.previous[link as usize];
        }
    }

    /// The registers of a link.
    #[inline]
    pub fn registers(&self, link: u32) -> &[u64] {
        let from = link as usize * self.stride;
        &self.registers[from..from + self.stride]
    }

    /// Whether two links have the same registers.
    pub fn alike(&self, a: u32, b: u32) -> bool {
        a == b || (a != NONE && b != NONE && self.registers(a) == self.registers(b))
    }

    /// What was taken up to `link`, last first.
    pub fn backwards(&self, mut link: u32) -> impl Iterator<Item = Taken> + '_ {
        std::iter::from_fn(move || {
            if link == NONE {
                return None;
            }
            let taken = self.taken[link as usize];
            link = self.previous[link as usize];
            Some(taken)
        })
    }

    /// How many links there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.previous.len() - self.free.len()
    }

    pub fn memory(&self) -> usize {
        (self.previous.capacity() + self.references.capacity() + self.free.capacity()) * 4
            + self.taken.capacity() * size_of::<Taken>()
            + self.registers.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_and_end() {
        let mut chains = Chains::new(1);
        let taken = |row| Taken { row, symbol: row as u8, excluded: false };
        let first = chains.add(NONE, taken(0), &[7]);
        let left = chains.add(first, taken(1), &[8]);
        let right = chains.add(first, taken(2), &[9]);
        chains.release(first);
        assert_eq!(chains.backwards(left).map(|t| t.row).collect::<Vec<_>>(), [1, 0]);
        assert_eq!((chains.registers(right), chains.len()), (&[9][..], 3));
        chains.release(left);
        assert_eq!(chains.len(), 2);
        let other = chains.add(right, taken(3), &[1]);
        chains.release(right);
        assert_eq!(chains.backwards(other).map(|t| t.row).collect::<Vec<_>>(), [3, 2, 0]);
        chains.release(other);
        assert_eq!(chains.len(), 0);
    }
}
