//! Who may use the admin listener: its key, or a certificate of its own authorities.
//!
//! The host that a request names and the web page it comes from are judged before, as for clients
//! ([`super::super::guard`]). Not here: what is asked for at which path ([`super::api`]).

use std::net::IpAddr;
use std::time::Instant;

use actix_web::dev::RequestHead;
use interlingua_core::{Fault, FaultKind};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::super::access::credential;
use super::super::connection::ConnectionInfo;
use crate::callers::{Credential, Failures, bearer};

/// What the admin listener asks for.
pub(super) struct Asked<'a> {
    /// The SHA-256 of the key. `None`: there is none.
    pub(super) key: Option<&'a [u8; 32]>,
    /// True if a client certificate will do.
    pub(super) certificate: bool,
}

/// Checks the certificate or the key of a request.
///
/// # Errors
/// If it shows neither, or wrong ones, in the same words; or if its address has shown too many wrong keys.
pub(super) fn check_credentials(
    asked: &Asked<'_>,
    failures: &Failures,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<(), Fault> {
    if asked.key.is_none() && !asked.certificate {
        return Ok(());
    }
    if asked.certificate && connection.valid_certificate().is_some() {
        return Ok(());
    }

    let token = match credential(&head.headers, "authorization") {
        Credential::One(header) => bearer(header),
        Credential::None | Credential::Invalid => None,
    };
    // Hashed also if there is none, so that both take the same time.
    let hash: [u8; 32] = Sha256::digest(token.unwrap_or_default()).into();
    let is_equal = asked.key.is_some_and(|key| bool::from(hash.ct_eq(key)));
    if token.is_some() && is_equal {
        return Ok(());
    }

    // What shows no key at all is no guess.
    if token.is_some() {
        let address: IpAddr = connection.peer.ip();
        failures.count(address, Instant::now())?;
    }
    let message = match (asked.key.is_some(), asked.certificate) {
        (true, false) => "this needs the admin key: Authorization: Bearer …",
        (true, true) => "this needs the admin key, or a client certificate",
        (false, _) => "this needs a client certificate",
    };
    Err(Fault::new(FaultKind::Unauthenticated, message))
}
