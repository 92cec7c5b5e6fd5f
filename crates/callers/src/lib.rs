//! Callers: authentication, rights and limits.
//!
//! [`Callers::authenticate`] turns the credentials of a request into a [`Caller`]; the server and the engine ask the
//! caller for its rights. Not here: reading headers (the server), and the owners of runs and documents (the engine).

mod caller;
mod failures;
mod identity;
pub mod jwks;
pub mod jwt;
mod jwt_ring;
mod key_source;
mod key_table;
mod profiles;
mod rate;
mod reason;
mod rules;
pub mod tokens;
mod usage;

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use interlingua_base::rate::Rate;
use interlingua_core::{Fault, Owner};
use url::Url;

pub use self::caller::Caller;
use self::caller::Proof;
pub use self::failures::Failures;
use self::failures::SignerId;
use self::identity::{CERTIFICATE, CONSOLE, JWT, KEY, identity, kind_of};
use self::key_source::KeySource;
use self::key_table::KeyTable;
pub use self::profiles::Profile;
use self::profiles::{Profiles, ProvenName};
pub use self::rate::Limiter;
pub use self::reason::Reason;
use self::rules::{Rules, SharedRules};
use self::tokens::Tokens;
pub use self::usage::{Permit, Usage, UsageTable, Use, day_of};
use interlingua_base::clock;
use interlingua_base::ports::JwksFetcher;
use interlingua_base::tls::ClientCertificate;
pub use interlingua_config::Methods;
use interlingua_config::keys::{self, KeyId};
use interlingua_config::{Auth, CallerLimits, CallerProfile};

/// Interval between two checks of the key file for changes.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Rate of refused credentials of one address, and of one signing key.
const MAX_FAILURES: Rate = Rate { count: TEN, per: Duration::from_secs(1) };
const TEN: NonZeroU32 = match NonZeroU32::new(10) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};
/// Burst of refused credentials.
const MAX_FAILURES_AT_ONCE: u32 = 50;
/// All callers of a gateway.
pub struct Callers {
    rules: Arc<SharedRules>,
    anonymous: Arc<Caller>,
    /// The callers of keys that were used.
    by_key: RwLock<HashMap<KeyId, Arc<Caller>>>,
    tokens: ArcSwap<Tokens<Arc<Caller>>>,
    usage: UsageTable,
    failures: Failures,
    source: Mutex<Option<KeySource>>,
}

/// The credentials of a request. The server reads them from headers and the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// `Authorization`.
    pub authorization: Credential<'a>,
    /// `x-api-key`.
    pub api_key: Credential<'a>,
    /// A client certificate that was verified.
    pub certificate: Option<ShownCertificate<'a>>,
}

/// A client certificate that names a caller.
#[derive(Clone, Copy, Debug)]
pub struct ShownCertificate<'a> {
    /// The caller's name.
    pub name: &'a str,
    /// The certificate of the connection. `None` if a trusted proxy passes on the name.
    pub own: Option<&'a Arc<ClientCertificate>>,
}

/// The value of a header that may occur once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credential<'a> {
    /// The request does not have it.
    #[default]
    None,
    /// Its value.
    One(&'a str),
    /// It occurs more than once, or is not text.
    Invalid,
}

struct RefusedCredentials {
    reason: Reason,
    /// The key that would have signed the token. `None`: the credentials named no known one.
    signer: Option<SignerId>,
}

impl From<Reason> for RefusedCredentials {
    fn from(reason: Reason) -> Self {
        Self { reason, signer: None }
    }
}

/// Refuses credentials that are not looked up, in the same time as an unknown key.
fn refuse(reason: Reason) -> RefusedCredentials {
    key_table::spend_time_of_a_key();
    reason.into()
}

/// Fails every request for the keys of an issuer.
struct NoIssuers;

impl JwksFetcher for NoIssuers {
    fn get(&self, _: Url) -> BoxFuture<'static, Result<Bytes, String>> {
        async { Err("no issuers are configured".to_owned()) }.boxed()
    }
}

impl Callers {
    /// The callers of a configuration. Reads the file of keys; one that cannot be used is logged, and has no keys.
    #[must_use]
    pub fn new(auth: &Auth, profiles: &[CallerProfile], fetcher: Arc<dyn JwksFetcher>) -> Arc<Self> {
        let rules = SharedRules::new(auth, profiles);
        let usage = UsageTable::default();
        let of = |profile: &Profile| Arc::new(Usage::new(Arc::clone(&profile.limits)));
        let anonymous = Caller::new(Owner::anonymous(), Owner::ANONYMOUS.to_owned(), Proof::None, &rules, of);
        let callers = Arc::new(Self {
            anonymous: Arc::new(anonymous),
            by_key: RwLock::default(),
            tokens: ArcSwap::from_pointee(Tokens::new(&auth.jwt, fetcher)),
            usage,
            failures: Failures::new(MAX_FAILURES, MAX_FAILURES_AT_ONCE),
            source: Mutex::new(auth.keys.as_deref().map(KeySource::new)),
            rules,
        });

        callers.reload_keys();
        callers
    }

    /// Without any way to authenticate.
    #[must_use]
    pub fn anonymous_only() -> Arc<Self> {
        Self::new(&Auth::default(), &[], Arc::new(NoIssuers))
    }

    /// The caller of routes without authentication.
    #[must_use]
    pub fn anonymous(&self) -> Arc<Caller> {
        Arc::clone(&self.anonymous)
    }

    /// Authenticates a request from this address by the methods of its route. Without a method every caller is
    /// anonymous, whatever its credentials. Waits only for the keys of an issuer, at most five seconds.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::Unauthenticated`], with the same text for every cause;
    /// [`interlingua_core::FaultKind::RateLimited`] after too many of them from one address; and
    /// [`interlingua_core::FaultKind::Overloaded`] if the keys of the issuer cannot be read.
    pub async fn authenticate(
        self: &Arc<Self>,
        by: Methods,
        shown: Credentials<'_>,
        from: IpAddr,
    ) -> Result<Arc<Caller>, Fault> {
        if !by.any() {
            return Ok(self.anonymous());
        }
        let RefusedCredentials { reason, signer } = match self.identify(by, shown, from).await {
            Ok(caller) => return Ok(caller),
            Err(refused) => refused,
        };

        // Showing nothing is no guess, and neither is a token of an issuer that is down.
        if !matches!(reason, Reason::Missing | Reason::Unavailable) {
            self.failures.count_of(from, signer, Instant::now())?;
        }
        Err(reason::refusal(reason))
    }

    async fn identify(
        &self,
        by: Methods,
        shown: Credentials<'_>,
        from: IpAddr,
    ) -> Result<Arc<Caller>, RefusedCredentials> {
        // A certificate that the route does not ask for belongs to the connection, not to the request.
        let certificate = shown.certificate.filter(|_| by.certificates);
        match (shown.authorization, shown.api_key, certificate) {
            (Credential::None, Credential::None, None) => Err(refuse(Reason::Missing)),
            (Credential::One(header), Credential::None, None) => {
                let Some(token) = bearer(header) else { return Err(refuse(Reason::Malformed)) };
                if keys::looks_like_key(token) {
                    return Ok(self.by_key(by, token)?);
                }
                if by.jwt { self.by_token(token, from).await } else { Err(refuse(Reason::Method)) }
            }
            (Credential::None, Credential::One(key), None) => Ok(self.by_key(by, key)?),
            (Credential::None, Credential::None, Some(shown)) => Ok(self.by_certificate(shown)),
            _ => Err(refuse(Reason::Several)),
        }
    }

    fn by_key(&self, by: Methods, key: &str) -> Result<Arc<Caller>, Reason> {
        let rules = self.rules.load();
        let entry = rules.keys.verify(key, clock::machine())?;
        if !by.keys {
            return Err(Reason::Method);
        }

        let known = self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(&entry.id).map(Arc::clone);
        // Another file may have given the id to someone else meanwhile.
        if let Some(caller) = known.filter(|caller| caller.name == entry.caller) {
            return Ok(caller);
        }
        let proof = Proof::Key { id: entry.id, expires: entry.expires };
        let caller = self.caller(Owner::authenticated(KEY, "", &entry.caller), &entry.caller, proof);
        self.by_key.write().unwrap_or_else(PoisonError::into_inner).insert(entry.id, Arc::clone(&caller));
        Ok(caller)
    }

    async fn by_token(&self, token: &str, from: IpAddr) -> Result<Arc<Caller>, RefusedCredentials> {
        let (tokens, now) = (self.tokens.load_full(), clock::machine());
        if let Some(caller) = tokens.known(token, now) {
            return Ok(caller);
        }
        let admit = |signer| self.failures.admit_signature(from, signer, Instant::now());
        let make = |verified: Arc<jwt::VerifiedClaims>| {
            let owner = Owner::authenticated(JWT, &verified.issuer, &verified.caller);
            let name = verified.caller.clone();
            self.caller(owner, &name, Proof::Token(verified))
        };
        let verified = tokens.verify(token, now, admit, make).await;
        verified.map_err(|(reason, signer)| RefusedCredentials { reason, signer })
    }

    fn by_certificate(&self, shown: ShownCertificate<'_>) -> Arc<Caller> {
        let ShownCertificate { name, own } = shown;
        self.caller(Owner::authenticated(CERTIFICATE, "", name), name, Proof::Certificate(own.cloned()))
    }

    fn caller(&self, owner: Owner, name: &str, proof: Proof) -> Arc<Caller> {
        let base = owner.base_key().to_owned();
        let usage = |profile: &Profile| self.usage.for_caller(&base, &profile.limits);
        Arc::new(Caller::new(owner, name.to_owned(), proof, &self.rules, usage))
    }

    /// A person in the console who tries routes. The runs belong to an owner of its own, which no credentials of a
    /// client resolve to and no table of `[callers]` limits.
    #[must_use]
    pub fn in_console(&self, name: &str) -> Arc<Caller> {
        self.caller(Owner::authenticated(CONSOLE, "", name), name, Proof::Console)
    }

    /// The caller that owns a run, for an operator who acts on its behalf. It has no credentials, and its usage is that
    /// of the owner.
    #[must_use]
    pub fn acting_for(&self, owner: &Owner) -> Arc<Caller> {
        match identity(owner) {
            Some((CONSOLE, _, name)) => self.caller(owner.clone(), &name, Proof::Console),
            Some((_, _, name)) => self.caller(owner.clone(), &name, Proof::Operator),
            None => self.anonymous(),
        }
    }

    /// Activates another configuration. Callers that it does not know are refused from now on, with all their open
    /// connections. Their usage stays counted.
    pub fn replace(&self, auth: &Auth, tables: &[CallerProfile]) {
        let path = auth.keys.as_deref();
        let mut source = self.source();
        // The same file stays the one that it was: if it is gone meanwhile, its keys stay valid.
        if source.as_ref().map(KeySource::path) != path {
            *source = path.map(KeySource::new);
        }
        drop(source);
        self.tokens.store(Arc::new(self.tokens.load().replaced(&auth.jwt)));
        let profiles = Arc::new(Profiles::new(tables));
        self.rules.change(|rules| Rules {
            generation: rules.generation,
            auth: auth.clone(),
            keys: Arc::clone(&rules.keys),
            profiles: Arc::clone(&profiles),
        });
        self.reload_keys();
    }

    /// Reads the file of keys again. One that cannot be used is logged, and the keys stay as they are. True if it can.
    pub fn reload_keys(&self) -> bool {
        let mut source = self.source();
        let Some(file) = source.as_mut() else {
            self.put_keys(KeyTable::default());
            return true;
        };
        let (read, path) = (file.read(), file.path().display().to_string());
        if file.is_readable_by_others() {
            tracing::warn!(file = path, "every user of this machine can read the key file: run chmod 600");
        }
        drop(source);

        match read {
            Ok(entries) => {
                tracing::info!(file = path, keys = entries.len(), "keys read");
                self.put_keys(KeyTable::new(entries));
                true
            }
            Err(reason) => {
                match self.rules.load().keys.len() {
                    0 => tracing::warn!(file = path, reason, "cannot use the key file: no API key is accepted"),
                    keys_kept => {
                        tracing::warn!(
                            file = path,
                            reason,
                            keys_kept,
                            "cannot use the key file: the keys read before stay valid"
                        );
                    }
                }
                false
            }
        }
    }

    fn put_keys(&self, table: KeyTable) {
        let table = Arc::new(table);
        self.rules.change(|rules| Rules {
            generation: rules.generation,
            auth: rules.auth.clone(),
            keys: Arc::clone(&table),
            profiles: Arc::clone(&rules.profiles),
        });
        self.by_key.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Reads the file of keys whenever it changes. Never ends.
    pub async fn watch(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tokens.load().refresh(clock::machine());
            if self.source().as_ref().is_some_and(KeySource::is_changed) {
                let callers = Arc::clone(&self);
                // Parsing a large file would hold up the streams of this thread.
                let _ = tokio::task::spawn_blocking(move || callers.reload_keys()).await;
            }
        }
    }

    fn source(&self) -> std::sync::MutexGuard<'_, Option<KeySource>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every caller that has used something, with what that is, by the base key of its owner.
    #[must_use]
    pub fn in_use(&self) -> Vec<(Arc<str>, Arc<Usage>)> {
        let mut all = self.usage.all();
        all.push((Arc::from(Owner::ANONYMOUS), Arc::clone(&self.anonymous.usage)));
        all
    }

    /// A caller's usage, by the [base key](interlingua_core::Owner::base_key) of its owner.
    #[must_use]
    pub fn usage_of(&self, base_key: &str) -> Arc<Usage> {
        if base_key == Owner::ANONYMOUS {
            return Arc::clone(&self.anonymous.usage);
        }
        self.usage.get(base_key).unwrap_or_else(|| self.usage.for_caller(base_key, &self.limits_of(base_key)))
    }

    /// The limits of a caller, by the base key of its owner. Scopes apply after the caller has authenticated.
    #[must_use]
    pub fn limits_of(&self, base_key: &str) -> Arc<CallerLimits> {
        let rules = self.rules.load();
        if base_key == Owner::ANONYMOUS {
            return Arc::clone(&rules.profiles.anonymous().limits);
        }
        let of_name = || match identity(&Owner::from_key(base_key)) {
            Some((CONSOLE, ..)) => Arc::clone(&rules.profiles.open().limits),
            Some((kind, issuer, name)) => {
                let (name, issuer) = (name.as_str(), issuer.as_str());
                let proven = ProvenName { name, kind: kind_of(kind), issuer, scopes: &[] };
                Arc::clone(&rules.profiles.find(proven).limits)
            }
            None => Arc::default(),
        };
        self.usage.get(base_key).map_or_else(of_name, |usage| usage.limits())
    }

    /// True if open streams end with the credentials of their caller: see [`Caller::revoked`].
    #[must_use]
    pub fn revokes_streams(&self) -> bool {
        self.rules.load().auth.revoke_streams
    }

    /// True if someone may still come whose [base key](interlingua_core::Owner::base_key) this is: the caller of a
    /// valid key, or of an issuer or a certificate that is accepted. Anonymous callers always may.
    #[must_use]
    pub fn knows(&self, base_key: &str) -> bool {
        let rules = self.rules.load();
        match identity(&Owner::from_key(base_key)) {
            Some((KEY, _, name)) => rules.keys.has_caller(&name, clock::machine()),
            Some((JWT, issuer, _)) => rules.has_issuer(&issuer),
            Some((CERTIFICATE, ..)) => rules.auth.certificates.is_some(),
            Some(_) | None => true,
        }
    }
}

/// The token in `Authorization: Bearer`. `None` for other schemes.
#[must_use]
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
