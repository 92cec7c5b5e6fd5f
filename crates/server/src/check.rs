//! Checks a request by its head: before the first byte of the body is read, and before a client that sent
//! `Expect: 100-continue` may send it. A request is checked exactly once, because some checks count it.
//!
//! The order: size of the head, host, path and method, origin, credentials, rights, rates, type and length of the body.
//! The first failure is reported. Limits on connections and the framing are checked earlier ([`super::listener`]). Not
//! here: the single checks (`guard.rs`, `access.rs`), and the response to a refused request (`handle.rs`).

use std::sync::Arc;

use actix_web::dev::RequestHead;
use actix_web::http::Method;
use interlingua_core::{Fault, FaultKind};

use super::access::{self, AdmittedRequest};
use super::bodies::BodyReservation;
use super::connection::ConnectionInfo;
use super::guard::{self, RequestTarget};
use super::routes::RoutedEndpoint;
use super::{Gateway, ServedRoute, wrong_base};
use interlingua_config::routing::{OwnPath, RouteMatch};

/// A request with an accepted head.
pub(super) enum CheckedRequest {
    /// A request to an endpoint, from a caller that may use it, with the reservation for its body.
    Endpoint(Arc<RoutedEndpoint>, AdmittedRequest, BodyReservation),
    /// A CORS preflight request for a route that pages may use, and the methods of its path.
    Preflight(Arc<ServedRoute>, Vec<&'static str>),
    /// A request to a path of the gateway itself.
    Own(OwnPath),
}

/// A request with a refused head.
pub(super) struct RefusedRequest {
    pub(super) reporter: Reporter,
    pub(super) fault: Fault,
}

/// The format in which a refusal is reported.
#[derive(Clone)]
pub(super) enum Reporter {
    /// The protocol of an endpoint.
    Endpoint(Arc<RoutedEndpoint>),
    /// The protocol of a route.
    Route(Arc<ServedRoute>),
    /// The gateway's own format, for paths outside all routes.
    Gateway,
}

impl Reporter {
    /// The route. `None` for the gateway's own format.
    pub(super) fn route(&self) -> Option<&ServedRoute> {
        match self {
            Self::Endpoint(routed) => Some(&routed.route),
            Self::Route(route) => Some(route),
            Self::Gateway => None,
        }
    }
}

/// The result of routing a request, before any check.
struct Routing {
    reporter: Reporter,
    destination: Destination,
    /// True for paths of the gateway itself, which probes of containers request.
    is_probe: bool,
}

enum Destination {
    Endpoint(Arc<RoutedEndpoint>),
    Preflight(Arc<ServedRoute>, Vec<&'static str>),
    Own(OwnPath),
    /// No endpoint has the path and method of the request.
    NoEndpoint(Fault),
}

/// Checks the head of a request.
///
/// # Errors
/// The first failure, in the order of the module's documentation.
pub(super) async fn check_request(
    gateway: &Gateway,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<CheckedRequest, Box<RefusedRequest>> {
    let Routing { reporter, destination, is_probe } = find(gateway, head);
    let refused = |fault| Box::new(RefusedRequest { reporter: reporter.clone(), fault });

    guard::check_head_size(gateway, head).map_err(refused)?;
    let host = guard::check_host(gateway, head, is_probe).map_err(refused)?;
    let target = match &destination {
        Destination::Endpoint(routed) => RequestTarget::Endpoint(&routed.route, routed.endpoint()),
        Destination::Preflight(route, _) => RequestTarget::Preflight(route),
        Destination::Own(_) => RequestTarget::Health,
        Destination::NoEndpoint(fault) => {
            let fault = guard::check_no_preflight(head, fault.clone());
            if fault.kind == FaultKind::Forbidden {
                gateway.refused_pages.log(head, reporter.route());
            }
            return Err(refused(fault));
        }
    };
    guard::check_origin(&gateway.settings().hosts, target, head, host.as_ref()).map_err(|fault| {
        gateway.refused_pages.log(head, reporter.route());
        refused(fault)
    })?;

    match destination {
        Destination::Endpoint(routed) => {
            guard::check_version(&routed, head).map_err(refused)?;
            let admitted = access::admit(gateway, &routed, head, connection).await.map_err(refused)?;
            let body = guard::check_body(gateway, &routed, head).map_err(refused)?;
            Ok(CheckedRequest::Endpoint(routed, admitted, body))
        }
        Destination::Preflight(route, allow) => Ok(CheckedRequest::Preflight(route, allow)),
        Destination::Own(own) => Ok(CheckedRequest::Own(own)),
        Destination::NoEndpoint(fault) => Err(refused(fault)),
    }
}

/// Checks the head of a request from the console. The admin listener has checked host, origin and credentials; the
/// other checks are the same as for clients of the route.
///
/// # Errors
/// The first failure, in the order of the module's documentation.
pub(super) fn check_operator(
    gateway: &Gateway,
    head: &RequestHead,
    name: &str,
) -> Result<CheckedRequest, Box<RefusedRequest>> {
    let Routing { reporter, destination, .. } = find(gateway, head);
    let refused = |fault| Box::new(RefusedRequest { reporter: reporter.clone(), fault });
    guard::check_head_size(gateway, head).map_err(refused)?;
    match destination {
        Destination::Endpoint(routed) => {
            if head.headers.contains_key("upgrade") {
                let message = "the console does not support WebSockets: send the request without an upgrade";
                return Err(refused(Fault::new(FaultKind::Unsupported, message)));
            }
            let admitted = access::admit_operator(gateway, &routed, name).map_err(refused)?;
            let body = guard::check_body(gateway, &routed, head).map_err(refused)?;
            Ok(CheckedRequest::Endpoint(routed, admitted, body))
        }
        Destination::NoEndpoint(fault) => Err(refused(fault)),
        Destination::Preflight(..) | Destination::Own(_) => Err(refused(no_route(head))),
    }
}

/// Routes a request: finds its destination, and the format for reporting a refusal.
fn find(gateway: &Gateway, head: &RequestHead) -> Routing {
    let routes = gateway.routes.load();
    match routes.find(head) {
        RouteMatch::Endpoint(found) => {
            let routed = RoutedEndpoint::new(found);
            Routing::new(Reporter::Endpoint(Arc::clone(&routed)), Destination::Endpoint(routed))
        }
        RouteMatch::WrongMethod { route, allow } => {
            // The route of the announced request decides about the origin.
            let announced = if head.method == Method::OPTIONS { routes.preflight(head) } else { None };
            match announced.filter(|(route, _)| !route.cors.is_empty()) {
                Some((route, allow)) => {
                    Routing::new(Reporter::Route(Arc::clone(&route)), Destination::Preflight(route, allow))
                }
                None => Routing::new(Reporter::Route(route), wrong_method(head, allow)),
            }
        }
        RouteMatch::Fallback(route) => match wrong_base::intended_endpoint(&routes, head) {
            Some(meant) => wrong_base_url(head, meant),
            None => Routing::new(Reporter::Route(route), no_such_path(head, "no endpoint at")),
        },
        RouteMatch::Own(own) => {
            let is_read = matches!(head.method, Method::GET | Method::HEAD);
            let destination = if is_read { Destination::Own(own) } else { wrong_method(head, vec!["GET", "HEAD"]) };
            Routing { is_probe: true, ..Routing::new(Reporter::Gateway, destination) }
        }
        RouteMatch::Outside => match wrong_base::intended_endpoint(&routes, head) {
            Some(meant) => wrong_base_url(head, meant),
            None => Routing::new(Reporter::Gateway, no_such_path(head, "nothing is mounted at")),
        },
    }
}

impl Routing {
    const fn new(reporter: Reporter, destination: Destination) -> Self {
        Self { reporter, destination, is_probe: false }
    }
}

fn wrong_method(head: &RequestHead, allow: Vec<&'static str>) -> Destination {
    let message = format!("'{}' is not a method of '{}'", head.method, head.uri.path());
    let mut fault = Fault::new(FaultKind::MethodNotAllowed, message);
    fault.allow = allow;
    Destination::NoEndpoint(fault)
}

/// Suggests the intended path, in the format of its protocol: clients show the message to their developers.
fn wrong_base_url(head: &RequestHead, (route, meant): (Arc<ServedRoute>, String)) -> Routing {
    let message =
        format!("no endpoint at '{}': did you mean '{meant}'? Check the base URL of the client", head.uri.path());
    Routing::new(Reporter::Route(route), Destination::NoEndpoint(Fault::new(FaultKind::NoSuchPath, message)))
}

fn no_route(head: &RequestHead) -> Fault {
    Fault::new(FaultKind::NoSuchPath, format!("no route is mounted at '{}'", head.uri.path()))
}

fn no_such_path(head: &RequestHead, reason: &str) -> Destination {
    // TRACE would echo the request, and CONNECT would open a tunnel: no path supports them.
    if matches!(head.method, Method::TRACE | Method::CONNECT) {
        return wrong_method(head, Vec::new());
    }
    Destination::NoEndpoint(Fault::new(FaultKind::NoSuchPath, format!("{reason} '{}'", head.uri.path())))
}
