//! TLS towards agents and receivers: one cryptography provider, and the certificates of the system, read once.
//!
//! Not here: agents with TLS settings of their own ([`interlingua_base::tls::ClientTls`]).

use std::sync::{Once, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::ConfigVerifierExt as _;

/// Installs the cryptography provider of the process, once, unless another one is installed. Must be called before any
/// client is built.
pub fn install_crypto() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Fails only if another one is installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The TLS settings of a client. `secure`: it speaks TLS; otherwise it trusts no certificate, since reading those of
/// the system takes time and memory that plain HTTP has no use for.
pub(super) fn client_config(secure: bool) -> ClientConfig {
    install_crypto();
    if secure { system_roots() } else { no_roots() }
}

/// The name of HTTP/2 in a handshake.
pub(super) const HTTP_2: &[u8] = b"h2";
/// The name of HTTP/1.1 in a handshake.
pub(super) const HTTP_1: &[u8] = b"http/1.1";

/// Offers these versions of HTTP, the best one first.
pub(super) fn offer(config: &mut ClientConfig, versions: &[&[u8]]) {
    config.alpn_protocols = versions.iter().map(|version| version.to_vec()).collect();
}

/// Trusts the certificates of the system.
fn system_roots() -> ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    let read = || {
        let mut config = ClientConfig::with_platform_verifier().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the system's certificates: https connections that rely on them will fail");
            no_roots()
        });
        offer(&mut config, &[HTTP_2, HTTP_1]);
        config
    };
    CONFIG.get_or_init(read).clone()
}

fn no_roots() -> ClientConfig {
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}
