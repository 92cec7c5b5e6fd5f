//! The tokens of all configured issuers, each verified once: those that were are known by the hash of their text.
//!
//! Not here: verifying ([`super::jwt`]), and the rights of the caller that a token names (`super::profiles`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use interlingua_core::event::Millis;
use sha2::{Digest as _, Sha256};

use super::failures::SignerId;
use super::jwt::{self, Issuer, VerifiedClaims};
use super::reason::Reason;
use interlingua_base::ports::JwksFetcher;
use interlingua_config::JwtIssuer;

/// Requests of different tokens rarely wait for one another.
const SHARDS: usize = 16;
/// The most tokens in each shard: 10,000 in all.
const MAX_PER_SHARD: usize = 10_000 / SHARDS;

/// All issuers, and for each of their tokens that was verified a value of `T`.
pub struct Tokens<T> {
    issuers: Vec<Arc<Issuer>>,
    fetcher: Arc<dyn JwksFetcher>,
    verified: TokenCache<KnownToken<T>>,
}

#[derive(Clone)]
struct KnownToken<T> {
    token: Arc<VerifiedClaims>,
    value: T,
}

impl<T: Clone> Tokens<T> {
    /// Issuers whose keys have not been read yet.
    #[must_use]
    pub fn new(issuers: &[JwtIssuer], fetcher: Arc<dyn JwksFetcher>) -> Self {
        let issuers = issuers.iter().map(|config| Arc::new(Issuer::new(config, Arc::clone(&fetcher)))).collect();
        Self { issuers, fetcher, verified: TokenCache::default() }
    }

    /// Other issuers. Those whose settings are the same keep their keys. Every token is verified again.
    #[must_use]
    pub fn replaced(&self, issuers: &[JwtIssuer]) -> Self {
        let issuer = |config: &JwtIssuer| {
            let same = self.issuers.iter().find(|issuer| issuer.config() == config).map(Arc::clone);
            same.unwrap_or_else(|| Arc::new(Issuer::new(config, Arc::clone(&self.fetcher))))
        };
        let issuers = issuers.iter().map(issuer).collect();
        Self { issuers, fetcher: Arc::clone(&self.fetcher), verified: TokenCache::default() }
    }

    /// True if tokens of this issuer are accepted.
    #[must_use]
    pub fn has_issuer(&self, name: &str) -> bool {
        self.issuers.iter().any(|issuer| issuer.config().issuer == name)
    }

    /// The value for a token that was verified before and is still valid. Never waits.
    #[must_use]
    pub fn known(&self, token: &str, now: Millis) -> Option<T> {
        let hash = TokenHash::new(token);
        let known = self.verified.get(hash, now)?;
        if known.token.check(now).is_err() {
            self.verified.remove(hash);
            return None;
        }
        Some(known.value)
    }

    /// Verifies a token and keeps what is made of it until it expires. Waits at most five seconds, and only for keys.
    /// `admit`: whether a signature of this signer may be verified now.
    ///
    /// # Errors
    /// The reason of the refusal, and the signer if the token names a known one.
    pub async fn verify(
        &self,
        token: &str,
        now: Millis,
        admit: impl FnOnce(SignerId) -> bool,
        make: impl FnOnce(Arc<VerifiedClaims>) -> T,
    ) -> Result<T, (Reason, Option<SignerId>)> {
        let unsigned = |reason| (reason, None);
        let name = jwt::claimed_issuer(token).ok_or(unsigned(Reason::Malformed))?;
        let issuer = self.issuers.iter().find(|issuer| issuer.config().issuer == name);
        let issuer = issuer.ok_or(unsigned(Reason::Claims))?;
        let signer = issuer.signer(token).await.map_err(unsigned)?;
        let id = signer.id;
        // Signatures are expensive to verify.
        if !admit(id) {
            return Err((Reason::Signature, Some(id)));
        }
        let verified = issuer.verify(token, signer).map_err(|reason| (reason, Some(id)))?;
        let verified = Arc::new(verified);

        let value = make(Arc::clone(&verified));
        let known = KnownToken { token: Arc::clone(&verified), value: value.clone() };
        self.verified.insert(TokenHash::new(token), verified.expires, known, now);
        Ok(value)
    }

    /// Reads keys that are old or were never read, and forgets tokens that have expired. To be called every second.
    pub fn refresh(&self, now: Millis) {
        for issuer in &self.issuers {
            issuer.keys().refresh(Instant::now());
        }
        self.verified.sweep(now);
    }
}

/// SHA-256 of a token. The token itself is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TokenHash([u8; 32]);

impl TokenHash {
    fn new(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Values by token, bounded in number.
struct TokenCache<T> {
    shards: [Mutex<HashMap<TokenHash, Entry<T>>>; SHARDS],
}

struct Entry<T> {
    expires: Millis,
    value: T,
}

impl<T> Default for TokenCache<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<T: Clone> TokenCache<T> {
    /// The value stored for a token. An expired entry is removed.
    fn get(&self, token: TokenHash, now: Millis) -> Option<T> {
        let mut shard = self.shard(token);
        let entry = shard.get(&token)?;
        if entry.expires <= now {
            shard.remove(&token);
            return None;
        }
        Some(entry.value.clone())
    }

    /// Keeps a token until it expires. If there is no room, those that have expired leave first, then any other.
    fn insert(&self, token: TokenHash, expires: Millis, value: T, now: Millis) {
        let mut shard = self.shard(token);
        if shard.len() >= MAX_PER_SHARD && !shard.contains_key(&token) {
            shard.retain(|_, entry| entry.expires > now);
        }
        if shard.len() >= MAX_PER_SHARD
            && let Some(other) = shard.keys().find(|other| **other != token).copied()
        {
            shard.remove(&other);
        }
        shard.insert(token, Entry { expires, value });
    }

    /// Removes a token that no longer counts.
    fn remove(&self, token: TokenHash) {
        self.shard(token).remove(&token);
    }

    /// Removes all that have expired.
    fn sweep(&self, now: Millis) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, entry| entry.expires > now);
        }
    }

    fn shard(&self, token: TokenHash) -> MutexGuard<'_, HashMap<TokenHash, Entry<T>>> {
        let place = usize::from(token.0[0]) % SHARDS;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_expires() {
        let cache = TokenCache::default();
        let token = TokenHash::new("a.b.c");
        cache.insert(token, 2000, "ann", 1000);
        assert_eq!(cache.get(token, 1999), Some("ann"));
        assert_eq!(cache.get(TokenHash::new("a.b.d"), 1999), None);

        assert_eq!(cache.get(token, 2000), None);
        assert_eq!(cache.get(token, 0), None, "it was removed, not only hidden");
    }

    #[test]
    fn room_is_bounded_and_expired_tokens_leave_first() {
        let cache = TokenCache::default();
        let kept = TokenHash::new("kept");
        for number in 0..20_000 {
            cache.insert(TokenHash::new(&format!("old {number}")), 1000, (), 0);
        }
        cache.insert(kept, 9000, (), 1000);
        for number in 0..300 {
            cache.insert(TokenHash::new(&format!("new {number}")), 9000, (), 1000);
        }
        assert!(cache.get(kept, 1000).is_some(), "there was room enough once the old ones had left");

        for number in 0..20_000 {
            cache.insert(TokenHash::new(&format!("newer {number}")), 9000, (), 1000);
        }
        let held: usize = cache.shards.iter().map(|shard| shard.lock().map_or(0, |shard| shard.len())).sum();
        assert!(held <= 10_000, "{held}");

        cache.sweep(9000);
        assert!(cache.shards.iter().all(|shard| shard.lock().is_ok_and(|shard| shard.is_empty())));
    }
}
