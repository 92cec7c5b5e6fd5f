//! Writes responses: one JSON object, or a stream of messages.

use interlingua_core::{Head, Out, RunId};
use serde_json::{Map, Value, json};

use super::events::EventId;
use super::route::Route;
use crate::envelope::{RpcError, RpcId};
use crate::revision::Revision;

/// The forms of an answer that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    /// Reads the header `Accept`. Without it, both forms are accepted.
    pub(super) fn read(headers: &[(&str, &str)]) -> Self {
        let values = headers.iter().filter(|(name, _)| *name == "accept").map(|(_, value)| *value);
        let text = values.collect::<Vec<_>>().join(",");
        let ranges: Vec<String> = text
            .split(',')
            .filter(|range| !range.split(';').any(|part| matches!(part.trim(), "q=0" | "q=0.0")))
            .map(|range| range.split(';').next().unwrap_or("").trim().to_ascii_lowercase())
            .filter(|range| !range.is_empty())
            .collect();
        let takes = |names: &[&str]| ranges.iter().any(|range| names.contains(&range.as_str()));
        if text.trim().is_empty() {
            return Self { json: true, events: true };
        }
        Self {
            json: takes(&["application/json", "application/*", "*/*"]),
            events: takes(&["text/event-stream", "text/*", "*/*"]),
        }
    }
}

/// Writes the response to one request.
pub(super) struct Writer {
    /// The id of the request. `None`: it could not be read, or the message has none.
    pub(super) id: Option<RpcId>,
    /// The revision of the request.
    pub(super) revision: Revision,
    /// The forms that the client accepts.
    pub(super) accepts: Accepts,
    /// True once a stream has begun.
    pub(super) is_streaming: bool,
    /// The run whose events the messages of the stream are numbered by. `None`: they have no ids.
    pub(super) numbered_by: Option<RunId>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self {
            id: None,
            revision: Revision::March2025,
            accepts: Accepts { json: true, events: true },
            is_streaming: false,
            numbered_by: None,
        }
    }

    /// True if messages before the response can be sent.
    pub(super) const fn has_events(&self) -> bool {
        self.accepts.events
    }

    /// Sets the head of a stream. A client that accepts no events gets one JSON object at the end of it.
    pub(super) fn begin_stream(&mut self, head: &mut Head) {
        self.is_streaming = true;
        if self.has_events() {
            head.set_event_stream();
        } else {
            head.set_stream("application/json");
        }
    }

    /// Writes a keep-alive. White space may precede a JSON object.
    pub(super) fn heartbeat(&self, out: &mut Out) {
        if self.has_events() {
            out.comment("keep-alive");
        } else {
            out.write_raw(b"\n");
        }
    }

    /// Writes the response: the whole answer, or the last message of a stream.
    pub(super) fn result(&self, result: Value, position: u64, out: &mut Out) {
        let result = self.decorated(result);
        self.last(&json!({ "jsonrpc": "2.0", "id": self.id, "result": result }), position, out);
    }

    /// Writes an error as the response.
    pub(super) fn error(&self, error: &RpcError, position: u64, out: &mut Out) {
        let mut message = json!({ "jsonrpc": "2.0", "error": error.to_value() });
        if let Some(id) = &self.id {
            message["id"] = json!(id);
        }
        if !self.is_streaming {
            out.status(error.status);
        }
        self.last(&message, position, out);
    }

    fn last(&self, message: &Value, position: u64, out: &mut Out) {
        if self.is_streaming && self.has_events() {
            self.frame(message, position, out);
        } else if self.is_streaming {
            out.write_json(message);
        } else {
            out.json(message);
        }
    }

    /// Writes a notification or a request into a stream. Dropped if the client accepts no stream.
    pub(super) fn message(&self, message: &Value, position: u64, out: &mut Out) {
        if self.is_streaming && self.has_events() {
            self.frame(message, position, out);
        }
    }

    fn frame(&self, message: &Value, position: u64, out: &mut Out) {
        self.write_id(position, out);
        out.frame(None, message);
    }

    /// Writes the event with which a stream begins, for clients that can resume it.
    pub(super) fn opening(&self, position: u64, out: &mut Out) {
        if self.numbered_by.is_some() && self.revision == Revision::November2025 && self.has_events() {
            self.write_id(position, out);
            out.write_raw(b"data: \n\n");
        }
    }

    /// Ends a stream that the client is to resume.
    pub(super) fn retry(out: &mut Out) {
        out.write_raw(b"retry: 1000\n\n");
    }

    fn write_id(&self, position: u64, out: &mut Out) {
        if let (Some(run), Some(request)) = (self.numbered_by, &self.id) {
            let id = EventId { run, position, request: request.clone() };
            out.write_raw(format!("id: {id}\n").as_bytes());
        }
    }

    /// The result with the members that every result of the revision has.
    fn decorated(&self, mut result: Value) -> Value {
        let Some(object) = result.as_object_mut().filter(|_| self.revision.is_modern()) else { return result };
        object.entry("resultType").or_insert_with(|| Value::from("complete"));
        let meta = object.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("io.modelcontextprotocol/serverInfo".to_owned(), Route::server_info());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &str) -> (bool, bool) {
        let accepts = Accepts::read(&[("accept", value)]);
        (accepts.json, accepts.events)
    }

    #[test]
    fn a_missing_header_and_wildcards_mean_both_forms() {
        for value in ["", "*/*", "application/json, text/event-stream", "application/*;q=0.5,text/*", "a/b, */*;q=0.1"]
        {
            assert_eq!(accepts(value), (true, true), "{value}");
        }
        assert_eq!(accepts("application/json"), (true, false));
        assert_eq!(accepts("Text/Event-Stream; charset=utf-8"), (false, true));
        assert_eq!(accepts("text/event-stream, application/json;q=0"), (false, true));
        assert_eq!(accepts("text/html"), (false, false));
    }
}
