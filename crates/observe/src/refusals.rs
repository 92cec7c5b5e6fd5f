//! Limits on what strangers write into the audit log: refusals are counted for each kind and address, and the rest of a
//! period is one line.
//!
//! Not here: where entries are kept and written ([`super::audit`]).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::audit::{AuditEntry, RefusalKind};

/// The period that is summed up.
const PERIOD: Duration = Duration::from_secs(10);
/// Refusals of one kind that are written in a period.
const MAX_OF_KIND: u32 = 50;
/// Refusals of one kind and address that are written in a period.
const MAX_OF_ADDRESS: u32 = 10;
/// Kinds that are told apart.
const MAX_KINDS: usize = 64;

/// Refusals within the current period.
pub(super) struct Refusals(Mutex<Period>);

struct Period {
    since: Instant,
    kinds: HashMap<RefusalKind, CountedRefusals>,
}

/// Refusals of a kind within the current period.
#[derive(Default)]
struct CountedRefusals {
    written: u32,
    /// Written entries of each address.
    by_address: HashMap<Option<IpAddr>, u32>,
    left_out: u32,
    /// The address of those that were left out. `None`: they came from several.
    left_out_from: Option<Option<IpAddr>>,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Period { since: now, kinds: HashMap::new() }))
    }

    /// Counts a refusal. Returns the entries to write: the sums of an ended period, then this one unless there were too
    /// many.
    pub(super) fn admit(&self, entry: AuditEntry, now: Instant) -> Vec<AuditEntry> {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = period.end(now);
        let kind = entry.kind();
        let kind =
            if period.kinds.contains_key(&kind) || period.kinds.len() < MAX_KINDS { kind } else { kind.merged() };
        let counted = period.kinds.entry(kind).or_default();
        let network = entry.address().map(network);
        let of_address = counted.by_address.get(&network).copied().unwrap_or(0);
        if counted.written < MAX_OF_KIND && of_address < MAX_OF_ADDRESS {
            counted.written += 1;
            counted.by_address.insert(network, of_address + 1);
            written.push(entry);
        } else {
            let is_first = counted.left_out == 0;
            counted.left_out += 1;
            counted.left_out_from = if is_first {
                Some(entry.address())
            } else {
                counted.left_out_from.filter(|address| *address == entry.address())
            };
        }
        written
    }

    /// The sums of the current period if it has ended, or in any case.
    pub(super) fn sums(&self, now: Instant, in_any_case: bool) -> Vec<AuditEntry> {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if in_any_case { period.sums() } else { period.end(now) }
    }
}

impl Period {
    fn end(&mut self, now: Instant) -> Vec<AuditEntry> {
        if now.duration_since(self.since) < PERIOD {
            return Vec::new();
        }
        let sums = self.sums();
        *self = Self { since: now, kinds: HashMap::new() };
        sums
    }

    fn sums(&mut self) -> Vec<AuditEntry> {
        let mut sums = Vec::new();
        for (kind, counted) in &mut self.kinds {
            let count = std::mem::take(&mut counted.left_out);
            if count > 0 {
                sums.push(AuditEntry::sum(kind, counted.left_out_from.flatten(), count));
            }
        }
        sums
    }
}

/// The addresses that one client is likely to have: of IPv6 a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::super::audit::Action;
    use super::*;

    fn refused(number: u32, code: &str) -> AuditEntry {
        AuditEntry::new(Action::AdminCall).refused().from(IpAddr::from(number.to_be_bytes())).detail(code)
    }

    /// The number of refusals that entries stand for.
    fn total(entries: &[AuditEntry]) -> u32 {
        entries.iter().map(AuditEntry::count).sum()
    }

    #[test]
    fn an_address_and_a_kind_are_limited_and_the_rest_is_summed_up() {
        let now = Instant::now();
        let refusals = Refusals::new(now);
        let flood: Vec<_> = (0..1000).flat_map(|_| refusals.admit(refused(1, "FORBIDDEN"), now)).collect();
        assert_eq!(flood.len(), MAX_OF_ADDRESS as usize);
        assert_eq!(refusals.admit(refused(2, "FORBIDDEN"), now).len(), 1, "another address");
        assert_eq!(refusals.admit(refused(1, "MISDIRECTED"), now).len(), 1, "another kind");

        let sums = refusals.sums(now + PERIOD, false);
        assert_eq!((sums.len(), total(&sums)), (1, 990));
        assert_eq!(sums[0].address(), Some(IpAddr::from([0, 0, 0, 1])));
        assert!(refusals.sums(now + PERIOD, true).is_empty(), "once");
    }

    #[test]
    fn many_addresses_and_kinds_stay_within_bounds() {
        let now = Instant::now();
        let refusals = Refusals::new(now);
        let mut written = Vec::new();
        for number in 0..10_000 {
            written.extend(refusals.admit(refused(number, "FORBIDDEN"), now));
            written.extend(refusals.admit(refused(number, &format!("kind {number}")), now));
        }
        assert!(written.len() <= (MAX_KINDS + 2) + 2 * MAX_OF_KIND as usize, "{}", written.len());
        let period = refusals.0.lock().expect("no panic");
        assert!(period.kinds.len() <= MAX_KINDS + 1);
        assert!(period.kinds.values().all(|counted| counted.by_address.len() <= MAX_OF_KIND as usize));
        drop(period);
        written.extend(refusals.sums(now, true));
        assert_eq!(total(&written), 20_000);
    }
}
