//! A client of a mounted protocol, without a server: requests as the server passes them on, and what was answered.

use std::sync::Arc;

use serde_json::Value;

use super::{NOW, RUN};
use interlingua_core::call::{AgentCard, Call};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Caller, Endpoint, Exchange, Mount, Mounted, Request};
use interlingua_core::fault::Fault;
use interlingua_core::id::RunId;
use interlingua_core::out::{Head, Out};
use interlingua_core::seal::Sealer;

/// A route without authentication, for agents with these names.
#[must_use]
pub fn mount(path: &str, agents: &[&str]) -> Mount {
    let card = |name: &&str| Arc::new(AgentCard { name: (*name).to_owned(), ..AgentCard::default() });
    Mount { path: path.to_owned(), agents: agents.iter().map(card).collect(), public_url: None, schemes: Vec::new() }
}

/// The endpoint for a request, and the values of its path parameters, found as the server does: the first that matches.
#[must_use]
pub fn endpoint<'m>(mounted: &'m Mounted, method: &str, path: &str) -> Option<(&'m Endpoint, Vec<(String, String)>)> {
    let method = if method == "HEAD" { "GET" } else { method };
    let path = if path == "/" { "" } else { path };
    mounted.endpoints.iter().filter(|endpoint| endpoint.method.as_str() == method).find_map(|endpoint| {
        let params = match_path(endpoint.path, path)?;
        Some((endpoint, params))
    })
}

/// The parameters of a path that matches a pattern such as `/tasks/{id}:cancel`.
fn match_path(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (mut patterns, mut segments): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    let mut found = Vec::new();

    // `{*name}` is the rest of the path.
    if let Some(name) = patterns.last().and_then(|last| last.strip_prefix("{*")?.strip_suffix('}')) {
        let fixed = patterns.len() - 1;
        let rest = segments.get(fixed..).map(|rest| rest.join("/")).filter(|rest| !rest.is_empty())?;
        found.push((name.to_owned(), rest));
        patterns.truncate(fixed);
        segments.truncate(fixed);
    }
    if patterns.len() != segments.len() {
        return None;
    }

    for (pattern, segment) in patterns.into_iter().zip(segments) {
        match pattern.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((name, after)) => {
                let value = segment.strip_suffix(after).filter(|value| !value.is_empty())?;
                found.push((name.to_owned(), value.to_owned()));
            }
            None if pattern == segment => {}
            None => return None,
        }
    }
    Some(found)
}

/// A request of a client. Everything but method and path has a default: no body, an anonymous caller, [`NOW`] and
/// [`RUN`].
#[derive(Clone, Debug)]
pub struct ClientRequest<'a> {
    /// The HTTP method, or `WEBSOCKET`.
    pub method: &'a str,
    /// The path below the mount point.
    pub path: &'a str,
    /// The query without `?`.
    pub query: &'a str,
    /// The headers, names in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    /// The values of path parameters.
    pub params: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// The URL of the mount point.
    pub base_url: &'a str,
    /// The caller, if one is authenticated.
    pub caller: Option<&'a str>,
    /// The time of the request.
    pub now: Millis,
    /// The new id that the request comes with.
    pub new_id: RunId,
}

impl<'a> ClientRequest<'a> {
    /// A request without a body.
    #[must_use]
    pub const fn new(method: &'a str, path: &'a str) -> Self {
        Self {
            method,
            path,
            query: "",
            headers: &[],
            params: &[],
            body: b"",
            base_url: "http://gateway",
            caller: None,
            now: NOW,
            new_id: RUN,
        }
    }

    /// A POST of JSON.
    #[must_use]
    pub const fn post(path: &'a str, body: &'a [u8]) -> Self {
        Self { body, headers: &[("content-type", "application/json")], ..Self::new("POST", path) }
    }

    /// Lets an exchange decode the request.
    ///
    /// # Errors
    /// If the exchange refuses it.
    pub fn decode(&self, exchange: &mut dyn Exchange) -> Result<Call, Fault> {
        let caller = Caller { owner: self.caller.unwrap_or("anonymous").into(), authenticated: self.caller.is_some() };
        exchange.decode(&Request {
            method: self.method,
            path: self.path,
            params: self.params,
            query: self.query,
            headers: self.headers,
            body: self.body,
            base_url: self.base_url,
            caller: &caller,
            now: self.now,
            new_id: self.new_id,
            sealer: &Sealer::new([7; 32]),
        })
    }
}

/// A response as the server would send it.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status, 200 unless the exchange set another one.
    pub status: u16,
    /// The headers.
    pub head: Head,
    /// The body as text.
    pub body: String,
}

impl HttpResponse {
    /// The output of an exchange.
    ///
    /// # Panics
    /// The body is not UTF-8.
    #[must_use]
    pub fn from_out(out: Out) -> Self {
        let status = if out.head.status == 0 { 200 } else { out.head.status };
        Self { status, body: String::from_utf8(out.body.to_vec()).expect("UTF-8"), head: out.head }
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON: {error}: {}", self.body))
    }

    /// The data of each frame of an event stream.
    ///
    /// # Panics
    /// If a frame is not JSON.
    #[must_use]
    pub fn frames(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Status and body on one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} {}", self.status, self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_patterns_segment_by_segment() {
        let id = |value: &str| Some(vec![("id".to_owned(), value.to_owned())]);
        for (pattern, path, expected) in [
            ("/runs/{id}", "/runs/7", id("7")),
            ("/runs/{id}", "/runs/", None),
            ("/models/{*id}", "/models/org/gpt", id("org/gpt")),
            ("/models/{*id}", "/models", None),
            ("/tasks/{id}:cancel", "/tasks/7:cancel", id("7")),
            ("/tasks/{id}:cancel", "/tasks/7", None),
            ("/runs/{id}/events", "/runs/7", None),
            ("", "", Some(Vec::new())),
        ] {
            assert_eq!(match_path(pattern, path), expected, "{pattern} {path}");
        }
    }
}
