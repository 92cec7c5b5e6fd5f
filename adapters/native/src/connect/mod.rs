//! Calls agents over the Agent API: sends the request and reports the frames of the answer as events
//! (docs/protocols/agent-api.md#transport, docs/protocols/agent-api.md#request, docs/protocols/agent-api.md#repairs).
//!
//! Not here: parsing a frame ([`interlingua_core::agent_api`], the wire format of the canonical model), and the effect
//! of an event on the run: the normalizer in core repairs the deviations of real servers.

pub(crate) mod probe;

use std::borrow::Cow;

use interlingua_adapter_kit::delta_template::{ChangingValues, DeltaTemplate};
use interlingua_adapter_kit::mislabeled;
use interlingua_adapter_kit::unique_calls::UniqueCalls;
use interlingua_core::agent_api::{Frame, FrameReader};
use interlingua_core::agent_event::{AgentError, AgentEvent, ContentEvent, ContentUpdate, ContentValue};
use interlingua_core::answer::{self, NATIVE_DECISIONS};
use interlingua_core::capability::{AskKinds, Cancel, Media, UpstreamCapabilities};
use interlingua_core::connector::{
    AgentTurn, Connector, EventSink, HttpRequest, Next, Purpose, Refusal, TurnRequest, UpstreamAdapter,
};
use interlingua_core::event::Millis;
use interlingua_core::model::{AgentRequest, Content, Message, MessageType};
use interlingua_core::model_error::{Complaint, garbage, map_refusal};
use interlingua_core::pending::{Pending, PendingKind, approval_id};
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::ServerSigns;
use interlingua_core::{Fault, FaultKind, sse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connect::probe::NativeProbe;

/// Calls agents that speak the Agent API.
#[derive(Clone, Copy, Debug)]
pub struct NativeUpstream;

/// The options of an `agent-api` upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The URL that stops the agent, by `POST` with `user_id` and `session_id`, or its path on the agent's server. The
    /// runtime has no such route: it stops when the connection is closed, which the gateway always does.
    pub stop_url: Option<String>,
}

impl UpstreamAdapter for NativeUpstream {
    const NAME: &'static str = "agent-api";
    const SIGNS: ServerSigns = ServerSigns {
        endpoints: &["/process"],
        request_fields: &["input", "session_id"],
        has_vague_probe: true,
        products: &["native", "agentscope_runtime", "runtime"],
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        // Each of several servers is stopped where it is.
        let stop_url =
            options.stop_url.map(|stop| if is_path(&stop) { format!("{}{stop}", origin(url)) } else { stop });
        for url in std::iter::once(url).chain(stop_url.as_deref()) {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(format!("\"{url}\" is not an http or https URL"));
            }
        }
        Ok(UniqueCalls::around(NativeConnector { url: url.to_owned(), stop_url }))
    }
}

struct NativeConnector {
    url: String,
    stop_url: Option<String>,
}

impl Connector for NativeConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.client_tools = true;
        capabilities.decisions = NATIVE_DECISIONS;
        capabilities.input_media = Media::ALL;
        capabilities.output_media = Media::ALL;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities.asks = AskKinds::ALL;
        if self.stop_url.is_some() {
            capabilities.cancel = Cancel::Request;
        }
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let input = with_requests(&request.request.input, request.answered);
        let completed = input.map(|input| AgentRequest { input: input.into(), ..request.request.clone() });
        let body = to_body(completed.as_ref().unwrap_or(request.request))?;
        let cancel = self.stop_url.as_ref().and_then(|url| stop_request(url, request.request));

        Ok(Box::new(NativeTurn {
            request: Some(HttpRequest::post(&self.url, body)),
            cancel,
            reader: FrameReader::default(),
            unescaped: String::new(),
            deltas: DeltaReader::default(),
        }))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(NativeProbe::new(&self.url, &origin(&self.url)))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if path(&self.url).is_empty() {
            warnings.push(
                "url has no path: agents of the Agent API usually answer at \"/process\", and others with 404"
                    .to_owned(),
            );
        }
        if let Some(stop) = &self.stop_url
            && origin(stop) != origin(&self.url)
        {
            warnings.push(
                "stop_url has another origin than url: the headers of this upstream are not sent there; with several \
                 urls write its path alone, such as \"/stop\""
                    .to_owned(),
            );
        }
        warnings
    }
}

fn stop_request(url: &str, request: &AgentRequest) -> Option<HttpRequest> {
    #[derive(Serialize)]
    struct Stop<'a> {
        user_id: Option<&'a str>,
        session_id: Option<&'a str>,
    }

    let body =
        to_body(&Stop { user_id: request.user_id.as_deref(), session_id: request.session_id.as_deref() }).ok()?;
    let headers = vec![("content-type".into(), "application/json".to_owned())];
    Some(HttpRequest { method: "POST", url: url.to_owned(), headers, body, purpose: Purpose::Ask, is_trusted: false })
}

/// True for a path on a server. Two slashes would begin with the name of another one.
fn is_path(url: &str) -> bool {
    url.starts_with('/') && !url.starts_with("//")
}

/// The scheme and the authority of a URL, in lower case.
fn origin(url: &str) -> String {
    let authority = url.find("://").map_or(0, |index| index + 3);
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |index| authority + index);
    url[..end].to_ascii_lowercase()
}

/// The path of a URL, without the leading slash.
fn path(url: &str) -> &str {
    let rest = &url[origin(url).len()..];
    rest.split(['?', '#']).next().unwrap_or_default().trim_start_matches('/')
}

fn to_body<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| {
        Fault::new(FaultKind::Internal, "the request cannot be serialized for the agent").with_source(error)
    })
}

/// The input with the approval request before each approval answer, as agents expect it
/// (docs/human-in-the-loop.md#request-before-answer). `None` if nothing is missing.
fn with_requests(input: &[Message], answered: &[Pending]) -> Option<Vec<Message>> {
    if answered.is_empty() {
        return None;
    }

    let mut requested: Vec<String> = Vec::new();
    let mut completed = Vec::with_capacity(input.len() + answered.len());
    for message in input {
        match message.kind {
            MessageType::McpApprovalRequest => {
                requested.extend(message.content.iter().filter_map(Content::as_data).filter_map(approval_id));
            }
            MessageType::McpApprovalResponse => {
                for answer in answer::native(message) {
                    let item = answered.iter().find(|item| item.id == answer.id && item.kind != PendingKind::Tool);
                    if let Some(request) = item.and_then(Pending::request)
                        && !requested.contains(&answer.id)
                    {
                        completed.push(request);
                        requested.push(answer.id);
                    }
                }
            }
            _ => {}
        }
        completed.push(message.clone());
    }

    (completed.len() > input.len()).then_some(completed)
}

/// A turn: one request and one answer.
struct NativeTurn {
    request: Option<HttpRequest>,
    cancel: Option<HttpRequest>,
    reader: FrameReader,
    /// Where texts with escapes are written.
    unescaped: String,
    deltas: DeltaReader,
}

/// Reads the next deltas of a text without parsing them.
#[derive(Default)]
struct DeltaReader {
    template: DeltaTemplate,
    /// The message and the content of the deltas.
    message: Option<String>,
    index: Option<u32>,
}

impl DeltaReader {
    /// The event of a frame that differs from the last delta in nothing but text and number. `None`: it has to be
    /// parsed.
    #[inline]
    fn read<'a>(&'a mut self, data: &'a [u8]) -> Option<AgentEvent<'a>> {
        let delta = self.template.read(data)?;
        Some(AgentEvent::Content(ContentEvent {
            message: self.message.as_deref().map(Cow::Borrowed),
            index: self.index,
            update: ContentUpdate::Append,
            value: ContentValue::Text(Cow::Borrowed(delta.text)),
            extra: Vec::new(),
        }))
    }

    /// Learns the shape of a parsed frame, if it is a delta.
    fn learn(&mut self, data: &[u8], frame: &Frame<'_>) {
        let Some(text) = frame.appended_text() else { return };
        self.template.learn(data, ChangingValues { text, number: frame.sequence_number, padding: None });
        self.index = frame.index;
        match (&mut self.message, frame.msg_id.as_deref()) {
            (Some(known), Some(id)) => id.clone_into(known),
            (known, id) => *known = id.map(str::to_owned),
        }
    }
}

impl AgentTurn for NativeTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    #[inline]
    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if let Some(delta) = self.deltas.read(frame.data) {
            return sink.emit(&delta);
        }
        match Frame::parse_with(frame.data, &mut self.unescaped) {
            Some(parsed) if parsed.is_foreign() => match Complaint::from_unknown_object(frame.data) {
                Some(complaint) => {
                    let (code, message) = complaint.into_error();
                    sink.emit(&AgentEvent::Error(AgentError::named(code, message)))
                }
                None => self.reader.read(parsed, sink),
            },
            Some(parsed) => {
                self.deltas.learn(frame.data, &parsed);
                self.reader.read(parsed, sink)
            }
            // Some servers send events without data, or `[DONE]` at the end: they report nothing.
            None if frame.is_done() || frame.data.trim_ascii().is_empty() => Ok(()),
            None => Err(garbage(frame.data)),
        }
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if visible.first() != Some(&b'{') {
            return mislabeled::read_stream(self, body, sink);
        }
        let frame = Frame::parse(visible).ok_or_else(|| garbage(body))?;

        // Other JSON objects are not part of this protocol: a proxy or a web framework sent them.
        let is_answer = frame.object.as_deref() == Some("response");
        if is_answer {
            return self.reader.read(frame, sink);
        }
        if frame.error.is_some() && frame.object.is_none() {
            // The class may be in fields beside the error, such as a status.
            let complaint = Complaint::parse(visible);
            let is_known = |found: &Complaint| found.class(None).is_some_and(|kind| kind != FaultKind::AgentFailed);
            return match complaint.filter(is_known) {
                Some(complaint) => {
                    let (code, message) = complaint.into_error();
                    sink.emit(&AgentEvent::Error(AgentError::named(code, message)))
                }
                None => self.reader.read(frame, sink),
            };
        }

        Err(garbage(body))
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        map_refusal(refusal)
    }

    fn cancel(&self) -> Option<HttpRequest> {
        self.cancel.clone()
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::Json;
    use interlingua_core::answer::CheckedDecision;
    use interlingua_core::pending::Decision;
    use interlingua_core::tree::Node;
    use interlingua_core_testkit::EventTexts;

    use super::*;

    fn connector(stop_url: Option<&str>) -> Box<dyn Connector> {
        let options = UpstreamOptions { stop_url: stop_url.map(str::to_owned) };
        NativeUpstream::connect("http://agent/process", options).expect("an http URL")
    }

    fn turn(connector: &dyn Connector, request: &AgentRequest, answered: &[Pending]) -> Box<dyn AgentTurn> {
        let state = Json::null();
        let request = TurnRequest::new(request, &state, answered);
        connector.turn(&request).expect("a turn")
    }

    fn sent(request: &AgentRequest, answered: &[Pending]) -> String {
        let Ok(Next::Send(sent)) = turn(&*connector(None), request, answered).next(0) else { panic!("a request") };
        String::from_utf8(sent.body).expect("JSON")
    }

    fn any_turn() -> Box<dyn AgentTurn> {
        turn(&*connector(None), &AgentRequest::default(), &[])
    }

    #[derive(Default)]
    struct EventCounter(usize);

    impl EventSink for EventCounter {
        fn emit(&mut self, _: &interlingua_core::agent_event::AgentEvent<'_>) -> Result<(), Fault> {
            self.0 += 1;
            Ok(())
        }
    }

    #[test]
    fn a_request_is_sent_upstream_with_all_its_fields() {
        let body =
            br#"{"input":[{"role":"user","content":"hi","x":[1]}],"session_id":"s","temperature":0.5,"biz":{"a": 1}}"#;
        let request = AgentRequest::parse(&Node::parse_object(body).expect("JSON")).expect("a request");
        assert_eq!(
            sent(&request, &[]),
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"text","text":"hi"}],"x":[1]}],"stream":true,"session_id":"s","temperature":0.5,"biz":{"a": 1}}"#
        );
    }

    #[test]
    fn the_request_is_added_before_its_answer_unless_the_client_sent_it() {
        let answer = r#"{"type":"mcp_approval_response","role":"user","content":[{"type":"data","data":{"approve":true,"approval_request_id":"a1"}}]}"#;
        let asked = r#"{"id":"m1","type":"mcp_approval_request","role":"assistant","content":[{"type":"data","data":{"id":"a1","name":"rm"}}]}"#;
        let mut item = Pending::parse(&Json::parse(r#"{"id":"a1","name":"rm"}"#).expect("JSON")).expect("an id");
        item.request = Json::parse(asked);

        for input in [format!("[{answer}]"), format!("[{asked},{answer}]")] {
            let body = format!(r#"{{"input":{input}}}"#);
            let request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
            let sent = sent(&request, std::slice::from_ref(&item));
            assert!(sent.starts_with(&format!(r#"{{"input":[{asked},{answer}]"#)), "{sent}");
        }
    }

    #[test]
    fn a_stop_request_is_sent_to_the_stop_url() {
        let request =
            AgentRequest { session_id: Some("s".into()), user_id: Some("u".into()), ..AgentRequest::default() };
        assert_eq!(turn(&*connector(None), &request, &[]).cancel(), None);

        let connector = connector(Some("http://agent/stop"));
        assert_eq!(connector.capabilities().cancel, Cancel::Request);
        let stop = turn(&*connector, &request, &[]).cancel().expect("a stop request");
        assert_eq!((stop.method, stop.url.as_str()), ("POST", "http://agent/stop"));
        assert_eq!(stop.body, br#"{"user_id":"u","session_id":"s"}"#);
    }

    #[test]
    fn a_refusal_has_the_agents_detail_if_it_is_for_clients() {
        for (status, body, message) in [
            (
                422,
                r#"{"detail":[{"type":"missing","loc":["body","input",0,"content"],"msg":"Field required"}]}"#,
                "the agent refused the request: input.0.content: Field required",
            ),
            (429, r#"{"detail":"one at a time"}"#, "the agent is rate limited: one at a time"),
            (404, r#"{"detail":"Not Found"}"#, "the agent has nothing at the URL that the gateway asks"),
            (415, r#"{"detail":"no such type"}"#, "the agent does not take this content: no such type"),
            (307, "", "the agent redirects elsewhere, and redirects are not followed"),
            (500, r#"{"detail":"ValueError: secret"}"#, "the agent failed (500)"),
            (401, r#"{"detail":"bad token abc"}"#, "the agent refused the gateway's credentials"),
            (422, "<html>", "the agent refused the request"),
        ] {
            let fault = any_turn().map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
            assert_eq!((fault.message.as_str(), fault.upstream_status), (message, Some(status)));
            assert_eq!(fault.detail.as_deref(), Some(body), "the log gets the complete body");
        }
    }

    #[test]
    fn data_that_is_not_a_frame_is_ignored_or_refused() {
        let mut sink = EventCounter::default();
        let mut read = |data: &[u8]| any_turn().on_frame(sse::Frame { data, ..sse::Frame::default() }, &mut sink);
        for data in [b"[DONE]".as_slice(), b"", b" ", b"{\"object\":\"message\"}"] {
            read(data).expect("valid or ignored");
        }
        for data in [b"<html>".as_slice(), b"[1]", b"\"x\"", b"{\"a\":", b"\xff"] {
            assert_eq!(read(data).expect_err("garbage").kind, FaultKind::UpstreamGarbage);
        }
        assert_eq!(sink.0, 1);
    }

    #[test]
    fn deltas_report_the_same_whether_they_are_parsed_or_not() {
        let delta = |number: usize, text: &str, message: &str| {
            format!(
                r#"{{"sequence_number":{number},"object":"content","status":"in_progress","error":null,"type":"text","index":0,"delta":true,"msg_id":"{message}","text":"{text}"}}"#
            )
        };
        let end = r#"{"sequence_number":12,"object":"content","status":"completed","type":"text","index":0,"delta":false,"msg_id":"m1","text":"all"}"#;
        let extended = delta(13, "x", "m1").replace("\"error\":null", "\"error\":null,\"mood\":{\"a\":1}");
        let frames = [
            delta(1, "Hel", "m1"),
            delta(9, "lo", "m1"),
            delta(10, "a\\n\\u4f60", "m1"),
            delta(11, "", "m1"),
            delta(12, "other", "m2"),
            delta(13, "again", "m1"),
            end.to_owned(),
            extended.clone(),
            extended.replace("13", "14"),
            delta(15, "x", "m1").replace("\"msg_id\":\"m1\",", ""),
            delta(16, "y", "m1").replace("\"msg_id\":\"m1\",", ""),
            delta(17, "z", "m1").replace("\"index\":0,", "\"index\":3,"),
            delta(18, "z", "m1").replace("\"delta\":true", "\"delta\":false"),
            delta(19, "z", "m1").replace("\"type\":\"text\"", "\"type\":\"refusal\""),
            delta(20, "z", "m1").replace("\"sequence_number\":20", "\"sequence_number\":\"20\""),
            delta(21, "z", "m1"),
        ];

        let (mut one, mut each) = (EventTexts::default(), EventTexts::default());
        let mut turn = any_turn();
        for frame in &frames {
            let frame = sse::Frame { data: frame.as_bytes(), ..sse::Frame::default() };
            turn.on_frame(frame, &mut one).expect("a frame");
            any_turn().on_frame(frame, &mut each).expect("a frame");
        }
        assert_eq!(one.0, each.0);
        assert_eq!(one.0.len(), frames.len());
    }

    #[test]
    fn a_body_is_a_response_or_an_error() {
        let mut sink = EventCounter::default();
        any_turn().on_body(br#"{"object":"response","status":"completed"}"#, &mut sink).expect("a response");
        any_turn()
            .on_body(br#"{"error":"Task is already in RUNNING state."}"#, &mut sink)
            .expect("an error of the agent");
        assert_eq!(sink.0, 2);
        let refused = any_turn().on_body(br#"{"detail":"no"}"#, &mut sink).expect_err("a refusal");
        assert_eq!((refused.kind, refused.message.as_str()), (FaultKind::AgentFailed, "no"));
        for body in [b"{}".as_slice(), b"[]", b"hello"] {
            let garbage = any_turn().on_body(body, &mut sink).expect_err("garbage");
            assert_eq!(garbage.kind, FaultKind::UpstreamGarbage);
        }
    }

    #[test]
    fn an_operator_is_warned_of_suspicious_urls() {
        let warnings = |url: &str, stop: Option<&str>| {
            let options = UpstreamOptions { stop_url: stop.map(str::to_owned) };
            NativeUpstream::connect(url, options).expect("a URL").warnings()
        };
        assert_eq!(warnings("http://agent:8090/process", Some("http://AGENT:8090/stop")), Vec::<String>::new());
        for url in ["http://agent:8090", "http://agent:8090/", "http://agent:8090/?a=b"] {
            assert!(warnings(url, None)[0].contains("no path"), "{url}");
        }
        for stop in ["http://other:8090/stop", "https://agent:8090/stop", "http://agent/stop"] {
            assert!(warnings("http://agent:8090/process", Some(stop))[0].contains("another origin"), "{stop}");
        }
    }

    #[test]
    fn a_stop_url_may_be_a_path() {
        let request = AgentRequest::default();
        let state = Json::null();
        let request = TurnRequest::new(&request, &state, &[]);
        let stopped_at = |url: &str, stop: &str| {
            let options = UpstreamOptions { stop_url: Some(stop.to_owned()) };
            let connector = NativeUpstream::connect(url, options).expect("a URL");
            assert_eq!(connector.warnings(), Vec::<String>::new());
            connector.turn(&request).expect("a turn").cancel().expect("a request").url
        };
        assert_eq!(stopped_at("http://agent:8090/api/process?a=b", "/stop?now"), "http://agent:8090/stop?now");
        let options = UpstreamOptions { stop_url: Some("//other/stop".to_owned()) };
        assert!(NativeUpstream::connect("http://agent:8090/process", options).is_err(), "another server's name");
    }

    #[test]
    fn an_invalid_url_is_refused() {
        assert!(NativeUpstream::connect("ftp://agent", UpstreamOptions::default()).is_err());
        let options = UpstreamOptions { stop_url: Some("stop".into()) };
        assert!(NativeUpstream::connect("http://agent", options).is_err());
    }

    #[test]
    fn with_requests_adds_a_missing_request_once() {
        let item =
            Pending::parse(&Json::parse(r#"{"id":"appr_1","name":"send_mail"}"#).expect("JSON")).expect("an item");
        let answer = CheckedDecision::new(Decision::Accept).message(&item, false);
        let input = [answer, Message::user("and now?")];

        let once = with_requests(&input, std::slice::from_ref(&item)).expect("the request is added");
        let kinds: Vec<&str> = once.iter().map(|message| message.kind.as_str()).collect();
        assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response", "message"]);

        assert_eq!(with_requests(&once, &[item]), None);
        assert_eq!(with_requests(&input, &[]), None);
    }
}
