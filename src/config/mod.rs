//! Configuration: from `gateway.toml` to [`Settings`].
//!
//! The file is written once and read twice. `Document` mirrors it: every key it may have, nothing
//! else, and where each value stood. [`Settings`] is what the gateway uses: every default filled
//! in, every name resolved, every secret read. Between the two lie the checks, which never stop at
//! the first mistake: whoever edits the file sees everything that is wrong with it at once, each
//! mistake with its line and column and a suggestion.
//!
//! What deliberately does not live here: which protocols exist. The caller hands them in as
//! [`Protocols`]. Nor is anything opened, bound or asked: the only things read are the file itself
//! and the secrets it names, and both come through [`Env`], so that tests are hermetic.

mod agents;
mod diagnostics;
mod document;
mod duration;
mod endpoint;
mod headers;
mod host;
mod mask;
mod network;
mod protocols;
mod resolve;
mod routes;
mod schema;
mod secret;
mod settings;
mod size;
mod suggest;
mod tree;

use std::path::Path;

pub use self::diagnostics::{Diagnostic, Diagnostics, Severity};
pub use self::endpoint::EndpointName;
pub use self::host::{Host, HostName, Origin, Origins, implied_port};
pub use self::network::Network;
pub use self::protocols::{ClientProtocol, Options, Protocols, UpstreamProtocol};
pub use self::schema::schema;
pub use self::secret::Env;
pub use self::settings::{
    Agent, Forwarded, Header, History, HistoryLimit, Mount, OnDisconnect, ParallelTurns, Retention, Route, Server,
    ServerLimits, ServerTimeouts, Settings, Store, StoreKind, Timeouts, Upstream,
};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "gateway.toml";

/// The largest configuration file that is read, in bytes.
const MAX_FILE: usize = 4 << 20;

/// Reads the configuration file at `path` and everything it points to.
///
/// Beside the settings come the warnings, which do not keep the gateway from starting.
///
/// # Errors
///
/// All mistakes of the file together, warnings included. The caller prints them and exits with
/// code 2.
pub fn load(
    path: &Path,
    protocols: &Protocols,
    surroundings: &Env<'_>,
) -> Result<(Settings, Diagnostics), Diagnostics> {
    let unreadable = |message: String, help: &str| {
        let mistake = Diagnostic::error(message).help(help);
        Err(Diagnostics::new(path, String::new(), vec![mistake]))
    };
    let bytes = match (surroundings.file)(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) => {
            return unreadable(
                format!("cannot read {:?}: {error}", path.display().to_string()),
                "name another file with --config FILE",
            );
        }
    };
    match String::from_utf8(bytes) {
        Ok(source) => read(&source, path, protocols, surroundings),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..place].iter().filter(|byte| **byte == b'\n').count();
            unreadable(
                format!("{:?} is not UTF-8 in line {line}", path.display().to_string()),
                "save the file as UTF-8",
            )
        }
    }
}

/// Reads a configuration that is already in memory; `path` gives it its name in messages, and
/// relative paths in it their folder.
///
/// # Errors
///
/// As [`load`].
pub fn read(
    source: &str,
    path: &Path,
    protocols: &Protocols,
    surroundings: &Env<'_>,
) -> Result<(Settings, Diagnostics), Diagnostics> {
    let (tree, shown) = match tree::parse(source) {
        Ok(tree) => {
            let shown = mask::secrets(source, &tree);
            (tree, shown)
        }
        Err(mistakes) => {
            return Err(Diagnostics::new(path, mask::suspects(source), mistakes));
        }
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let (settings, found) = resolve::resolve(tree, folder, protocols, surroundings);
    let diagnostics = Diagnostics::new(path, shown, found);
    match settings {
        Some(settings) if !diagnostics.has_errors() => Ok((settings, diagnostics)),
        _ => Err(diagnostics),
    }
}
