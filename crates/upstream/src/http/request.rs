//! Requests as they go out: whose headers win, and which origin gets the agent's credentials.

use bytes::Bytes;
use interlingua_core::connector::HttpRequest;
use interlingua_core::{Fault, FaultKind};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::outgoing::OutgoingRequest;
use super::target::Target;
use super::{Agent, AgentServers, failure};
use crate::headers::{CallerHeader, TurnHeaders};

impl Agent {
    /// The request as it goes out. The operator's headers win over the protocol's, these over the client's trace.
    pub(super) fn request(
        &self,
        ask: HttpRequest,
        endpoint: usize,
        TurnHeaders { trace, forwarded, .. }: &TurnHeaders,
    ) -> Result<OutgoingRequest, Fault> {
        let target = self.targets.get(&ask.url, endpoint, self.endpoints[endpoint].url.as_ref())?;
        let method = ask.method.parse().map_err(|_| wrong(format!("{} is no method", ask.method)))?;
        // A card may name any URL: none of the gateway itself, whose admin listener may need no key on this machine.
        if ask.is_trusted && self.settings.own_listeners.include(&target.url) {
            let message = "the agent's card names an address of the gateway itself";
            return Err(Fault::new(FaultKind::UpstreamRefused, message).with_detail(target.shown()));
        }
        let its_own = Self::is_own(AgentServers { endpoint, is_trusted: ask.is_trusted }, &target);
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json;q=0.9"));
        // Compressed frames would wait for one another.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers
            .insert(header::USER_AGENT, HeaderValue::from_static(concat!("interlingua/", env!("CARGO_PKG_VERSION"))));
        // A client's headers are for the agent, as the agent's own credentials are.
        if its_own {
            for (name, value) in forwarded.matching(&self.settings.forward) {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(format!("the header {name}")))?;
                let value = HeaderValue::from_str(value).map_err(|_| wrong(format!("the value of header {name}")))?;
                headers.append(name, value);
            }
        }
        if let Some(trace) = trace {
            let state = trace.state.as_deref().map(|state| ("tracestate", state));
            for (name, value) in [("traceparent", trace.parent.as_str())].into_iter().chain(state) {
                let value = HeaderValue::from_str(value).map_err(|_| wrong(format!("the value of header {name}")))?;
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        for (name, value) in ask.headers {
            let value = HeaderValue::from_str(&value).map_err(|_| wrong(format!("the value of header {name}")))?;
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(format!("the header {name}")))?;
            headers.insert(name, value);
        }
        // They contain the agent's credentials, which no other server may get: a stop URL may be at another origin.
        if its_own {
            for name in self.headers.keys() {
                headers.remove(name);
            }
            headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        // A GET without a body must not announce one.
        let body = (!ask.body.is_empty() || ask.method != "GET").then(|| Bytes::from(ask.body));
        Ok(OutgoingRequest { method, target, headers, body })
    }

    /// The header that says who calls. `None`: the caller is anonymous, or the request goes to another origin. Made for
    /// each attempt: a token is used once.
    pub(super) fn identity(
        target: &Target,
        known: AgentServers,
        caller: Option<&CallerHeader>,
    ) -> Result<Option<(HeaderName, HeaderValue)>, Fault> {
        let Some(caller) = caller.filter(|_| Self::is_own(known, target)) else { return Ok(None) };
        let (name, value) = caller.header();
        let value = HeaderValue::from_str(&value).map_err(|_| wrong(format!("the value of header {name}")))?;
        Ok(Some((HeaderName::from_static(name), value)))
    }

    /// True if a URL has the origin of its endpoint, or the operator allowed its host for the agent: such a server may
    /// know what the agent knows.
    pub(super) fn is_own(known: AgentServers, target: &Target) -> bool {
        known.is_trusted || target.has_own_origin
    }
}

fn wrong(detail: String) -> Fault {
    failure::not_asked().with_detail(detail)
}
