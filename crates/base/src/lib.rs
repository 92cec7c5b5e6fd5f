//! Clock, chunks of bytes, ports, secrets, files, identities and TLS files, used by all layers of the gateway.

pub mod chunks;
pub mod clock;
pub mod files;
pub mod identity;
pub mod ports;
pub mod random;
pub mod rate;
pub mod secrets;
pub mod tls;
