//! Verification of the database's certificate, and the gateway's own certificate. Not here: the options in the URL
//! ([`super::target`]).

use std::sync::{Arc, Mutex};

use rustls::ClientConfig;

use tokio_postgres_rustls::MakeRustlsConnect;

use super::target::{ConnectionTarget, Roots, Tls};
use interlingua_base::tls::{ClientTls, ClientTlsFile, RelaxedVerifier};
use interlingua_store::local::lock;

/// Encryption of connections. The files that the URL names are read for each connection, so that new certificates count
/// without a restart.
pub(super) struct Encryption {
    target: ConnectionTarget,
    system: Arc<ClientConfig>,
    /// With the files as they could be used last.
    last: Mutex<MakeRustlsConnect>,
}

impl Encryption {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(super) fn new(target: ConnectionTarget, system: &Arc<ClientConfig>) -> Result<Self, String> {
        let last = Mutex::new(MakeRustlsConnect::new(config(&target, system)?));
        Ok(Self { target, system: Arc::clone(system), last })
    }

    /// For a new connection.
    pub(super) fn current(&self) -> MakeRustlsConnect {
        let has_files = self.target.roots != Roots::System || self.target.identity.is_some();
        if has_files {
            match config(&self.target, &self.system) {
                Ok(config) => *lock(&self.last) = MakeRustlsConnect::new(config),
                // They may be half written at this moment.
                Err(reason) => {
                    tracing::warn!(reason, "cannot use the TLS files of the database: their previous contents are used")
                }
            }
        }
        lock(&self.last).clone()
    }
}

/// The settings for a database. `system`: those that trust the authorities of the system.
///
/// # Errors
/// Which file cannot be used, and why.
fn config(target: &ConnectionTarget, system: &ClientConfig) -> Result<ClientConfig, String> {
    let read = |path: &String| std::fs::read(path).map_err(|error| format!("cannot read \"{path}\": {error}"));
    let ca = match &target.roots {
        Roots::File(path) => Some((path, read(path)?)),
        Roots::System => None,
    };
    let identity = match &target.identity {
        Some((cert, key)) => Some((read(cert)?, read(key)?)),
        None => None,
    };

    let authorities = ca.as_ref().map(|(_, content)| &**content);
    let mut config = if authorities.is_none() && identity.is_none() {
        system.clone()
    } else {
        let identity = identity.as_ref().map(|(cert, key)| (&**cert, &**key));
        let tls = ClientTls::new(authorities, identity).map_err(|(file, reason)| {
            let file = match file {
                ClientTlsFile::Ca => "sslrootcert",
                ClientTlsFile::Cert => "sslcert",
                ClientTlsFile::Key => "sslkey",
            };
            format!("the file of {file} {reason}")
        })?;
        tls.config(true)
    };
    match (&target.tls, authorities) {
        (Tls::Authority, Some(content)) => {
            // As libpq with `verify-ca`.
            let verifier = RelaxedVerifier::any_name(content);
            let verifier = verifier.map_err(|reason| format!("the file of sslrootcert {reason}"))?;
            config.dangerous().set_certificate_verifier(Arc::new(verifier));
        }
        (Tls::Unverified, _) => {
            config.dangerous().set_certificate_verifier(Arc::new(RelaxedVerifier::any_certificate()));
        }
        _ => {}
    }
    // Asked for by servers that begin with TLS at once; others ignore it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(config)
}
