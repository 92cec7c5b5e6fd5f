//! The files of the gateway's TLS: a certificate chain, its key, and the authorities that sign clients, all in PEM.
//!
//! No message repeats any part of a file. Not here: when they are read again ([`super::shared`]).

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

/// The largest file accepted, in bytes.
pub const MAX_FILE_LEN: usize = 1 << 20;

/// The files of the gateway's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the gateway, then its issuers.
    pub cert: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
    /// The authorities that sign the certificates of clients. `None` if clients are not asked for one.
    pub client_ca: Option<PathBuf>,
}

/// One of the [`TlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The certificate chain.
    Cert,
    /// The private key.
    Key,
    /// The authorities of clients.
    ClientCa,
}

/// Why a file cannot be used. Holds nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFileError {
    /// The file with the error.
    pub file: TlsFile,
    /// The error, as the predicate of a sentence.
    pub reason: String,
    path: PathBuf,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {}", self.path.display().to_string(), self.reason)
    }
}

impl std::error::Error for TlsFileError {}

impl TlsFiles {
    /// Parses the files and checks that they belong together. `read` returns the content of a file.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn check(&self, read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<(), TlsFileError> {
        Contents::read(self, read)?.parse(self).map(drop)
    }

    fn error(&self, file: TlsFile, reason: impl Into<String>) -> TlsFileError {
        let path = match file {
            TlsFile::Cert => &self.cert,
            TlsFile::Key => &self.key,
            TlsFile::ClientCa => self.client_ca.as_ref().unwrap_or(&self.cert),
        };
        TlsFileError { file, reason: reason.into(), path: path.clone() }
    }
}

/// The contents of the files.
pub(super) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The material that a server needs to accept connections.
pub(super) struct ServerMaterial {
    pub(super) config: ServerConfig,
    /// Verifies the certificates of clients. `None` if they are not asked for one.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Contents {
    pub(super) fn read(files: &TlsFiles, read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Self, TlsFileError> {
        let read =
            |file, path: &Path| read(path).map_err(|error| files.error(file, format!("cannot be read: {error}")));
        Ok(Self {
            cert: read(TlsFile::Cert, &files.cert)?,
            key: read(TlsFile::Key, &files.key)?,
            client_ca: files.client_ca.as_deref().map(|path| read(TlsFile::ClientCa, path)).transpose()?,
        })
    }

    /// A hash of all contents, to tell whether they have changed.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for content in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten() {
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
        hash.finalize().into()
    }

    pub(super) fn parse(&self, files: &TlsFiles) -> Result<ServerMaterial, TlsFileError> {
        let certified = self.certified_key(files)?;
        let provider = Arc::new(ring::default_provider());
        let verifier = self.client_ca.as_deref().map(|content| verifier(content, files)).transpose()?;

        let unusable = |error: Error| files.error(TlsFile::Cert, format!("cannot be used: {error}"));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(unusable)?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));

        if verifier.is_some() {
            // A resumed session is not verified again: it would outlive the authority that signed its certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = ring::Ticketer::new().map_err(unusable)?;
            config.send_tls13_tickets = 1;
        }
        Ok(ServerMaterial { config, verifier })
    }

    fn certified_key(&self, files: &TlsFiles) -> Result<CertifiedKey, TlsFileError> {
        let chain = certificates(&self.cert).map_err(|reason| files.error(TlsFile::Cert, reason))?;
        let key = private_key(&self.key).map_err(|reason| files.error(TlsFile::Key, reason))?;
        let key = ring::sign::any_supported_type(&key)
            .map_err(|_| files.error(TlsFile::Key, "is not an RSA, ECDSA or Ed25519 key that can be used"))?;

        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
            Err(Error::InconsistentKeys(_)) => {
                let cert = files.cert.display().to_string();
                Err(files.error(TlsFile::Key, format!("does not belong to the first certificate of {cert:?}")))
            }
            Err(error) => Err(files.error(TlsFile::Cert, format!("cannot be used: {error}"))),
        }
    }
}

/// The private key in PEM. The error is the predicate of a sentence.
pub(super) fn private_key(content: &[u8]) -> Result<PrivateKeyDer<'static>, &'static str> {
    PrivateKeyDer::from_pem_slice(content).map_err(|_| {
        let is_encrypted = content.windows(9).any(|part| part == b"ENCRYPTED");
        if is_encrypted {
            "is encrypted: the gateway needs the key without a passphrase"
        } else {
            "holds no private key in PEM"
        }
    })
}

pub(super) fn certificates(content: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(content).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("holds no certificate in PEM".to_owned()),
        Err(_) => Err("is not valid PEM".to_owned()),
    }
}

/// Accepts clients without a certificate, since the routes decide who needs one; but never a wrong one.
fn verifier(content: &[u8], files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let refused = |reason: String| files.error(TlsFile::ClientCa, reason);
    let mut roots = RootCertStore::empty();
    for authority in certificates(content).map_err(refused)? {
        roots.add(authority).map_err(|error| refused(format!("cannot be used: {error}")))?;
    }

    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    let verifier = verifier.build().map_err(|error| refused(format!("cannot be used: {error}")))?;
    Ok(verifier)
}

/// Reads one of the files.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX_FILE_LEN as u64 + 1).read_to_end(&mut content)?;
    if content.len() > MAX_FILE_LEN {
        return Err(io::Error::other(format!("larger than {MAX_FILE_LEN} bytes")));
    }
    Ok(content)
}
