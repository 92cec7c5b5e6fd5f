//! The protection of a measured gateway: keys, tokens, TLS, with the limits and logs of a gateway on the internet. Made
//! for each process, in its folder.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::processes::free_port;

/// The issuer of the tokens. Its keys are in a file.
const ISSUER: &str = "https://id.example.com/";
/// Limits that count every request and refuse none, metrics, and a line in the access log for each request.
const OBSERVED: &str = r#"
[admin]
listen = "127.0.0.1:{admin}"

[observe]
access_log = { format = "json", path = "access.jsonl" }

[callers.default]
limits = { rate = "1000000/s", burst = 1000000, streams = 100000, runs = 100000 }
"#;

/// The protection of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Keys,
    Jwt,
    Tls,
    TlsAndKeys,
}

/// The credentials of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    /// The value of `Authorization`; empty for none.
    pub(crate) authorization: String,
    /// The file of the certificate to trust; empty without TLS.
    pub(crate) trusted: String,
}

impl Guard {
    pub(crate) const ALL: [Self; 4] = [Self::Keys, Self::Jwt, Self::Tls, Self::TlsAndKeys];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys, rate, metrics, access log",
            Self::Jwt => "JWT, rate, metrics, access log",
            Self::Tls => "TLS",
            Self::TlsAndKeys => "TLS, keys, rate, metrics, access log",
        }
    }

    const fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsAndKeys)
    }

    /// A line for the table `[server]`.
    pub(crate) const fn server(self) -> &'static str {
        if self.has_tls() { "tls = { cert = \"cert.pem\", key = \"key.pem\" }" } else { "" }
    }

    /// Further tables of the configuration.
    pub(crate) fn tables(self) -> Result<String> {
        let auth = match self {
            Self::Tls => return Ok(String::new()),
            Self::Keys | Self::TlsAndKeys => "keys = \"keys.toml\"".to_owned(),
            Self::Jwt => format!(
                "jwt = [{{ issuer = \"{ISSUER}\", audience = \"agents\", algorithms = [\"ES256\"], jwks = {{ file = \"jwks.json\" }} }}]"
            ),
        };
        Ok(format!("{}\n[auth]\n{auth}\n", OBSERVED.replace("{admin}", &free_port()?.to_string())))
    }

    /// Writes what the configuration in this folder needs, before the gateway starts.
    pub(crate) fn prepare(self, gateway: &Path, folder: &Path) -> Result<Pass> {
        let mut pass = Pass::default();
        if self.has_tls() {
            let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
            std::fs::write(folder.join("cert.pem"), cert.pem())?;
            std::fs::write(folder.join("key.pem"), signing_key.serialize_pem())?;
            let path = folder.join("cert.pem").canonicalize()?;
            pass.trusted = path.to_str().context("the scratch folder's path is not UTF-8")?.to_owned();
        }
        match self {
            Self::Keys | Self::TlsAndKeys => {
                let made = Command::new(gateway).current_dir(folder).args(["key", "new", "rig"]).output()?;
                ensure!(made.status.success(), "no key: {}", String::from_utf8_lossy(&made.stderr));
                pass.authorization = format!("Bearer {}", String::from_utf8(made.stdout)?.trim());
            }
            Self::Jwt => {
                let (keys, token) = token()?;
                std::fs::write(folder.join("jwks.json"), keys)?;
                pass.authorization = format!("Bearer {token}");
            }
            Self::Tls => {}
        }
        Ok(pass)
    }
}

/// A set of keys, and a token that one of them has signed.
fn token() -> Result<(String, String)> {
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let failed = |_| anyhow::anyhow!("no key can be made");
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(failed)?;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random)
        .map_err(|reason| anyhow::anyhow!("no key can be made: {reason}"))?;
    let point = key.public_key().as_ref();
    let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
    let keys =
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k","use":"sig","alg":"ES256","x":"{x}","y":"{y}"}}]}}"#);

    let until = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 24 * 3600;
    let claims = format!(r#"{{"iss":"{ISSUER}","aud":"agents","sub":"rig","exp":{until}}}"#);
    let message = format!("{}.{}", encode(br#"{"alg":"ES256","typ":"JWT","kid":"k"}"#), encode(claims.as_bytes()));
    let signature = key.sign(&random, message.as_bytes()).map_err(failed)?;
    Ok((keys, format!("{message}.{}", encode(signature.as_ref()))))
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl Pass {
    /// A client that trusts the certificate. `None` without TLS.
    pub(crate) fn client(&self) -> Result<Option<Arc<ClientConfig>>> {
        if self.trusted.is_empty() {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.trusted)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }
}
