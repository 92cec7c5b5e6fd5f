//! Refused credentials, counted per client address and signing key. Clients of one address often share it with others,
//! behind a proxy or a NAT: wrong credentials never block valid keys, nor tokens that another key signed.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlingua_base::rate::Rate;
use interlingua_core::Fault;

use super::rate::Limiter;

/// The most entries, one for each address and signing key. Beyond that, those that failed longest ago are forgotten.
const MAX_ENTRIES: usize = 65_536;
/// Signatures that are verified per second, for one address and signing key, after too many were wrong. A hundred cost
/// about 1 % of a core, and valid tokens among wrong ones still pass.
const CHECKS_WHILE_BLOCKED: NonZeroU32 = match NonZeroU32::new(100) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// The refused credentials of all addresses.
pub struct Failures {
    rate: Rate,
    burst: u32,
    counted: Mutex<HashMap<Source, FailureCount>>,
}

/// The origin of refused credentials: a network, and the key that would have signed the token. `None`: the credentials
/// named no known signing key.
type Source = (IpAddr, Option<SignerId>);

/// A public key of an issuer, by its issuer and key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignerId(u64);

impl SignerId {
    /// The id of a key that the issuer publishes. `kid` is `None` for a key without an id.
    #[must_use]
    pub fn new(issuer: &str, kid: Option<&str>) -> Self {
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one((issuer, kid)))
    }
}

struct FailureCount {
    limiter: Limiter,
    failed_at: Instant,
    /// End of the time in which signatures are verified at a limited rate only.
    blocked_until: Instant,
    checks: Limiter,
}

impl Failures {
    /// No failures yet. `rate`: how many attempts may fail; `burst`: how many of them at once.
    #[must_use]
    pub fn new(rate: Rate, burst: u32) -> Self {
        Self { rate, burst, counted: Mutex::default() }
    }

    /// Counts a failure of credentials that name no signing key.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::RateLimited`] if there were too many.
    pub fn count(&self, address: IpAddr, now: Instant) -> Result<(), Fault> {
        self.count_of(address, None, now)
    }

    /// Counts a failure. `signer`: the key that would have signed the token.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::RateLimited`] if there were too many.
    pub(super) fn count_of(&self, address: IpAddr, signer: Option<SignerId>, now: Instant) -> Result<(), Fault> {
        let source = (network(address), signer);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_ENTRIES && !counted.contains_key(&source) {
            forget_half(&mut counted);
        }

        let entry = counted.entry(source).or_insert_with(|| FailureCount {
            limiter: Limiter::new(self.rate, Some(self.burst)),
            failed_at: now,
            blocked_until: now,
            checks: Limiter::new(Rate { count: CHECKS_WHILE_BLOCKED, per: Duration::from_secs(1) }, None),
        });
        entry.failed_at = now;
        entry.limiter.check("failures").map(|_| ()).inspect_err(|fault| {
            entry.blocked_until = now + fault.retry_after.unwrap_or_default();
        })
    }

    /// Whether a signature may be verified. False only if the address sent too many wrong tokens of this signer just
    /// now and used up its limited rate of further attempts.
    pub(super) fn admit_signature(&self, address: IpAddr, signer: SignerId, now: Instant) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let blocked = counted.get(&(network(address), Some(signer))).filter(|entry| now < entry.blocked_until);
        blocked.is_none_or(|entry| entry.checks.check("signatures").is_ok())
    }
}

/// The addresses that one client is likely to have: of IPv6 a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

fn forget_half(counted: &mut HashMap<Source, FailureCount>) {
    let mut times: Vec<Instant> = counted.values().map(|entry| entry.failed_at).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    counted.retain(|_, entry| entry.failed_at > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures() -> Failures {
        let count = NonZeroU32::new(10).expect("more than none");
        Failures::new(Rate { count, per: Duration::from_secs(1) }, 50)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_with_many_failures_is_slowed_down_alone() {
        let (failures, now) = (failures(), Instant::now());
        let (one, neighbour, other) = (address("2001:db8::1"), address("2001:db8::2"), address("2001:db8:0:1::1"));
        let refused = (0..100).filter(|_| failures.count(one, now).is_err()).count();
        assert!((40..=50).contains(&refused), "{refused}");

        assert!(failures.count(neighbour, now).is_err(), "the same network");
        assert!(failures.count(other, now).is_ok());
    }

    #[test]
    fn wrong_tokens_limit_signatures_of_their_own_signer_and_address_only() {
        let (failures, now) = (failures(), Instant::now());
        let (one, other) = (address("203.0.113.1"), address("203.0.113.2"));
        let (signer, another) = (SignerId::new("https://a", Some("1")), SignerId::new("https://a", Some("2")));
        let admitted = |from, signer, at| (0..300).filter(|_| failures.admit_signature(from, signer, at)).count();
        for _ in 0..100 {
            let _ = failures.count(one, now);
        }
        assert_eq!(admitted(one, signer, now), 300, "wrong keys of others do not count against tokens");

        for _ in 0..100 {
            let _ = failures.count_of(one, Some(signer), now);
        }
        assert_eq!((admitted(one, another, now), admitted(other, signer, now)), (300, 300));
        let limited = admitted(one, signer, now);
        assert!((100..200).contains(&limited), "a limited rate passes: {limited}");
        assert_eq!(admitted(one, signer, now + Duration::from_secs(1)), 300, "the block has ended");
    }

    #[test]
    fn a_limited_number_of_addresses_is_counted() {
        let (failures, now) = (failures(), Instant::now());
        for number in 0..u32::try_from(MAX_ENTRIES).expect("a small number") + 10 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(failures.count(address, now + Duration::from_micros(number.into())).is_ok());
        }
        assert!(failures.counted.lock().expect("no panic").len() <= MAX_ENTRIES);
    }
}
