//! Who loses how much where there is too much: whoever has most, so that nobody's volume takes away what is another's.
//! Principals are levelled first, then the owners (tenants, routes) of each. Not here: what an owner loses of its own.

use std::collections::BTreeMap;

/// What each owner has to lose, of what it has, for the sum to shrink by `over`. In the order given.
pub(super) fn losses(shares: &[(String, u64)], over: u64) -> Vec<u64> {
    let mut principals: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, (owner, _)) in shares.iter().enumerate() {
        let principal = owner.split_once('/').map_or(owner.as_str(), |(principal, _)| principal);
        principals.entry(principal).or_default().push(place);
    }
    let members: Vec<Vec<usize>> = principals.into_values().collect();
    let share = |place: &usize| shares[*place].1;
    let sums: Vec<u64> = members.iter().map(|places| places.iter().map(share).sum()).collect();

    let mut losses = vec![0; shares.len()];
    for (places, loss) in members.iter().zip(levelled(&sums, over)) {
        let within: Vec<u64> = places.iter().map(share).collect();
        for (place, loss) in places.iter().zip(levelled(&within, loss)) {
            losses[*place] = loss;
        }
    }
    losses
}

/// Takes from the greatest until all that is left of them is the same, `over` in sum.
fn levelled(amounts: &[u64], over: u64) -> Vec<u64> {
    let above = |level: u64| amounts.iter().map(|amount| u128::from(amount.saturating_sub(level))).sum::<u128>();
    // The highest level that takes enough.
    let (mut low, mut high) = (0, amounts.iter().copied().max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if above(middle) >= u128::from(over) { low = middle } else { high = middle - 1 }
    }
    let mut surplus = u64::try_from(above(low).saturating_sub(u128::from(over))).unwrap_or(u64::MAX);
    let take = |amount: &u64| {
        let loss = amount.saturating_sub(low);
        let spared = surplus.min(u64::from(loss > 0));
        surplus -= spared;
        loss - spared
    };
    amounts.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(shares: &[(&str, u64)], over: u64) -> Vec<u64> {
        let shares: Vec<(String, u64)> = shares.iter().map(|(owner, share)| ((*owner).to_owned(), *share)).collect();
        losses(&shares, over)
    }

    #[test]
    fn whoever_has_most_loses_first() {
        assert_eq!(lose(&[("a", 60), ("b", 5)], 15), [15, 0]);
        assert_eq!(lose(&[("a", 60), ("b", 50), ("c", 1)], 30), [20, 10, 0]);
        assert_eq!(lose(&[("a", 3), ("b", 3)], 1).iter().sum::<u64>(), 1);
        assert_eq!(lose(&[("a", 3), ("b", 3)], 100), [3, 3]);
        assert_eq!(lose(&[("a", u64::MAX), ("b", u64::MAX)], 2), [1, 1]);
        assert_eq!(lose(&[], 3), Vec::<u64>::new());
        assert_eq!(lose(&[("a", 3)], 0), [0]);
    }

    #[test]
    fn a_caller_of_many_names_is_one_caller() {
        let mut shares: Vec<(String, u64)> = (0..100).map(|tenant| (format!("ann/{tenant}"), 2)).collect();
        shares.push(("bob".into(), 20));
        let losses = losses(&shares, 50);
        assert_eq!(losses.last(), Some(&0));
        assert_eq!(losses.iter().sum::<u64>(), 50);
        assert!(losses.iter().all(|loss| *loss <= 1), "and her tenants lose alike");
    }
}
