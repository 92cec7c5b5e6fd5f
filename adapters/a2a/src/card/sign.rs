//! Signing cards: a detached JWS over the canonical form of the 1.0 card (section 4; RFC 7515, RFC 8785).
//!
//! Deterministic: the same key signs the same card with the same bytes, so caches and their tags hold. Not here: the
//! canonical form itself (`canonical`), and where the key comes from, which is the configuration's secret.

use std::fmt;

use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use interlingua_core::{Extra, Json};
use p256::ecdsa::signature::Signer as _;
use serde::{Deserialize, Serialize};

use super::canonical::{Empty, canonical};
use crate::wire::base64;

/// `card_signing`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardSigning {
    /// How it is signed.
    pub algorithm: Algorithm,
    /// How verifiers find the key.
    pub key_id: String,
    /// Where its public half is.
    #[serde(default)]
    pub jku: Option<String>,
    /// The private key: PKCS #8 in PEM, as `openssl genpkey` writes it.
    pub key: String,
}

impl fmt::Debug for CardSigning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardSigning").field("algorithm", &self.algorithm).field("key_id", &self.key_id).finish()
    }
}

/// How cards are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// A key that signs, and the header that says so.
pub(crate) struct CardSigner {
    key: Key,
    /// The protected header, encoded.
    protected: String,
}

enum Key {
    Es256(Box<p256::ecdsa::SigningKey>),
    EdDsa(Box<ed25519_dalek::SigningKey>),
}

impl CardSigner {
    /// Reads the key.
    pub(crate) fn new(options: &CardSigning) -> Result<Self, String> {
        #[derive(Serialize)]
        struct Header<'a> {
            alg: Algorithm,
            typ: &'static str,
            kid: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            jku: Option<&'a str>,
        }
        // What is wrong with a key is not told: messages end up in logs.
        let unreadable =
            |kind: &str| format!("the key of \"card_signing\" is no PKCS #8 private key for {kind}, in PEM");
        let key = match options.algorithm {
            Algorithm::Es256 => {
                let key = p256::SecretKey::from_pkcs8_pem(&options.key).map_err(|_| unreadable("ES256"))?;
                Key::Es256(Box::new(key.into()))
            }
            Algorithm::EdDsa => {
                let key = ed25519_dalek::SigningKey::from_pkcs8_pem(&options.key).map_err(|_| unreadable("EdDSA"))?;
                Key::EdDsa(Box::new(key))
            }
        };
        let jku = options.jku.as_deref();
        let header = Header { alg: options.algorithm, typ: "JOSE", kid: &options.key_id, jku };
        Ok(Self { key, protected: base64::url(Json::from_serialize(&header).text().as_bytes()) })
    }

    /// Adds the signature to a card: two of them where verifiers differ in what they take for the canonical form, since
    /// one valid signature is what they look for.
    pub(super) fn sign(&self, card: &mut Extra) {
        card.remove("signatures");
        let unsigned = Json::from_serialize(card);
        let (kept, dropped) = (canonical(&unsigned, Empty::Kept), canonical(&unsigned, Empty::Dropped));
        let mut signatures = vec![self.signature(&kept)];
        if dropped != kept {
            signatures.push(self.signature(&dropped));
        }
        card.push("signatures", Json::from_serialize(&signatures));
    }

    fn signature(&self, payload: &str) -> Signature<'_> {
        let signed = format!("{}.{}", self.protected, base64::url(payload.as_bytes()));
        let signature = match &self.key {
            Key::Es256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(signed.as_bytes());
                base64::url(&signature.to_bytes())
            }
            Key::EdDsa(key) => base64::url(&key.sign(signed.as_bytes()).to_bytes()),
        };
        Signature { protected: &self.protected, signature }
    }
}

#[derive(Serialize)]
struct Signature<'a> {
    protected: &'a str,
    signature: String,
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::Verifier as _;
    use serde_json::{Value, json};

    use super::*;

    // Made for this test alone.
    const ES256: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgWcIfGsyOCvwiMAzX
qDAJiIv3gNfqu/XZbYGXezi5hcuhRANCAAQsF68DegXkj4x+4dibYdoQJ2k33+Up
FtXnecgSmwBkI0W3mKb5DPkq9whT7UzymHxhxj82BEnG4mHW21Du67qe
-----END PRIVATE KEY-----
";
    // RFC 8032, section 7.1, test 1, as PKCS #8.
    const EDDSA: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";

    fn card() -> Extra {
        Json::from_serialize(&json!({ "name": "weather", "a": { "x": 1.0 } })).decode().expect("an object")
    }

    /// Which of a card's signatures are good over which payload.
    fn good(signer: &CardSigner, card: &Extra, payload: &str) -> Vec<bool> {
        let written: Value = card.get("signatures").expect("there").decode().expect("a list");
        let verified = |entry: &Value| {
            let (protected, signature) = (entry["protected"].as_str(), entry["signature"].as_str());
            let signature = base64::bytes(signature.expect("text")).expect("base64");
            let signed = format!("{}.{}", protected.expect("text"), base64::url(payload.as_bytes()));
            match &signer.key {
                Key::EdDsa(key) => {
                    let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 bytes");
                    key.verifying_key().verify(signed.as_bytes(), &signature).is_ok()
                }
                Key::Es256(key) => {
                    let signature = p256::ecdsa::Signature::from_slice(&signature).expect("64 bytes");
                    key.verifying_key().verify(signed.as_bytes(), &signature).is_ok()
                }
            }
        };
        written.as_array().expect("a list").iter().map(verified).collect()
    }

    fn signers() -> [(Algorithm, CardSigner); 2] {
        [(Algorithm::Es256, ES256), (Algorithm::EdDsa, EDDSA)].map(|(algorithm, key)| {
            let options = CardSigning { algorithm, key_id: "k1".into(), jku: None, key: key.into() };
            (algorithm, CardSigner::new(&options).expect("a key"))
        })
    }

    #[test]
    fn a_signature_is_verified_by_the_public_key_and_stays_the_same() {
        for (algorithm, signer) in signers() {
            let (mut one, mut again) = (card(), card());
            signer.sign(&mut one);
            signer.sign(&mut again);
            signer.sign(&mut again);
            assert_eq!(one, again);
            let written: Value = one.get("signatures").expect("there").decode().expect("a list");
            let protected = written[0]["protected"].as_str().expect("text");
            let header: Value = serde_json::from_slice(&base64::bytes(protected).expect("base64")).expect("JSON");
            assert_eq!(header, json!({ "alg": algorithm, "typ": "JOSE", "kid": "k1" }));
            assert_eq!(good(&signer, &one, r#"{"a":{"x":1},"name":"weather"}"#), [true]);
            assert_eq!(good(&signer, &one, r#"{"a":{"x":2},"name":"weather"}"#), [false]);
        }
    }

    #[test]
    fn a_card_that_holds_something_empty_is_signed_for_either_reading() {
        for (_, signer) in signers() {
            let mut card = card();
            card.push("needs", Json::from_serialize(&json!([{ "schemes": { "key": {} } }])));
            signer.sign(&mut card);
            let whole = r#"{"a":{"x":1},"name":"weather","needs":[{"schemes":{"key":{}}}]}"#;
            assert_eq!(good(&signer, &card, whole), [true, false]);
            assert_eq!(good(&signer, &card, r#"{"a":{"x":1},"name":"weather"}"#), [false, true]);
        }
    }

    #[test]
    fn a_key_of_another_kind_is_refused_without_being_repeated() {
        for (algorithm, key) in [(Algorithm::Es256, EDDSA), (Algorithm::EdDsa, "nonsense"), (Algorithm::EdDsa, ES256)] {
            let options = CardSigning { algorithm, key_id: "k1".into(), jku: None, key: key.into() };
            let message = CardSigner::new(&options).err().expect("it is refused");
            assert!(!message.contains("MC4C") && !message.contains("nonsense"), "{message}");
            assert!(!format!("{options:?}").contains(key));
        }
    }
}
