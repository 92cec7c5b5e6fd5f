//! Fair distribution of deletions when there is too much data: the largest owners lose data first, so that one owner's
//! volume never displaces another's. Principals are levelled first, then the owners (tenants, routes) of each. Before
//! that, a principal that exceeds its own limit loses the excess, and no other principal loses data for it. Not here:
//! the choice of an owner's items, and the limits ([`super::owner_bounds`]).

use std::collections::BTreeMap;

/// The data that a principal loses because it exceeds its own limit.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnLoss {
    /// All owners of the principal, and the amount that each of them loses.
    pub owners: Vec<(String, u64)>,
    /// The sum. If an owner cannot lose its part, the other owners of the principal lose it.
    pub over: u64,
}

impl OwnLoss {
    /// The owners and the maximum amount to take from each, in this order, until [`OwnLoss::over`] is reached in total.
    pub fn takes(&self) -> impl Iterator<Item = (&str, u64)> {
        let parts = self.owners.iter().map(|(owner, loss)| (owner.as_str(), *loss));
        parts.chain(self.owners.iter().map(|(owner, _)| (owner.as_str(), self.over)))
    }
}

/// The principals that exceed their own limit, and the data that they lose.
pub fn own_losses(shares: &[(String, u64)], bound_of: impl Fn(&str) -> u64) -> Vec<OwnLoss> {
    let own_loss = |(principal, indexes): (&str, Vec<usize>)| {
        let within: Vec<u64> = indexes.iter().map(|index| shares[*index].1).collect();
        let sum = within.iter().fold(0_u64, |sum, share| sum.saturating_add(*share));
        let over = sum.saturating_sub(bound_of(principal));
        if over == 0 {
            return None;
        }

        let losses = level_down(&within, over);
        let owners = indexes.iter().zip(losses).map(|(index, loss)| (shares[*index].0.clone(), loss)).collect();
        Some(OwnLoss { owners, over })
    };
    by_principal(shares).into_iter().filter_map(own_loss).collect()
}

/// The principal in an owner's key.
pub fn principal_of(owner: &str) -> &str {
    owner.split_once('/').map_or(owner, |(principal, _)| principal)
}

/// The positions of each principal's owners.
fn by_principal(shares: &[(String, u64)]) -> BTreeMap<&str, Vec<usize>> {
    let mut principals: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, (owner, _)) in shares.iter().enumerate() {
        principals.entry(principal_of(owner)).or_default().push(index);
    }
    principals
}

/// The amount that each owner loses so that the sum shrinks by `over`, in the order of `shares`.
pub fn losses(shares: &[(String, u64)], over: u64) -> Vec<u64> {
    let members: Vec<Vec<usize>> = by_principal(shares).into_values().collect();
    let share = |index: &usize| shares[*index].1;
    let sums: Vec<u64> = members.iter().map(|indexes| indexes.iter().map(share).sum()).collect();

    let mut losses = vec![0; shares.len()];
    for (indexes, loss) in members.iter().zip(level_down(&sums, over)) {
        let within: Vec<u64> = indexes.iter().map(share).collect();
        for (index, loss) in indexes.iter().zip(level_down(&within, loss)) {
            losses[*index] = loss;
        }
    }
    losses
}

/// The owners that lose data so that the sum shrinks by `over`, with their amounts.
pub fn losing(shares: Vec<(String, u64)>, over: u64) -> Vec<(String, u64)> {
    if over == 0 {
        return Vec::new();
    }
    let losses = losses(&shares, over);
    let losing = shares.into_iter().zip(losses).filter(|(_, loss)| *loss > 0);
    losing.map(|((owner, _), loss)| (owner, loss)).collect()
}

/// The amount that each entry loses when the largest entries are cut down to one common level, `over` in sum.
fn level_down(amounts: &[u64], over: u64) -> Vec<u64> {
    let above = |level: u64| amounts.iter().map(|amount| u128::from(amount.saturating_sub(level))).sum::<u128>();

    // Binary search for the highest level that frees enough.
    let (mut low, mut high) = (0, amounts.iter().copied().max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if above(middle) >= u128::from(over) { low = middle } else { high = middle - 1 }
    }

    let mut surplus = u64::try_from(above(low).saturating_sub(u128::from(over))).unwrap_or(u64::MAX);
    let take = |amount: &u64| {
        let loss = amount.saturating_sub(low);
        let kept = surplus.min(u64::from(loss > 0));
        surplus -= kept;
        loss - kept
    };

    amounts.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_runs(shares: &[(&str, u64)], over: u64) -> Vec<u64> {
        let shares: Vec<(String, u64)> = shares.iter().map(|(owner, share)| ((*owner).to_owned(), *share)).collect();
        losses(&shares, over)
    }

    #[test]
    fn the_largest_owner_loses_first() {
        assert_eq!(lost_runs(&[("a", 60), ("b", 5)], 15), [15, 0]);
        assert_eq!(lost_runs(&[("a", 60), ("b", 50), ("c", 1)], 30), [20, 10, 0]);
        assert_eq!(lost_runs(&[("a", 3), ("b", 3)], 1).iter().sum::<u64>(), 1);
        assert_eq!(lost_runs(&[("a", 3), ("b", 3)], 100), [3, 3]);
        assert_eq!(lost_runs(&[("a", u64::MAX), ("b", u64::MAX)], 2), [1, 1]);
        assert_eq!(lost_runs(&[], 3), Vec::<u64>::new());
        assert_eq!(lost_runs(&[("a", 3)], 0), [0]);
    }

    #[test]
    fn a_principal_with_many_tenants_counts_as_one_principal() {
        let mut shares: Vec<(String, u64)> = (0..100).map(|tenant| (format!("ann/{tenant}"), 2)).collect();
        shares.push(("bob".into(), 20));

        let losses = losses(&shares, 50);
        assert_eq!(losses.last(), Some(&0));
        assert_eq!(losses.iter().sum::<u64>(), 50);
        assert!(losses.iter().all(|loss| *loss <= 1), "and her tenants lose equally");
    }

    #[test]
    fn only_owners_over_their_bound_lose_runs() {
        let shares = [("ann/a", 40), ("ann/b", 10), ("bob", 60)].map(|(owner, share)| (owner.to_owned(), share));
        let bound_of = |principal: &str| if principal == "ann" { 30 } else { u64::MAX };
        let losses = own_losses(&shares, bound_of);

        let owners = vec![("ann/a".to_owned(), 20), ("ann/b".to_owned(), 0)];
        assert_eq!(losses, [OwnLoss { owners, over: 20 }]);
        let takes: Vec<_> = losses[0].takes().collect();
        assert_eq!(takes, [("ann/a", 20), ("ann/b", 0), ("ann/a", 20), ("ann/b", 20)]);
        assert_eq!(own_losses(&shares, |_| 60), []);
    }
}
