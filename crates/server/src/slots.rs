//! Limits on open resources of clients: WebSockets, and requests in progress. One limit covers all clients, another
//! each owner.
//!
//! Not here: connections ([`super::admission`]), and a caller's own limits (`interlingua_callers`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};

/// The `Retry-After` of a request that finds all slots taken.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The slots of one kind of resource.
pub(super) struct ResourceSlots {
    /// The resource in the plural, for messages.
    what: &'static str,
    max: AtomicUsize,
    taken: AtomicUsize,
    by_holder: Mutex<HashMap<SlotOwner, usize>>,
}

/// The owner of slots that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SlotOwner {
    /// A caller, by the key of its owner.
    Caller(String),
    /// Callers without credentials, by their address; for IPv6 by its /64 network.
    Address(IpAddr),
}

/// A slot, returned when it is dropped.
pub(super) struct ResourceSlot {
    slots: Arc<ResourceSlots>,
    holder: Option<SlotOwner>,
}

impl SlotOwner {
    pub(super) fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl ResourceSlots {
    pub(super) fn new(what: &'static str, max: usize) -> Arc<Self> {
        let max = AtomicUsize::new(max);
        Arc::new(Self { what, max, taken: AtomicUsize::new(0), by_holder: Mutex::default() })
    }

    /// Changes the number of slots. Taken slots stay taken.
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// The number of taken slots.
    pub(super) fn in_use(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a slot. `holder`: the owner with its limit; `None` if only the total is limited.
    ///
    /// # Errors
    /// The total, or the limit of this owner, is exhausted.
    pub(super) fn take(self: &Arc<Self>, holder: Option<(SlotOwner, usize)>) -> Result<ResourceSlot, Fault> {
        // From here on, dropping the slot returns it, also if it is one too many.
        let mut slot = ResourceSlot { slots: Arc::clone(self), holder: None };
        if self.taken.fetch_add(1, Ordering::Relaxed) >= self.max.load(Ordering::Relaxed) {
            return Err(full(FaultKind::Overloaded, format!("too many {} are open", self.what)));
        }

        let Some((holder, max)) = holder else { return Ok(slot) };
        let mut by_holder = self.by_holder.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = by_holder.get(&holder).copied().unwrap_or(0);
        if taken >= max {
            return Err(full(FaultKind::RateLimited, format!("too many {} of this caller are open", self.what)));
        }
        by_holder.insert(holder.clone(), taken + 1);
        drop(by_holder);
        slot.holder = Some(holder);
        Ok(slot)
    }
}

impl Drop for ResourceSlot {
    fn drop(&mut self) {
        self.slots.taken.fetch_sub(1, Ordering::Relaxed);
        let Some(holder) = &self.holder else { return };

        let mut by_holder = self.slots.by_holder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = by_holder.get_mut(holder) {
            *taken -= 1;
            if *taken == 0 {
                by_holder.remove(holder);
            }
        }
    }
}

fn full(kind: FaultKind, message: String) -> Fault {
    let mut fault = Fault::new(kind, message);
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(address: &str) -> SlotOwner {
        SlotOwner::at(address.parse().expect("an address"))
    }

    #[test]
    fn slots_are_limited_in_total_and_per_holder_and_come_back() {
        let slots = ResourceSlots::new("sockets", 3);
        let take = |address: &str| slots.take(Some((holder(address), 2)));
        let kind =
            |taken: Result<ResourceSlot, Fault>| taken.err().map(|fault| (fault.kind, fault.retry_after.is_some()));
        let first = take("10.0.0.1").expect("a slot");
        let second = take("::ffff:10.0.0.1").expect("another one");
        assert_eq!(kind(take("10.0.0.1")), Some((FaultKind::RateLimited, true)));
        let other = slots.take(None).expect("the last one");
        assert_eq!(kind(take("10.0.0.2")), Some((FaultKind::Overloaded, true)));

        drop(first);
        assert_eq!(kind(take("10.0.0.1")), None);
        drop((second, other));
        assert_eq!(slots.taken.load(Ordering::Relaxed), 0);
        assert!(slots.by_holder.lock().expect("no panic").is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_holder() {
        assert_eq!(holder("2001:db8::1"), holder("2001:db8::2"));
        assert_ne!(holder("2001:db8::1"), holder("2001:db8:0:1::1"));
    }
}
