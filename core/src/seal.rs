//! Data of the gateway that clients keep and send back, such as the state of a request in MCP: authenticated, so that a
//! client can neither change it nor use that of another caller.
//!
//! Not here: secrecy. A client can read sealed data.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::fault::{Fault, FaultKind};
use crate::owner::Owner;

/// Length of the authentication code in bytes.
const CODE_BYTES: usize = 32;

/// Seals data with the secret of the store (HMAC-SHA256). All replicas of a store have the same secret, so each opens
/// the seals of the others. Cheap to clone: all clones have one key.
#[derive(Clone, Default)]
pub struct Sealer {
    key: Arc<OnceLock<[u8; 32]>>,
}

impl Sealer {
    /// A sealer with this secret.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Arc::new(OnceLock::from(key)) }
    }

    /// True once the secret was read from the store.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.key.get().is_some()
    }

    /// Sets the secret of all clones. Ignored if it is set already.
    pub fn set_key(&self, key: [u8; 32]) {
        // Another task may have read the same secret.
        let _ = self.key.set(key);
    }

    /// Seals data for one caller and one purpose, as text in the alphabet of base64url.
    ///
    /// # Errors
    /// [`FaultKind::Overloaded`] if the store has not been reached since the gateway was started.
    pub fn seal(&self, purpose: &str, owner: &Owner, data: &[u8]) -> Result<String, Fault> {
        let mut sealed = self.mac(purpose, owner, data)?.finalize().into_bytes().to_vec();
        sealed.extend_from_slice(data);
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The sealed data. `None`: the text is no seal of this store, or was sealed for another purpose or caller.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn open(&self, purpose: &str, owner: &Owner, text: &str) -> Result<Option<Vec<u8>>, Fault> {
        let Ok(mut code) = URL_SAFE_NO_PAD.decode(text) else { return Ok(None) };
        if code.len() < CODE_BYTES {
            return Ok(None);
        }
        let data = code.split_off(CODE_BYTES);
        // Compares in constant time.
        let is_genuine = self.mac(purpose, owner, &data)?.verify_slice(&code).is_ok();
        Ok(is_genuine.then_some(data))
    }

    fn mac(&self, purpose: &str, owner: &Owner, data: &[u8]) -> Result<Hmac<Sha256>, Fault> {
        let key = self
            .key
            .get()
            .ok_or_else(|| Fault::new(FaultKind::Overloaded, "the store has not been reached yet: try again"))?;
        let mut mac = Hmac::new_from_slice(key).expect("HMAC takes keys of every length");
        for part in [purpose.as_bytes(), owner.key().as_bytes(), data] {
            // With its length, so that no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Ok(mac)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sealer: &Sealer, purpose: &str, owner: &Owner, text: &str) -> Option<Vec<u8>> {
        sealer.open(purpose, owner, text).expect("it has a key")
    }

    #[test]
    fn a_seal_opens_for_its_caller_and_its_purpose_only() {
        let (sealer, ada) = (Sealer::new([1; 32]), Owner::new("ada"));
        let sealed = sealer.seal("question", &ada, b"run 7").expect("it has a key");

        assert_eq!(open(&sealer, "question", &ada, &sealed).as_deref(), Some(&b"run 7"[..]));
        assert_eq!(open(&sealer, "answer", &ada, &sealed), None);
        assert_eq!(open(&sealer, "question", &Owner::new("bob"), &sealed), None);
        assert_eq!(open(&Sealer::new([2; 32]), "question", &ada, &sealed), None);
    }

    #[test]
    fn changed_and_cut_seals_do_not_open() {
        let (sealer, ada) = (Sealer::new([1; 32]), Owner::anonymous());
        let sealed = sealer.seal("question", &ada, b"run 7").expect("it has a key");

        for (place, byte) in sealed.char_indices() {
            let other = if byte == 'A' { "B" } else { "A" };
            let changed = format!("{}{other}{}", &sealed[..place], &sealed[place + 1..]);
            assert_eq!(open(&sealer, "question", &ada, &changed), None, "{place}");
            assert_eq!(open(&sealer, "question", &ada, &sealed[..place]), None, "{place}");
        }
        for text in ["", "?", "AAAA", "ä"] {
            assert_eq!(open(&sealer, "question", &ada, text), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_sealed_before_the_store_was_reached() {
        let (sealer, ada) = (Sealer::default(), Owner::new("ada"));
        let refused = sealer.seal("question", &ada, b"run 7").map_err(|fault| fault.kind);
        assert_eq!(refused, Err(FaultKind::Overloaded));

        sealer.clone().set_key([1; 32]);
        assert!(sealer.seal("question", &ada, b"run 7").is_ok());
    }
}
