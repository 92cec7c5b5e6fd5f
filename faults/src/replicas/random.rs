//! Random choices that are the same again for the same seed. Not here: when what was chosen happens, which also depends
//! on the machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that sets the seed.
const SEED: &str = "INTERLINGUA_FAULTS_SEED";

/// A generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// With the seed of the environment, or else of the clock. Prints it.
    pub(crate) fn seeded() -> Self {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| u64::from(time.subsec_nanos()));
        let seed = given.unwrap_or_else(clock);
        println!("the seed is {seed}, set it again with {SEED}={seed}");
        Self(seed)
    }

    /// Another generator, for another thread.
    pub(crate) fn branch(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// A time between two.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = usize::try_from(most.saturating_sub(least).as_millis()).unwrap_or(usize::MAX);
        least + Duration::from_millis(self.below(span + 1) as u64)
    }
}
