//! The public keys of one token issuer: from a URL, a file, or found by OpenID Connect Discovery 1.0.
//!
//! Keys are read again when they are 10 minutes old, and for a key id that is not among them, but never more often than
//! once in 30 seconds; all who wait for the same keys share one attempt. Keys stay while the issuer cannot be reached.
//! Not here: what a token has to be like ([`super::jwt`]), and the way over the network ([`JwksFetcher`]).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use url::{Host, Url};

use super::reason::Reason;
use interlingua_base::ports::JwksFetcher;
use interlingua_config::JwksSource;

/// The time between two attempts to read an issuer's keys.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Older keys are read again while they still count.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// The limit of one attempt, discovery included.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a file of keys.
const MAX_FILE_LEN: u64 = 1024 * 1024;

/// The keys of one issuer.
pub struct Jwks {
    issuer: String,
    source: JwksSource,
    fetcher: Arc<dyn JwksFetcher>,
    state: Mutex<KeySetState>,
    /// Held by the attempt under way.
    attempt: Arc<tokio::sync::Mutex<()>>,
    load_timeout: Duration,
}

#[derive(Default)]
struct KeySetState {
    /// None: they were never read.
    keys: Option<Vec<Arc<JwksKey>>>,
    read: Option<Instant>,
    tried: Option<Instant>,
}

/// One public key of an issuer.
pub struct JwksKey {
    jwk: Jwk,
    decoding: DecodingKey,
    removed: AtomicBool,
}

impl Jwks {
    /// The keys of an issuer. Nothing is read yet.
    #[must_use]
    pub fn new(issuer: &str, source: JwksSource, fetcher: Arc<dyn JwksFetcher>) -> Arc<Self> {
        Arc::new(Self::with_timeout(issuer, source, fetcher, LOAD_TIMEOUT))
    }

    fn with_timeout(issuer: &str, source: JwksSource, fetcher: Arc<dyn JwksFetcher>, load_timeout: Duration) -> Self {
        Self {
            issuer: issuer.to_owned(),
            source,
            fetcher,
            state: Mutex::default(),
            attempt: Arc::default(),
            load_timeout,
        }
    }

    /// The key with this id that fits the algorithm. `kid` may be absent only if exactly one key fits. Waits at most
    /// five seconds, and only if no key fits and the keys may be read again.
    ///
    /// # Errors
    /// [`Reason::Unavailable`] if no keys were ever read, otherwise [`Reason::Unknown`].
    pub async fn key(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
        now: Instant,
    ) -> Result<Arc<JwksKey>, Reason> {
        let found = self.state().find(kid, algorithm);
        if let Ok(key) = found {
            self.refresh(now);
            return Ok(key);
        }

        // Another client may already wait for these keys.
        if self.load_again(RETRY_INTERVAL, now) || self.attempt.try_lock().is_err() {
            drop(self.attempt.lock().await);
        }
        self.state().find(kid, algorithm)
    }

    /// Begins to read the keys if they are old or absent.
    pub fn refresh(self: &Arc<Self>, now: Instant) {
        let due = self.state().read.is_none_or(|read| now.saturating_duration_since(read) >= REFRESH_INTERVAL);
        if due {
            self.load_again(RETRY_INTERVAL, now);
        }
    }

    /// Begins an attempt to read the keys, unless one is under way or the last one was less than `interval` ago. A task
    /// of its own: a client that leaves must not end it for the others.
    fn load_again(self: &Arc<Self>, interval: Duration, now: Instant) -> bool {
        let Ok(guard) = Arc::clone(&self.attempt).try_lock_owned() else { return false };
        {
            let mut state = self.state();
            if state.tried.is_some_and(|tried| now.saturating_duration_since(tried) < interval) {
                return false;
            }
            state.tried = Some(now);
        }

        let keys = Arc::clone(self);
        tokio::spawn(async move {
            let loaded = tokio::time::timeout(keys.load_timeout, keys.load()).await;
            keys.note(loaded.unwrap_or_else(|_| Err("no answer in time".to_owned())), now);
            drop(guard);
        });
        true
    }

    async fn load(&self) -> Result<Vec<Jwk>, String> {
        let text = match &self.source {
            JwksSource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.map_err(|error| error.to_string())??
            }
            JwksSource::Url(url) => self.fetcher.get(url.clone()).await?.to_vec(),
            JwksSource::Discovery => {
                let text = self.fetcher.get(discovery_url(&self.issuer)?).await?;
                let url = jwks_uri(&text, &self.issuer)?;
                self.fetcher.get(url).await?.to_vec()
            }
        };
        parse(&text)
    }

    /// Takes new keys. Without them, the old ones stay.
    fn note(&self, loaded: Result<Vec<Jwk>, String>, now: Instant) {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(reason) => {
                let keys_kept = self.state().keys.as_ref().map_or(0, Vec::len);
                let effect = match keys_kept {
                    0 => "no token of this issuer is accepted until the gateway has read them",
                    _ => "the keys read before stay valid",
                };
                tracing::warn!(
                    issuer = %self.issuer, reason, keys_kept, "cannot read the keys of a token issuer: {effect}"
                );
                return;
            }
        };

        let mut state = self.state();
        let old = state.keys.take().unwrap_or_default();
        let keys: Vec<_> = loaded.into_iter().filter_map(|jwk| JwksKey::same_or_new(&old, jwk)).collect();
        for key in old.iter().filter(|key| !keys.iter().any(|new| Arc::ptr_eq(new, key))) {
            key.removed.store(true, Ordering::Release);
        }
        tracing::debug!(issuer = %self.issuer, keys = keys.len(), "read the keys of a token issuer");
        state.keys = Some(keys);
        state.read = Some(now);
    }

    fn state(&self) -> MutexGuard<'_, KeySetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySetState {
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<JwksKey>, Reason> {
        let keys = self.keys.as_ref().ok_or(Reason::Unavailable)?;
        let named = |key: &&Arc<JwksKey>| kid.is_none() || key.jwk.common.key_id.as_deref() == kid;
        let mut fitting = keys.iter().filter(named).filter(|key| key.fits(algorithm));
        let key = fitting.next().ok_or(Reason::Unknown)?;

        // Two keys with one id, or several and no id: which one was meant is not for us to guess.
        if fitting.next().is_some() { Err(Reason::Unknown) } else { Ok(Arc::clone(key)) }
    }
}

impl JwksKey {
    /// For [`jsonwebtoken::decode`].
    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    /// True until the issuer no longer publishes the key.
    #[must_use]
    pub fn is_published(&self) -> bool {
        !self.removed.load(Ordering::Acquire)
    }

    /// A key that has not changed stays the same one, so that tokens verified with it stay verified.
    fn same_or_new(old: &[Arc<Self>], jwk: Jwk) -> Option<Arc<Self>> {
        if let Some(same) = old.iter().find(|key| key.jwk == jwk) {
            return Some(Arc::clone(same));
        }
        let decoding = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Arc::new(Self { jwk, decoding, removed: AtomicBool::new(false) }))
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let common = &self.jwk.common;
        let for_signatures = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        let verifies =
            common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let same_algorithm = common.key_algorithm.is_none_or(|stated| Algorithm::try_from(stated) == Ok(algorithm));

        let right_kind = match (&self.jwk.algorithm, algorithm) {
            (AlgorithmParameters::RSA(_), algorithm) => matches!(
                algorithm,
                Algorithm::RS256
                    | Algorithm::RS384
                    | Algorithm::RS512
                    | Algorithm::PS256
                    | Algorithm::PS384
                    | Algorithm::PS512
            ),
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => key.curve == EllipticCurve::P384,
            (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
            _ => false,
        };
        for_signatures && verifies && same_algorithm && right_kind
    }
}

/// Keys of an unknown kind are left out: the issuer may use them for others.
fn parse(text: &[u8]) -> Result<Vec<Jwk>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }

    let set: Set = serde_json::from_slice(text).map_err(|error| format!("not a set of keys: {error}"))?;
    Ok(set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(MAX_FILE_LEN + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
    if text.len() as u64 > MAX_FILE_LEN {
        return Err(format!("{} is larger than 1 MiB", path.display()));
    }
    Ok(text)
}

/// The URL of an issuer's discovery document: below the issuer's path, whether or not that ends with a slash (OpenID
/// Connect Discovery 1.0, 4).
///
/// # Errors
/// If that is not an https URL, or one of this machine.
pub fn discovery_url(issuer: &str) -> Result<Url, String> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let url = Url::parse(&url).map_err(|error| format!("{url}: {error}"))?;
    if is_private(&url) { Ok(url) } else { Err(format!("{url} is not an https URL")) }
}

/// The URL of the keys in a discovery document. Its `issuer` has to be the configured one, exactly
/// (OpenID Connect Discovery 1.0, 4.3).
fn jwks_uri(text: &[u8], issuer: &str) -> Result<Url, String> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        jwks_uri: String,
    }

    let metadata: Metadata =
        serde_json::from_slice(text).map_err(|error| format!("not a discovery document: {error}"))?;
    if metadata.issuer != issuer {
        return Err("the discovery document is that of another issuer".to_owned());
    }
    let url = Url::parse(&metadata.jwks_uri).ok().filter(is_private);
    url.ok_or_else(|| "jwks_uri of the discovery document is not an https URL".to_owned())
}

/// True if no one on the way can change the answer: https, or this machine.
fn is_private(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

#[cfg(test)]
mod tests;
