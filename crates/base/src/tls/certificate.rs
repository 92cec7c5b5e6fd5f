//! The certificate that a client showed in a TLS handshake, and the names in it.
//!
//! Not here: which names are callers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::EndEntityCert;

use super::shared::{LoadedTls, SharedTls};

/// Validity of a verification, in seconds.
const VERIFIED_FOR: u64 = 60;

#[derive(Clone, Copy)]
struct LastVerification {
    /// The generation of the authorities.
    generation: u64,
    /// Until when it holds, in seconds since 1970.
    until: u64,
}

/// The certificate of a client, which was verified in the handshake.
pub struct ClientCertificate {
    /// The certificate itself, then its issuers.
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<SharedTls>,
    verified: Mutex<LastVerification>,
}

impl ClientCertificate {
    /// A certificate that was accepted by a handshake. `None` if the chain is empty or cannot be parsed.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>, tls: Arc<SharedTls>, loaded: &LoadedTls) -> Option<Self> {
        EndEntityCert::try_from(chain.first()?).ok()?;
        let now = UnixTime::now().as_secs();
        let verified = Mutex::new(LastVerification { generation: loaded.generation, until: now });
        Some(Self { chain, tls, verified })
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

    /// True if both are the same certificate, perhaps of two connections.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.chain.first() == other.chain.first()
    }

    /// True if a connection that began now would be accepted with this certificate: neither it nor an issuer of it has
    /// expired, and its authority is still one of those in force. Verified at most once a minute, and after each
    /// reload.
    ///
    /// For requests of connections that stay open, and for what they started.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.valid_for().is_some()
    }

    /// Waits until [`Self::is_valid`] may have become false: it has to be asked again.
    pub async fn changed(&self) {
        let mut changes = self.tls.changes();
        let Some(time) = self.valid_for() else { return };
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            // The sender is part of what this certificate holds: it is not dropped.
            _ = changes.changed() => {}
        }
    }

    /// The remaining validity, at most a minute. `None` if the certificate is not valid.
    fn valid_for(&self) -> Option<Duration> {
        let (loaded, now) = (self.tls.load(), UnixTime::now());
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.generation != loaded.generation || verified.until < now.as_secs() {
            let until = self.verify(&loaded, now)?;
            *verified = LastVerification { generation: loaded.generation, until };
        }
        // The last second counts as a whole.
        Some(Duration::from_secs(verified.until.saturating_sub(now.as_secs()) + 1))
    }

    /// Until when it is certainly valid, in seconds since 1970. `None` if it is not valid now.
    fn verify(&self, loaded: &LoadedTls, now: UnixTime) -> Option<u64> {
        let verifier = loaded.verifier.as_ref()?;
        let (certificate, issuers) = self.chain.split_first()?;
        let now = now.as_secs();
        let is_valid_at = |seconds: u64| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            verifier.verify_client_cert(certificate, issuers, time).is_ok()
        };
        if !is_valid_at(now) {
            return None;
        }

        // Any certificate of the chain may be the first to expire: so whole chains are verified, at times to come.
        let (mut valid, mut checked) = (now, now + VERIFIED_FOR);
        if is_valid_at(checked) {
            return Some(checked);
        }
        while checked - valid > 1 {
            let middle = valid.midpoint(checked);
            if is_valid_at(middle) {
                valid = middle;
            } else {
                checked = middle;
            }
        }
        Some(valid)
    }

    fn names(&self, read: impl FnOnce(&EndEntityCert<'_>) -> Vec<String>) -> Vec<String> {
        let certificate = self.chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
        certificate.map(|certificate| read(&certificate)).unwrap_or_default()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}
