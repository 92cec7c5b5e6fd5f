//! Addresses to listen on.

use std::net::{IpAddr, SocketAddr};

/// Parses an address with a port. The error is a suggestion.
pub(super) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }

    let suggestion = if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        format!("0.0.0.0:{port}")
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("127.0.0.1:{port}")
    } else if let Ok(address) = text.parse::<IpAddr>() {
        SocketAddr::new(address, 8080).to_string()
    } else {
        return Err("write an address and a port, like \"127.0.0.1:8080\"".to_owned());
    };
    Err(format!("did you mean {suggestion:?}?"))
}
