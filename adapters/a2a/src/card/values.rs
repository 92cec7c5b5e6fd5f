//! Checks of single values of a card's options.

use interlingua_core::public_address::{Policy, RefusedAddress};

/// Checks that a text is not blank.
pub(super) fn text(path: &str, value: &str) -> Result<(), String> {
    if value.trim().is_empty() { Err(error(path, "must not be empty")) } else { Ok(()) }
}

/// Checks for an absolute http or https URL, public or not.
pub(super) fn link(path: &str, url: &str) -> Result<(), String> {
    let policy = Policy { allow_http: true, ..Policy::default() };
    match policy.destination(url) {
        Ok(_) | Err(RefusedAddress::Host) => Ok(()),
        Err(RefusedAddress::UserInfo) => Err(error(path, "must not contain a user name or password")),
        // Other schemes, invalid ports, not a URL.
        Err(_) => Err(error(path, &format!("must be an absolute http or https URL, not \"{url}\""))),
    }
}

/// Formats an error about an option.
pub(super) fn error(path: &str, why: &str) -> String {
    format!("\"{path}\" of an \"a2a\" route {why}")
}
