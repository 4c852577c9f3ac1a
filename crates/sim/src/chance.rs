//! Numbers that look like chance and follow from one seed: splitmix64, which is small, fast and the same on
//! every machine.

use std::ops::Range;

/// A stream of such numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed. Streams of one seed for different purposes are told apart by `purpose`, so that
    /// drawing more for one changes nothing for another.
    pub fn new(seed: u64, purpose: u64) -> Chance {
        let mut mixed = Chance(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        mixed.draw();
        mixed
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of a range.
    pub fn of(&mut self, range: Range<u64>) -> u64 {
        let span = range.end - range.start;
        range.start + ((u128::from(self.draw()) * u128::from(span)) >> 64) as u64
    }

    /// One of the first so many.
    pub fn index(&mut self, many: usize) -> usize {
        self.of(0..many as u64) as usize
    }

    /// Whether it happens, of a thousand times so often.
    pub fn per_mille(&mut self, often: u64) -> bool {
        self.of(0..1000) < often
    }

    /// Mostly small ones of a range, of every magnitude in it equally often.
    pub fn magnitude(&mut self, range: Range<u64>) -> u64 {
        let most = range.end.max(range.start + 1);
        let doublings = (most / range.start.max(1)).ilog2() + 1;
        let low = range.start << self.of(0..u64::from(doublings));
        self.of(low..low * 2).clamp(range.start, most - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_gives_others() {
        let draw = |seed, purpose| {
            let mut chance = Chance::new(seed, purpose);
            (0..8).map(|_| chance.of(0..1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
    }

    #[test]
    fn magnitudes_stay_in_their_range() {
        let mut chance = Chance::new(7, 0);
        assert!((0..10_000).all(|_| (50..30_000).contains(&chance.magnitude(50..30_000))));
    }
}
