//! The forms of A2A: version 1.0 and 0.3, over JSON-RPC and over HTTP+JSON. The agent thinks in version 1.0; here its
//! requests are read into that, and its answers written from it.
//!
//! HTTP+JSON of 0.3 has the JSON of its protocol buffers, which is nearer to 1.0 than JSON-RPC of 0.3 is.

use serde_json::{Value, json};

use crate::{ReceivedRequest, Reply};

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// Version 0.3, not 1.0.
    pub(crate) is_old: bool,
    /// HTTP+JSON, not JSON-RPC.
    pub(crate) is_rest: bool,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// The operation of a request.
pub(super) struct Call {
    /// The JSON-RPC method of version 1.0.
    pub(super) method: &'static str,
    /// Its parameters.
    pub(super) params: Value,
    /// The id of the call. Null over HTTP+JSON.
    pub(super) id: Value,
}

impl Form {
    /// The card of an agent that speaks this alone.
    pub(super) fn card(self, host: &str) -> Value {
        let url = format!("http://{host}/");
        let binding = if self.is_rest { "HTTP+JSON" } else { "JSONRPC" };
        let mut card = json!({
            "name": "Scripted", "description": "Plays scenarios.", "version": "1.0.0", "skills": [],
            "capabilities": { "streaming": true }, "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
        });
        if self.is_old {
            (card["url"], card["preferredTransport"], card["protocolVersion"]) =
                (json!(url), json!(binding), json!("0.3.0"));
        } else {
            card["supportedInterfaces"] = json!([{ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" }]);
        }
        card
    }

    /// Reads a request. `None`: there is no such method or path.
    pub(super) fn call(self, request: &ReceivedRequest) -> Option<Call> {
        if !self.is_rest {
            let body = request.json();
            let method = match body["method"].as_str()? {
                "SendStreamingMessage" | "message/stream" => "SendStreamingMessage",
                "SubscribeToTask" | "tasks/resubscribe" => "SubscribeToTask",
                "GetTask" | "tasks/get" => "GetTask",
                "CancelTask" | "tasks/cancel" => "CancelTask",
                _ => return None,
            };
            let is_right = body["method"].as_str().is_some_and(|name| name.contains('/') == self.is_old);
            let params = self.read(&body["params"]);
            return is_right.then(|| Call { method, params, id: body["id"].clone() });
        }

        let path = request.path.split('?').next().unwrap_or_default();
        let path = if self.is_old { path.strip_prefix("/v1")? } else { path };
        if path == "/message:stream" {
            return Some(Call { method: "SendStreamingMessage", params: self.read(&request.json()), id: Value::Null });
        }
        let (task, verb) = path.strip_prefix("/tasks/")?.split_once(':').unwrap_or((&path["/tasks/".len()..], ""));
        let method = match verb {
            "" => "GetTask",
            "subscribe" => "SubscribeToTask",
            "cancel" => "CancelTask",
            _ => return None,
        };
        Some(Call { method, params: json!({ "id": task }), id: Value::Null })
    }

    /// The parameters of a message in the form of version 1.0.
    fn read(self, params: &Value) -> Value {
        let mut params = params.clone();
        if !self.is_old || params.get("message").is_none() {
            return params;
        }
        let parts = &params["message"][if self.is_rest { "content" } else { "parts" }];
        let parts: Vec<Value> = parts.as_array().into_iter().flatten().map(|part| self.read_part(part)).collect();
        params["message"]["parts"] = json!(parts);
        params
    }

    fn read_part(self, part: &Value) -> Value {
        let mut read = json!({});
        if part["metadata"].is_object() {
            read["metadata"] = part["metadata"].clone();
        }
        if let Some(text) = part["text"].as_str() {
            read["text"] = json!(text);
        } else if let Some(data) = part.get("data") {
            read["data"] = if self.is_rest { data["data"].clone() } else { data.clone() };
        } else {
            let file = &part["file"];
            let (url, bytes) = if self.is_rest { ("fileWithUri", "fileWithBytes") } else { ("uri", "bytes") };
            for (old, name) in [(url, "url"), (bytes, "raw"), ("mimeType", "mediaType"), ("name", "filename")] {
                if let Some(value) = file.get(old) {
                    read[name] = value.clone();
                }
            }
        }
        read
    }

    /// One frame of a stream, with the line ends that uvicorn's event streams have.
    pub(super) fn frame(self, reply: Reply, id: &Value, result: &Value) -> Reply {
        reply.chunk(format!("data: {}\r\n\r\n", self.result(id, result)))
    }

    /// A task as a whole answer.
    pub(super) fn task(self, id: &Value, task: &Value) -> Reply {
        let task = if self.is_rest { self.written_task(task) } else { self.result(id, task) };
        Reply::complete(200, JSON, task.to_string())
    }

    pub(super) fn error(self, id: &Value, code: i32, message: &str, reason: &str) -> Reply {
        let info = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org" });
        if self.is_rest {
            let status = if code == -32001 { 404 } else { 400 };
            let error = if self.is_old {
                json!({ "message": message })
            } else {
                json!({ "error": { "code": status, "status": "NOT_FOUND", "message": message, "details": [info] } })
            };
            return Reply::complete(status, JSON, error.to_string());
        }
        let mut error = json!({ "code": code, "message": message });
        if !self.is_old {
            error["data"] = json!([info]);
        }
        Reply::complete(200, JSON, json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
    }

    /// A result, in the envelope of JSON-RPC where that is spoken.
    fn result(self, id: &Value, result: &Value) -> Value {
        let written = self.written(result);
        if self.is_rest { written } else { json!({ "result": written, "id": id, "jsonrpc": "2.0" }) }
    }

    /// A result of version 1.0: a task, or an item of a stream with its kind as its key.
    fn written(self, result: &Value) -> Value {
        if !self.is_old {
            return result.clone();
        }
        let mut written = result.clone();
        let kinds = [("task", "task"), ("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update")];
        let Some((key, kind)) = kinds.into_iter().find(|(key, _)| result.get(key).is_some()) else {
            return if result.get("id").is_some() { self.written_task(result) } else { written };
        };
        let mut item = match key {
            "task" => self.written_task(&result[key]),
            "statusUpdate" => {
                let mut update = result[key].clone();
                let state = update["status"]["state"].as_str().unwrap_or_default();
                // Servers say so of questions as well.
                update["final"] = json!(!matches!(state, "TASK_STATE_WORKING" | "TASK_STATE_SUBMITTED"));
                update["status"] = self.written_status(&update["status"]);
                update
            }
            _ => {
                let mut update = result[key].clone();
                update["artifact"]["parts"] = self.written_parts(&update["artifact"]["parts"]);
                update
            }
        };
        if self.is_rest {
            written[key] = item;
            return written;
        }
        item["kind"] = json!(kind);
        item
    }

    fn written_task(self, task: &Value) -> Value {
        let mut written = task.clone();
        if !self.is_old {
            return written;
        }
        written["status"] = self.written_status(&task["status"]);
        for message in written["history"].as_array_mut().into_iter().flatten() {
            *message = self.written_message(message);
        }
        for artifact in written["artifacts"].as_array_mut().into_iter().flatten() {
            artifact["parts"] = self.written_parts(&artifact["parts"]);
        }
        if !self.is_rest {
            written["kind"] = json!("task");
        }
        written
    }

    fn written_status(self, status: &Value) -> Value {
        let mut written = status.clone();
        if !self.is_rest {
            let state = status["state"].as_str().unwrap_or_default().trim_start_matches("TASK_STATE_");
            written["state"] = json!(state.to_lowercase().replace('_', "-"));
        }
        if let Some(message) = written.as_object_mut().and_then(|status| status.remove("message")) {
            written["message"] = self.written_message(&message);
        }
        written
    }

    fn written_message(self, message: &Value) -> Value {
        let mut written = message.clone();
        let parts = self.written_parts(&message["parts"]);
        if self.is_rest {
            written.as_object_mut().expect("an object").remove("parts");
            written["content"] = parts;
            return written;
        }
        let role = message["role"].as_str().unwrap_or_default().trim_start_matches("ROLE_").to_lowercase();
        (written["parts"], written["role"], written["kind"]) = (parts, json!(role), json!("message"));
        written
    }

    fn written_parts(self, parts: &Value) -> Value {
        parts.as_array().into_iter().flatten().map(|part| self.written_part(part)).collect()
    }

    fn written_part(self, part: &Value) -> Value {
        let mut written = json!({});
        let kind = if let Some(text) = part.get("text") {
            written["text"] = text.clone();
            "text"
        } else if let Some(data) = part.get("data") {
            written["data"] = if self.is_rest { json!({ "data": data }) } else { data.clone() };
            "data"
        } else {
            let (url, bytes) = if self.is_rest { ("fileWithUri", "fileWithBytes") } else { ("uri", "bytes") };
            for (name, old) in [("url", url), ("raw", bytes), ("mediaType", "mimeType"), ("filename", "name")] {
                if let Some(value) = part.get(name) {
                    written["file"][old] = value.clone();
                }
            }
            "file"
        };
        if part["metadata"].is_object() {
            written["metadata"] = part["metadata"].clone();
        }
        if !self.is_rest {
            written["kind"] = json!(kind);
        }
        written
    }
}
