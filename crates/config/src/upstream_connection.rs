//! Checks of connections to an agent: TLS and the proxy.
//!
//! Not here: the agent's address ([`super::upstreams`]).

use std::ops::Range;

use secrecy::ExposeSecret as _;
use url::Url;

use super::connection_tables::{ProxyValue, UpstreamTlsTable};
use super::diagnostics::Diagnostic;
use super::located::{Table, WithSpan};
use super::secret;
use super::upstream_settings::{Endpoint, Proxy, UpstreamTls};
use super::validator::Validator;
use interlingua_base::tls::{ClientTls, ClientTlsFile, MAX_FILE_LEN};

/// The settings of TLS. `None` if one of them is wrong.
pub(super) fn tls(
    located: &WithSpan<Table<UpstreamTlsTable>>,
    endpoints: &[(Endpoint, Range<usize>)],
    validator: &mut Validator<'_, '_>,
) -> Option<UpstreamTls> {
    let table = &located.value;
    if !endpoints.is_empty() && endpoints.iter().all(|(endpoint, _)| endpoint.url.scheme() != "https") {
        let warning = Diagnostic::warning("\"tls\" has no effect").at(&located.span);
        validator.report(warning.label("none of the agent's URLs begins with https://"));
    }
    for (given, name, other, missing) in
        [(&table.cert, "cert", &table.key, "key"), (&table.key, "key", &table.cert, "cert")]
    {
        if let Some(given) = given
            && other.is_none()
            && !validator.rejected.contains(&located.span, missing)
        {
            let error = Diagnostic::error(format!("{name:?} needs {missing:?}")).at(&given.span);
            validator.report(error.label("a certificate is of no use without its key"));
            return None;
        }
    }
    if let Some(name) = &table.server_name
        && !ClientTls::is_server_name(&name.value)
    {
        let error = Diagnostic::error(format!("{:?} is not the name of a server", name.value)).at(&name.span);
        validator.report(error.label("must be a name of the certificate, such as \"agent.internal\""));
    }

    let ca = table.ca.as_ref().map(|file| read(file, validator));
    let cert = table.cert.as_ref().map(|file| read(file, validator));
    let key = table.key.as_ref().map(|file| read(file, validator));
    if let (Some(file), Some(Some(key))) = (&table.key, &key) {
        validator.env.remember(&String::from_utf8_lossy(key));
        let warning = secret::readable_by_others(&validator.folder.join(&file.value), file, validator.env);
        validator.found.extend(warning);
    }
    // Unreadable files are reported.
    let (ca, cert, key) = (ca.map_or(Some(None), |ca| ca.map(Some))?, cert.flatten(), key.flatten());
    if cert.is_some() != key.is_some() {
        return None;
    }

    let identity = cert.as_deref().zip(key.as_deref());
    match ClientTls::new(ca.as_deref(), identity) {
        Ok(trust) => Some(UpstreamTls {
            trust,
            has_ca: ca.is_some(),
            has_certificate: identity.is_some(),
            server_name: table.server_name.as_ref().map(|name| name.value.to_ascii_lowercase()),
        }),
        Err((file, reason)) => {
            let (file, label) = match file {
                ClientTlsFile::Ca => (&table.ca, "must hold the authorities that sign the agent's certificates"),
                ClientTlsFile::Cert => (&table.cert, "must hold the certificate of the gateway, then its issuers"),
                ClientTlsFile::Key => (&table.key, "must hold the private key of the certificate"),
            };
            let (name, span) = match file {
                Some(file) => (file.value.as_str(), &file.span),
                None => ("the system's certificates", &located.span),
            };
            validator.report(Diagnostic::error(format!("{name:?} {reason}")).at(span).label(label));
            None
        }
    }
}

fn read(file: &WithSpan<String>, validator: &mut Validator<'_, '_>) -> Option<Vec<u8>> {
    match (validator.env.file)(&validator.folder.join(&file.value), MAX_FILE_LEN) {
        Ok(content) => Some(content),
        Err(error) => {
            validator.report(
                Diagnostic::error(format!("cannot read {:?}", file.value))
                    .at(&file.span)
                    .label(error.to_string())
                    .help("relative paths start at the folder of this file"),
            );
            None
        }
    }
}

/// The proxy. `None` if one of its settings is wrong. `pinned`: the position of `server_name` in the file.
pub(super) fn proxy(
    located: &WithSpan<ProxyValue>,
    pinned: Option<&Range<usize>>,
    validator: &mut Validator<'_, '_>,
) -> Option<Proxy> {
    if let Some(pinned) = pinned {
        let error = Diagnostic::error("\"proxy\" and \"server_name\" exclude each other").at(&located.span);
        validator.report(error.label("the proxy would be asked for that name").also(pinned, "here"));
    }

    let table = match &located.value {
        ProxyValue::Url(text) => return proxy_url(text, &located.span, validator).map(Proxy::open),
        ProxyValue::Table(table) => table,
    };
    let Some(url) = &table.url else {
        let error = Diagnostic::error("\"proxy\" has no URL").at(&located.span);
        validator.report(error.label("write { url = \"http://…\" }"));
        return None;
    };
    let credentials = match (&table.user, &table.password) {
        (None, None) => None,
        (Some(user), Some(password)) => {
            let span = &password.span;
            match password.value.read(span, validator.folder, validator.env, &mut validator.found) {
                Ok(secret) => {
                    // The form that the proxy receives.
                    validator.env.remember(&format!("{}:{}", user.value, secret.expose_secret()));
                    Some((user.value.clone(), secret))
                }
                Err(error) => {
                    validator.report(error);
                    return None;
                }
            }
        }
        _ => {
            let error = Diagnostic::error("\"proxy\" needs both \"user\" and \"password\"").at(&located.span);
            validator.report(error.label("or neither of them"));
            return None;
        }
    };
    let url = proxy_url(&url.value, &url.span, validator)?;
    Some(Proxy { url, credentials })
}

fn proxy_url(text: &str, span: &Range<usize>, validator: &mut Validator<'_, '_>) -> Option<Url> {
    let label = match Url::parse(text) {
        Ok(url) if url.scheme() != "http" => "must begin with http://",
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "write { url = \"http://…\", user = \"…\", password = { env = \"NAME\" } }"
        }
        Ok(url) if url.path() != "/" || url.query().is_some() || url.fragment().is_some() => {
            "a proxy has a host and a port, and no path"
        }
        Ok(url) => return Some(url),
        Err(_) => "write http://, a host and a port",
    };
    validator.report(Diagnostic::error("\"proxy\" is not a URL the gateway can use").at(span).label(label));
    None
}
