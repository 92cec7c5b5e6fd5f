//! Writes responses, complete or as stream items, with the envelope and headers of the dialect
//! (docs/protocols/a2a.md#media-types).

use interlingua_core::out::Head;
use interlingua_core::{Fault, Json, Out, Request};
use serde::Serialize;

use crate::dialect::{Dialect, Generation, Operation};
use crate::errors::{ErrorReport, RestError, RpcError};
use crate::wire::{EncodedValue, Item};

const JSON: &str = "application/json";
const A2A_JSON: &str = "application/a2a+json";
const EVENTS: &str = "text/event-stream";

/// The fields of the request that the response needs.
pub(crate) struct Writer {
    pub(crate) dialect: Dialect,
    /// The operation. `None` until it is decoded.
    pub(super) operation: Option<Operation>,
    /// JSON-RPC id, echoed with its JSON type.
    pub(super) id: Json,
    /// Task id of the request.
    pub(super) task: Option<String>,
    /// URIs of the active extensions.
    pub(super) extensions: Vec<String>,
    /// Media types of REST responses: success, error.
    media: (&'static str, &'static str),
    /// True if the client accepts event streams.
    takes_events: bool,
}

#[derive(Serialize)]
struct Success<'a, T> {
    jsonrpc: &'static str,
    id: &'a Json,
    result: T,
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: &'a Json,
    error: RpcError<'a>,
}

impl Writer {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            operation: None,
            id: Json::null(),
            task: None,
            extensions: Vec::new(),
            media: (JSON, JSON),
            takes_events: false,
        }
    }

    /// Stores the media types that the client accepts (docs/protocols/a2a.md#media-types).
    pub(super) fn read_accept(&mut self, request: &Request<'_>) {
        // The Python client of 0.3 sends two Accept headers with its streams.
        let accepts = request.headers.iter().filter(|(name, _)| *name == "accept").map(|(_, value)| *value);
        let accept = accepts.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        let names_a2a_json = accept.contains(A2A_JSON);
        let accepts_any = accept.trim().is_empty() || accept.contains("*/*") || accept.contains("application/*");

        let only_json = accept.contains(JSON) && !accepts_any;

        let request_type = request.media_type();
        let is_get = matches!(request.method, "GET" | "HEAD");
        let success_is_a2a = names_a2a_json || (request_type == A2A_JSON && !only_json) || (is_get && accepts_any);

        self.takes_events = accept.contains(EVENTS);
        self.media = (if success_is_a2a { A2A_JSON } else { JSON }, if names_a2a_json { A2A_JSON } else { JSON });
    }

    fn media(&self, is_success: bool) -> &'static str {
        if self.dialect.is_rpc() || self.dialect.is_v03() {
            JSON
        } else if is_success {
            self.media.0
        } else {
            self.media.1
        }
    }

    /// Writes a complete response.
    pub(super) fn result<T: Serialize + ?Sized>(&self, value: &T, out: &mut Out) {
        self.extension_header(&mut out.head);
        out.header("content-type", self.media(true));
        if self.dialect.is_rpc() {
            out.json(&Success { jsonrpc: "2.0", id: &self.id, result: value });
        } else {
            out.json(value);
        }
    }

    /// Writes the result of a send as a complete response.
    pub(super) fn write_item(&self, item: &Item<'_>, out: &mut Out) {
        self.result(&EncodedValue(item, self.dialect.wire_format()), out);
    }

    /// Writes one item of a stream.
    pub(super) fn stream_item(&self, item: &Item<'_>, out: &mut Out) {
        let item = EncodedValue(item, self.dialect.wire_format());
        if self.dialect.is_rpc() {
            out.frame(None, &Success { jsonrpc: "2.0", id: &self.id, result: item });
        } else {
            out.frame(None, &item);
        }
    }

    /// Writes a stream with a single item.
    pub(super) fn write_single_item(&self, item: &Item<'_>, out: &mut Out) {
        self.stream_head(&mut out.head);
        self.stream_item(item, out);
    }

    pub(super) fn stream_head(&self, head: &mut Head) {
        head.set_stream(EVENTS);
        self.extension_header(head);
    }

    fn extension_header(&self, head: &mut Head) {
        if !self.extensions.is_empty() {
            let name = if self.dialect.is_v03() { "x-a2a-extensions" } else { "a2a-extensions" };
            head.set(name, self.extensions.join(", "));
        }
    }

    /// Writes an error response. Nothing was sent before.
    pub(super) fn fail(&self, fault: &Fault, versions: &[Generation], out: &mut Out) {
        let report = ErrorReport::new(fault, self.task.as_deref(), versions);
        report.headers(out);
        let status = report.http(self.dialect);
        out.status(status);
        if !self.dialect.is_rpc() {
            out.header("content-type", self.media(false));
            out.json(&RestError(&report, self.dialect));
            return;
        }

        let failure = Failure { jsonrpc: "2.0", id: &self.id, error: RpcError(&report, self.dialect.generation) };
        let streams = self.operation.is_some_and(Operation::is_streaming);
        if streams && self.dialect.is_v03() && self.takes_events && status == 200 {
            // Clients of 0.3 require an event stream here and lose the error otherwise (docs/protocols/a2a.md#streams).
            self.stream_head(&mut out.head);
            out.frame(None, &failure);
        } else {
            out.header("content-type", JSON);
            out.json(&failure);
        }
    }

    /// Ends a stream with an error although the task continues: the client can subscribe again.
    pub(super) fn interrupt(&self, fault: &Fault, versions: &[Generation], out: &mut Out) {
        let report = ErrorReport::new(fault, self.task.as_deref(), versions);
        if self.dialect.is_rpc() {
            out.frame(
                None,
                &Failure { jsonrpc: "2.0", id: &self.id, error: RpcError(&report, self.dialect.generation) },
            );
        } else {
            out.frame(Some("error"), &RestError(&report, self.dialect));
        }
    }
}
