//! The certificate that a client showed in a TLS handshake, and the names in it.
//!
//! Not here: which names are callers.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The certificate of a client, which was verified in the handshake.
pub struct ClientCertificate {
    /// The certificate itself, then its issuers.
    chain: Vec<CertificateDer<'static>>,
}

impl ClientCertificate {
    /// A certificate with its issuers. `None` if it is empty or cannot be parsed.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Option<Self> {
        EndEntityCert::try_from(chain.first()?).ok()?;
        Some(Self { chain })
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

    fn names(&self, read: impl FnOnce(&EndEntityCert<'_>) -> Vec<String>) -> Vec<String> {
        let certificate = self.chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
        certificate.map(|certificate| read(&certificate)).unwrap_or_default()
    }
}
