//! TLS towards clients: the certificates that clients show.
//!
//! Not here: sockets (`server`), and TLS towards agents (`upstream`).

mod certificate;

pub use self::certificate::ClientCertificate;
