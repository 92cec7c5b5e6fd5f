//! Warns of credentials that are sent to an agent without TLS over a network that others can read.
//!
//! Not here: TLS towards an agent ([`super::upstream_connection`]), and the listeners of the gateway
//! ([`super::exposure`]).

use std::net::IpAddr;
use std::ops::Range;

use interlingua_core::public_address::is_public;
use url::{Host, Url};

use super::diagnostics::Diagnostic;
use super::document::UpstreamTable;
use super::located::WithSpan;
use super::mask;
use super::upstream_settings::{Endpoint, Header, IdentityKind};
use super::validator::Validator;

/// Credentials and identities in requests to an agent.
pub(super) struct SentCredentials<'a> {
    pub(super) headers: &'a [Header],
    pub(super) table: &'a UpstreamTable,
}

impl SentCredentials<'_> {
    /// One of the credentials, in words.
    fn credential(&self, url: &Url) -> Option<String> {
        let headers = self.headers.iter().map(|header| header.name.as_str());
        let forwarded = self.table.forward.iter().map(|name| name.value.as_str());
        let mut secret = headers.chain(forwarded).filter(|name| mask::is_secret_name(name));
        if let Some(name) = secret.next() {
            return Some(format!("header \"{}\"", name.to_ascii_lowercase()));
        }
        if self.table.identity.value == IdentityKind::Jwt {
            return Some("the token of identity = \"jwt\"".to_owned());
        }
        url.query_pairs().any(|(name, _)| mask::is_secret_name(&name)).then(|| "the key in its query".to_owned())
    }
}

/// Reports the first endpoint of an agent that gets credentials in the clear.
pub(super) fn check(
    agent: &WithSpan<String>,
    endpoints: &[(Endpoint, Range<usize>)],
    sent: &SentCredentials<'_>,
    validator: &mut Validator<'_, '_>,
) {
    for (endpoint, span) in endpoints {
        let url = &endpoint.url;
        if url.scheme() != "http" || !url.host().is_some_and(is_far) {
            continue;
        }
        if let Some(credential) = sent.credential(url) {
            let message = format!("credentials for agent {:?} can be read on the way", agent.value);
            let label = format!("{credential} is sent there without TLS");
            let help = "write https://, or reach the agent over loopback or a private network";
            return validator.report(Diagnostic::warning(message).at(span).label(label).help(help));
        }
    }
}

/// Whether a host is on the public internet, judged by its name or address.
fn is_far(host: Host<&str>) -> bool {
    match host {
        Host::Ipv4(address) => is_public(IpAddr::V4(address)),
        Host::Ipv6(address) => is_public(IpAddr::V6(address)),
        Host::Domain(name) => is_far_name(name),
    }
}

/// Whether a name is on the public internet. A name without a dot belongs to the local network, mostly of containers.
/// RFC 6761, RFC 6762, RFC 8375 and ICANN reserve some endings for local networks; clusters use endings of their own.
fn is_far_name(name: &str) -> bool {
    const NEAR: [&str; 9] =
        ["localhost", "local", "internal", "home.arpa", "lan", "intranet", "test", "invalid", "svc"];
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !NEAR.into_iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_the_own_network_are_near() {
        let is_far = |url: &str| is_far(Url::parse(url).expect("a URL").host().expect("a host"));
        for near in [
            "http://localhost:1/",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://10.1.2.3/",
            "http://192.168.0.9/",
            "http://agent/",
            "http://agent.internal/",
            "http://host.docker.internal/",
            "http://a.localhost/",
            "http://a.ns.svc.cluster.local/",
            "http://a.ns.svc/",
            "http://printer.LOCAL./",
            "http://[fd00::1]/",
        ] {
            assert!(!is_far(near), "{near}");
        }
        for far in ["http://agent.example.com/", "http://8.8.8.8/", "http://[2606:4700::1]/", "http://notlocal.dev/"] {
            assert!(is_far(far), "{far}");
        }
    }
}
