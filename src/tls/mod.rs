//! TLS towards clients: its files, what is in force, and the certificates that clients show.
//!
//! Not here: sockets (`server`), and TLS towards agents (`upstream`).

mod certificate;
mod files;
mod probe;
mod shared;

pub use self::certificate::ClientCertificate;
pub use self::files::{MAX_FILE_LEN, TlsFile, TlsFileError, TlsFiles};
pub use self::probe::probe_config;
pub use self::shared::{LoadedTls, SharedTls, TlsReload};
