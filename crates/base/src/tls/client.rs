//! TLS towards one agent: the authorities that are trusted, and the certificate that the gateway shows.
//!
//! Not here: connections, and agents without settings of their own (`upstream`).

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::files::{certificates, private_key};

/// The settings of an agent. Clones are the same ones.
#[derive(Clone)]
pub struct ClientTls {
    own: Arc<ClientConfig>,
    /// The same without the certificate of the gateway.
    foreign: Arc<ClientConfig>,
}

/// One of the files that they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTlsFile {
    /// The authorities.
    Ca,
    /// The certificate of the gateway, then its issuers.
    Cert,
    /// Its private key.
    Key,
}

impl ClientTls {
    /// Settings made of the contents of files, in PEM. Without authorities those of the system are trusted. `identity`:
    /// the certificate of the gateway, and its key.
    ///
    /// # Errors
    /// Which content cannot be used, and why, as the predicate of a sentence.
    pub fn new(ca: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<Self, (ClientTlsFile, String)> {
        let provider = Arc::new(ring::default_provider());
        let unusable = |error: &dyn fmt::Display| (ClientTlsFile::Ca, format!("cannot be used: {error}"));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let trusting = match ca {
            None => builder.with_platform_verifier().map_err(|error| unusable(&error))?,
            Some(content) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(content).map_err(|reason| (ClientTlsFile::Ca, reason))? {
                    roots.add(authority).map_err(|error| unusable(&error))?;
                }
                builder.with_root_certificates(roots)
            }
        };

        let foreign = Arc::new(trusting.clone().with_no_client_auth());
        let Some((cert, key)) = identity else { return Ok(Self { own: Arc::clone(&foreign), foreign }) };
        let chain = certificates(cert).map_err(|reason| (ClientTlsFile::Cert, reason))?;
        let key = private_key(key).map_err(|reason| (ClientTlsFile::Key, reason.to_owned()))?;
        let own = trusting.with_client_auth_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => (ClientTlsFile::Key, "does not belong to the certificate".to_owned()),
            error => (ClientTlsFile::Cert, format!("cannot be used: {error}")),
        })?;
        Ok(Self { own: Arc::new(own), foreign })
    }

    /// For connections to the agent's own servers, or to others, which never see the certificate.
    #[must_use]
    pub fn config(&self, is_own: bool) -> ClientConfig {
        let config = if is_own { &self.own } else { &self.foreign };
        (**config).clone()
    }

    /// Whether a text can be the name of a server in TLS. IP addresses cannot.
    #[must_use]
    pub fn is_server_name(text: &str) -> bool {
        matches!(ServerName::try_from(text), Ok(ServerName::DnsName(_)))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientTls")
    }
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    #[test]
    fn contents_that_cannot_be_used_are_named() {
        let made = || generate_simple_self_signed(["agent".to_owned()]).expect("a certificate");
        let (one, other) = (made(), made());
        let (cert, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let of = |ca: Option<&str>, identity: Option<(&str, &str)>| {
            let identity = identity.map(|(cert, key)| (cert.as_bytes(), key.as_bytes()));
            ClientTls::new(ca.map(str::as_bytes), identity).map(drop).map_err(|(file, _)| file)
        };
        assert_eq!(of(Some(&cert), None), Ok(()));
        assert_eq!(of(Some(&cert), Some((&cert, &key))), Ok(()));
        assert_eq!(of(Some("no certificate"), None), Err(ClientTlsFile::Ca));
        assert_eq!(of(Some(&cert), Some(("", &key))), Err(ClientTlsFile::Cert));
        assert_eq!(of(Some(&cert), Some((&cert, &cert))), Err(ClientTlsFile::Key));
        let foreign = other.signing_key.serialize_pem();
        assert_eq!(of(Some(&cert), Some((&cert, &foreign))), Err(ClientTlsFile::Key));
    }

    #[test]
    fn only_the_agents_own_servers_see_the_certificate() {
        let made = generate_simple_self_signed(["agent".to_owned()]).expect("a certificate");
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = ClientTls::new(Some(cert.as_bytes()), Some((cert.as_bytes(), key.as_bytes()))).expect("settings");
        assert!(tls.config(true).client_auth_cert_resolver.has_certs());
        assert!(!tls.config(false).client_auth_cert_resolver.has_certs());
    }

    #[test]
    fn names_of_servers_are_no_addresses() {
        for (text, expected) in [("agent.internal", true), ("127.0.0.1", false), ("::1", false), ("a b", false)] {
            assert_eq!(ClientTls::is_server_name(text), expected, "{text}");
        }
    }
}
