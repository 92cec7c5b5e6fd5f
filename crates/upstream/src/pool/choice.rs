//! The choice of an endpoint: the less busy of two random ones, or the one that a session's id maps to.

use sha2::{Digest, Sha256};

use super::key::EndpointKey;

/// An endpoint that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Its index in the pool.
    pub(super) index: usize,
    /// Runs under way.
    pub(super) active: u32,
    /// At least 1.
    pub(super) weight: u32,
}

impl Load {
    /// True if it has fewer runs under way per weight.
    fn is_less_busy(&self, other: &Self) -> bool {
        u64::from(self.active) * u64::from(other.weight) < u64::from(other.active) * u64::from(self.weight)
    }
}

/// Draws two candidates by weight and takes the one with fewer runs per weight. Returns its index in the pool.
/// `candidates` must not be empty.
pub(super) fn two_choices(candidates: &[Load], random: u64) -> usize {
    let first = draw(candidates, None, random >> 32);
    if candidates.len() == 1 {
        return candidates[first].index;
    }

    let second = draw(candidates, Some(first), random & u64::from(u32::MAX));
    let chosen = if candidates[second].is_less_busy(&candidates[first]) { second } else { first };
    candidates[chosen].index
}

/// Draws one by weight, other than `except`. `random`: 32 bits.
fn draw(candidates: &[Load], except: Option<usize>, random: u64) -> usize {
    let others = || candidates.iter().enumerate().filter(|(place, _)| Some(*place) != except);
    let total: u64 = others().map(|(_, load)| u64::from(load.weight)).sum();
    let mut left = (random * total) >> 32;
    for (place, load) in others() {
        let weight = u64::from(load.weight);
        if left < weight {
            return place;
        }
        left -= weight;
    }
    0
}

/// The candidate that a session's id points to. If another candidate comes or goes, only sessions that move to it or
/// from it point elsewhere. Returns the place in `candidates`, which must not be empty.
pub(super) fn rendezvous<'a>(candidates: impl IntoIterator<Item = (&'a EndpointKey, u32)>, session: &str) -> usize {
    let score = |(key, weight): (&EndpointKey, u32)| -f64::from(weight) / hash(key, session).ln();
    let scores = candidates.into_iter().map(score).enumerate();
    let best = scores.max_by(|(_, left), (_, right)| left.total_cmp(right));
    best.map_or(0, |(place, _)| place)
}

/// A number between 0 and 1, both excluded.
fn hash(key: &EndpointKey, session: &str) -> f64 {
    let mut hash = Sha256::new();
    // With its length: no two pairs are the same bytes.
    hash.update((key.as_str().len() as u64).to_le_bytes());
    hash.update(key.as_str().as_bytes());
    hash.update(session.as_bytes());
    let digest = hash.finalize();
    let high = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
    (f64::from(high) + 0.5) / (f64::from(u32::MAX) + 1.0)
}

/// Random numbers for choices: not for secrets. The algorithm is SplitMix64.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(weights: &[u32]) -> Vec<Load> {
        weights.iter().enumerate().map(|(index, weight)| Load { index, active: 0, weight: *weight }).collect()
    }

    #[test]
    fn idle_endpoints_are_chosen_by_weight() {
        for weights in [vec![1], vec![1, 1], vec![2, 1, 1], vec![10, 1, 5, 4]] {
            let candidates = loads(&weights);
            let mut random = Random::new(7);
            let mut chosen = vec![0_u32; weights.len()];
            (0..10_000).for_each(|_| chosen[two_choices(&candidates, random.draw())] += 1);

            let total: u32 = weights.iter().sum();
            for (count, weight) in chosen.iter().zip(&weights) {
                let expected = 10_000.0 * f64::from(*weight) / f64::from(total);
                let deviation = (f64::from(*count) - expected).abs() / 10_000.0;
                assert!(deviation < 0.02, "{chosen:?} for {weights:?}");
            }
        }
    }

    #[test]
    fn loads_per_weight_stay_together() {
        let mut candidates = loads(&[1, 2, 4]);
        let mut random = Random::new(11);
        for _ in 0..1_400 {
            let chosen = two_choices(&candidates, random.draw());
            candidates[chosen].active += 1;
        }
        let per_weight: Vec<u32> = candidates.iter().map(|load| load.active / load.weight).collect();
        let (least, most) = (per_weight.iter().min(), per_weight.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 6), "{per_weight:?}");
    }

    #[test]
    fn a_busy_endpoint_is_avoided() {
        let mut candidates = loads(&[1, 1]);
        candidates[0].active = 5;
        let mut random = Random::new(3);
        assert!((0..1_000).all(|_| two_choices(&candidates, random.draw()) == 1), "there is always the other one");
    }

    #[test]
    fn sessions_move_only_from_an_endpoint_that_left() {
        let keys: Vec<EndpointKey> = (0..5).map(|n| EndpointKey::new(&format!("http://agent-{n}"))).collect();
        let candidates = || keys.iter().map(|key| (key, 1));
        let mut moved = 0;
        for session in (0..10_000).map(|n| format!("session-{n}")) {
            let before = rendezvous(candidates(), &session);
            let after = rendezvous(candidates().take(4), &session);
            if before == 4 {
                moved += 1;
            } else {
                assert_eq!(before, after, "{session} had another home");
            }
        }
        assert!((1_800..=2_200).contains(&moved), "{moved}");
    }

    #[test]
    fn sessions_are_shared_out_by_weight() {
        let keys: Vec<EndpointKey> = (0..2).map(|n| EndpointKey::new(&format!("http://agent-{n}"))).collect();
        let at_first = |session: &str| rendezvous(keys.iter().zip([3, 1]), session) == 0;
        let share = (0..10_000).filter(|n| at_first(&format!("session-{n}"))).count();
        assert!((7_300..=7_700).contains(&share), "{share}");
    }
}
