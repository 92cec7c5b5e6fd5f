//! Identities of callers for agents: ids derived from names, and tokens that the gateway signs.
//!
//! Not here: authentication (`callers`), and the requests that contain the identity (`upstream`).

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use interlingua_core::Owner;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Builder;

/// The header with the id of a caller.
pub const CALLER_HEADER: &str = "x-interlingua-caller";
/// The header with a signed token.
pub const TOKEN_HEADER: &str = "x-interlingua-identity";
/// Validity of a token, in seconds.
pub const TOKEN_LIFETIME: u64 = 60;

/// A UUID of version 8 made of texts: the same for the same texts, and another one for any others.
#[must_use]
pub fn derived_id<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length: no two lists of parts are the same bytes.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// The id by which an agent knows a caller. Each agent gets another one, so that what they know cannot be joined.
#[must_use]
pub fn caller_id(agent: &str, owner: &Owner) -> String {
    derived_id(["caller", agent, owner.key()])
}

/// The claims of a token. The fields have the names of the claims.
#[derive(Clone, Debug, Serialize)]
pub struct Claims {
    iss: String,
    /// The agent that the token is for.
    aud: String,
    /// The [id](caller_id) of the caller.
    sub: String,
    /// The caller's name.
    name: String,
    /// The kind of credentials: `key`, `jwt`, `certificate`, or `console` for a person who signed in there.
    caller_kind: &'static str,
    /// By whose word. Left out where there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_issuer: Option<String>,
}

#[derive(Serialize)]
struct DatedToken<'a> {
    #[serde(flatten)]
    claims: &'a Claims,
    iat: u64,
    exp: u64,
    jti: &'a str,
}

impl Claims {
    /// The claims of the gateway `issuer` for `agent` about a caller of this name. `None` if the caller is anonymous.
    #[must_use]
    pub fn new(issuer: &str, agent: &str, owner: &Owner, name: &str) -> Option<Self> {
        let (kind, caller_issuer, _) = owner.identity()?;
        Some(Self {
            iss: issuer.to_owned(),
            aud: agent.to_owned(),
            sub: caller_id(agent, owner),
            name: name.to_owned(),
            caller_kind: match kind {
                "key" => "key",
                "jwt" => "jwt",
                "console" => "console",
                _ => "certificate",
            },
            caller_issuer: (!caller_issuer.is_empty()).then_some(caller_issuer),
        })
    }
}

/// A private key that signs tokens.
pub struct IdentityKey {
    pair: Pair,
    id: String,
}

enum Pair {
    P256(EcdsaKeyPair, SystemRandom),
    Ed25519(Ed25519KeyPair),
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IdentityKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl IdentityKey {
    /// Reads a key: PKCS #8 in PEM, of the curve P-256 or Ed25519.
    ///
    /// # Errors
    /// The error, as the predicate of a sentence. It quotes no part of the text.
    pub fn from_pem(text: &str) -> Result<Self, &'static str> {
        const UNKNOWN: &str = "is not a private key for ES256 or EdDSA";
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            let is_encrypted = text.contains("ENCRYPTED PRIVATE KEY");
            if is_encrypted { "is encrypted" } else { "holds no private key in PKCS #8 and PEM" }
        })?;
        let der = key.secret_pkcs8_der();
        let random = SystemRandom::new();
        let pair = match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random) {
            Ok(pair) => Pair::P256(pair, random),
            // Other tools leave out the public half, which then follows from the private one.
            Err(_) => Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Pair::Ed25519).map_err(|_| UNKNOWN)?,
        };
        let id = thumbprint(&pair);
        Ok(Self { pair, id })
    }

    /// The public half as a JSON Web Key.
    #[must_use]
    pub fn public(&self) -> Value {
        let mut key = public_key(&self.pair);
        key["kid"] = self.id.as_str().into();
        key["alg"] = self.algorithm().into();
        key["use"] = "sig".into();
        key
    }

    /// A JSON Web Token with these claims and this id, valid from `now` on, in seconds since 1970.
    #[must_use]
    pub fn sign(&self, claims: &Claims, now: u64, id: &str) -> String {
        let head = json!({ "alg": self.algorithm(), "kid": self.id, "typ": "JWT" });
        let body = DatedToken { claims, iat: now, exp: now + TOKEN_LIFETIME, jti: id };
        let body = serde_json::to_string(&body).expect("claims are texts and numbers");
        let mut token = format!("{}.{}", encode(head.to_string()), encode(body));

        let signature = match &self.pair {
            Pair::P256(pair, random) => {
                let signed = pair.sign(random, token.as_bytes());
                encode(signed.expect("the system has random numbers"))
            }
            Pair::Ed25519(pair) => encode(pair.sign(token.as_bytes())),
        };
        token.push('.');
        token.push_str(&signature);
        token
    }

    const fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(..) => "ES256",
            Pair::Ed25519(_) => "EdDSA",
        }
    }
}

/// The members that RFC 7638 hashes, in its order.
fn public_key(pair: &Pair) -> Value {
    match pair {
        Pair::P256(pair, _) => {
            // An uncompressed point: one byte, then both coordinates.
            let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
            json!({ "crv": "P-256", "kty": "EC", "x": encode(x), "y": encode(y) })
        }
        Pair::Ed25519(pair) => json!({ "crv": "Ed25519", "kty": "OKP", "x": encode(pair.public_key()) }),
    }
}

fn thumbprint(pair: &Pair) -> String {
    encode(Sha256::digest(public_key(pair).to_string()))
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
    use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};

    use uuid::Uuid;

    use super::*;

    fn part(token: &str, index: usize) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(index).expect("a part")).expect("Base64")
    }

    #[test]
    fn a_token_is_signed_and_says_who_calls_whom() {
        let owner = Owner::authenticated("jwt", "https://id.example.com/", "a/b");
        let claims = Claims::new("https://gateway", "friday", &owner, "a/b").expect("claims");
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519] {
            let pem = KeyPair::generate_for(algorithm).expect("a key").serialize_pem();
            let key = IdentityKey::from_pem(&pem).expect("a key");
            let token = key.sign(&claims, 1_000, "t-1");
            let public = key.public();
            let number = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(public[name].as_str().expect(name)).expect(name);
            let signed = token.rsplit_once('.').expect("three parts").0.as_bytes();
            match public["alg"].as_str() {
                Some("ES256") => {
                    let point = [vec![4], number("x"), number("y")].concat();
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, &part(&token, 2))
                }
                _ => UnparsedPublicKey::new(&ED25519, number("x")).verify(signed, &part(&token, 2)),
            }
            .expect("the signature fits");

            let head: Value = serde_json::from_slice(&part(&token, 0)).expect("JSON");
            assert_eq!((&head["alg"], &head["kid"]), (&public["alg"], &public["kid"]));
            let body: Value = serde_json::from_slice(&part(&token, 1)).expect("JSON");
            let sub = caller_id("friday", &owner);
            let expected = json!({
                "iss": "https://gateway", "aud": "friday", "sub": sub, "name": "a/b", "caller_kind": "jwt",
                "caller_issuer": "https://id.example.com/", "iat": 1_000, "exp": 1_060, "jti": "t-1",
            });
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn the_id_of_a_key_is_its_thumbprint() {
        // RFC 8037, appendix A: the key of A.1 in PKCS #8 has the thumbprint of A.3.
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
        let key = IdentityKey::from_pem(pem).expect("a key").public();
        assert_eq!(key["x"], "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
        assert_eq!(key["kid"], "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn callers_have_ids_of_their_own_at_each_agent() {
        let (ada, bob) = (Owner::authenticated("key", "", "ada"), Owner::authenticated("key", "", "bob"));
        let id = caller_id("one", &ada);
        assert_eq!(id, caller_id("one", &Owner::from_key(ada.key())));
        assert_eq!(Uuid::parse_str(&id).map(|id| id.get_version_num()), Ok(8));
        for other in [caller_id("two", &ada), caller_id("one", &bob), caller_id("one", &ada.clone().of_tenant("t"))] {
            assert_ne!(id, other);
        }
        assert!(Claims::new("i", "one", &Owner::anonymous(), "anonymous").is_none());
        let claims = Claims::new("i", "one", &Owner::authenticated("cert", "", "ada"), "ada").expect("claims");
        assert_eq!((claims.caller_kind, claims.caller_issuer), ("certificate", None));
    }

    #[test]
    fn an_invalid_key_is_refused_and_never_shown() {
        for (text, reason) in [
            ("", "holds no private key in PKCS #8 and PEM"),
            ("secret", "holds no private key in PKCS #8 and PEM"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----", "is encrypted"),
            ("-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----", "is not a private key for ES256 or EdDSA"),
        ] {
            assert_eq!(IdentityKey::from_pem(text).expect_err("no key"), reason);
        }
    }
}
