//! The exchanges that send streams, each with a request of a client.

use interlingua_a2a::A2a;
use interlingua_ag_kit::AgKit;
use interlingua_ag_ui::AgUi;
use interlingua_anthropic_messages::AnthropicMessages;
use interlingua_chat_completions::ChatCompletions;
use interlingua_core::exchange::{Exchange, Mounted, ProtocolAdapter};
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageStart};
use interlingua_core::{Endpoint, Out, Record};
use interlingua_core_testkit::{self as testkit, ClientRequest, TestRun};
use interlingua_native::Native;
use interlingua_responses::Responses;

/// Number of deltas that the connection takes at once.
pub const TAKEN: usize = 100;

/// A request whose answer is a stream, as a client of this protocol sends it.
pub struct StreamedRequest {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// The difference from other streams of the protocol. Empty: it has one stream.
    pub form: &'static str,
    /// The kinds of content that have deltas. Other kinds are sent whole, or not at all.
    pub deltas_of: &'static [Kind],
    mounted: Mounted,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    is_websocket: bool,
}

impl StreamedRequest {
    /// A POST to a route with these options.
    fn post<A: ProtocolAdapter>(
        form: &'static str,
        deltas_of: &'static [Kind],
        options: &str,
        path: &'static str,
        headers: &'static [(&'static str, &'static str)],
        body: &'static str,
    ) -> Self {
        let options = serde_json::from_str(options).expect("options");
        let mounted = A::mount(&testkit::mount("/at", &["demo"]), options).expect("the options are valid");
        Self { protocol: A::NAME, form, deltas_of, mounted, path, headers, body, is_websocket: false }
    }

    fn open(&self) -> Box<dyn Exchange> {
        let (listed, method) = if self.is_websocket { ("GET", "WEBSOCKET") } else { ("POST", "POST") };
        let is_asked = |endpoint: &&Endpoint| {
            endpoint.path == self.path
                && endpoint.method.as_str() == listed
                && endpoint.websocket.is_some() == self.is_websocket
        };
        let endpoint = self.mounted.endpoints.iter().find(is_asked).expect("an endpoint");
        let mut exchange = (endpoint.open)();
        let request = ClientRequest {
            headers: self.headers,
            body: self.body.as_bytes(),
            ..ClientRequest::new(method, self.path)
        };
        request.decode(&mut *exchange).unwrap_or_else(|fault| panic!("{} {}: {fault:?}", self.protocol, self.form));
        exchange
    }

    /// Encodes the steps of a record but the last ones, as for a client that has just connected.
    ///
    /// # Panics
    /// If the request cannot be decoded.
    #[must_use]
    pub fn begin<'r>(&self, record: &'r Record, last: u64) -> Writing<'r> {
        let (mut exchange, mut out) = (self.open(), Out::new());
        exchange.begin(TestRun::new(record).view(), &mut out);
        let next = record.len() - last;
        for sequence in 0..next {
            exchange.encode(record.step(sequence).expect("a recorded step"), &mut out);
        }

        out.body.clear();
        Writing { exchange, out, record, next }
    }
}

/// A stream to a client, from a step of its run on.
pub struct Writing<'r> {
    exchange: Box<dyn Exchange>,
    out: Out,
    record: &'r Record,
    next: u64,
}

impl Writing<'_> {
    /// Encodes the remaining steps. The connection takes the bytes from time to time. Returns how many it took.
    pub fn write_on(&mut self) -> usize {
        let mut taken = 0;
        for (nth, sequence) in (self.next..self.record.len()).enumerate() {
            let Some(step) = self.record.step(sequence) else { break };
            self.exchange.encode(step, &mut self.out);
            if nth % TAKEN == 0 {
                taken += self.out.body.len();
                self.out.body.clear();
            }
        }
        taken
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const A2A_V1: &[(&str, &str)] = &[("content-type", "application/json"), ("a2a-version", "1.0")];
const A2A_V03: &[(&str, &str)] = &[("content-type", "application/json"), ("a2a-version", "0.3")];
const PROTOBUF: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "application/vnd.ag-ui.event+proto")];

const RPC_V1: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
const RPC_V03: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}"#;
const REST: &str = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
const AG_UI: &str = r#"{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"hi"}],"tools":[{"name":"f","description":"d"}]}"#;
const CREATE: &str =
    r#"{"model":"demo","input":"hi","stream":true,"tools":[{"type":"function","name":"f","parameters":{}}]}"#;
const RESPONSE_CREATE: &str = r#"{"type":"response.create","model":"demo","input":"hi","tools":[{"type":"function","name":"f","parameters":{}}]}"#;
const MESSAGES: &str = r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true,"thinking":{"type":"adaptive"},"tools":[{"name":"f","input_schema":{"type":"object"}}]}"#;
const COMPLETE: &str = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"tools":[{"type":"function","function":{"name":"f"}}]}"#;
const SEND_MESSAGE: &str = r#"{"conversationId":"c","messages":[{"role":"user","content":"hi"}]}"#;

const TEXT: &[Kind] = &[Kind::Text];
const THOUGHTS: &[Kind] = &[Kind::Text, Kind::Reasoning];
const CALLS: &[Kind] = &[Kind::Text, Kind::Arguments];
const ALL: &[Kind] = &[Kind::Text, Kind::Reasoning, Kind::Arguments];

/// Every way in which a client gets a stream.
///
/// # Panics
/// If a protocol refuses its options.
#[must_use]
pub fn all() -> Vec<StreamedRequest> {
    let a2a = |form, path, headers, body| StreamedRequest::post::<A2a>(form, TEXT, "{}", path, headers, body);
    let thinking = |form, of, options| StreamedRequest::post::<A2a>(form, of, options, "", A2A_V1, RPC_V1);
    let ag_kit =
        |form, of, options| StreamedRequest::post::<AgKit>(form, of, options, "/send-message", JSON, SEND_MESSAGE);
    let responses = |form, body| StreamedRequest::post::<Responses>(form, ALL, "{}", "/responses", JSON, body);
    vec![
        StreamedRequest::post::<Native>("", THOUGHTS, "{}", "/process", JSON, r#"{"input":[],"stream":true}"#),
        a2a("JSON-RPC 1.0", "", A2A_V1, RPC_V1),
        a2a("JSON-RPC 0.3", "", A2A_V03, RPC_V03),
        a2a("REST", "/message:stream", A2A_V1, REST),
        thinking("reasoning in statuses", THOUGHTS, r#"{"reasoning":"stream"}"#),
        thinking("reasoning as an artifact", TEXT, r#"{"reasoning":"artifact"}"#),
        ag_kit("", CALLS, "{}"),
        ag_kit("reasoning as text", ALL, r#"{"reasoning":"text"}"#),
        ag_kit("reasoning as events", ALL, r#"{"reasoning":"event"}"#),
        StreamedRequest::post::<AgUi>("", ALL, "{}", "", JSON, AG_UI),
        StreamedRequest::post::<AgUi>("protobuf", ALL, "{}", "", PROTOBUF, AG_UI),
        StreamedRequest::post::<AnthropicMessages>("", ALL, "{}", "/v1/messages", JSON, MESSAGES),
        StreamedRequest::post::<ChatCompletions>("", ALL, "{}", "/chat/completions", JSON, COMPLETE),
        responses("", CREATE),
        StreamedRequest { is_websocket: true, ..responses("WebSocket", RESPONSE_CREATE) },
    ]
}

/// A kind of content that may be sent in deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer.
    Text,
    /// Reasoning.
    Reasoning,
    /// Arguments of a call.
    Arguments,
}

/// A run with this number of deltas of one text in an open message.
#[must_use]
pub fn record(kind: Kind, text: &str, count: usize) -> Record {
    let mut record = testkit::started();
    let (of, content, call) = match kind {
        Kind::Text => (MessageType::Message, ContentType::Text, None),
        Kind::Reasoning => (MessageType::Reasoning, ContentType::Text, None),
        Kind::Arguments => {
            let head = CallHead { call_id: "call_1".to_owned(), name: "f".to_owned(), server_label: None };
            (MessageType::FunctionCall, ContentType::Data, Some(head))
        }
    };
    let message = record.start_message(MessageStart::new("", of, Role::Assistant));
    let content = record.start_content(message, content, call);
    let mut piece = text.to_owned();
    if kind == Kind::Arguments {
        record.push(message, content, r#"{"text":""#);
        piece = text.replace('"', "\\\"");
    }
    for _ in 0..count {
        record.push(message, content, &piece);
    }
    record
}
