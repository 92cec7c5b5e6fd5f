//! Signing cards: a detached JWS over the canonical form of the 1.0 card (section 4; RFC 7515, RFC 8785).
//!
//! Deterministic: the same key signs the same card with the same bytes, so caches and their tags hold. Not here: where
//! the key comes from, which is the configuration's secret.

use std::fmt;

use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use interlingua_core::{Extra, Json};
use p256::ecdsa::signature::Signer as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
        Ok(Self { key, protected: base64::url(Json::of(&header).text().as_bytes()) })
    }

    /// Adds the signature to a card.
    pub(super) fn sign(&self, card: &mut Extra) {
        #[derive(Serialize)]
        struct Signature<'a> {
            protected: &'a str,
            signature: String,
        }
        card.remove("signatures");
        let payload = base64::url(canonical(card).as_bytes());
        let signed = format!("{}.{payload}", self.protected);
        let signature = match &self.key {
            Key::Es256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(signed.as_bytes());
                base64::url(&signature.to_bytes())
            }
            Key::EdDsa(key) => base64::url(&key.sign(signed.as_bytes()).to_bytes()),
        };
        card.push("signatures", Json::of(&[Signature { protected: &self.protected, signature }]));
    }
}

/// The canonical form of RFC 8785. Cards hold no numbers but those an operator writes into the parameters of an
/// extension; their spelling is the shortest that reads back, which is that of the RFC but for very large and very
/// small ones.
fn canonical(card: &Extra) -> String {
    fn write(value: &Value, text: &mut String) {
        match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
                text.push('{');
                for (place, name) in names.into_iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    text.push_str(Json::of(name).text());
                    text.push(':');
                    write(&fields[name], text);
                }
                text.push('}');
            }
            Value::Array(values) => {
                text.push('[');
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    write(value, text);
                }
                text.push(']');
            }
            plain => text.push_str(Json::of(plain).text()),
        }
    }
    let mut text = String::new();
    write(&Json::of(card).read().unwrap_or(Value::Null), &mut text);
    text
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::Verifier as _;
    use serde_json::json;

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
        Json::of(&json!({ "name": "weather", "b": [1, 2.5, true, null], "a": { "ä": "\u{1}\"", "€": "x", "\u{10000}": 0, "\u{ffff}": 0 } }))
            .read()
            .expect("an object")
    }

    #[test]
    fn the_canonical_form_sorts_names_by_utf_16() {
        let wanted = "{\"a\":{\"ä\":\"\\u0001\\\"\",\"€\":\"x\",\"\u{10000}\":0,\"\u{ffff}\":0},\"b\":[1,2.5,true,null],\"name\":\"weather\"}";
        assert_eq!(canonical(&card()), wanted);
    }

    #[test]
    fn a_signature_is_verified_by_the_public_key_and_stays_the_same() {
        for (algorithm, key) in [(Algorithm::Es256, ES256), (Algorithm::EdDsa, EDDSA)] {
            let options = CardSigning { algorithm, key_id: "k1".into(), jku: None, key: key.into() };
            let signer = CardSigner::new(&options).expect("a key");
            let (mut one, mut again) = (card(), card());
            signer.sign(&mut one);
            signer.sign(&mut again);
            signer.sign(&mut again);
            assert_eq!(one, again);
            let written: Value = one.get("signatures").expect("there").read().expect("a list");
            let protected = written[0]["protected"].as_str().expect("text");
            let header: Value = serde_json::from_slice(&base64::bytes(protected).expect("base64")).expect("JSON");
            assert_eq!(header, json!({ "alg": algorithm, "typ": "JOSE", "kid": "k1" }));
            let signature = base64::bytes(written[0]["signature"].as_str().expect("text")).expect("base64");
            let signed = format!("{protected}.{}", base64::url(canonical(&card()).as_bytes()));
            let verified = |signed: &[u8]| match &signer.key {
                Key::EdDsa(key) => {
                    let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 bytes");
                    key.verifying_key().verify(signed, &signature).is_ok()
                }
                Key::Es256(key) => {
                    let signature = p256::ecdsa::Signature::from_slice(&signature).expect("64 bytes");
                    key.verifying_key().verify(signed, &signature).is_ok()
                }
            };
            assert!(verified(signed.as_bytes()) && !verified(b"something else"));
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
