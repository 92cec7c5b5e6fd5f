//! Admits requests: checks credentials, rights and limits.
//!
//! Not here: verification of credentials ([`interlingua_callers`]), and the earlier and later checks
//! ([`super::check`]).

use std::sync::Arc;

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use futures_util::future::LocalBoxFuture;
use interlingua_core::duration::seconds_rounded_up;
use interlingua_core::network::contains;
use interlingua_core::{Fault, LimitState};

use super::connection::ConnectionInfo;
use super::routes::RoutedEndpoint;
use super::slots::ResourceSlot;
use super::{Gateway, ServedRoute, base_url};
use interlingua_base::tls::ClientCertificate;
use interlingua_callers::{Caller, Credential, Credentials, Permit, ShownCertificate, Use};
use interlingua_config::CertificateName;
use interlingua_engine::RunHandle;

/// The longest certificate name that a proxy may forward, in bytes.
const MAX_CERTIFICATE_NAME: usize = 512;

/// A request with a caller that may send it.
pub(super) struct AdmittedRequest {
    pub(super) caller: Arc<Caller>,
    /// The state of the caller's or the route's rate limit, whichever is tighter. `None`: neither has one.
    pub(super) rate: Option<LimitState>,
    /// Dropped after the response. A streamed response owns them.
    pub(super) permits: Permits,
}

/// Counts a request as in progress until it is dropped.
pub(super) struct Permits {
    _slot: ResourceSlot,
    /// `None` for public endpoints.
    _permit: Option<Permit>,
}

/// Authenticates the caller of an endpoint and checks its rights and limits.
///
/// # Errors
/// The credentials are invalid, the caller has no right to the route, or a limit is exceeded.
pub(super) async fn admit(
    gateway: &Gateway,
    routed: &RoutedEndpoint,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<AdmittedRequest, Fault> {
    let route = &routed.route;
    if routed.endpoint().public {
        let permits = Permits { _slot: gateway.followers.take(None)?, _permit: None };
        return Ok(AdmittedRequest { caller: gateway.callers.anonymous(), rate: None, permits });
    }

    let peer = connection.peer.ip();
    let from = base_url::client_address(gateway, head, peer).unwrap_or(peer);
    let name = certificate_name(gateway, head, connection);
    let own = own_certificate(gateway, connection);
    let certificate = name.as_deref().map(|name| ShownCertificate { name, own });
    let shown = shown(&head.headers, certificate);
    let caller = gateway.callers.authenticate(route.auth, shown, from).await?;
    caller.may_use(route.scope.protocol, route.agent())?;
    let (rate, permits) = count(gateway, route, &caller)?;
    Ok(AdmittedRequest { caller, rate, permits })
}

/// Admits a request from the console. The signed-in person needs no credentials of the route. The route's rate limit
/// applies.
///
/// # Errors
/// A limit is exceeded.
pub(super) fn admit_operator(gateway: &Gateway, routed: &RoutedEndpoint, name: &str) -> Result<AdmittedRequest, Fault> {
    let caller = gateway.callers.in_console(name);
    let (rate, permits) = count(gateway, &routed.route, &caller)?;
    Ok(AdmittedRequest { caller, rate, permits })
}

/// Admits a message over WebSocket: checks the current rights and limits of the caller.
///
/// # Errors
/// The credentials or rights have ended, or a limit is exceeded.
pub(super) fn admit_message(gateway: &Gateway, route: &ServedRoute, caller: &Arc<Caller>) -> Result<Permits, Fault> {
    caller.recheck(route.scope.protocol, route.agent())?;
    count(gateway, route, caller).map(|(_, permits)| permits)
}

/// Counts a request, first in the caller's rate limit, then in the route's.
fn count(gateway: &Gateway, route: &ServedRoute, caller: &Arc<Caller>) -> Result<(Option<LimitState>, Permits), Fault> {
    let of_caller = caller.usage.admit_request()?;
    let of_route = route.rate.as_ref().map(|rate| rate.check("requests")).transpose()?;
    let permit = caller.usage.begin(Use::Stream)?;
    let permits = Permits { _slot: gateway.followers.take(None)?, _permit: Some(permit) };
    Ok((tighter(of_caller, of_route), permits))
}

/// Resolves with the reason when the credentials or rights of a caller end. `None` if open streams outlive both: the
/// caller is anonymous, or the configuration says so. `run`: the run of the stream. On a route with several agents, the
/// caller needs the right to use the run's agent.
pub(super) fn revoked(
    gateway: &Gateway,
    route: &ServedRoute,
    caller: &Arc<Caller>,
    run: Option<&RunHandle>,
) -> Option<LocalBoxFuture<'static, Fault>> {
    if !gateway.callers.revokes_streams() || !caller.is_authenticated() {
        return None;
    }

    let (caller, protocol) = (Arc::clone(caller), route.scope.protocol);
    let of_run = || run.map(|run| run.view(|view| view.run().agent.clone()));
    let agent = route.agent().map(str::to_owned).or_else(of_run);
    Some(Box::pin(async move { caller.revoked(protocol, agent.as_deref()).await }))
}

/// Reads the credentials of a request from its headers. Credentials in a query are ignored, because queries appear in
/// logs.
fn shown<'a>(headers: &'a HeaderMap, certificate: Option<ShownCertificate<'a>>) -> Credentials<'a> {
    let authorization = credential(headers, "authorization");
    let api_key = credential(headers, "x-api-key");
    Credentials { authorization, api_key, certificate }
}

/// The credential in a header of a request.
pub fn credential<'a>(headers: &'a HeaderMap, name: &str) -> Credential<'a> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Credential::None,
        (Some(value), None) => value.to_str().map_or(Credential::Invalid, Credential::One),
        (Some(_), Some(_)) => Credential::Invalid,
    }
}

/// The certificate of a connection, if certificates identify callers directly. `None` if a proxy forwards the caller's
/// name: then the certificate belongs to the proxy.
fn own_certificate<'a>(gateway: &Gateway, connection: &'a ConnectionInfo) -> Option<&'a Arc<ClientCertificate>> {
    let server = gateway.settings();
    let is_own = server.certificates.as_ref().is_some_and(|settings| settings.header.is_none());
    connection.tls.as_ref()?.certificate.as_ref().filter(|_| is_own)
}

/// The name in the client certificate: from the certificate of the connection, or forwarded by a trusted proxy in the
/// configured header. `None` if there is no name, or more than one.
fn certificate_name(gateway: &Gateway, head: &RequestHead, connection: &ConnectionInfo) -> Option<String> {
    let server = gateway.settings();
    let settings = server.certificates.as_ref()?;
    let Some(header) = settings.header.as_deref() else {
        // The certificate may have expired since the handshake, or a reload may have removed its authority.
        let certificate = connection.valid_certificate()?;
        let mut names = match settings.caller {
            CertificateName::SanUri => certificate.uris(),
            CertificateName::SanDns => certificate.dns_names(),
        };
        return if names.len() == 1 { names.pop() } else { None };
    };

    // The certificate of this connection belongs to the proxy.
    let is_proxy = server.trusted_proxies.iter().any(|proxy| contains(proxy, connection.peer.ip()));
    let Credential::One(name) = credential(&head.headers, header) else { return None };
    // A proxy that appends to the client's header instead of replacing it leaves a list.
    let is_name = (1..=MAX_CERTIFICATE_NAME).contains(&name.len()) && !name.contains(',');
    (is_proxy && is_name).then(|| name.to_owned())
}

/// The limit with fewer remaining uses.
fn tighter(one: Option<LimitState>, other: Option<LimitState>) -> Option<LimitState> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Adds the headers that report a limit (draft-ietf-httpapi-ratelimit-headers), unless the response reports one
/// already.
pub(super) fn add_headers(route: &ServedRoute, limit: Option<&LimitState>, response: &mut HeaderMap) {
    const NAME: fn(&'static str) -> HeaderName = HeaderName::from_static;
    let Some(limit) = limit.filter(|_| !response.contains_key("ratelimit")) else { return };
    let mut set = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.insert(NAME(name), value);
        }
    };

    let LimitState { name, quota, remaining, .. } = limit;
    let reset = seconds_rounded_up(limit.reset);
    // Limits on concurrent uses have no window.
    let window =
        if limit.window.is_zero() { String::new() } else { format!(";w={}", seconds_rounded_up(limit.window)) };
    set("ratelimit-policy", format!("\"{name}\";q={quota}{window}"));
    set("ratelimit", format!("\"{name}\";r={remaining};t={reset}"));
    let mut exposed = "ratelimit, ratelimit-policy".to_owned();
    // The OpenAI API has headers for requests and tokens only.
    if matches!(*name, "requests" | "tokens") && route.mounted.cors.exposes_openai_rate_limits() {
        for (header, what, value) in [
            ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens", quota.to_string()),
            ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens", remaining.to_string()),
            ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", format!("{reset}s")),
        ] {
            let header = if *name == "requests" { header } else { what };
            exposed.push_str(", ");
            exposed.push_str(header);
            set(header, value);
        }
    }
    if response.contains_key("access-control-expose-headers")
        && let Ok(exposed) = HeaderValue::from_str(&exposed)
    {
        response.append(NAME("access-control-expose-headers"), exposed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state(remaining: u64) -> LimitState {
        let (window, reset) = (Duration::from_secs(2), Duration::from_millis(1500));
        LimitState { name: "requests", quota: 100, window, remaining, reset }
    }

    #[test]
    fn the_tighter_limit_is_reported() {
        assert_eq!(tighter(Some(state(3)), Some(state(2))), Some(state(2)));
        assert_eq!(tighter(Some(state(1)), Some(state(2))), Some(state(1)));
        assert_eq!((tighter(None, Some(state(2))), tighter(None, None)), (Some(state(2)), None));
    }

    #[test]
    fn a_header_that_may_occur_once_is_invalid_if_it_occurs_twice() {
        let mut headers = HeaderMap::new();
        assert_eq!(credential(&headers, "x-api-key"), Credential::None);
        headers.append(HeaderName::from_static("x-api-key"), HeaderValue::from_static("a"));
        assert_eq!(credential(&headers, "x-api-key"), Credential::One("a"));
        headers.append(HeaderName::from_static("x-api-key"), HeaderValue::from_static("a"));
        assert_eq!(credential(&headers, "x-api-key"), Credential::Invalid);
    }

    #[test]
    fn parts_of_seconds_count_as_seconds() {
        assert_eq!([0, 1, 1000, 1001].map(|millis| seconds_rounded_up(Duration::from_millis(millis))), [0, 1, 1, 2]);
    }
}
