//! Authentication of callers: the checks of `[auth]`, and of the `auth` of routes.

use std::io;

use url::{Host, Url};

use super::access::{AuthTable, CertificatesTable, JwksTable, JwtTable, Texts};
use super::diagnostics::Diagnostic;
use super::located::{Table, WithSpan};
use super::settings::{Auth, Certificates, JwksSource, JwtAlgorithm, JwtIssuer, Methods};
use super::validator::Validator;
use super::{secret, suggest};
use crate::keys;

/// The names of [`Methods`].
const METHODS: [&str; 3] = ["keys", "jwt", "certificates"];

/// Headers with a meaning of their own for clients or proxies.
const TAKEN_HEADERS: [&str; 10] = [
    "authorization",
    "x-api-key",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "host",
    "cookie",
];

/// Facts that decide whether certificates can be checked.
#[derive(Clone, Copy)]
pub(super) struct AuthContext {
    /// True if proxies are trusted.
    pub(super) has_proxies: bool,
    /// True if the gateway itself asks clients for certificates.
    pub(super) has_client_ca: bool,
}

pub(super) fn resolve(
    table: &WithSpan<Table<AuthTable>>,
    reached: AuthContext,
    validator: &mut Validator<'_, '_>,
) -> Auth {
    let table = &table.value;
    let keys = table.keys.as_ref().map(|keys| {
        check_key_file(keys, validator);
        validator.folder.join(&keys.value)
    });

    let mut jwt: Vec<JwtIssuer> = Vec::new();
    for table in &table.jwt {
        let Some(issuer) = issuer(table, validator) else { continue };
        if jwt.iter().any(|known| known.issuer == issuer.issuer) {
            let span = table.value.issuer.as_ref().map_or(&table.span, |issuer| &issuer.span);
            let message = format!("issuer {:?} is listed twice", issuer.issuer);
            validator.report(Diagnostic::error(message).at(span).label("leave one out"));
        }
        jwt.push(issuer);
    }

    let certificates = table.certificates.as_ref().and_then(|table| certificates(table, reached, validator));
    Auth { keys, jwt, certificates, revoke_streams: table.revoke_streams }
}

/// The methods that are configured, including those with errors.
pub(super) fn set_up(table: &AuthTable) -> Methods {
    Methods { keys: table.keys.is_some(), jwt: !table.jwt.is_empty(), certificates: table.certificates.is_some() }
}

/// Reads the file of keys, so that its errors are found before the gateway starts.
fn check_key_file(keys: &WithSpan<String>, validator: &mut Validator<'_, '_>) {
    if keys.value.is_empty() {
        let diagnostic = Diagnostic::error("\"keys\" is empty").at(&keys.span);
        return validator.report(diagnostic.label("write a file name, like \"keys.toml\""));
    }

    let path = validator.folder.join(&keys.value);
    let unusable = |label: String| {
        Diagnostic::error(format!("key file {:?} cannot be used", keys.value)).at(&keys.span).label(label)
    };
    let warning = secret::readable_by_others(&path, keys, validator.env);
    validator.found.extend(warning);
    match (validator.env.file)(&path, keys::MAX_FILE_LEN) {
        Ok(bytes) => {
            let parsed = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned());
            if let Err(reason) = parsed.and_then(|text| keys::parse(&text)) {
                validator.report(unusable(reason));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => validator.report(
            Diagnostic::warning(format!("key file {:?} does not exist yet", keys.value))
                .at(&keys.span)
                .label("make a key: interlingua key new CALLER"),
        ),
        Err(error) => validator.report(unusable(error.to_string())),
    }
}

fn issuer(located: &WithSpan<Table<JwtTable>>, validator: &mut Validator<'_, '_>) -> Option<JwtIssuer> {
    let table = &located.value;
    let rejected = validator.rejected.any_in(&located.span);
    let mut missing = |key: &str, label: &str| {
        if !rejected {
            let message = format!("an issuer of tokens needs {key:?}");
            validator.report(Diagnostic::error(message).at(&located.span).label(label));
        }
    };

    if table.issuer.is_none() {
        missing("issuer", "write its URL, as in the \"iss\" of its tokens");
    }
    if table.audience.is_none() {
        missing("audience", "write the \"aud\" of tokens for this gateway");
    }
    if table.algorithms.is_none() {
        missing("algorithms", "write the ones it uses, like [\"RS256\"]");
    }

    let issuer = table.issuer.as_ref()?;
    let is_url = web_url(issuer, "issuer", validator).is_some();
    let audience = audience(table.audience.as_ref()?, validator);
    let algorithms = algorithms(table.algorithms.as_ref()?, validator);
    let jwks = match &table.jwks {
        Some(jwks) => jwks_source(jwks, validator)?,
        None => JwksSource::Discovery,
    };
    let claim = |claim: &Option<WithSpan<String>>, default: &str| {
        claim.as_ref().map_or_else(|| default.to_owned(), |claim| claim.value.clone())
    };
    (is_url && !audience.is_empty() && !algorithms.is_empty()).then(|| JwtIssuer {
        issuer: issuer.value.clone(),
        audience,
        algorithms,
        caller: claim(&table.caller, "sub"),
        scopes: claim(&table.scopes, "scope"),
        jwks,
    })
}

/// Parses an https URL. http to a loopback address is only a warning.
fn web_url(text: &WithSpan<String>, key: &str, validator: &mut Validator<'_, '_>) -> Option<Url> {
    let url = Url::parse(&text.value).ok().filter(|url| url.host().is_some());
    let is_local = url.as_ref().is_some_and(|url| match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    });

    match url {
        Some(url) if url.scheme() == "https" => Some(url),
        Some(url) if url.scheme() == "http" && is_local => {
            let message = format!("{key:?} has no TLS");
            validator.report(Diagnostic::warning(message).at(&text.span).label("only for tests on this machine"));
            Some(url)
        }
        _ => {
            let message = format!("{key:?} is not an https URL");
            validator.report(Diagnostic::error(message).at(&text.span).label("must begin with https://"));
            None
        }
    }
}

fn audience(located: &WithSpan<Texts>, validator: &mut Validator<'_, '_>) -> Vec<String> {
    let audience: Vec<String> = match &located.value {
        Texts::One(text) => vec![text.clone()],
        Texts::List(texts) => texts.iter().map(|text| text.value.clone()).collect(),
    };
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        let diagnostic = Diagnostic::error("\"audience\" is empty").at(&located.span);
        validator.report(diagnostic.label("tokens for other services would be accepted too"));
    }
    audience
}

fn algorithms(located: &WithSpan<Vec<WithSpan<String>>>, validator: &mut Validator<'_, '_>) -> Vec<JwtAlgorithm> {
    if located.value.is_empty() {
        let diagnostic = Diagnostic::error("\"algorithms\" is empty").at(&located.span);
        validator.report(diagnostic.label("write the ones the issuer uses, like [\"RS256\"]"));
    }

    let mut algorithms = Vec::new();
    for name in &located.value {
        match JwtAlgorithm::ALL.iter().find(|algorithm| algorithm.as_str() == name.value) {
            Some(algorithm) => algorithms.push(*algorithm),
            None => {
                let known = suggest::list(JwtAlgorithm::ALL.iter().map(|algorithm| algorithm.as_str()));
                validator.report(
                    Diagnostic::error(format!("algorithm {:?} cannot be used", name.value))
                        .at(&name.span)
                        .label("only algorithms with a public key")
                        .help(format!("algorithms: {known}")),
                );
            }
        }
    }

    algorithms
}

fn jwks_source(located: &WithSpan<Table<JwksTable>>, validator: &mut Validator<'_, '_>) -> Option<JwksSource> {
    let table = &located.value;
    match (&table.url, &table.file) {
        (Some(url), None) => web_url(url, "url", validator).map(JwksSource::Url),
        (None, Some(file)) => {
            let path = validator.folder.join(&file.value);
            if let Err(error) = (validator.env.file)(&path, 1 << 20) {
                validator.report(
                    Diagnostic::error(format!("cannot read the keys of the issuer in {:?}", file.value))
                        .at(&file.span)
                        .label(error.to_string())
                        .help("relative paths start at the folder of this file"),
                );
            }
            Some(JwksSource::File(path))
        }
        _ => {
            if !validator.rejected.any_in(&located.span) {
                let diagnostic = Diagnostic::error("\"jwks\" needs one source").at(&located.span);
                validator.report(diagnostic.label("write { url = \"https://…\" } or { file = \"…\" }"));
            }
            None
        }
    }
}

fn certificates(
    located: &WithSpan<Table<CertificatesTable>>,
    reached: AuthContext,
    validator: &mut Validator<'_, '_>,
) -> Option<Certificates> {
    let table = &located.value;
    if table.caller.is_none() && !validator.rejected.any_in(&located.span) {
        let diagnostic = Diagnostic::error("\"certificates\" needs \"caller\"").at(&located.span);
        validator.report(diagnostic.label("write \"san_uri\" or \"san_dns\""));
    }

    match &table.header {
        Some(header) => {
            let name = header.value.to_ascii_lowercase();
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) || TAKEN_HEADERS.contains(&name.as_str()) {
                let message = format!("{:?} cannot be the header of certificates", header.value);
                let diagnostic = Diagnostic::error(message).at(&header.span);
                validator.report(diagnostic.label("choose one that only the proxy sets, like \"x-client-san\""));
            }
            if !reached.has_proxies {
                let diagnostic = Diagnostic::error("\"header\" needs trusted_proxies in [server]").at(&header.span);
                validator.report(diagnostic.label("otherwise every client could set it"));
            }
        }
        None if !reached.has_client_ca => validator.report(
            Diagnostic::error("client certificates need TLS")
                .at(&located.span)
                .label("set client_ca in tls of [server], or header behind a proxy"),
        ),
        None => {}
    }
    let header = table.header.as_ref().map(|header| header.value.to_ascii_lowercase());
    Some(Certificates { caller: table.caller.as_ref()?.value, header })
}

/// The methods of a route: the listed ones, else all that `[auth]` configures.
pub(super) fn methods(written: Option<&WithSpan<Texts>>, all: Methods, validator: &mut Validator<'_, '_>) -> Methods {
    let Some(located) = written else { return all };
    let list = match &located.value {
        Texts::List(list) => list,
        Texts::One(text) => {
            if text != "none" {
                let label = if METHODS.contains(&text.as_str()) {
                    format!("did you mean [{text:?}]?")
                } else {
                    "write \"none\", or a list like [\"keys\"]".to_owned()
                };
                let diagnostic = Diagnostic::error(format!("unknown \"auth\" {text:?}")).at(&located.span);
                validator.report(diagnostic.label(label));
            }
            return Methods::NONE;
        }
    };
    if list.is_empty() {
        let diagnostic = Diagnostic::error("\"auth\" of a route is empty").at(&located.span);
        validator.report(diagnostic.label("write auth = \"none\" to let anyone who can connect use it"));
    }

    let mut methods = Methods::NONE;
    for name in list {
        let (set_up, how) = match name.value.as_str() {
            "keys" => (all.keys, "set keys = \"keys.toml\" in [auth]"),
            "jwt" => (all.jwt, "list an issuer as jwt in [auth]"),
            "certificates" => (all.certificates, "set certificates in [auth]"),
            "none" => {
                let diagnostic = Diagnostic::error("\"none\" cannot be combined with other methods").at(&name.span);
                validator.report(diagnostic.label("write auth = \"none\", without a list"));
                continue;
            }
            other => {
                let label = suggest::label(other, METHODS, "unknown name");
                validator.report(
                    Diagnostic::error(format!("unknown method {other:?}"))
                        .at(&name.span)
                        .label(label)
                        .help(format!("methods: {}", suggest::list(METHODS))),
                );
                continue;
            }
        };
        if !set_up && !validator.rejected.has_key(&name.value) {
            let message = format!("auth = [{:?}], but no {} are configured", name.value, noun(&name.value));
            validator.report(Diagnostic::error(message).at(&name.span).label(how));
        }
        methods = methods.with(&name.value);
    }
    methods
}

/// The credentials of a method, for messages.
fn noun(method: &str) -> &str {
    match method {
        "jwt" => "issuers",
        other => other,
    }
}
