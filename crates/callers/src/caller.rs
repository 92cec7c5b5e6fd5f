//! One caller: the identity that was proven, and the rights that follow from it.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use interlingua_core::event::Millis;
use interlingua_core::{Fault, FaultKind, Owner};

use super::identity::{identity, kind_of};
use super::jwt::VerifiedClaims;
use super::profiles::{Profile, ProvenName};
use super::reason::{self, Reason};
use super::rules::{self, Rules, SharedRules};
use super::usage::Usage;
use interlingua_base::clock;
use interlingua_base::tls::ClientCertificate;
use interlingua_config::keys::KeyId;
use interlingua_config::{CallerKind, ConsoleRole};

/// A caller.
pub struct Caller {
    /// To whom everything the caller makes belongs.
    pub owner: Owner,
    /// The caller's name: that of its key, of a claim of its token, or of its certificate.
    pub name: String,
    /// The caller's current usage.
    pub usage: Arc<Usage>,
    proof: Proof,
    /// The profile, and the generation of the rules it was taken from.
    profile: ArcSwap<(u64, Arc<Profile>)>,
    rules: Arc<SharedRules>,
}

/// The credentials that proved the caller's name.
pub(super) enum Proof {
    /// It did not.
    None,
    /// It did not: an operator acts on its behalf.
    Operator,
    /// By signing in to the console, where it tries a route.
    Console,
    /// By the key of this id, which may expire.
    Key { id: KeyId, expires: Option<Millis> },
    /// By a token.
    Token(Arc<VerifiedClaims>),
    /// By a certificate: that of its connection, or `None` if a trusted proxy has verified it.
    Certificate(Option<Arc<ClientCertificate>>),
}

impl Proof {
    fn scopes(&self) -> &[String] {
        match self {
            Self::Token(token) => &token.scopes,
            _ => &[],
        }
    }
}

impl Caller {
    /// A caller who proved to have this name. Its profile's limits hold from now on.
    pub(super) fn new(
        owner: Owner,
        name: String,
        proof: Proof,
        rules: &Arc<SharedRules>,
        usage: impl FnOnce(&Profile) -> Arc<Usage>,
    ) -> Self {
        let (generation, profile) = {
            let rules = rules.load();
            (rules.generation, profile_of(&rules, &owner, &name, &proof))
        };
        let usage = usage(&profile);
        let profile = ArcSwap::from_pointee((generation, profile));
        Self { owner, name, usage, proof, profile, rules: Arc::clone(rules) }
    }

    /// True if the caller proved who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        !matches!(self.proof, Proof::None)
    }

    /// The caller's current rights.
    #[must_use]
    pub fn profile(&self) -> Arc<Profile> {
        let rules = self.rules.load();
        let known = self.profile.load();
        if known.0 == rules.generation {
            return Arc::clone(&known.1);
        }

        let profile = profile_of(&rules, &self.owner, &self.name, &self.proof);
        self.usage.set_limits(&profile.limits);
        self.profile.store(Arc::new((rules.generation, Arc::clone(&profile))));
        profile
    }

    /// Whether the caller may use a protocol, and an agent if one is known.
    ///
    /// # Errors
    /// [`FaultKind::Forbidden`].
    pub fn may_use(&self, protocol: &str, agent: Option<&str>) -> Result<(), Fault> {
        let profile = self.profile();
        let forbidden = |message: String| {
            let detail = format!("caller {:?} has no right to it", self.name);
            Err(Fault::new(FaultKind::Forbidden, message).with_detail(detail))
        };
        if !profile.has_protocol(protocol) {
            return forbidden("you may not use this route".to_owned());
        }
        match agent {
            Some(agent) if !profile.has_agent(agent) => forbidden(format!("you may not use agent '{agent}'")),
            _ => Ok(()),
        }
    }

    /// [`Self::may_use`] by the rights of this moment, if the credentials the caller came with are still valid.
    ///
    /// # Errors
    /// [`FaultKind::Unauthenticated`] or [`FaultKind::Forbidden`].
    pub fn recheck(&self, protocol: &str, agent: Option<&str>) -> Result<(), Fault> {
        self.check_proof(clock::machine()).map_err(reason::refusal)?;
        self.may_use(protocol, agent)
    }

    /// The caller's current rights in the console. `None`: it cannot sign in, or its credentials have expired.
    #[must_use]
    pub fn console_role(&self) -> Option<ConsoleRole> {
        self.check_proof(clock::machine()).ok().and_then(|()| self.profile().console())
    }

    /// Waits until [`Self::recheck`] fails, and returns why. Noticed within a second.
    pub async fn revoked(&self, protocol: &str, agent: Option<&str>) -> Fault {
        let mut changes = self.rules.changes();
        loop {
            if let Err(fault) = self.recheck(protocol, agent) {
                return fault;
            }
            tokio::select! {
                changed = changes.changed() => {
                    // Without anyone who could change the rules, only time can end them.
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                () = self.may_end() => {}
            }
        }
    }

    /// Waits until the credentials may have ended by themselves.
    async fn may_end(&self) {
        let expires = match &self.proof {
            Proof::Key { expires, .. } => *expires,
            Proof::Token(token) => Some(token.expires),
            Proof::Certificate(Some(certificate)) => return certificate.changed().await,
            Proof::None | Proof::Operator | Proof::Console | Proof::Certificate(None) => None,
        };
        match expires {
            Some(expires) => tokio::time::sleep(rules::until(expires, clock::machine())).await,
            None => std::future::pending().await,
        }
    }

    fn check_proof(&self, now: Millis) -> Result<(), Reason> {
        let rules = self.rules.load();
        match &self.proof {
            Proof::None | Proof::Operator | Proof::Console => Ok(()),
            Proof::Key { id, .. } => rules.keys.check(id, now),
            Proof::Token(token) if !rules.has_issuer(&token.issuer) => Err(Reason::Method),
            Proof::Token(token) => token.check(now),
            Proof::Certificate(_) if rules.auth.certificates.is_none() => Err(Reason::Method),
            Proof::Certificate(Some(certificate)) if !certificate.is_valid() => Err(Reason::Expired),
            Proof::Certificate(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Caller").field("owner", &self.owner).finish_non_exhaustive()
    }
}

fn profile_of(rules: &Rules, owner: &Owner, name: &str, proof: &Proof) -> Arc<Profile> {
    let (kind, issuer) = match proof {
        Proof::None => return rules.profiles.anonymous(),
        Proof::Console => return rules.profiles.open(),
        Proof::Key { .. } => (Some(CallerKind::Keys), String::new()),
        Proof::Token(token) => (Some(CallerKind::Jwt), token.issuer.to_string()),
        Proof::Certificate(_) => (Some(CallerKind::Certificates), String::new()),
        Proof::Operator => identity(owner).map_or((None, String::new()), |(kind, issuer, _)| (kind_of(kind), issuer)),
    };
    rules.profiles.find(ProvenName { name, kind, issuer: &issuer, scopes: proof.scopes() })
}
