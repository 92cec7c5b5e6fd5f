//! The identities that credentials prove, as parts of owners. Not here: how they are proven.

use interlingua_core::Owner;

use interlingua_config::CallerKind;

pub(super) const KEY: &str = "key";
pub(super) const JWT: &str = "jwt";
pub(super) const CERTIFICATE: &str = "cert";
/// Someone who tries a route in the console: no credentials of clients prove it.
pub(super) const CONSOLE: &str = "console";

/// The kind of credentials behind a kind of identity. `None`: credentials of no client prove it.
pub(super) fn kind_of(identity: &str) -> Option<CallerKind> {
    match identity {
        KEY => Some(CallerKind::Keys),
        JWT => Some(CallerKind::Jwt),
        CERTIFICATE => Some(CallerKind::Certificates),
        _ => None,
    }
}

/// Kind, issuer and name of an owner whose identity was proven.
pub(super) fn identity(owner: &Owner) -> Option<(&'static str, String, String)> {
    let (kind, issuer, name) = owner.identity()?;
    let kind = [KEY, JWT, CERTIFICATE, CONSOLE].into_iter().find(|known| *known == kind)?;
    Some((kind, issuer, name))
}
