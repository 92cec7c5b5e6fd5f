//! Verification of the database's certificate, and the gateway's own certificate. Not here: the options in the URL
//! ([`super::target`]).

use std::sync::{Arc, Mutex};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use tokio_postgres_rustls::MakeRustlsConnect;

use super::target::{ConnectionTarget, Roots, Tls};
use interlingua_base::tls::{AnyCertificate, ClientTls, ClientTlsFile};
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
                Err(reason) => tracing::warn!(
                    reason,
                    "cannot read the TLS files of the database: their previous contents are used"
                ),
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
            config.dangerous().set_certificate_verifier(Arc::new(AnyName::new(content)?));
        }
        (Tls::Unverified, _) => config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate::default())),
        _ => {}
    }
    // Asked for by servers that begin with TLS at once; others ignore it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(config)
}

/// Accepts certificates of an authority for any name, as libpq does with `verify-ca`.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl AnyName {
    fn new(authorities: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(|_| "the file of sslrootcert is not valid PEM".to_owned())?;
            roots.add(authority).map_err(|error| format!("the file of sslrootcert cannot be used: {error}"))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self(verifier.map_err(|error| format!("the file of sslrootcert cannot be used: {error}"))?))
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is judged last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
