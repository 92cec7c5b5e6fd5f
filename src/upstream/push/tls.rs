//! How connections to receivers are made: whom they trust, and to which addresses they lead.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls_platform_verifier::ConfigVerifierExt as _;

/// How long a receiver may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Resolves every name to the addresses that were judged: a name that is spelled another way (with a dot at its end)
/// must not be asked for anew.
pub(super) struct Judged(pub(super) Vec<SocketAddr>);

impl Resolve for Judged {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(ready(Ok(addresses)))
    }
}

/// Receivers are trusted whom the system trusts. Its certificates are read once, not for each push.
pub(super) fn trusting_the_system() -> rustls::ClientConfig {
    static TRUSTING: OnceLock<rustls::ClientConfig> = OnceLock::new();
    let read = || {
        let trusting = rustls::ClientConfig::with_platform_verifier();
        let mut trusting = trusting.unwrap_or_else(|error| {
            tracing::error!(%error, "the system's certificates cannot be read: no push over https will arrive");
            trusting_nobody()
        });
        trusting.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        trusting
    };
    TRUSTING.get_or_init(read).clone()
}

/// For plain HTTP.
pub(super) fn trusting_nobody() -> rustls::ClientConfig {
    rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}
