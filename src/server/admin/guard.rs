//! Who may use the admin listener: the host that a request names, the web page it comes from, and its key.
//!
//! Judged before anything of the body, in this order. A page in the operator's browser can reach the listener like any
//! other server of the machine, so a foreign origin is refused even without a key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::dev::RequestHead;
use actix_web::http::Version;
use interlingua_core::{Fault, FaultKind};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::super::base_url;
use super::super::hosts::{self, AllowedHosts};
use crate::config::Host;

/// Wrong keys of one address before it is refused for the rest of a minute.
const MAX_WRONG_KEYS: u32 = 10;
/// How long wrong keys count.
const WRONG_KEYS_PERIOD: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const MAX_ADDRESSES: usize = 4096;

/// Addresses that have shown wrong keys, since when, and how many.
#[derive(Default)]
pub(super) struct WrongKeys(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl WrongKeys {
    fn count(&self, address: IpAddr) -> u32 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&address).filter(|(since, _)| since.elapsed() < WRONG_KEYS_PERIOD).map_or(0, |(_, count)| *count)
    }

    fn add(&self, address: IpAddr) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ADDRESSES {
            known.retain(|_, (since, _)| since.elapsed() < WRONG_KEYS_PERIOD);
        }
        if known.len() >= MAX_ADDRESSES && !known.contains_key(&address) {
            return;
        }
        let (since, count) = known.entry(address).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= WRONG_KEYS_PERIOD {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
    }
}

/// Checks the host and the origin of a request.
///
/// # Errors
/// If the host is not allowed, or the request comes from a web page of another origin.
pub(super) fn check_origin(allowed: &AllowedHosts, head: &RequestHead, is_probe: bool) -> Result<(), Fault> {
    let bad_head = |message: &str| Fault::new(FaultKind::BadHead, message);
    let named = base_url::requested_host(head).map_err(bad_head)?;
    let named = named.map(|host| host.parse::<Host>().map_err(|_| bad_head("the request names an invalid host")));
    let host = named.transpose()?;
    match &host {
        Some(host) if allowed.include(host, is_probe) => {}
        Some(host) => {
            let message = format!("host '{host}' is not served by this listener");
            return Err(Fault::new(FaultKind::Misdirected, message));
        }
        None if head.version < Version::HTTP_11 => {}
        None => return Err(bad_head("the request has no Host header")),
    }

    let refused = || Err(Fault::new(FaultKind::Forbidden, "web pages of other origins may not use this"));
    let mut origins = head.headers.get_all("origin");
    if let Some(origin) = origins.next() {
        let origin = origin.to_str().ok().filter(|_| origins.next().is_none()).and_then(|origin| origin.parse().ok());
        let is_own = origin.zip(host).is_some_and(|(origin, host)| hosts::is_same(&origin, &host));
        return if is_own { Ok(()) } else { refused() };
    }

    let site = head.headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"none" | b"same-origin")) { refused() } else { Ok(()) }
}

/// Checks the key of a request.
///
/// # Errors
/// If it shows none or another one, in the same words, or if its address has shown too many wrong ones.
pub(super) fn check_key(key: Option<&[u8; 32]>, wrong_keys: &WrongKeys, head: &RequestHead) -> Result<(), Fault> {
    let Some(key) = key else { return Ok(()) };
    let address = head.peer_addr.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.ip());
    if wrong_keys.count(address) >= MAX_WRONG_KEYS {
        let mut fault = Fault::new(FaultKind::RateLimited, "too many wrong keys: try again in a minute");
        fault.retry_after = Some(WRONG_KEYS_PERIOD);
        return Err(fault);
    }

    let mut shown = head.headers.get_all("authorization");
    let (first, second) = (shown.next(), shown.next());
    let token = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok()).and_then(bearer);
    // Hashed also if there is none, so that both take the same time.
    let hash: [u8; 32] = Sha256::digest(token.unwrap_or_default()).into();
    let is_equal = bool::from(hash.ct_eq(key));
    if token.is_some() && is_equal {
        return Ok(());
    }

    if token.is_some() {
        wrong_keys.add(address);
    }
    Err(Fault::new(FaultKind::Unauthenticated, "this needs the admin key: Authorization: Bearer …"))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_counted_by_address_and_addresses_are_bounded() {
        let wrong = WrongKeys::default();
        for _ in 0..3 {
            wrong.add([192, 0, 2, 1].into());
        }
        assert_eq!((wrong.count([192, 0, 2, 1].into()), wrong.count([192, 0, 2, 2].into())), (3, 0));
        for number in 0..10_000_u32 {
            wrong.add(IpAddr::from(number.to_be_bytes()));
        }
        assert!(wrong.0.lock().expect("no panic").len() <= MAX_ADDRESSES);
    }
}
