//! Whether a reader lets small frames of a connection gather.
//!
//! A publisher that writes small frames one by one, as fast as it can, pays for each time that their reader goes to sleep: its next
//! write has to wake it. So while frames come fast on average the reader stays away for a moment before it reads, and the
//! publisher's writes wake nobody. On average, as single ones are held up by whatever else a machine does.

/// Frames that are no further apart on average come fast, ns: about what a write of one and the waking of its reader take.
const FAST_NS: u64 = 25_000;
/// The most that the time between two frames counts for, ns, and what frames count for that do not gather: after so much it takes
/// some forty reads of fast frames until the average is a fast one.
const SLOW_NS: u64 = 8 * FAST_NS;
/// The average moves by this part of the difference.
const WEIGHT: u64 = 16;
/// A read of so many bytes, or of all that there was room for, is a heavy one.
pub(super) const HEAVY_BYTES: usize = 32 << 10;
/// For so long frames gather, counted from the read before, ns. The system makes it up to twice as long.
const GATHER_NS: u64 = 50_000;
/// A pause that became as long as this was none of ours, ns: some systems know no shorter one than a millisecond.
const OVERSLEPT_NS: u64 = 400_000;
/// After a pause that was no use so many reads are made without one, after the next eight times as many,
const PUT_OFF_READS: u32 = 32;
/// up to so many: some 15 s of them.
const PUT_OFF_READS_MAX: u32 = 1 << 20;

/// How fast small frames of a connection come.
pub(super) struct Pace {
    /// When something was last read, ns.
    read_ns: u64,
    /// Time between two frames, on average, ns.
    gap_ns: u64,
    /// So many reads are made without a pause.
    reads: u32,
    /// So many after the next one that is no use.
    put_off: u32,
    /// The pause before the read that comes, ns; 0 for none.
    pause_ns: u64,
}

impl Pace {
    /// That of a connection of which nothing was read.
    pub fn new(now_ns: u64) -> Self {
        Pace { read_ns: now_ns, gap_ns: SLOW_NS, reads: 0, put_off: PUT_OFF_READS, pause_ns: 0 }
    }

    /// When something was last read, ns.
    pub fn read_ns(&self) -> u64 {
        self.read_ns
    }

    /// Frames do not come fast, as far as is known: whoever has read one is likely to sleep before the next.
    pub fn is_slow(&self) -> bool {
        self.gap_ns > FAST_NS
    }

    /// For how long to let frames gather from now on, if that is worth while, ns: what the worker did since the last read counts.
    pub fn pause_ns(&self, now_ns: u64) -> Option<u64> {
        (self.reads == 0 && self.gap_ns <= FAST_NS).then(|| GATHER_NS.saturating_sub(now_ns.saturating_sub(self.read_ns)))
    }

    /// Takes note of a pause that became so long.
    pub fn paused(&mut self, pause_ns: u64) {
        self.pause_ns = pause_ns;
    }

    /// Takes note of a read of `frames` in so many bytes.
    pub fn note(&mut self, now_ns: u64, frames: u64, bytes: usize) {
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.read_ns, now_ns));
        if frames == 0 || bytes >= HEAVY_BYTES {
            self.gap_ns = SLOW_NS;
        } else {
            self.gap_ns = (self.gap_ns * (WEIGHT - 1) + (since_ns / frames).min(SLOW_NS)) / WEIGHT;
        }
        self.reads = self.reads.saturating_sub(1);
        match std::mem::take(&mut self.pause_ns) {
            0 => {}
            // Where a pause is a millisecond many frames gather in it, but more could have been worked off meanwhile; where there
            // is one only, its publisher waits for an answer.
            pause_ns if pause_ns >= OVERSLEPT_NS || frames <= 1 => {
                self.reads = self.put_off;
                self.put_off = (self.put_off * 8).min(PUT_OFF_READS_MAX);
            }
            _ => self.put_off = PUT_OFF_READS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so many frames, one each, so far apart; whether frames gather then.
    fn reads(pace: &mut Pace, count: u32, gap_ns: u64) -> bool {
        (0..count).for_each(|_| pace.note(pace.read_ns + gap_ns, 1, 50));
        pace.pause_ns(pace.read_ns).is_some()
    }

    #[test]
    fn small_frames_that_come_fast_on_average_gather() {
        let mut pace = Pace::new(1_000_000);
        assert!(!reads(&mut pace, 30, FAST_NS / 2));
        assert!(reads(&mut pace, 30, FAST_NS / 2));
        // What has gathered came as fast, and a single one that comes late changes little.
        pace.note(pace.read_ns + 10 * FAST_NS, 10, 500);
        assert!(reads(&mut pace, 30, FAST_NS / 2));
        pace.note(pace.read_ns + 2 * FAST_NS, 1, 50);
        assert!(pace.pause_ns(pace.read_ns).is_some());
        assert!(!reads(&mut pace, 100, FAST_NS + 100), "slower ones");
        // Much at once, or a read without a whole frame, and they do not gather any more.
        for (frames, bytes) in [(100, HEAVY_BYTES), (0, 20)] {
            assert!(reads(&mut pace, 100, FAST_NS / 2));
            pace.note(pace.read_ns + 1, frames, bytes);
            assert!(!reads(&mut pace, 30, FAST_NS / 2));
        }
    }

    #[test]
    fn what_a_worker_did_since_the_last_read_is_part_of_the_pause() {
        let mut pace = Pace::new(0);
        assert!(reads(&mut pace, 100, 1_000));
        let read_ns = pace.read_ns();
        assert_eq!(pace.pause_ns(read_ns), Some(GATHER_NS));
        assert_eq!(pace.pause_ns(read_ns + 20_000), Some(GATHER_NS - 20_000));
        assert_eq!(pace.pause_ns(read_ns + 1_000_000_000), Some(0), "nobody sleeps for frames of long ago");
    }

    /// In a pause of a millisecond so many frames gather that the next one seemed to be worth while, too; in others none, as the
    /// publisher waits for what becomes of the one that there is.
    #[test]
    fn pauses_that_are_no_use_are_put_off_ever_longer() {
        for (pause_ns, frames) in [(1_000_000, 70), (GATHER_NS, 1)] {
            let mut pace = Pace::new(0);
            assert!(reads(&mut pace, 100, 1_000));
            for wanted in [PUT_OFF_READS, 8 * PUT_OFF_READS, 64 * PUT_OFF_READS] {
                pace.paused(pause_ns);
                pace.note(pace.read_ns + pause_ns, frames, 50 * frames as usize);
                assert!(!reads(&mut pace, wanted - 1, 1_000));
                assert!(reads(&mut pace, 1, 1_000));
            }
            pace.paused(2 * GATHER_NS);
            pace.note(pace.read_ns + 2 * GATHER_NS, 7, 350);
            assert!(pace.pause_ns(pace.read_ns).is_some(), "it was some use");
            assert_eq!(pace.put_off, PUT_OFF_READS);
        }
    }
}
