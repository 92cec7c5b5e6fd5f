//! Signs cards: a detached JWS over the canonical form of the 1.0 card (section 4; RFC 7515, RFC 8785).
//!
//! Deterministic: the same key and card give the same bytes, so ETags stay valid. Not here: the canonical form
//! (`canonical`), and loading the key, which is a secret of the configuration.

use std::fmt;

use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use interlingua_core::{Extra, Json};
use p256::ecdsa::signature::Signer as _;
use serde::{Deserialize, Serialize};

use super::canonical::{Empty, canonical};
use crate::wire::base64;

/// The `card_signing` option.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardSigning {
    /// Signature algorithm.
    pub algorithm: Algorithm,
    /// `kid` in the JWS header.
    pub key_id: String,
    /// `jku` in the JWS header: URL of the public key set.
    #[serde(default)]
    pub jku: Option<String>,
    /// Private key, PKCS #8 in PEM, as written by `openssl genpkey`.
    pub key: String,
}

impl fmt::Debug for CardSigning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardSigning").field("algorithm", &self.algorithm).field("key_id", &self.key_id).finish()
    }
}

/// Signature algorithms for cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// The signing key and the JWS header.
pub(crate) struct CardSigner {
    key: Key,
    /// Protected header in base64url.
    protected: String,
}

enum Key {
    Es256(Box<p256::ecdsa::SigningKey>),
    EdDsa(Box<ed25519_dalek::SigningKey>),
}

impl CardSigner {
    /// Parses the key.
    pub(crate) fn new(options: &CardSigning) -> Result<Self, String> {
        #[derive(Serialize)]
        struct Header<'a> {
            alg: Algorithm,
            typ: &'static str,
            kid: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            jku: Option<&'a str>,
        }
        // The parse error is dropped: it could leak parts of the key into logs.
        let error = |kind: &str| {
            format!("\"card_signing.key\" of an \"a2a\" route is not a PKCS #8 private key for {kind} in PEM")
        };

        let key = match options.algorithm {
            Algorithm::Es256 => {
                let key = p256::SecretKey::from_pkcs8_pem(&options.key).map_err(|_| error("ES256"))?;
                Key::Es256(Box::new(key.into()))
            }
            Algorithm::EdDsa => {
                let key = ed25519_dalek::SigningKey::from_pkcs8_pem(&options.key).map_err(|_| error("EdDSA"))?;
                Key::EdDsa(Box::new(key))
            }
        };

        let jku = options.jku.as_deref();
        let header = Header { alg: options.algorithm, typ: "JOSE", kid: &options.key_id, jku };
        Ok(Self { key, protected: base64::encode_url(Json::from_serialize(&header).text().as_bytes()) })
    }

    /// Adds a signature to a card. Adds two if verifiers disagree on its canonical form: they accept any valid one.
    pub(super) fn sign(&self, card: &mut Extra) {
        card.remove("signatures");
        let unsigned = Json::from_serialize(card);
        let (with_empty, without_empty) = (canonical(&unsigned, Empty::Kept), canonical(&unsigned, Empty::Dropped));

        let mut signatures = vec![self.signature(&with_empty)];
        if without_empty != with_empty {
            signatures.push(self.signature(&without_empty));
        }
        card.push("signatures", Json::from_serialize(&signatures));
    }

    fn signature(&self, payload: &str) -> Signature<'_> {
        let signed = format!("{}.{}", self.protected, base64::encode_url(payload.as_bytes()));
        let signature = match &self.key {
            Key::Es256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(signed.as_bytes());
                base64::encode_url(&signature.to_bytes())
            }
            Key::EdDsa(key) => base64::encode_url(&key.sign(signed.as_bytes()).to_bytes()),
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

    // Generated for this test only.
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

    /// For each signature of the card: true if it is valid over this payload.
    fn verified_over(signer: &CardSigner, card: &Extra, payload: &str) -> Vec<bool> {
        let written: Value = card.get("signatures").expect("signatures").decode().expect("a list");
        let verify = |entry: &Value| {
            let (protected, signature) = (entry["protected"].as_str(), entry["signature"].as_str());
            let signature = base64::decode(signature.expect("text")).expect("base64");
            let signed = format!("{}.{}", protected.expect("text"), base64::encode_url(payload.as_bytes()));
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
        written.as_array().expect("a list").iter().map(verify).collect()
    }

    fn signers() -> [(Algorithm, CardSigner); 2] {
        [(Algorithm::Es256, ES256), (Algorithm::EdDsa, EDDSA)].map(|(algorithm, key)| {
            let options = CardSigning { algorithm, key_id: "k1".into(), jku: None, key: key.into() };
            (algorithm, CardSigner::new(&options).expect("a key"))
        })
    }

    #[test]
    fn a_signature_is_valid_and_deterministic() {
        for (algorithm, signer) in signers() {
            let (mut one, mut again) = (card(), card());
            signer.sign(&mut one);
            signer.sign(&mut again);
            signer.sign(&mut again);
            assert_eq!(one, again);

            let written: Value = one.get("signatures").expect("signatures").decode().expect("a list");
            let protected = written[0]["protected"].as_str().expect("text");
            let header: Value = serde_json::from_slice(&base64::decode(protected).expect("base64")).expect("JSON");
            assert_eq!(header, json!({ "alg": algorithm, "typ": "JOSE", "kid": "k1" }));
            assert_eq!(verified_over(&signer, &one, r#"{"a":{"x":1},"name":"weather"}"#), [true]);
            assert_eq!(verified_over(&signer, &one, r#"{"a":{"x":2},"name":"weather"}"#), [false]);
        }
    }

    #[test]
    fn a_card_with_empty_values_is_signed_for_both_canonical_forms() {
        for (_, signer) in signers() {
            let mut card = card();
            card.push("needs", Json::from_serialize(&json!([{ "schemes": { "key": {} } }])));
            signer.sign(&mut card);
            let payload = r#"{"a":{"x":1},"name":"weather","needs":[{"schemes":{"key":{}}}]}"#;
            assert_eq!(verified_over(&signer, &card, payload), [true, false]);
            assert_eq!(verified_over(&signer, &card, r#"{"a":{"x":1},"name":"weather"}"#), [false, true]);
        }
    }

    #[test]
    fn a_key_of_another_type_is_rejected_without_leaking_it() {
        for (algorithm, key) in [(Algorithm::Es256, EDDSA), (Algorithm::EdDsa, "nonsense"), (Algorithm::EdDsa, ES256)] {
            let options = CardSigning { algorithm, key_id: "k1".into(), jku: None, key: key.into() };
            let message = CardSigner::new(&options).err().expect("rejected");
            assert!(!message.contains("MC4C") && !message.contains("nonsense"), "{message}");
            assert!(!format!("{options:?}").contains(key));
        }
    }
}
