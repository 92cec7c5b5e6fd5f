//! Who sends a request, and whether they may: credentials, rights, limits.
//!
//! Not here: how credentials are verified ([`crate::callers`]), and the checks before them ([`super::guard`]).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use actix_web::dev::RequestHead;
use interlingua_core::{Fault, LimitState};

use super::Gateway;
use super::routes::Routed;
use crate::callers::{Caller, Permit, Shown, Use};

/// A request whose caller is known and may send it.
pub(super) struct Admitted {
    pub(super) caller: Arc<Caller>,
    /// The rate of the caller or the route, whichever is tighter. `None`: neither has one.
    pub(super) rate: Option<LimitState>,
    /// Counts the answer until its end. `None` for public endpoints.
    pub(super) permit: Option<Permit>,
}

/// Who sends a request to an endpoint, if they may.
///
/// # Errors
/// Without valid credentials, without the right to use the route, or beyond a limit.
pub(super) async fn admit(gateway: &Gateway, routed: &Routed, head: &RequestHead) -> Result<Admitted, Fault> {
    let from = head.peer_addr.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    if routed.endpoint().public {
        return Ok(Admitted { caller: gateway.callers.anonymous(), rate: None, permit: None });
    }

    let caller = gateway.callers.authenticate(routed.route.auth, Shown::default(), from).await?;
    caller.may_use(routed.route.scope.protocol, None)?;
    let rate = caller.usage.admit_request()?;
    let permit = caller.usage.begin(Use::Stream)?;
    Ok(Admitted { caller, rate, permit: Some(permit) })
}
