//! Writing answers: whole or as stream items, in the envelope and under the headers of the dialect (sections 2, 7, 9
//! and 10).

use interlingua_core::out::Head;
use interlingua_core::{Fault, FaultKind, Json, Out, Request};
use serde::Serialize;

use crate::dialect::{Dialect, Generation, Operation};
use crate::errors::{RestError, RpcError, Told};
use crate::wire::{Item, Spelled};

const JSON: &str = "application/json";
const A2A_JSON: &str = "application/a2a+json";
const EVENTS: &str = "text/event-stream";

/// What has to be remembered of a request to answer it.
pub(crate) struct Writer {
    pub(crate) dialect: Dialect,
    /// What was asked for, as far as that was understood.
    pub(super) operation: Option<Operation>,
    /// The JSON-RPC id, echoed with its JSON type.
    pub(super) id: Json,
    /// The task the request is about.
    pub(super) task: Option<String>,
    /// Extensions that are active.
    pub(super) extensions: Vec<String>,
    /// The media type of a good REST answer, and of a bad one.
    media: (&'static str, &'static str),
    /// The client takes event streams.
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

    /// Remembers what the client takes (section 2).
    pub(super) fn hears(&mut self, request: &Request<'_>) {
        // The Python client of 0.3 sends two such headers with its streams.
        let accepts = request.headers.iter().filter(|(name, _)| *name == "accept").map(|(_, value)| *value);
        let accept = accepts.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        let named = accept.contains(A2A_JSON);
        let anything = accept.trim().is_empty() || accept.contains("*/*") || accept.contains("application/*");
        let only_json = accept.contains(JSON) && !anything;
        let came = request.media_type();
        let is_get = matches!(request.method, "GET" | "HEAD");
        let good = named || (came == A2A_JSON && !only_json) || (is_get && anything);
        self.takes_events = accept.contains(EVENTS);
        self.media = (if good { A2A_JSON } else { JSON }, if named { A2A_JSON } else { JSON });
    }

    fn media(&self, good: bool) -> &'static str {
        if self.dialect.is_rpc() || self.dialect.is_old() {
            JSON
        } else if good {
            self.media.0
        } else {
            self.media.1
        }
    }

    /// A whole answer.
    pub(super) fn result<T: Serialize + ?Sized>(&self, value: &T, out: &mut Out) {
        self.extension_header(&mut out.head);
        out.header("content-type", self.media(true));
        if self.dialect.is_rpc() {
            out.json(&Success { jsonrpc: "2.0", id: &self.id, result: value });
        } else {
            out.json(value);
        }
    }

    /// What sending is answered with, whole.
    pub(super) fn whole(&self, item: &Item<'_>, out: &mut Out) {
        self.result(&Spelled(item, self.dialect.form()), out);
    }

    /// One item of a stream.
    pub(super) fn item(&self, item: &Item<'_>, out: &mut Out) {
        let item = Spelled(item, self.dialect.form());
        if self.dialect.is_rpc() {
            out.frame(None, &Success { jsonrpc: "2.0", id: &self.id, result: item });
        } else {
            out.frame(None, &item);
        }
    }

    /// A stream of one item, written as a whole answer.
    pub(super) fn only_item(&self, item: &Item<'_>, out: &mut Out) {
        self.stream_head(&mut out.head);
        self.item(item, out);
    }

    pub(super) fn stream_head(&self, head: &mut Head) {
        head.set("content-type", EVENTS);
        head.set("cache-control", "no-cache");
        head.set("x-accel-buffering", "no");
        self.extension_header(head);
    }

    fn extension_header(&self, head: &mut Head) {
        if !self.extensions.is_empty() {
            let name = if self.dialect.is_old() { "x-a2a-extensions" } else { "a2a-extensions" };
            head.set(name, self.extensions.join(", "));
        }
    }

    /// A refusal, before anything of a stream went out.
    pub(super) fn fail(&self, fault: &Fault, versions: &[Generation], out: &mut Out) {
        let told = Told::new(fault, self.task.as_deref(), versions);
        told.headers(out);
        let status = told.http(self.dialect);
        out.status(status);
        if !self.dialect.is_rpc() {
            out.header("content-type", self.media(false));
            out.json(&RestError(&told, self.dialect));
            return;
        }
        let failure = Failure { jsonrpc: "2.0", id: &self.id, error: RpcError(&told, self.dialect.generation) };
        let streams = self.operation.is_some_and(Operation::streams);
        if streams && self.dialect.is_old() && self.takes_events && status == 200 {
            // Clients of 0.3 insist on an event stream, and lose the error otherwise (section 9).
            self.stream_head(&mut out.head);
            out.frame(None, &failure);
        } else {
            out.header("content-type", JSON);
            out.json(&failure);
        }
    }

    /// The end of a stream through no fault of the task: the client subscribes again.
    pub(super) fn interrupt(&self, fault: &Fault, versions: &[Generation], out: &mut Out) {
        let told = Told::new(fault, self.task.as_deref(), versions);
        if self.dialect.is_rpc() {
            out.frame(None, &Failure { jsonrpc: "2.0", id: &self.id, error: RpcError(&told, self.dialect.generation) });
        } else {
            out.frame(Some("error"), &RestError(&told, self.dialect));
        }
    }
}

/// A fault whose problem is the caller's reading of what waits.
pub(super) fn unexpected() -> Fault {
    Fault::new(FaultKind::Internal, "the answer fits no question")
}
