//! Who sends a request, and whether they may: credentials, rights, limits.
//!
//! Not here: how credentials are verified ([`crate::callers`]), and the checks before and after ([`super::check`]).

use std::sync::Arc;

use actix_web::dev::RequestHead;
use actix_web::http::header::HeaderMap;
use interlingua_core::{Fault, LimitState};

use super::connection::ConnectionInfo;
use super::routes::Routed;
use super::slots::Slot;
use super::{Gateway, base_url};
use crate::callers::{Caller, Credential, Permit, Shown, Use};

/// A request whose caller is known and may send it.
pub(super) struct Admitted {
    pub(super) caller: Arc<Caller>,
    /// The rate of the caller or the route, whichever is tighter. `None`: neither has one.
    pub(super) rate: Option<LimitState>,
    /// Moves into a streamed response.
    pub(super) permits: Permits,
}

/// Counts a request as being answered, until its response ends.
pub(super) struct Permits {
    _slot: Slot,
    /// `None` for public endpoints.
    _permit: Option<Permit>,
}

/// Who sends a request to an endpoint, if they may.
///
/// # Errors
/// Without valid credentials, without the right to use the route, or beyond a limit.
pub(super) async fn admit(
    gateway: &Gateway,
    routed: &Routed,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<Admitted, Fault> {
    let route = &routed.route;
    if routed.endpoint().public {
        let permits = Permits { _slot: gateway.followers.take(None)?, _permit: None };
        return Ok(Admitted { caller: gateway.callers.anonymous(), rate: None, permits });
    }

    let peer = connection.peer.ip();
    let from = base_url::client_address(gateway, head, peer).unwrap_or(peer);
    let caller = gateway.callers.authenticate(route.auth, shown(&head.headers), from).await?;
    caller.may_use(route.scope.protocol, route.agent())?;

    let rate = tighter(caller.usage.admit_request()?, None);
    let permit = caller.usage.begin(Use::Stream)?;
    let slot = gateway.followers.take(None)?;
    Ok(Admitted { caller, rate, permits: Permits { _slot: slot, _permit: Some(permit) } })
}

/// What a request shows of its caller. Queries are never read: they end up in logs.
fn shown(headers: &HeaderMap) -> Shown<'_> {
    let authorization = credential(headers, "authorization");
    let api_key = credential(headers, "x-api-key");
    Shown { authorization, api_key, certificate: None }
}

fn credential<'a>(headers: &'a HeaderMap, name: &str) -> Credential<'a> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Credential::None,
        (Some(value), None) => value.to_str().map_or(Credential::Invalid, Credential::One),
        (Some(_), Some(_)) => Credential::Invalid,
    }
}

/// The limit that is reached first.
fn tighter(one: Option<LimitState>, other: Option<LimitState>) -> Option<LimitState> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
        (one, other) => one.or(other),
    }
}
