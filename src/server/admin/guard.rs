//! Who may use the admin listener: its key, a certificate of its own authorities, or someone who is signed in.
//!
//! The host that a request names and the web page it comes from are judged before, as for clients
//! ([`super::super::guard`]). Not here: what is asked for at which path ([`super::api`]), and signing in
//! ([`super::sign_in`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::RequestHead;
use interlingua_core::{Fault, FaultKind};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::super::access::credential;
use super::super::connection::ConnectionInfo;
use super::State;
use super::sessions::{self, SignedIn};
use crate::callers::{Credential, bearer};
use crate::config::{ConsoleRole, ConsoleTexts};
use crate::tls::ClientCertificate;

const SIGN_IN: &str = "this needs a sign-in to the console, or its key: Authorization: Bearer …";

/// Who sends a request.
#[derive(Clone)]
pub(super) struct Who {
    /// `None`: no credentials are asked for on this listener, and none were shown.
    pub(super) role: Option<ConsoleRole>,
    /// A caller's name, or `operator`.
    pub(super) name: String,
    /// How they signed in. `None`: they showed the key or a certificate itself.
    pub(super) session: Option<SignedIn>,
    /// The SHA-256 of the key that they showed itself.
    key: Option<[u8; 32]>,
    /// The certificate that they showed.
    certificate: Option<Arc<ClientCertificate>>,
}

impl Who {
    /// Anyone: no credentials are asked for.
    pub(super) fn anyone() -> Self {
        Self::operator(None)
    }

    fn operator(role: Option<ConsoleRole>) -> Self {
        Self { role, name: "operator".to_owned(), session: None, key: None, certificate: None }
    }

    /// Distinguishes this sign-in from others. Nothing of the bearer can be read in it.
    pub(super) fn session_name(&self) -> String {
        self.session.as_ref().map_or_else(|| self.name.clone(), SignedIn::fingerprint)
    }

    /// True if they may read what people and agents say.
    pub(super) fn reads(&self, texts: ConsoleTexts) -> bool {
        match texts {
            ConsoleTexts::All => self.role.is_some(),
            ConsoleTexts::Act => self.role == Some(ConsoleRole::Act),
            ConsoleTexts::None => false,
        }
    }

    /// Checks the role.
    ///
    /// # Errors
    /// Without credentials where the path needs them, or with a role that is not enough.
    pub(super) fn check(&self, needed: Option<ConsoleRole>) -> Result<(), Fault> {
        match (needed, self.role) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Fault::new(FaultKind::Unauthenticated, SIGN_IN)),
            (Some(needed), Some(role)) if role >= needed => Ok(()),
            (Some(_), Some(_)) => Err(Fault::new(FaultKind::Forbidden, "your role may view, and not change anything")),
        }
    }
}

fn token_of(head: &RequestHead) -> Option<&str> {
    match credential(&head.headers, "authorization") {
        Credential::One(header) => bearer(header),
        Credential::None | Credential::Invalid => None,
    }
}

/// Who sends a request, by its certificate, its key, or the bearer of a session. `None`: it shows none of them.
pub(super) fn known(state: &State, head: &RequestHead, connection: &ConnectionInfo) -> Option<Who> {
    let admin_key = state.admin.key.load();
    if let Some(token) = token_of(head) {
        if let Some(session) = state.sessions.find(token, Instant::now())
            && let Some(role) = session.role(admin_key.as_deref(), state.start_key.as_ref())
        {
            let name = session.name.to_string();
            return Some(Who { name, session: Some(session), ..Who::operator(Some(role)) });
        }
        if is_key(token, [admin_key.as_deref(), state.start_key.as_ref()]) {
            let key = Some(Sha256::digest(token).into());
            return Some(Who { key, ..Who::operator(Some(ConsoleRole::Act)) });
        }
    }
    let certificate = connection.valid_certificate().filter(|_| asks_certificate(state))?;
    Some(Who { certificate: Some(Arc::clone(certificate)), ..Who::operator(Some(ConsoleRole::Act)) })
}

fn asks_certificate(state: &State) -> bool {
    state.admin.tls.as_ref().is_some_and(|tls| tls.load().verifier.is_some())
}

/// Who sends a request.
///
/// # Errors
/// If the listener asks for credentials and it shows none, or wrong ones, in the same words; or if its address has shown
/// too many wrong keys.
pub(super) fn identify(state: &State, head: &RequestHead, connection: &ConnectionInfo) -> Result<Who, Fault> {
    if let Some(who) = known(state, head, connection) {
        return Ok(who);
    }
    let (token, asks_key, asks_certificate) =
        (token_of(head), state.admin.key.load().is_some(), asks_certificate(state));
    // Nothing is asked for, so nothing shown is wrong; what needs a sign-in is refused by its role.
    if !asks_key && !asks_certificate {
        return Ok(Who::operator(None));
    }

    // What shows no key at all is no guess, and neither is a bearer that is over: each page that is open shows it once more.
    if token.is_some_and(|token| !sessions::is_bearer(token)) {
        count_failure(state, connection)?;
    }
    Err(Fault::new(FaultKind::Unauthenticated, refusal(asks_key || token.is_some(), asks_certificate)))
}

/// True while a request's credentials hold, and allow the same: a stream goes on for long. Following it is a use of the
/// session. A page whose role has changed opens another stream, in which it sees what it may see now.
pub(super) fn is_valid(state: &State, who: &Who) -> bool {
    let (key, start_key) = (state.admin.key.load(), state.start_key.as_ref());
    if let Some(session) = &who.session {
        return state.sessions.is_in_use(session, Instant::now())
            && session.role(key.as_deref(), start_key) == who.role;
    }
    if let Some(certificate) = &who.certificate {
        return asks_certificate(state) && certificate.is_valid();
    }
    who.key.is_none_or(|shown| [key.as_deref(), start_key].into_iter().flatten().any(|known| *known == shown))
}

/// Checks the role. A wrong key where none is asked for may be a guess at the key of this start, and is counted as one.
///
/// # Errors
/// As [`Who::check`], and if there were too many wrong keys.
pub(super) fn check_role(
    state: &State,
    head: &RequestHead,
    connection: &ConnectionInfo,
    who: &Who,
    needed: Option<ConsoleRole>,
) -> Result<(), Fault> {
    let checked = who.check(needed);
    let is_guess = who.role.is_none() && token_of(head).is_some_and(|token| !sessions::is_bearer(token));
    if checked.is_err() && is_guess {
        count_failure(state, connection)?;
    }
    checked
}

/// Counts a wrong key of an address.
///
/// # Errors
/// If there were too many.
pub(super) fn count_failure(state: &State, connection: &ConnectionInfo) -> Result<(), Fault> {
    let address: IpAddr = connection.peer.ip();
    state.failures.count(address, Instant::now())
}

/// True if a text is one of these keys. All of them are compared, in constant time.
pub(super) fn is_key(text: &str, known: [Option<&[u8; 32]>; 2]) -> bool {
    let hash: [u8; 32] = Sha256::digest(text).into();
    known.into_iter().flatten().fold(false, |found, key| found | bool::from(hash.ct_eq(key)))
}

const fn refusal(asks_key: bool, asks_certificate: bool) -> &'static str {
    match (asks_key, asks_certificate) {
        (true, false) => "this needs the admin key: Authorization: Bearer …",
        (true, true) => "this needs the admin key, or a client certificate",
        (false, _) => "this needs a client certificate",
    }
}
