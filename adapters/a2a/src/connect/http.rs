//! Requests to an agent: one operation, in the binding and generation of its interface.

use std::borrow::Cow;

use interlingua_core::Json;
use interlingua_core::connector::{HttpRequest, Purpose};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::interface::Interface;
use crate::dialect::{Dialect, Generation, Operation};
use crate::wire::{EncodedValue, Message};
use interlingua_core::http_url::{below, segment};

/// A message and what goes along with it.
pub(super) struct SendParams<'a> {
    pub(super) message: &'a Message<'a>,
    pub(super) accepted_output_modes: &'a [String],
    pub(super) metadata: Option<&'a Json>,
    /// The answer is the task as soon as there is one, not its end.
    pub(super) return_immediately: bool,
}

/// The subject of an operation.
pub(super) enum Params<'a> {
    Send(SendParams<'a>),
    /// The id of a task.
    Task(&'a str),
    /// A task with its last messages. None: with all of them.
    Get {
        task: &'a str,
        history_length: Option<u32>,
    },
}

/// Writes requests.
pub(super) struct RequestWriter<'a> {
    pub(super) interface: &'a Interface,
    pub(super) extensions: &'a [String],
    /// Subscribes by `GET`. Servers of 1.0 take a `POST`, some of them nothing else, and some only a `GET`.
    pub(super) subscribes_by_get: bool,
}

impl RequestWriter<'_> {
    /// The request for an operation. `id`: of the JSON-RPC call.
    pub(super) fn request(&self, operation: Operation, params: &Params<'_>, id: u64) -> HttpRequest {
        let dialect = self.interface.dialect;
        let (method, url, body) = if dialect.is_rpc() {
            ("POST", self.interface.url.clone(), self.call(operation, params, id))
        } else {
            self.resource(operation, params)
        };

        let mut headers: Vec<(Cow<'static, str>, String)> =
            vec![("accept".into(), accept(operation, dialect).to_owned())];
        if !body.is_empty() {
            headers.push(("content-type".into(), "application/json".to_owned()));
        }
        // Servers of 0.3 may refuse a header they do not know.
        if dialect.generation == Generation::V1 {
            headers.push(("a2a-version".into(), Generation::V1.as_str().to_owned()));
        }
        if !self.extensions.is_empty() {
            let name = if dialect.is_v03() { "x-a2a-extensions" } else { "a2a-extensions" };
            headers.push((name.into(), self.extensions.join(",")));
        }
        HttpRequest { method, url, headers, body, purpose: Purpose::Ask, is_trusted: self.interface.is_trusted }
    }

    /// The body of a JSON-RPC call.
    fn call(&self, operation: Operation, params: &Params<'_>, id: u64) -> Vec<u8> {
        #[derive(Serialize)]
        struct Call<P> {
            jsonrpc: &'static str,
            id: u64,
            method: &'static str,
            params: P,
        }
        #[derive(Serialize)]
        struct Task<'a> {
            id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            tenant: Option<&'a str>,
            #[serde(rename = "historyLength", skip_serializing_if = "Option::is_none")]
            history_length: Option<u32>,
        }
        let method = method(operation, self.interface.dialect.generation);
        match params {
            Params::Send(params) => {
                let params = Body { params, dialect: self.interface.dialect, tenant: self.tenant() };
                written(&Call { jsonrpc: "2.0", id, method, params })
            }
            Params::Task(task) => {
                let params = Task { id: task, tenant: self.tenant(), history_length: None };
                written(&Call { jsonrpc: "2.0", id, method, params })
            }
            Params::Get { task, history_length } => {
                let params = Task { id: task, tenant: self.tenant(), history_length: *history_length };
                written(&Call { jsonrpc: "2.0", id, method, params })
            }
        }
    }

    /// Method, URL and body of a REST request.
    fn resource(&self, operation: Operation, params: &Params<'_>) -> (&'static str, String, Vec<u8>) {
        let (prefix, is_old) = match (self.interface.dialect.generation, self.tenant()) {
            (Generation::V1, Some(tenant)) => (format!("/{}", segment(tenant)), false),
            (Generation::V1, None) => (String::new(), false),
            // Some cards name the path with its version, some without.
            (Generation::V03, _) if self.interface.url.trim_end_matches('/').ends_with("/v1") => (String::new(), true),
            (Generation::V03, _) => ("/v1".to_owned(), true),
        };
        let at = |path: String| below(&self.interface.url, &format!("{prefix}{path}"));

        match params {
            Params::Send(params) => {
                let verb = if operation == Operation::Stream { "stream" } else { "send" };
                let body = Body { params, dialect: self.interface.dialect, tenant: None };
                ("POST", at(format!("/message:{verb}")), written(&body))
            }
            Params::Get { task, history_length } => {
                let mut url = at(format!("/tasks/{}", segment(task)));
                if let Some(length) = history_length {
                    // The configured URL may have parameters of its own.
                    let separator = if url.contains('?') { '&' } else { '?' };
                    url.push_str(&format!("{separator}historyLength={length}"));
                }
                ("GET", url, Vec::new())
            }
            Params::Task(task) => {
                let task = segment(task);
                match operation {
                    Operation::Cancel => ("POST", at(format!("/tasks/{task}:cancel")), b"{}".to_vec()),
                    Operation::Subscribe => {
                        let method = if is_old || self.subscribes_by_get { "GET" } else { "POST" };
                        (method, at(format!("/tasks/{task}:subscribe")), Vec::new())
                    }
                    _ => ("GET", at(format!("/tasks/{task}")), Vec::new()),
                }
            }
        }
    }

    fn tenant(&self) -> Option<&str> {
        self.interface.tenant.as_deref().filter(|_| !self.interface.dialect.is_v03())
    }
}

/// The accepted types of an answer.
fn accept(operation: Operation, dialect: Dialect) -> &'static str {
    if operation.is_streaming() {
        "text/event-stream, application/json"
    } else if dialect.is_rpc() || dialect.is_v03() {
        "application/json"
    } else {
        "application/a2a+json, application/json"
    }
}

/// The name of a JSON-RPC method.
fn method(operation: Operation, generation: Generation) -> &'static str {
    let names = Operation::METHODS.iter().find(|(known, ..)| *known == operation);
    match (names, generation) {
        (Some((_, _, Some(old))), Generation::V03) => old,
        (Some((_, name, _)), _) => name,
        (None, _) => "",
    }
}

fn written<T: Serialize>(value: &T) -> Vec<u8> {
    Json::from_serialize(value).text().as_bytes().to_vec()
}

/// The parameters of a send.
struct Body<'a> {
    params: &'a SendParams<'a>,
    dialect: Dialect,
    tenant: Option<&'a str>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Configuration<'a> {
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            accepted_output_modes: &'a [String],
            #[serde(skip_serializing_if = "Option::is_none")]
            return_immediately: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            blocking: Option<bool>,
        }
        let SendParams { message, accepted_output_modes, metadata, return_immediately } = *self.params;
        let is_old = self.dialect.is_v03();
        let configuration = Configuration {
            accepted_output_modes,
            return_immediately: (return_immediately && !is_old).then_some(true),
            // Over REST false is what absence means, and strict readers know no other way to write it.
            blocking: (return_immediately && is_old && self.dialect.is_rpc()).then_some(false),
        };

        let mut map = serializer.serialize_map(None)?;
        if let Some(tenant) = self.tenant {
            map.serialize_entry("tenant", tenant)?;
        }
        map.serialize_entry("message", &EncodedValue(message, self.dialect.wire_format()))?;
        if return_immediately || !accepted_output_modes.is_empty() {
            map.serialize_entry("configuration", &configuration)?;
        }
        if let Some(metadata) = metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}
