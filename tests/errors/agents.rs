//! Agents of each protocol that fail: the forms in which they report an error.

use std::sync::{Arc, LazyLock, Mutex};

use interlingua_core::FaultKind as K;
use interlingua_core::error_class;
use interlingua_testing_agents::deltas::deltas;
use interlingua_testing_protocols::{Connects, Protocol, connected};
use serde_json::{Value, json};

use crate::rows::Row;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

/// The form of an error on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// With its HTTP status and as JSON.
    Status,
    /// With its HTTP status and as plain text.
    StatusPlain,
    /// With its HTTP status and a page for people.
    StatusPage,
    /// The first event is an error in the agent's protocol.
    FirstEvent,
    /// The first event is the JSON of the model server behind the agent.
    FirstJson,
    /// Some text, then an error in the agent's protocol.
    MidStream,
    /// JSON with status 200.
    Body,
    /// Plain text with status 200.
    PlainBody,
    /// A page for people with status 200.
    PageBody,
}

pub(crate) const FORMS: [Form; 9] = [
    Form::Status,
    Form::StatusPlain,
    Form::StatusPage,
    Form::FirstEvent,
    Form::FirstJson,
    Form::MidStream,
    Form::Body,
    Form::PlainBody,
    Form::PageBody,
];

/// The protocol of an agent, and its row in the registry.
pub(crate) struct Connector {
    pub(crate) name: &'static str,
    row: Connects,
    /// It answers with events.
    pub(crate) streams: bool,
}

/// Every protocol of agents.
pub(crate) static CONNECTORS: LazyLock<Vec<Connector>> = LazyLock::new(|| {
    let connector = |(protocol, row): (&'static Protocol, Connects)| Connector {
        name: protocol.name,
        row,
        streams: row.error.is_some(),
    };
    connected().map(connector).collect()
});

/// The error that an agent reports next, and in which form.
pub(crate) type Script = Arc<Mutex<(&'static Row, Form)>>;

impl Connector {
    /// The class of an error in a form. `None`: agents of this protocol have no such form.
    pub(crate) fn class(&self, row: &Row, form: Form) -> Option<K> {
        let is_stream = matches!(form, Form::FirstJson | Form::MidStream);
        if is_stream && !self.streams {
            return None;
        }
        let text = row.message();
        Some(match form {
            Form::Status => row.class,
            Form::StatusPlain => {
                let found = error_class::classify(std::iter::empty(), &text, Some(row.status));
                found.unwrap_or_else(|| error_class::of_status(row.status))
            }
            Form::StatusPage => error_class::of_status(row.status),
            Form::FirstEvent | Form::MidStream if self.row.error.is_some_and(|error| error.has_code) => row.coded,
            Form::FirstEvent | Form::MidStream => row.text,
            Form::FirstJson | Form::Body => row.inside,
            // Its stream is requested again until the turn gives up.
            Form::PlainBody if self.name == "agentscope" => K::UpstreamGarbage,
            Form::PlainBody => error_class::of_text(&text).unwrap_or(K::UpstreamGarbage),
            Form::PageBody => K::UpstreamGarbage,
        })
    }

    /// A server of this protocol that does as the script says.
    pub(crate) fn serve(&'static self, script: &Script) -> Upstream {
        let script = Arc::clone(script);
        Upstream::with_handler(move |request| {
            let (row, form) = *script.lock().expect("no test panics here");
            self.earlier(request, form).unwrap_or_else(|| self.reply(request, row, form))
        })
    }

    /// Its configuration. `url`: where the server is.
    pub(crate) fn config(&self, agent: &str, server: &str, own: &str) -> String {
        let Self { name, row: Connects { path, options, .. }, .. } = self;
        format!(
            "[agents.{agent}.upstream]\nprotocol = \"{name}\"\nurl = \"{server}{path}\"\nretries = 0\n{own}\
             options = {{ {options} }}\n"
        )
    }

    pub(crate) fn config_of(&self, server: &Upstream) -> String {
        self.config(self.name, &server.url(""), "")
    }

    /// Requests that come before the one that fails, or after it.
    fn earlier(&self, request: &ReceivedRequest, form: Form) -> Option<Reply> {
        let is_status = matches!(form, Form::Status | Form::StatusPlain | Form::StatusPage);
        match self.name {
            "agentscope" => match (request.method.as_str(), request.path.as_str()) {
                ("POST", "/sessions/") => Some(json_reply(201, &json!({ "session_id": "s1" }))),
                ("POST", "/chat/") if !is_status => Some(json_reply(200, &json!({ "status": "started" }))),
                ("POST", path) if path.ends_with("/interrupt") => Some(json_reply(202, &json!({ "session_id": "s1" }))),
                _ => None,
            },
            "hitl" if request.method == "GET" => Some(json_reply(404, &json!({ "detail": "Not Found" }))),
            "a2a" if request.json()["method"] != "SendStreamingMessage" => {
                let error = json!({ "code": -32001, "message": "Task not found" });
                Some(json_reply(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error })))
            }
            _ => None,
        }
    }

    fn reply(&self, request: &ReceivedRequest, row: &Row, form: Form) -> Reply {
        const PLAIN: &[(&str, &str)] = &[("content-type", "text/plain; charset=utf-8")];
        const PAGE: &[(&str, &str)] = &[("content-type", "text/html")];
        let page = format!("<html><body><h1>Error</h1><p>{}</p></body></html>", row.message());
        match form {
            Form::Status => {
                let headers = [("content-type", "application/json"), ("retry-after", "7")];
                let headers = if row.class == K::UpstreamRateLimited { &headers[..] } else { &headers[..1] };
                Reply::complete(row.status, headers, row.json().to_string())
            }
            Form::StatusPlain => Reply::complete(row.status, PLAIN, row.message()),
            Form::StatusPage => Reply::complete(row.status, PAGE, page),
            Form::Body => json_reply(200, &row.json()),
            Form::PlainBody => Reply::complete(200, PLAIN, row.message()),
            Form::PageBody => Reply::complete(200, PAGE, page),
            Form::FirstEvent if !self.streams => {
                json_reply(200, &json!({ "status": "error", "session_id": "s", "message": row.message() }))
            }
            Form::FirstEvent => Reply::events().chunk(self.event(request, row)).done(),
            Form::FirstJson => Reply::events().frame(&row.json().to_string()).done(),
            Form::MidStream => {
                let deltas = deltas(self.name, "some words").expect("it streams");
                let started = deltas.begin(1).into_iter().chain([deltas.delta(1, 0)]);
                started.fold(Reply::events(), Reply::chunk).chunk(self.event(request, row)).done()
            }
        }
    }

    /// The event of an error in the words of the protocol.
    fn event(&self, request: &ReceivedRequest, row: &Row) -> String {
        let event = self.row.error.expect("its answers are events");
        let mut data = event.data.to_owned();
        for (place, value) in [
            ("$WORD", json!(row.word())),
            ("$TYPE", json!(row.kind)),
            ("$CODE", json!(row.code)),
            ("$ID", if event.data.contains("$ID") { request.json()["id"].clone() } else { Value::Null }),
            // The last one: its text is arbitrary.
            ("$MESSAGE", json!(row.message())),
        ] {
            data = data.replace(place, &value.to_string());
        }
        event.name.map_or(String::new(), |name| format!("event: {name}\n")) + &format!("data: {data}\n\n")
    }
}

fn json_reply(status: u16, body: &Value) -> Reply {
    Reply::complete(status, &[("content-type", "application/json")], body.to_string())
}
