//! Refused credentials, counted per address: an address that tries many is slowed down, and no other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use interlingua_core::Fault;
use interlingua_core::rate::Rate;

use super::rate::Limiter;

/// The most addresses that are counted. Beyond that, those that failed longest ago are forgotten.
const MAX_ADDRESSES: usize = 65_536;

/// Refused credentials of all addresses.
pub struct Failures {
    rate: Rate,
    burst: u32,
    counted: Mutex<HashMap<IpAddr, Counted>>,
}

struct Counted {
    limiter: Limiter,
    failed_at: Instant,
    /// Until when nothing that costs much is tried.
    blocked_until: Instant,
}

impl Failures {
    /// No failures yet. `rate`: how many attempts may fail; `burst`: how many of them at once.
    #[must_use]
    pub fn new(rate: Rate, burst: u32) -> Self {
        Self { rate, burst, counted: Mutex::default() }
    }

    /// Counts a failure.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::RateLimited`] if there were too many.
    pub fn count(&self, address: IpAddr, now: Instant) -> Result<(), Fault> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_ADDRESSES && !counted.contains_key(&network(address)) {
            forget_half(&mut counted);
        }

        let entry = counted.entry(network(address)).or_insert_with(|| Counted {
            limiter: Limiter::new(self.rate, Some(self.burst)),
            failed_at: now,
            blocked_until: now,
        });
        entry.failed_at = now;
        entry.limiter.check("failures").map(|_| ()).inspect_err(|fault| {
            entry.blocked_until = now + fault.retry_after.unwrap_or_default();
        })
    }

    /// True if an address had too many failures just now.
    pub(super) fn is_blocked(&self, address: IpAddr, now: Instant) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.get(&network(address)).is_some_and(|entry| now < entry.blocked_until)
    }
}

/// The addresses that one client is likely to have: of IPv6 a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

fn forget_half(counted: &mut HashMap<IpAddr, Counted>) {
    let mut times: Vec<Instant> = counted.values().map(|entry| entry.failed_at).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    counted.retain(|_, entry| entry.failed_at > median);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn failures() -> Failures {
        let count = NonZeroU32::new(10).expect("more than none");
        Failures::new(Rate { count, per: Duration::from_secs(1) }, 50)
    }

    #[test]
    fn an_address_with_many_failures_is_slowed_down_alone() {
        let (failures, now) = (failures(), Instant::now());
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (one, neighbour, other) = (address("2001:db8::1"), address("2001:db8::2"), address("2001:db8:0:1::1"));
        let refused = (0..100).filter(|_| failures.count(one, now).is_err()).count();
        assert!((40..=50).contains(&refused), "{refused}");

        assert!(failures.is_blocked(neighbour, now) && !failures.is_blocked(other, now));
        assert!(failures.count(other, now).is_ok());
        assert!(!failures.is_blocked(one, now + Duration::from_secs(1)));
    }

    #[test]
    fn a_limited_number_of_addresses_is_counted() {
        let (failures, now) = (failures(), Instant::now());
        for number in 0..u32::try_from(MAX_ADDRESSES).expect("a small number") + 10 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(failures.count(address, now + Duration::from_micros(number.into())).is_ok());
        }
        assert!(failures.counted.lock().expect("no panic").len() <= MAX_ADDRESSES);
    }
}
