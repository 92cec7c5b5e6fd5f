//! TLS: towards clients its files, what is in force, and the certificates that clients show; towards agents what their
//! configuration says.
//!
//! Not here: sockets (`server`), and connections to agents (`upstream`).

mod certificate;
mod client;
mod files;
mod probe;
mod relaxed;
mod shared;

pub use self::certificate::ClientCertificate;
pub use self::client::{ClientTls, ClientTlsFile};
pub use self::files::{MAX_FILE_LEN, TlsFile, TlsFileError, TlsFiles};
pub use self::probe::probe_config;
pub use self::relaxed::RelaxedVerifier;
pub use self::shared::{LoadedTls, SharedTls, TlsReload};
