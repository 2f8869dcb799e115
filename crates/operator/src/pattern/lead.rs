//! Absences that a match begins with: `not X for t -> A`, and `not X and A`.
//!
//! A match begins with a row, so what must have been before it is asked when that row comes; no partial match waits
//! for it. A key therefore remembers, for each such absence, one number:
//!
//! * `not X for t`: the time from which the clock runs, that of the first row of the partition, of the last X, or of the
//!   last row of the last match, whichever is latest. A row may begin a match when it comes `t` or more behind.
//! * `not X and A`: whether an X came behind the last A (or the last match, or the partition's first row). If so, the
//!   next A begins no match, and the absence begins anew behind it. A row that is both is an X first.
//!
//! With `SKIP TO NEXT ROW` matches are independent of each other, and a match changes none of this. What is known of a
//! key stays with it, as its first row does for `^`.

use super::automaton::Lead;
use super::chain::{NONE, Taken};
use super::run::{Key, Machine, NEVER, Thread};
use crate::OperatorError;

/// No row came that must not.
const FREE: i64 = 0;
/// One did.
const BARRED: i64 = 1;

impl Machine {
    /// The absences (bits) behind which a match may begin at row `key.next`.
    ///
    /// # Errors
    /// A condition that cannot be computed.
    pub(super) fn fulfilled(&mut self, key: &mut Key) -> Result<u8, OperatorError> {
        let number = key.next;
        let place = key.rows.place(number).expect("a row to be tried is held");
        let time = self.rows.times[place as usize];
        if key.leads.is_empty() {
            key.leads = self.automaton.leads.iter().map(|l| if l.for_ms.is_some() { time } else { FREE }).collect();
        }
        let mut fulfilled = 0;
        for index in 0..key.leads.len() {
            let Lead { symbol, for_ms, .. } = self.automaton.leads[index];
            let holds = match for_ms {
                Some(for_ms) => key.leads[index].saturating_add(for_ms) <= time,
                None => key.leads[index] == FREE && !self.fits_alone(key, symbol, number, place)?,
            };
            fulfilled |= u8::from(holds) << index;
        }
        Ok(fulfilled)
    }

    /// Notes row `number`, behind which the search goes on.
    ///
    /// # Errors
    /// A condition that cannot be computed.
    #[inline]
    pub(super) fn leave(&mut self, key: &mut Key, number: u32) -> Result<(), OperatorError> {
        if key.leads.is_empty() { Ok(()) } else { self.note(key, number) }
    }

    fn note(&mut self, key: &mut Key, number: u32) -> Result<(), OperatorError> {
        let place = key.rows.place(number).expect("a row that was tried is held");
        let (time, mask) = (self.rows.times[place as usize], self.rows.masks[place as usize]);
        for index in 0..key.leads.len() {
            let Lead { symbol, for_ms, behind } = self.automaton.leads[index];
            if for_ms.is_none() && key.leads[index] == BARRED {
                let mut symbols = behind & mask;
                while symbols != 0 && key.leads[index] == BARRED {
                    if self.fits_alone(key, symbols.trailing_zeros() as u8, number, place)? {
                        key.leads[index] = FREE;
                    }
                    symbols &= symbols - 1;
                }
            }
            if self.fits_alone(key, symbol, number, place)? {
                key.leads[index] = if for_ms.is_some() { key.leads[index].max(time) } else { BARRED };
            }
        }
        Ok(())
    }

    /// Notes a match, behind whose last row the search goes on.
    #[inline]
    pub(super) fn restart(&mut self, key: &mut Key, last: u32) {
        if key.leads.is_empty() {
            return;
        }
        let time = key.rows.place(last).map(|place| self.rows.times[place as usize]);
        for (lead, known) in self.automaton.leads.iter().zip(key.leads.iter_mut()) {
            *known = if lead.for_ms.is_some() { time.map_or(*known, |t| t.max(*known)) } else { FREE };
        }
    }

    /// Whether a row fits a symbol when nothing was matched.
    fn fits_alone(&mut self, key: &Key, symbol: u8, number: u32, place: u32) -> Result<bool, OperatorError> {
        if self.rows.masks[place as usize] & (1 << symbol) == 0 {
            return Ok(false);
        }
        let nothing = Thread { state: self.automaton.start, link: NONE, due: NEVER };
        self.holds(key, Taken { row: number, symbol, excluded: false }, place, nothing)
    }
}
