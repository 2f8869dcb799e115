//! What partial matches have taken: rows and their symbols, as chains from the last row to the first.
//!
//! Partial matches that began alike share what they have in common (the versioned buffer of SASE:
//! Agrawal, Diao, Gyllstrom, Immerman: Efficient pattern matching over event streams, SIGMOD 2008). A
//! link costs 16 bytes, and the registers of the conditions that look back.
//!
//! Partial matches that go on alike share that, too: what a group of them takes is one chain, with a *joint* in
//! it where some of them joined, behind which each goes on with a chain of its own (the union nodes of CORE: Bucchi,
//! Grez, Quintana, Riveros, Vansummeren: CORE: a Complex Event Recognition Engine, VLDB 2022).

/// No link: nothing was taken yet.
pub(super) const NONE: u32 = u32::MAX;

/// The symbol of a joint, which stands for no row.
const JOINT: u8 = u8::MAX;

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
        let link = self.link(previous, taken);
        let from = link as usize * self.stride;
        self.registers[from..from + self.stride].copy_from_slice(registers);
        link
    }

    /// A joint behind `previous`, held once. What it is called is for [`Chains::joined`]; its registers are all alike.
    pub fn joint(&mut self, previous: u32, number: u32) -> u32 {
        let link = self.link(previous, Taken { row: number, symbol: JOINT, excluded: false });
        let from = link as usize * self.stride;
        self.registers[from..from + self.stride].fill(0);
        link
    }

    /// A link behind `previous`, held once; its registers are to be set.
    #[inline]
    fn link(&mut self, previous: u32, taken: Taken) -> u32 {
        if previous != NONE {
            self.references[previous as usize] += 1;
        }
        match self.free.pop() {
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
        }
    }

    /// Forgets what lies before `link`, which nobody will look at through it.
    pub fn cut(&mut self, link: u32) {
        let previous = std::mem::replace(&mut self.previous[link as usize], NONE);
        self.release(previous);
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

    /// The row of a link that is no joint.
    #[inline]
    pub fn row(&self, link: u32) -> u32 {
        self.taken[link as usize].row
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

    /// What was taken up to `link`, last first, by one of a group: `own` says for the numbers of its joints with which chain it
    /// goes on there.
    pub fn joined(&self, mut link: u32, own: impl Fn(u32) -> Option<u32>) -> impl Iterator<Item = Taken> {
        std::iter::from_fn(move || {
            while link != NONE {
                let taken = self.taken[link as usize];
                let previous = self.previous[link as usize];
                if taken.symbol != JOINT {
                    link = previous;
                    return Some(taken);
                }
                link = own(taken.row).unwrap_or(previous);
            }
            None
        })
    }

    /// As [`Chains::joined`], but only up to the joint: puts what was taken behind it into `taken` and gives the chain before.
    pub fn up_to_joint(&self, mut link: u32, own: impl Fn(u32) -> Option<u32>, taken: &mut Vec<Taken>) -> u32 {
        while link != NONE {
            let this = self.taken[link as usize];
            if this.symbol != JOINT {
                taken.push(this);
            } else if let Some(own) = own(this.row) {
                return own;
            }
            link = self.previous[link as usize];
        }
        NONE
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

    #[test]
    fn chains_join() {
        let mut chains = Chains::new(0);
        let taken = |row| Taken { row, symbol: 0, excluded: false };
        let behind = |chains: &mut Chains, link, row| {
            let next = chains.add(link, taken(row), &[]);
            chains.release(link);
            next
        };
        let (one, other) = (chains.add(NONE, taken(1), &[]), chains.add(NONE, taken(2), &[]));
        let first = chains.joint(NONE, 100);
        let link = behind(&mut chains, first, 3);
        let second = chains.joint(link, 101);
        chains.release(link);
        chains.hold(second);
        let link = behind(&mut chains, second, 4);
        let rows = |chains: &Chains, joint: u32, own: u32| -> Vec<u32> {
            chains.joined(link, |number| (number == joint).then_some(own)).map(|t| t.row).collect()
        };
        assert_eq!(rows(&chains, 100, one), [4, 3, 1]);
        assert_eq!(rows(&chains, 101, other), [4, 2]);
        let mut up = Vec::new();
        assert_eq!(chains.up_to_joint(link, |number| (number == 100).then_some(one), &mut up), one);
        assert_eq!(up.iter().map(|t| t.row).collect::<Vec<_>>(), [4, 3]);
        chains.release(one);
        chains.cut(second);
        assert_eq!(rows(&chains, 101, other), [4, 2]);
        // The second joint, row 4 and row 2.
        assert_eq!(chains.len(), 3);
        [second, link, other].into_iter().for_each(|l| chains.release(l));
        assert_eq!(chains.len(), 0);
    }
}
