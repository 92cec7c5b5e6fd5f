//! Authenticates requests to the admin listener: by its key, by a client certificate, or by the bearer of a sign-in.
//!
//! The host of a request and the origin of its page are checked earlier, as for clients
//! ([`interlingua_server::guard`]). Not here: the role that a path needs ([`super::api`]), and signing in
//! ([`super::sign_in`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::RequestHead;
use interlingua_core::{Fault, FaultKind};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::AdminState;
use super::sessions::{self, SignedIn};
use interlingua_base::tls::ClientCertificate;
use interlingua_callers::{Credential, bearer};
use interlingua_config::{ConsoleRole, ConsoleTexts};
use interlingua_server::access::credential;
use interlingua_server::connection::ConnectionInfo;

/// The name of everyone who authenticates with the admin key, the start key, or a client certificate of the listener.
pub(super) const OPERATOR: &str = "operator";

/// The sender of a request.
#[derive(Clone)]
pub(super) struct OperatorIdentity {
    /// `None` on a path that needs no credentials.
    pub(super) role: Option<ConsoleRole>,
    /// The caller's name, or [`OPERATOR`]. Empty on a path that needs no credentials.
    pub(super) name: String,
    /// The sign-in. `None`: the request authenticates with a key or a certificate, or needs no credentials.
    pub(super) session: Option<SignedIn>,
    /// The SHA-256 of the key in the request. `None`: the request has other credentials.
    key: Option<[u8; 32]>,
    /// The certificate of the connection. `None`: the request has other credentials.
    certificate: Option<Arc<ClientCertificate>>,
}

impl OperatorIdentity {
    /// The sender of a request to a path that needs no credentials.
    pub(super) const fn anyone() -> Self {
        Self { role: None, name: String::new(), session: None, key: None, certificate: None }
    }

    fn operator() -> Self {
        Self { role: Some(ConsoleRole::Act), name: OPERATOR.to_owned(), ..Self::anyone() }
    }

    /// Distinguishes this sign-in from others, without revealing the bearer. Without a sign-in: the name.
    pub(super) fn session_name(&self) -> String {
        self.session.as_ref().map_or_else(|| self.name.clone(), SignedIn::fingerprint)
    }

    /// Distinguishes this person from others, across all their sign-ins: the base key of a caller's owner, or
    /// [`OPERATOR`].
    pub(super) fn person(&self) -> Arc<str> {
        self.session.as_ref().map_or_else(|| self.name.as_str().into(), SignedIn::person)
    }

    /// True if the role may read texts of people and agents. `texts`: the setting.
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
    /// [`FaultKind::Forbidden`] if the role is insufficient.
    pub(super) fn check(&self, needed: ConsoleRole) -> Result<(), Fault> {
        if self.role.is_some_and(|role| role >= needed) {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Forbidden, "your role may only view: changes need the role 'act'"))
    }
}

fn token_of(head: &RequestHead) -> Option<&str> {
    match credential(&head.headers, "authorization") {
        Credential::One(header) => bearer(header),
        Credential::None | Credential::Invalid => None,
    }
}

/// True if a request has an `Authorization` header, valid or not.
pub(super) fn shows_credentials(head: &RequestHead) -> bool {
    head.headers.contains_key("authorization")
}

/// Authenticates a request by its key, its bearer, or the certificate of its connection. `None`: the credentials are
/// missing or wrong. With a wrong key or bearer, a valid certificate does not help.
pub(super) fn authenticate(
    state: &AdminState,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Option<OperatorIdentity> {
    let certificate = connection.valid_certificate().filter(|_| asks_certificate(state));
    if !shows_credentials(head) {
        return certificate
            .map(|shown| OperatorIdentity { certificate: Some(Arc::clone(shown)), ..OperatorIdentity::operator() });
    }

    let (token, key) = (token_of(head)?, state.operator_key());
    if let Some(session) = state.sessions.find(token, Instant::now()) {
        // The bearer of a certificate is valid with this certificate only, so that a stolen bearer is useless.
        let role = session.role(key.as_ref()).filter(|_| session.is_shown_with(certificate))?;
        return Some(OperatorIdentity {
            role: Some(role),
            name: session.name.to_string(),
            session: Some(session),
            ..OperatorIdentity::anyone()
        });
    }
    is_key(token, key.as_ref())
        .then(|| OperatorIdentity { key: Some(Sha256::digest(token).into()), ..OperatorIdentity::operator() })
}

fn asks_certificate(state: &AdminState) -> bool {
    state.admin.tls.as_ref().is_some_and(|tls| tls.load().verifier.is_some())
}

/// Authenticates a request.
///
/// # Errors
/// [`FaultKind::Unauthenticated`] if the credentials are missing or wrong, with the same message.
/// [`FaultKind::RateLimited`] if the address has sent too many wrong keys.
pub(super) fn identify(
    state: &AdminState,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<OperatorIdentity, Fault> {
    if let Some(who) = authenticate(state, head, connection) {
        return Ok(who);
    }
    // Count only guesses: not requests without a key, and not expired bearers, which each open page sends once more.
    let token = token_of(head);
    if token.is_some_and(|token| !sessions::is_bearer(token)) {
        count_failure(state, connection)?;
    }
    let asks_key = state.operator_key().is_some() || token.is_some();
    Err(Fault::new(FaultKind::Unauthenticated, refusal(asks_key, asks_certificate(state))))
}

/// Whether the credentials of a long stream are still valid and have the same role. Counts as a use of the session.
/// After a change of the role, the page opens another stream.
pub(super) fn is_valid(state: &AdminState, who: &OperatorIdentity) -> bool {
    let key = state.operator_key();
    if let Some(session) = &who.session {
        return state.sessions.is_in_use(session, Instant::now()) && session.role(key.as_ref()) == who.role;
    }
    if let Some(certificate) = &who.certificate {
        return asks_certificate(state) && certificate.is_valid();
    }
    who.key.is_none_or(|shown| key == Some(shown))
}

/// Counts a wrong key of an address.
///
/// # Errors
/// If the address has sent too many wrong keys.
pub(super) fn count_failure(state: &AdminState, connection: &ConnectionInfo) -> Result<(), Fault> {
    let address: IpAddr = connection.peer.ip();
    state.failures.count(address, Instant::now())
}

/// True if the SHA-256 of a text is `known`. Compares in constant time.
pub(super) fn is_key(text: &str, known: Option<&[u8; 32]>) -> bool {
    let hash: [u8; 32] = Sha256::digest(text).into();
    known.is_some_and(|key| bool::from(hash.ct_eq(key)))
}

const fn refusal(asks_key: bool, asks_certificate: bool) -> &'static str {
    match (asks_key, asks_certificate) {
        (true, false) => "send the admin key: Authorization: Bearer …",
        (true, true) => "send the admin key, or use a client certificate",
        (false, _) => "use a client certificate",
    }
}
