//! The certificate that a client showed in a TLS handshake, and the names in it.
//!
//! Not here: which names are callers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::EndEntityCert;

use super::shared::{LoadedTls, SharedTls};

/// How long a verification holds.
const VERIFIED_FOR: Duration = Duration::from_secs(60);

/// The certificate of a client, which was verified in the handshake.
pub struct ClientCertificate {
    /// The certificate itself, then its issuers.
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<SharedTls>,
    /// When it was verified last, and the generation of the authorities at that time.
    verified: Mutex<(u64, Instant)>,
}

impl ClientCertificate {
    /// A certificate that was verified just now. `None` if the chain is empty or cannot be parsed.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>, tls: Arc<SharedTls>, loaded: &LoadedTls) -> Option<Self> {
        EndEntityCert::try_from(chain.first()?).ok()?;
        Some(Self { chain, tls, verified: Mutex::new((loaded.generation, Instant::now())) })
    }

    /// The URIs among the subject's alternative names (RFC 5280, section 4.2.1.6), in their order.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        self.names(|certificate| certificate.valid_uri_names().map(str::to_owned).collect())
    }

    /// The DNS names among the subject's alternative names, in their order.
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        self.names(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
    }

    /// True if a connection that began now would be accepted with this certificate: it has not expired, and its
    /// authority is still one of those in force. Verified at most once a minute, and after each reload.
    ///
    /// For requests of connections that stay open.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let loaded = self.tls.load();
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, at) = *verified;
        if generation == loaded.generation && at.elapsed() < VERIFIED_FOR {
            return true;
        }

        let (Some(verifier), Some((certificate, issuers))) = (&loaded.verifier, self.chain.split_first()) else {
            return false;
        };
        let is_valid = verifier.verify_client_cert(certificate, issuers, UnixTime::now()).is_ok();
        if is_valid {
            *verified = (loaded.generation, Instant::now());
        }
        is_valid
    }

    fn names(&self, read: impl FnOnce(&EndEntityCert<'_>) -> Vec<String>) -> Vec<String> {
        let certificate = self.chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
        certificate.map(|certificate| read(&certificate)).unwrap_or_default()
    }
}
