//! The table `tls` of a listener as written.
//!
//! Not here: reading the files (`tls.rs`).

use schemars::JsonSchema;

use super::located::WithSpan;

/// The files of TLS, in PEM and relative to the folder of this file. They are read again when they change.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsTable {
    /// The certificate of the gateway, then its issuers. Required.
    pub(super) cert: Option<WithSpan<String>>,
    /// The private key of the first certificate. Required.
    pub(super) key: Option<WithSpan<String>>,
    /// The authorities that sign the certificates of clients. A client without a certificate is accepted, a client with
    /// a certificate of another authority is refused. By default clients are not asked for a certificate.
    pub(super) client_ca: Option<WithSpan<String>>,
}
