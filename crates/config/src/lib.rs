//! Configuration: from `gateway.toml` to [`Settings`].
//!
//! There are two representations. `Document` mirrors the file: exactly its keys, and the span of each value.
//! [`Settings`] is what the gateway uses: defaults applied, names resolved, secrets read. Validation happens in between
//! and does not stop at the first error: it reports all of them at once, each with line, column and a suggestion.
//!
//! Not here: the list of protocols, which the caller passes as [`Protocols`]. No socket is opened. Only the file itself
//! and the secrets it names are read, both through [`Env`], so that tests are hermetic.

mod access;
mod admin;
mod agents;
mod auth;
mod callers;
mod carried;
mod connection_tables;
mod diagnostics;
mod document;
mod exposure;
mod fingerprint;
mod headers;
mod host;
pub mod keys;
mod limits;
mod listen;
mod located;
mod mask;
mod observe;
mod observe_settings;
mod operators;
mod options;
mod plain_http;
mod protocols;
pub mod public_url;
mod quiet;
mod resolve;
mod routes;
pub mod routing;
mod schema;
mod secret;
mod settings;
mod store;
mod store_settings;
mod store_table;
mod suggest;
mod tls;
mod tls_table;
mod tree;
mod upstream_connection;
mod upstream_settings;
mod upstreams;
mod validator;

use std::path::{Path, PathBuf};

pub use self::diagnostics::{Diagnostic, Diagnostics, Severity};
pub use self::host::{Host, HostName, Origin, Origins, implied_port};
pub use self::observe_settings::{AccessLog, Collector, Observe, Reports, Traces};
pub use self::options::Options;
pub use self::protocols::{ClientProtocol, ConnectorCheck, Protocols, UpstreamProtocol};
pub use self::schema::schema;
pub use self::secret::Env;
pub use self::settings::{
    Admin, AdminAccess, Agent, Auth, CallerKind, CallerLimits, CallerProfile, CertificateName, Certificates,
    ConsoleRole, ConsoleTexts, ForwardedFamily, History, HistoryLimit, JwksSource, JwtAlgorithm, JwtIssuer, Methods,
    MetricsAccess, Mount, OnDisconnect, ParallelTurns, RequestLimits, Route, Server, ServerLimits, ServerTimeouts,
    Settings,
};
pub use self::store_settings::{PostgresStore, Retention, Store, StoreKind};
pub use self::upstream_settings::{
    Affinity, Eject, Endpoint, Header, HealthCheck, Identity, IdentityKind, Proxy, RetryBudget, Timeouts, Upstream,
    UpstreamLimits, UpstreamTls,
};

pub use crate::routing::EndpointPattern;

/// A configuration that was read from a file.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings that the gateway uses.
    pub settings: Settings,
    /// The warnings, and the text of the file.
    pub diagnostics: Diagnostics,
    /// The files that were read: the file itself and those it names.
    pub files: Vec<PathBuf>,
    /// The environment variables that were looked up.
    pub variables: Vec<String>,
}

/// The file that is read by default.
pub const DEFAULT_FILE: &str = "gateway.toml";

/// The largest configuration file accepted, in bytes.
const MAX_FILE_LEN: usize = 4 << 20;

/// Reads the configuration file at `path` and the secrets it refers to.
///
/// Returns the settings together with the warnings.
///
/// # Errors
///
/// All errors and warnings of the file. The caller prints them and exits with code 2.
pub fn load(path: &Path, protocols: &Protocols, env: &Env<'_>) -> Result<(Settings, Diagnostics), Diagnostics> {
    let unreadable = |message: String, help: &str| {
        let error = Diagnostic::error(message).help(help);
        Err(Diagnostics::new(path, String::new(), vec![error]))
    };
    let bytes = match (env.file)(path, MAX_FILE_LEN) {
        Ok(bytes) => bytes,
        Err(error) => {
            return unreadable(
                format!("cannot read {:?}: {error}", path.display().to_string()),
                "choose another file with --config FILE",
            );
        }
    };

    match String::from_utf8(bytes) {
        Ok(source) => read(&source, path, protocols, env),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
            unreadable(
                format!("{:?} is not UTF-8 in line {line}", path.display().to_string()),
                "save the file as UTF-8",
            )
        }
    }
}

/// Reads a configuration from a string. `path` is its name in messages, and relative paths in it start at its folder.
///
/// # Errors
///
/// As [`load`].
pub fn read(
    source: &str,
    path: &Path,
    protocols: &Protocols,
    env: &Env<'_>,
) -> Result<(Settings, Diagnostics), Diagnostics> {
    let (tree, masked) = match tree::parse(source) {
        Ok(tree) => {
            let masked = mask::secrets(source, &tree);
            (tree, masked)
        }
        Err(errors) => return Err(Diagnostics::new(path, mask::suspects(source), errors)),
    };

    let folder = path.parent().unwrap_or(Path::new(""));
    let (settings, found, secrets) = resolve::resolve(tree, folder, protocols, env);
    let found = found.into_iter().map(|one| one.masked(&secrets)).collect();
    let diagnostics = Diagnostics::new(path, secrets.overwrite(masked), found);
    match settings {
        Some(settings) if !diagnostics.has_errors() => Ok((settings, diagnostics)),
        _ => Err(diagnostics),
    }
}
