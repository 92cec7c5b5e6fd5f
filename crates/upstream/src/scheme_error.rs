//! TLS handshakes with servers that speak http: their errors say so only in the words of the TLS library.

use std::error::Error;
use std::io;

/// Said of a server that answers a TLS handshake in clear text.
pub const SPEAKS_HTTP: &str = "the server speaks http, not https";

/// Whether a TLS handshake failed because the other side sent something that is no TLS.
#[must_use]
pub fn is_answer_in_clear(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(_))) {
            return true;
        }
        // The source of an I/O error is not the error that it wraps, but the source of that one.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_that_are_no_tls_count() {
        let wrap = |error: rustls::Error| io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        let clear = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(is_answer_in_clear(&wrap(clear.clone())) && is_answer_in_clear(&clear));
        assert!(!is_answer_in_clear(&wrap(rustls::Error::HandshakeNotComplete)));
        assert!(!is_answer_in_clear(&io::Error::other("refused")));
    }
}
