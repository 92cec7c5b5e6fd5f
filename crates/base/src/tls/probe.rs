//! TLS of the health check, which asks the gateway itself.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, Error};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::RelaxedVerifier;

/// The settings of a health check. `is_local`: it stays on this machine, where the certificate is of no use: it names
/// another host, and nothing secret is sent. Others are verified by the certificates of the system.
///
/// # Errors
/// If the certificates of the system cannot be read.
pub fn probe_config(is_local: bool) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    if !is_local {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    }
    let verifier = Arc::new(RelaxedVerifier::any_certificate());
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}
