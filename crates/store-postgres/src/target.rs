//! The URL of a database in the forms that operators have: those of libpq. `tokio-postgres` knows only some of the
//! options and fails on the others; here they are taken out of the URL, checked and returned. Not here: connecting
//! ([`super::connect`]), and the certificate files themselves ([`super::tls`]).

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// Verification of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// No TLS at all.
    Off,
    /// Encrypted, if the server offers it (`prefer`) or always (`require`), with any server. As in libpq.
    Unverified,
    /// The certificate must come from an authority; the name may be any other (`verify-ca`).
    Authority,
    /// And it must be for this host (`verify-full`).
    Full,
}

/// The authorities that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// The authorities of the system (`sslrootcert=system`, or none named).
    System,
    /// The authorities in a file.
    File(String),
}

/// A parsed URL.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTarget {
    /// Everything that the client library knows. Its TLS mode is set.
    pub(super) config: Config,
    /// Verification of the certificate.
    pub(super) tls: Tls,
    /// The authorities.
    pub(super) roots: Roots,
    /// Certificate and key that the gateway shows.
    pub(super) identity: Option<(String, String)>,
    /// Options that are ignored, each with the reason.
    pub(super) ignored: Vec<(String, &'static str)>,
}

/// Options that other programs put into such URLs, and why they have no effect here.
const IGNORED: [(&str, &str); 9] = [
    ("pgbouncer", "poolers are detected"),
    ("statement_cache_size", "poolers are detected"),
    ("prepared_statements", "poolers are detected"),
    ("gssencmode", "GSSAPI is not supported"),
    ("krbsrvname", "GSSAPI is not supported"),
    ("sslsni", "the name is always sent"),
    ("sslcompression", "TLS compression is not supported"),
    ("connection_limit", "use \"connections\" of [store]"),
    ("pool_timeout", "use \"connections\" of [store]"),
];

/// Parses a URL. Errors never contain any part of it that may be secret.
///
/// # Errors
/// The error, as the predicate of a sentence about the URL.
pub(super) fn parse(url: &str) -> Result<ConnectionTarget, String> {
    let (base, query) = split(url)?;
    let options = UrlOptions::parse(query)?;

    let plain = format!("postgres://{base}?{}", options.kept.join("&"));
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
        // The source names the option, never its value.
        let source = std::error::Error::source(&error);
        source.map_or_else(|| "cannot be read".to_owned(), |source| format!("cannot be read: {source}"))
    })?;
    // Replicas write.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if let Some(timeout) = options.user_timeout {
        config.tcp_user_timeout(timeout);
    }

    let local = !config.get_hosts().is_empty() && config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let tls = if local { Tls::Off } else { options.tls()? };
    config.ssl_mode(match (&tls, options.mode.as_deref()) {
        (Tls::Off, _) => SslMode::Disable,
        (Tls::Unverified, None | Some("allow" | "prefer")) => SslMode::Prefer,
        _ => SslMode::Require,
    });

    let identity = match (options.cert, options.key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err("has only one of sslcert and sslkey".into()),
    };
    let roots = match options.roots {
        Some(file) if file != "system" => Roots::File(file),
        _ => Roots::System,
    };
    Ok(ConnectionTarget { config, tls, roots, identity, ignored: options.ignored })
}

/// The parts before and after the question mark, without the scheme.
fn split(url: &str) -> Result<(&str, &str), String> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|prefix| url.strip_prefix(prefix));
    let rest = rest.ok_or("does not start with postgres://")?;
    let (base, query) = rest.split_once('?').unwrap_or((rest, ""));

    let authority = base.split('/').next().unwrap_or(base);
    if authority.matches('@').count() > 1 {
        // The client library would take the rest of the password for the host, and show it in errors.
        return Err("has more than one \"@\": write \"@\" in a password as %40".into());
    }
    if base.contains('#') {
        return Err("contains \"#\": write it in a password as %23".into());
    }
    Ok((base, query))
}

/// The options after the question mark.
#[derive(Default)]
struct UrlOptions {
    /// `sslmode`
    mode: Option<String>,
    /// `sslrootcert`
    roots: Option<String>,
    /// `sslcert`
    cert: Option<String>,
    /// `sslkey`
    key: Option<String>,
    user_timeout: Option<Duration>,
    /// Options for the client library, as it writes them.
    kept: Vec<String>,
    /// Options that are ignored, each with the reason.
    ignored: Vec<(String, &'static str)>,
}

impl UrlOptions {
    fn parse(query: &str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("has an option without a value")?;
            pairs.push((decode(name)?, decode(value)?, pair));
        }

        let mut options = Self::default();
        for (name, value, pair) in pairs {
            options.add(&name, value, pair)?;
        }
        Ok(options)
    }

    /// Adds an option. `pair`: the option as it is in the URL.
    fn add(&mut self, name: &str, value: Cow<'_, str>, pair: &str) -> Result<(), String> {
        match name {
            "sslmode" => self.mode = Some(value.into_owned()),
            "sslrootcert" => self.roots = Some(value.into_owned()),
            "sslcert" => self.cert = Some(value.into_owned()),
            "sslkey" => self.key = Some(value.into_owned()),
            // The library calls it otherwise.
            "keepalives_count" => self.kept.push(format!("keepalives_retries={value}")),
            // Milliseconds in libpq, seconds in the library.
            "tcp_user_timeout" => {
                let milliseconds = value.parse().map_err(|_| "has a wrong tcp_user_timeout")?;
                self.user_timeout = Some(Duration::from_millis(milliseconds));
            }
            "target_session_attrs" => match &*value {
                "any" | "read-write" | "primary" => {}
                _ => return Err("asks for a server that does not take writes (target_session_attrs)".into()),
            },
            "passfile" | "service" | "require_auth" => {
                return Err(format!("has the option {name}, which is not supported"));
            }
            name => match IGNORED.iter().find(|(known, _)| *known == name) {
                Some((_, reason)) => self.ignored.push((name.to_owned(), *reason)),
                None => self.kept.push(pair.to_owned()),
            },
        }
        Ok(())
    }

    /// The verification of a server that is not reached through a Unix socket.
    fn tls(&self) -> Result<Tls, String> {
        Ok(match (self.mode.as_deref(), &self.roots) {
            (Some("disable"), _) => Tls::Off,
            // An authority is named to be trusted: without a mode, as strictly as can be.
            (None, Some(_)) | (Some("verify-full"), _) => Tls::Full,
            // As libpq since version 16: the system's authorities are trusted only with the name.
            (Some(_), Some(name)) if name == "system" => {
                return Err("needs sslmode=verify-full with sslrootcert=system".into());
            }
            (Some("verify-ca"), None) => return Err("needs sslrootcert with sslmode=verify-ca".into()),
            (Some("verify-ca" | "require"), Some(_)) => Tls::Authority,
            (None | Some("allow" | "prefer" | "require"), _) => Tls::Unverified,
            (Some(_), _) => return Err("has an unknown sslmode".into()),
        })
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>, String> {
    percent_decode_str(text).decode_utf8().map_err(|_| "contains bytes that are not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_libpq_are_understood() {
        for (query, tls, mode) in [
            ("", Tls::Unverified, SslMode::Prefer),
            ("sslmode=disable", Tls::Off, SslMode::Disable),
            ("sslmode=allow", Tls::Unverified, SslMode::Prefer),
            ("sslmode=require", Tls::Unverified, SslMode::Require),
            ("sslmode=require&sslrootcert=/ca.pem", Tls::Authority, SslMode::Require),
            ("sslmode=verify-ca&sslrootcert=/ca.pem", Tls::Authority, SslMode::Require),
            ("sslmode=verify-full", Tls::Full, SslMode::Require),
            ("sslrootcert=system", Tls::Full, SslMode::Require),
            ("sslrootcert=/ca.pem", Tls::Full, SslMode::Require),
        ] {
            let target = parse(&format!("postgres://u@h/d?{query}")).expect(query);
            assert_eq!((target.tls, target.config.get_ssl_mode()), (tls, mode), "{query}");
        }
        assert!(parse("postgres://u@h/d?sslmode=require&sslrootcert=system").is_err());
        assert!(parse("postgres://u@h/d?sslmode=verify-ca").is_err());
        assert!(parse("postgres://u@h/d?sslmode=strict").is_err());
        assert_eq!(parse("postgres:///d?host=/run/postgresql&user=u").expect("a socket").tls, Tls::Off);
    }

    #[test]
    fn passwords_are_never_shown() {
        for url in
            ["postgres://u:se@cret@h/d", "postgres://u:secret@h:x/d", "postgres://u:secret@h/d?port=secret", "u:secret"]
        {
            let error = parse(url).expect_err(url);
            assert!(!error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn options_of_others_have_no_effect_and_unknown_ones_are_errors() {
        let target =
            parse("postgresql://u@h1:1,h2:2/d?pgbouncer=true&keepalives_count=3&tcp_user_timeout=5000").expect("a URL");
        assert_eq!(target.ignored.len(), 1);
        assert_eq!(target.config.get_keepalives_retries(), Some(3));
        assert_eq!(target.config.get_tcp_user_timeout().map(|time| time.as_secs()), Some(5));
        assert_eq!(target.config.get_ports(), [1, 2]);
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let error = parse("postgres://u@h/d?no_such=1").expect_err("unknown");
        assert!(error.contains("no_such"), "{error}");
        assert!(parse("postgres://u@h/d?target_session_attrs=standby").is_err());
    }
}
