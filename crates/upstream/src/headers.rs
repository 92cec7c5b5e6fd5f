//! The headers of one turn's requests besides those of the protocol: forwarded headers of the client, its trace, and
//! the identity of the caller.
//!
//! Not here: which requests get them ([`super::http`]).

use std::sync::Arc;

use super::{Caller, ForwardedHeaders, Trace};
use interlingua_base::clock;
use interlingua_base::identity::{CALLER_HEADER, Claims, IdentityKey, TOKEN_HEADER, caller_id};

/// The identity of the caller that an agent receives.
#[derive(Clone, Debug, Default)]
pub enum Identity {
    /// Nothing.
    #[default]
    None,
    /// An id that no other agent gets.
    Derived,
    /// A token.
    Jwt {
        /// Signs it.
        key: Arc<IdentityKey>,
        /// The gateway's name in it.
        issuer: String,
    },
}

/// The headers of one turn. Empty by default.
#[derive(Clone, Default)]
pub(super) struct TurnHeaders {
    pub(super) trace: Option<Trace>,
    pub(super) forwarded: ForwardedHeaders,
    pub(super) caller: Option<CallerHeader>,
}

/// The header with the identity of one caller for one agent.
#[derive(Clone)]
pub(super) enum CallerHeader {
    Id(String),
    Token(Arc<IdentityKey>, Arc<Claims>),
}

impl CallerHeader {
    pub(super) fn new(identity: &Identity, agent: &str, caller: Caller<'_>) -> Option<Self> {
        match identity {
            Identity::None => None,
            Identity::Derived => Some(Self::Id(caller_id(agent, caller.owner))),
            Identity::Jwt { key, issuer } => {
                let claims = Claims::new(issuer, agent, caller.owner, caller.name)?;
                Some(Self::Token(Arc::clone(key), Arc::new(claims)))
            }
        }
    }

    /// Name and value for one request: a token is used once.
    pub(super) fn header(&self) -> (&'static str, String) {
        match self {
            Self::Id(id) => (CALLER_HEADER, id.clone()),
            Self::Token(key, claims) => {
                let id = clock::new_id().0.to_string();
                (TOKEN_HEADER, key.sign(claims, clock::now() / 1000, &id))
            }
        }
    }
}
