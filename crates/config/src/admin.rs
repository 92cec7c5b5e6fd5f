//! The admin listener: its address, its TLS and its credentials.

use std::net::SocketAddr;
use std::ops::Range;

use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::diagnostics::Diagnostic;
use super::listen::parse_listen_address;
use super::located::{Table, WithSpan};
use super::operators::AdminTable;
use super::secret::SecretTable;
use super::settings::{Admin, AdminAccess};
use super::validator::Validator;
use super::{exposure, tls};

/// The shortest key, in characters.
const MIN_KEY_LEN: usize = 32;

/// `public`: the listen address for clients.
pub(super) fn resolve(
    located: &WithSpan<Table<AdminTable>>,
    public: Option<SocketAddr>,
    validator: &mut Validator<'_, '_>,
) -> Option<Admin> {
    let table = &located.value;
    let span = if table.listen.span.is_empty() { &located.span } else { &table.listen.span };
    let key = table.key.as_ref().and_then(|key| key_digest(key, validator));
    let listen = match parse_listen_address(&table.listen.value) {
        Ok(listen) => listen,
        Err(label) => {
            validator.report(Diagnostic::error("\"listen\" is not an address with a port").at(span).label(label));
            return None;
        }
    };

    check_reach(table, listen, public, span, validator);
    let tls = match &table.tls {
        Some(written) => {
            let files = tls::files(written, validator)?;
            exposure::check_private_key(written, &files, validator);
            Some(files)
        }
        None => None,
    };
    let access = AdminAccess { console: table.console, texts: table.texts, metrics: table.metrics };
    Some(Admin { listen, key, tls, access })
}

fn check_reach(
    table: &AdminTable,
    listen: SocketAddr,
    public: Option<SocketAddr>,
    span: &Range<usize>,
    validator: &mut Validator<'_, '_>,
) {
    if listen.port() != 0 && public == Some(listen) {
        let message = "\"listen\" of admin is the same as that of the server";
        validator.report(Diagnostic::error(message).at(span).label("choose another port"));
    }
    if listen.ip().to_canonical().is_loopback() {
        return;
    }

    let asks_certificate = table.tls.as_ref().is_some_and(|tls| tls.value.client_ca.is_some());
    if table.key.is_none() && !asks_certificate {
        validator.report(
            Diagnostic::error("the admin listener is reachable from other machines and asks for no credentials")
                .at(span)
                .label("add key = { env = \"NAME\" }, client_ca in tls, or listen on 127.0.0.1"),
        );
    } else if table.tls.is_none() && !table.behind_proxy {
        validator.report(
            Diagnostic::error("the admin key would be sent unencrypted beyond this machine")
                .at(span)
                .label("set tls = { cert = \"…\", key = \"…\" }, or listen on 127.0.0.1")
                .help("or set behind_proxy = true if a proxy in front of the listener has TLS"),
        );
    }
}

/// The key's SHA-256, so that the key itself is not kept in memory.
fn key_digest(key: &WithSpan<Table<SecretTable>>, validator: &mut Validator<'_, '_>) -> Option<[u8; 32]> {
    let Validator { folder, env, found, .. } = validator;
    let secret = match key.value.read(&key.span, folder, env, found) {
        Ok(secret) => secret,
        Err(error) => {
            validator.report(error);
            return None;
        }
    };

    let text = secret.expose_secret();
    if text.chars().count() < MIN_KEY_LEN {
        let label = format!("must be at least {MIN_KEY_LEN} characters");
        validator.report(Diagnostic::error("the admin key is too short").at(&key.span).label(label));
    }
    Some(Sha256::digest(text).into())
}
