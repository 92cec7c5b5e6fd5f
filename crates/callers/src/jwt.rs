//! Verifies tokens of one issuer (RFC 7519, RFC 8725): signature, algorithm, issuer, audience and times.
//!
//! Not here: the issuer's keys ([`super::jwks`]), and tokens that were verified before ([`super::tokens`]).

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use interlingua_core::event::Millis;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use super::failures::SignerId;
use super::jwks::{Jwks, JwksKey};
use super::jwt_ring;
use super::reason::Reason;
use interlingua_base::ports::JwksFetcher;
use interlingua_config::{JwtAlgorithm, JwtIssuer};

/// Longer tokens are refused, in bytes.
const MAX_TOKEN_LEN: usize = 8 * 1024;
/// The longest name of a caller, in bytes.
const MAX_CALLER_LEN: usize = 256;
/// Accepted difference between the clocks of issuer and gateway, in seconds.
const LEEWAY: u64 = 60;

/// Header fields that would let a token choose its own key or that change what its parts mean. Refused whatever their
/// value is, `crit` because no extension is understood.
const REFUSED_FIELDS: &[&str] = &["crit", "jku", "x5u", "jwk", "zip", "enc"];

/// One issuer of tokens, as configured.
pub struct Issuer {
    config: JwtIssuer,
    name: Arc<str>,
    /// One per algorithm, since the library wants all algorithms of a validation to use the same kind of key.
    validations: Vec<(Algorithm, Validation)>,
    keys: Arc<Jwks>,
}

/// A published key, with the algorithm that a token names.
pub struct Signer {
    /// The same for all tokens of this issuer and key id.
    pub id: SignerId,
    algorithm: Algorithm,
    key: Arc<JwksKey>,
}

/// The claims of a verified token.
#[derive(Clone)]
pub struct VerifiedClaims {
    /// Its issuer, as configured.
    pub issuer: Arc<str>,
    /// The value of the claim that names the caller.
    pub caller: String,
    /// The scopes that the issuer granted.
    pub scopes: Vec<String>,
    /// When it is no longer valid, clock differences included.
    pub expires: Millis,
    /// The key that signed it.
    pub key: Arc<JwksKey>,
}

impl Issuer {
    /// An issuer whose keys have not been read yet.
    #[must_use]
    pub fn new(config: &JwtIssuer, fetcher: Arc<dyn JwksFetcher>) -> Self {
        jwt_ring::install();
        let algorithms = config.algorithms.iter().map(|name| algorithm(*name));
        Self {
            name: config.issuer.as_str().into(),
            validations: algorithms.map(|algorithm| (algorithm, validation(algorithm, config))).collect(),
            keys: Jwks::new(&config.issuer, config.jwks.clone(), fetcher),
            config: config.clone(),
        }
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &JwtIssuer {
        &self.config
    }

    /// Its public keys.
    #[must_use]
    pub fn keys(&self) -> &Arc<Jwks> {
        &self.keys
    }

    /// Finds the published key that a token says it was signed with. Cheap, since no signature is verified. Waits, at
    /// most five seconds, only if the issuer's keys have to be read first.
    ///
    /// # Errors
    /// The reason of the refusal, for the log.
    pub async fn signer(&self, token: &str) -> Result<Signer, Reason> {
        let algorithm = check_header(token)?;
        if !self.validations.iter().any(|(allowed, _)| *allowed == algorithm) {
            return Err(Reason::Signature);
        }

        let header = jsonwebtoken::decode_header(token).map_err(|_| Reason::Malformed)?;
        let key = self.keys.key(header.kid.as_deref(), algorithm, Instant::now()).await?;
        Ok(Signer { id: SignerId::new(&self.name, header.kid.as_deref()), algorithm, key })
    }

    /// Verifies a token with the key that [`Self::signer`] found.
    ///
    /// # Errors
    /// The reason of the refusal, for the log.
    pub fn verify(&self, token: &str, signer: Signer) -> Result<VerifiedClaims, Reason> {
        let Signer { algorithm, key, .. } = signer;
        let (_, validation) =
            self.validations.iter().find(|(allowed, _)| *allowed == algorithm).ok_or(Reason::Signature)?;

        let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, key.decoding(), validation);
        let claims = decoded.map_err(|error| reason(error.kind()))?.claims;
        self.read(&claims, key).ok_or(Reason::Claims)
    }

    /// Reads the claims that the library has checked, and ours.
    fn read(&self, claims: &Map<String, Value>, key: Arc<JwksKey>) -> Option<VerifiedClaims> {
        // The library also accepts a list of issuers.
        if claims.get("iss")?.as_str()? != &*self.name {
            return None;
        }

        let caller = claims.get(&self.config.caller)?.as_str()?;
        if caller.is_empty() || caller.len() > MAX_CALLER_LEN {
            return None;
        }

        let scopes = claims.get(&self.config.scopes).map(scopes).unwrap_or_default();
        Some(VerifiedClaims {
            issuer: Arc::clone(&self.name),
            caller: caller.to_owned(),
            scopes,
            expires: expires(claims.get("exp")?)?,
            key,
        })
    }
}

impl VerifiedClaims {
    /// Whether the token still counts: it has not expired, and its issuer still publishes the key that signed it.
    ///
    /// # Errors
    /// Why it no longer counts.
    pub fn check(&self, now: Millis) -> Result<(), Reason> {
        if now >= self.expires {
            return Err(Reason::Expired);
        }
        if self.key.is_published() { Ok(()) } else { Err(Reason::Unknown) }
    }
}

/// The issuer that a token claims to have, which chooses the keys that verify it. None: it is no token.
#[must_use]
pub fn claimed_issuer(token: &str) -> Option<String> {
    if token.len() > MAX_TOKEN_LEN {
        return None;
    }
    let claims = part(token.split('.').nth(1)?)?;
    claims.get("iss")?.as_str().map(str::to_owned)
}

const fn algorithm(name: JwtAlgorithm) -> Algorithm {
    match name {
        JwtAlgorithm::RS256 => Algorithm::RS256,
        JwtAlgorithm::RS384 => Algorithm::RS384,
        JwtAlgorithm::RS512 => Algorithm::RS512,
        JwtAlgorithm::PS256 => Algorithm::PS256,
        JwtAlgorithm::PS384 => Algorithm::PS384,
        JwtAlgorithm::PS512 => Algorithm::PS512,
        JwtAlgorithm::ES256 => Algorithm::ES256,
        JwtAlgorithm::ES384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

fn validation(algorithm: Algorithm, config: &JwtIssuer) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.leeway = LEEWAY;
    validation.validate_nbf = true;
    validation.set_issuer(&[&config.issuer]);
    validation.set_audience(&config.audience);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation
}

/// Refuses what a header must not have, and returns its algorithm.
fn check_header(token: &str) -> Result<Algorithm, Reason> {
    if token.len() > MAX_TOKEN_LEN || token.bytes().filter(|byte| *byte == b'.').count() != 2 {
        return Err(Reason::Malformed);
    }

    let header = token.split('.').next().and_then(part).ok_or(Reason::Malformed)?;
    if REFUSED_FIELDS.iter().any(|field| header.contains_key(*field)) {
        return Err(Reason::Malformed);
    }

    // RFC 7515, 4.1.9: `application/` may be left out. RFC 9068, 2.1: access tokens are `at+jwt`.
    let is_token = |kind: &str| {
        let kind = kind.to_ascii_lowercase();
        matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
    };
    if header.get("typ").is_some_and(|kind| !kind.as_str().is_some_and(is_token)) {
        return Err(Reason::Malformed);
    }

    let name = header.get("alg").and_then(Value::as_str).ok_or(Reason::Malformed)?;
    name.parse().map_err(|_| Reason::Signature)
}

/// Header or claims of a token, not verified.
fn part(encoded: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

fn reason(error: &ErrorKind) -> Reason {
    match error {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => Reason::Signature,
        ErrorKind::ExpiredSignature => Reason::Expired,
        ErrorKind::InvalidToken | ErrorKind::Base64(_) | ErrorKind::Json(_) | ErrorKind::Utf8(_) => Reason::Malformed,
        _ => Reason::Claims,
    }
}

/// Names separated by spaces (RFC 8693, 4.2), or a list of them.
fn scopes(claim: &Value) -> Vec<String> {
    match claim {
        Value::String(names) => names.split_ascii_whitespace().map(str::to_owned).collect(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Seconds, possibly with a fraction, as milliseconds.
fn expires(exp: &Value) -> Option<Millis> {
    let seconds = exp.as_u64().or_else(|| {
        let seconds = exp.as_f64().filter(|seconds| *seconds >= 0.0)?;
        // Saturates.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(seconds as u64)
    })?;
    Some(seconds.saturating_add(LEEWAY).saturating_mul(1000))
}

#[cfg(test)]
mod tests;
