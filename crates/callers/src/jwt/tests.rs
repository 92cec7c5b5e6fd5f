//! Good tokens of every algorithm, and a table of bad ones.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::json;
use url::Url;

use super::*;
use interlingua_config::JwksSource;

const ISSUER: &str = "https://id.example.com/";

/// A network on which every URL answers with the same document.
struct Document(Mutex<String>);

impl JwksFetcher for Document {
    fn get(&self, _: Url) -> BoxFuture<'static, Result<Bytes, String>> {
        let text = self.0.lock().expect("no test panics here").clone();
        ready(Ok(Bytes::from(text))).boxed()
    }
}

/// Both steps of a verification.
async fn verify(issuer: &Issuer, token: &str) -> Result<VerifiedClaims, Reason> {
    let signer = issuer.signer(token).await?;
    issuer.verify(token, signer)
}

/// The private keys of an issuer: one of each kind.
struct Keys {
    es256: EcdsaKeyPair,
    es384: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    rsa: RsaKeyPair,
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a new key");
    EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key")
}

impl Keys {
    fn new() -> Self {
        let pem: String = include_str!("rsa.pem").lines().filter(|line| !line.starts_with('-')).collect();
        let rsa = base64::prelude::BASE64_STANDARD.decode(pem).expect("base64");
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a new key");
        Self {
            es256: ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            es384: ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).expect("a key"),
            rsa: RsaKeyPair::from_pkcs8(&rsa).expect("a key"),
        }
    }

    /// The issuer's key set.
    fn jwks(&self) -> Value {
        let es256 = self.es256.public_key().as_ref();
        let es384 = self.es384.public_key().as_ref();
        let rsa = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        json!({ "keys": [
            { "kty": "EC", "crv": "P-256", "kid": "es256", "use": "sig", "alg": "ES256",
              "x": encode(&es256[1..33]), "y": encode(&es256[33..]) },
            { "kty": "EC", "crv": "P-384", "kid": "es384", "key_ops": ["verify"],
              "x": encode(&es384[1..49]), "y": encode(&es384[49..]) },
            { "kty": "OKP", "crv": "Ed25519", "kid": "ed25519", "x": encode(self.ed25519.public_key().as_ref()) },
            { "kty": "RSA", "kid": "rsa", "n": encode(&rsa.n),
              "e": encode(&rsa.e) },
            // For others, or of kinds that are not known.
            { "kty": "RSA", "kid": "encrypts", "use": "enc",
              "n": encode(&rsa.n), "e": "AQAB" },
            { "kty": "EC", "crv": "secp256k1", "kid": "coin", "x": "AA", "y": "AA" },
            { "kty": "AKP", "kid": "later", "pub": "AA" },
            { "kty": "oct", "kid": "shared", "k": encode(b"a secret of thirty-two bytes, yes") },
            // Two keys of one id.
            { "kty": "OKP", "crv": "Ed25519", "kid": "twin", "x": encode(self.ed25519.public_key().as_ref()) },
            { "kty": "OKP", "crv": "Ed25519", "kid": "twin", "x": encode(&[7; 32]) },
            "not an object",
        ] })
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let rsa = |padding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(padding, &random, message, &mut signature).expect("a signature");
            signature
        };
        match algorithm {
            "ES256" => self.es256.sign(&random, message).expect("a signature").as_ref().to_vec(),
            "ES384" => self.es384.sign(&random, message).expect("a signature").as_ref().to_vec(),
            "EdDSA" => self.ed25519.sign(message).as_ref().to_vec(),
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            other => panic!("no test signs with {other}"),
        }
    }

    /// A token whose header and claims are exactly these, signed with the algorithm of the header.
    fn token(&self, header: &Value, claims: &Value) -> String {
        self.token_of_texts(header["alg"].as_str().expect("an algorithm"), &header.to_string(), &claims.to_string())
    }

    fn token_of_texts(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = self.sign(algorithm, message.as_bytes());
        format!("{message}.{}", encode(&signature))
    }

    /// An issuer that publishes these keys and signs with any of its algorithms.
    fn issuer(&self) -> Issuer {
        use JwtAlgorithm as A;
        self.issuer_of(&[A::ES256, A::ES384, A::EdDsa, A::RS256, A::PS256])
    }

    fn issuer_of(&self, algorithms: &[JwtAlgorithm]) -> Issuer {
        self.issuer_and_network(algorithms).0
    }

    fn issuer_and_network(&self, algorithms: &[JwtAlgorithm]) -> (Issuer, Arc<Document>) {
        let config = JwtIssuer {
            issuer: ISSUER.to_owned(),
            audience: vec!["agents".to_owned(), "robots".to_owned()],
            algorithms: algorithms.to_vec(),
            caller: "sub".to_owned(),
            scopes: "scope".to_owned(),
            jwks: JwksSource::Url(Url::parse("https://id.example.com/jwks").expect("a URL")),
        };
        let network = Arc::new(Document(Mutex::new(self.jwks().to_string())));
        (Issuer::new(&config, Arc::clone(&network) as Arc<dyn JwksFetcher>), network)
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn header() -> Value {
    json!({ "alg": "ES256", "kid": "es256", "typ": "JWT" })
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "agents", "sub": "ann", "exp": seconds() + 600, "scope": "read write" })
}

/// The value with some of its fields replaced; null removes one.
fn with(mut value: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, change) in changes {
        if change.is_null() {
            value.as_object_mut().expect("an object").remove(&name);
        } else {
            value[name] = change;
        }
    }
    value
}

#[tokio::test]
async fn tokens_of_every_algorithm_are_verified() {
    let keys = Keys::new();
    let issuer = keys.issuer();
    for (algorithm, kid) in
        [("ES256", "es256"), ("ES384", "es384"), ("EdDSA", "ed25519"), ("RS256", "rsa"), ("PS256", "rsa")]
    {
        let claims = claims();
        let token = keys.token(&json!({ "alg": algorithm, "kid": kid }), &claims);
        assert_eq!(claimed_issuer(&token).as_deref(), Some(ISSUER));

        let verified = verify(&issuer, &token).await.unwrap_or_else(|reason| panic!("{algorithm}: {reason:?}"));
        assert_eq!((&*verified.issuer, verified.caller.as_str()), (ISSUER, "ann"));
        assert_eq!(verified.scopes, ["read", "write"]);
        assert_eq!(verified.expires, (claims["exp"].as_u64().expect("seconds") + 60) * 1000);
        assert!(verified.key.is_published());
    }
}

#[tokio::test]
async fn alternative_forms_of_claims_are_accepted() {
    let keys = Keys::new();
    let issuer = keys.issuer();
    let now = seconds();
    for (what, header, claims) in [
        ("no type", with(header(), json!({ "typ": null })), claims()),
        ("access token", with(header(), json!({ "typ": "at+jwt" })), claims()),
        ("media type", with(header(), json!({ "typ": "application/AT+JWT" })), claims()),
        ("certificates of the key", with(header(), json!({ "x5t": "AA", "x5c": ["AA"] })), claims()),
        ("an unknown field", with(header(), json!({ "nonce": "x" })), claims()),
        ("no key id, one key fits", with(header(), json!({ "kid": null })), claims()),
        ("several audiences", header(), with(claims(), json!({ "aud": ["others", "agents"] }))),
        ("the other audience", header(), with(claims(), json!({ "aud": "robots" }))),
        ("a fraction", header(), with(claims(), json!({ "exp": 4_000_000_000.5 }))),
        ("a clock that is behind", header(), with(claims(), json!({ "exp": now - 50 }))),
        ("a clock that is ahead", header(), with(claims(), json!({ "nbf": now + 50, "iat": now + 50 }))),
        ("scopes as a list", header(), with(claims(), json!({ "scope": ["read", "write"] }))),
    ] {
        let verified = verify(&issuer, &keys.token(&header, &claims)).await;
        let verified = verified.unwrap_or_else(|reason| panic!("{what}: {reason:?}"));
        assert_eq!(verified.scopes, ["read", "write"], "{what}");
    }

    let without = keys.token(&header(), &with(claims(), json!({ "scope": 7 })));
    assert!(verify(&issuer, &without).await.expect("a token").scopes.is_empty());
}

#[tokio::test]
async fn bad_headers_are_refused() {
    let keys = Keys::new();
    let issuer = keys.issuer();
    let of_key = |kid: &str, algorithm: &str| json!({ "alg": algorithm, "kid": kid });
    for (what, header, reason) in [
        ("crit", with(header(), json!({ "crit": ["exp"] })), Reason::Malformed),
        ("an empty crit", with(header(), json!({ "crit": [] })), Reason::Malformed),
        ("jku", with(header(), json!({ "jku": "https://evil.example/jwks" })), Reason::Malformed),
        ("x5u", with(header(), json!({ "x5u": "https://evil.example/x5" })), Reason::Malformed),
        ("jwk", with(header(), json!({ "jwk": keys.jwks()["keys"][0] })), Reason::Malformed),
        ("zip", with(header(), json!({ "zip": "DEF" })), Reason::Malformed),
        ("enc", with(header(), json!({ "enc": "A128GCM" })), Reason::Malformed),
        ("another type", with(header(), json!({ "typ": "secevent+jwt" })), Reason::Malformed),
        ("a type that is no text", with(header(), json!({ "typ": 1 })), Reason::Malformed),
        ("a key id that is no text", with(header(), json!({ "kid": 1 })), Reason::Malformed),
        ("an unknown key", of_key("es257", "ES256"), Reason::Unknown),
        ("the key of another algorithm", of_key("es256", "EdDSA"), Reason::Unknown),
        ("a key of another curve", of_key("es384", "ES256"), Reason::Unknown),
        ("a key for encryption", of_key("encrypts", "RS256"), Reason::Unknown),
        ("an unknown curve", of_key("coin", "ES256"), Reason::Unknown),
        ("two keys of one id", of_key("twin", "EdDSA"), Reason::Unknown),
        ("no key id, several keys fit", json!({ "alg": "EdDSA" }), Reason::Unknown),
        ("an algorithm that is not configured", of_key("rsa", "RS512"), Reason::Signature),
    ] {
        let refused = verify(&issuer, &keys.token(&header, &claims())).await.err();
        assert_eq!(refused, Some(reason), "{what}");
    }

    let twice = r#"{"alg":"ES256","kid":"rsa","kid":"es256"}"#;
    let refused = verify(&issuer, &keys.token_of_texts("ES256", twice, &claims().to_string())).await.err();
    assert_eq!(refused, Some(Reason::Malformed), "a field that is there twice");
}

#[tokio::test]
async fn bad_claims_are_refused() {
    let keys = Keys::new();
    let issuer = keys.issuer();
    let now = seconds();
    for (what, changes, reason) in [
        ("no issuer", json!({ "iss": null }), Reason::Claims),
        ("another issuer", json!({ "iss": "https://evil.example.com/" }), Reason::Claims),
        ("a prefix of the issuer", json!({ "iss": "https://id.example.com" }), Reason::Claims),
        ("the issuer and more", json!({ "iss": format!("{ISSUER}x") }), Reason::Claims),
        ("the issuer in capitals", json!({ "iss": ISSUER.to_uppercase() }), Reason::Claims),
        ("several issuers", json!({ "iss": [ISSUER] }), Reason::Claims),
        ("no audience", json!({ "aud": null }), Reason::Claims),
        ("another audience", json!({ "aud": "agents2" }), Reason::Claims),
        ("no audience in the list", json!({ "aud": [] }), Reason::Claims),
        ("an audience that is no text", json!({ "aud": 7 }), Reason::Claims),
        ("no end", json!({ "exp": null }), Reason::Claims),
        ("an end as text", json!({ "exp": (now + 600).to_string() }), Reason::Claims),
        ("an end before 1970", json!({ "exp": -1 }), Reason::Claims),
        ("over", json!({ "exp": now - 70 }), Reason::Expired),
        ("over for long", json!({ "exp": 0 }), Reason::Expired),
        ("not yet", json!({ "nbf": now + 70 }), Reason::Claims),
        ("a beginning that is no number", json!({ "nbf": "soon" }), Reason::Claims),
        ("no caller", json!({ "sub": null }), Reason::Claims),
        ("an empty caller", json!({ "sub": "" }), Reason::Claims),
        ("a caller that is no text", json!({ "sub": 7 }), Reason::Claims),
        ("a long caller", json!({ "sub": "a".repeat(257) }), Reason::Claims),
    ] {
        let refused = verify(&issuer, &keys.token(&header(), &with(claims(), changes))).await.err();
        assert_eq!(refused, Some(reason), "{what}");
    }

    for claims in ["[]", "7", "", "{", r#"{"iss":"#] {
        let refused = verify(&issuer, &keys.token_of_texts("ES256", &header().to_string(), claims)).await.err();
        assert_eq!(refused, Some(Reason::Malformed), "{claims}");
    }
}

#[tokio::test]
async fn bad_signatures_are_refused() {
    let keys = Keys::new();
    let issuer = keys.issuer();
    let good = keys.token(&header(), &claims());
    let (message, signature) = good.rsplit_once('.').expect("a signature");
    let admin = with(claims(), json!({ "sub": "admin" })).to_string();
    let (head, _) = message.split_once('.').expect("two parts");

    let other = Keys::new().token(&header(), &claims());
    let der = format!("{message}.{}", encode(&[0x30, 0x44, 0x02, 0x20]));
    let none = format!("{}.{}.", encode(br#"{"alg":"none"}"#), encode(claims().to_string().as_bytes()));
    let named_none = format!("{}.{}.{signature}", encode(br#"{"alg":"None"}"#), encode(admin.as_bytes()));
    for (what, token, reason) in [
        ("no signature", format!("{message}."), Reason::Signature),
        ("half of it", format!("{message}.{}", &signature[..40]), Reason::Signature),
        ("zeros", format!("{message}.{}", encode(&[0; 64])), Reason::Signature),
        ("another form of it", der, Reason::Signature),
        ("other claims", format!("{head}.{}.{signature}", encode(admin.as_bytes())), Reason::Signature),
        ("the key of another", other, Reason::Signature),
        ("the algorithm none", none, Reason::Signature),
        ("the algorithm None", named_none, Reason::Signature),
        ("not base64", format!("{message}.{signature}="), Reason::Malformed),
        ("two parts", message.to_owned(), Reason::Malformed),
        ("four parts", format!("{good}.x"), Reason::Malformed),
        ("five parts, encrypted", format!("{good}.x.y"), Reason::Malformed),
        ("too long", format!("{good}{}", "A".repeat(MAX_TOKEN_LEN)), Reason::Malformed),
        ("nothing", "..".to_owned(), Reason::Malformed),
    ] {
        assert_eq!(verify(&issuer, &token).await.err(), Some(reason), "{what}");
    }
}

#[tokio::test]
async fn a_token_is_valid_until_it_expires_or_its_key_is_withdrawn() {
    let keys = Keys::new();
    let (issuer, network) = keys.issuer_and_network(&[JwtAlgorithm::ES256]);
    let verified = verify(&issuer, &keys.token(&header(), &claims())).await.expect("a token");
    assert_eq!(verified.check(verified.expires - 1), Ok(()));
    assert_eq!(verified.check(verified.expires), Err(Reason::Expired));

    *network.0.lock().expect("no test panics here") = r#"{"keys":[]}"#.to_owned();
    issuer.keys().refresh(Instant::now() + Duration::from_secs(700));
    while verified.key.is_published() {
        tokio::task::yield_now().await;
    }
    assert_eq!(verified.check(0), Err(Reason::Unknown));
}

/// The public key as the secret of an HMAC: what a verifier accepts that lets the token choose the algorithm.
#[tokio::test]
async fn a_public_key_is_no_secret_of_an_hmac() {
    let keys = Keys::new();
    let modulus = RsaPublicKeyComponents::<Vec<u8>>::from(keys.rsa.public()).n;
    let point = keys.es256.public_key().as_ref().to_vec();
    for algorithms in [&[JwtAlgorithm::RS256, JwtAlgorithm::ES256][..], &[]] {
        let issuer = keys.issuer_of(algorithms);
        let shared = b"a secret of thirty-two bytes, yes".to_vec();
        for (kid, secret) in [("rsa", &modulus), ("es256", &point), ("shared", &shared)] {
            let header = json!({ "alg": "HS256", "kid": kid }).to_string();
            let message = format!("{}.{}", encode(header.as_bytes()), encode(claims().to_string().as_bytes()));
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
            let token = format!("{message}.{}", encode(tag.as_ref()));
            assert_eq!(verify(&issuer, &token).await.err(), Some(Reason::Signature), "{kid} {algorithms:?}");
        }
    }
}

#[test]
fn malformed_tokens_have_no_issuer() {
    let long = format!("{}.{}.c", encode(b"{}"), encode(claims().to_string().as_bytes()).repeat(100));
    for text in ["", "a", "a.b", "a.b.c", "a..c", &format!("a.{}.c", encode(b"{\"iss\":7}")), &long] {
        assert_eq!(claimed_issuer(text), None, "{text}");
    }
}
