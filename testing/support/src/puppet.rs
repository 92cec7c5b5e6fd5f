//! A protocol of the tests, on both sides, for the gateway's promises to every connector: the input of a turn, the
//! requests, and the handling of its events. Its options set its abilities.
//!
//! A request to the agent is the turn as the connector received it; the agent answers with frames that name one event
//! each: `{"text"}`, `{"call": [id, name]}`, `{"task": id}`, `{"lose": kind}`, `{"event": …}`, `{"end": "completed"}`.
//!
//! Not here: protocols that exist.

use interlingua_core::agent_event::{AgentEvent, CallPart, ContentEvent, ContentValue};
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::{Reply, RunView};
use interlingua_core::capability::{Cancel, ClientCapabilities, HistoryNeed, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{
    AgentTurn, Connector, EventSink, HttpRequest, Next, Purpose, Refusal, TurnRequest, UpstreamAdapter,
};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Endpoint, Mount, Mounted, Request};
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::model::MessageType;
use interlingua_core::out::Head;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use interlingua_core::step::Step;
use interlingua_core::{Call, Exchange, Fault, Flow, Json, Out, ProtocolAdapter, RunId, sse};
use interlingua_native::Native;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The protocol's name.
pub const PUPPET: &str = "puppet";

/// The agents' half.
pub struct PuppetUpstream;

/// The abilities of an agent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PuppetOptions {
    /// `kept`, `only` (kept, and cannot be sent) or `each`.
    history: String,
    /// It takes the outputs of all calls in one request.
    together: bool,
    /// It is given the ids of messages.
    message_ids: bool,
    /// It asks for the history before it sends anything, once it remembers something.
    asks_history: bool,
    /// It is stopped by a request with the id of its task.
    stops: bool,
    /// The URL of a document that it reads first.
    document: Option<String>,
    /// The document's host is trusted.
    trusted: bool,
}

impl UpstreamAdapter for PuppetUpstream {
    const NAME: &'static str = PUPPET;
    type Options = PuppetOptions;

    fn connect(url: &str, options: PuppetOptions) -> Result<Box<dyn Connector>, String> {
        Ok(Box::new(PuppetConnector { url: url.to_owned(), options }))
    }
}

struct PuppetConnector {
    url: String,
    options: PuppetOptions,
}

impl Connector for PuppetConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = match self.options.history.as_str() {
            "only" => HistoryNeed::KeptByAgentOnly,
            "each" => HistoryNeed::SentEachTime,
            _ => HistoryNeed::KeptByAgent,
        };
        capabilities.client_tools = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.message_ids = self.options.message_ids;
        capabilities.protocol_events = Some(PUPPET);
        if self.options.together {
            capabilities.tool_outputs = ToolOutputs::Together;
        }
        if self.options.stops {
            capabilities.cancel = Cancel::Request;
        }
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let remembers = !request.session_state.is_null();
        Ok(Box::new(PuppetTurn {
            url: self.url.clone(),
            body: Some(body(request)),
            needs_history: self.options.asks_history && remembers && request.history.is_empty(),
            options: self.options.clone(),
            looked_up: false,
            task: None,
            losses: Losses::new(),
        }))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(PuppetProbe { url: Some(format!("{}/health", self.url)), findings: Vec::new() })
    }
}

/// A turn as the connector got it.
fn body(request: &TurnRequest<'_>) -> Value {
    let message = |message: &interlingua_core::model::Message| {
        let output = message.outputs().next().map(|output| json!([output.call_id, output.output]));
        json!({ "type": message.kind.to_string(), "text": message.text(), "output": output })
    };
    json!({
        "run": request.request.id,
        "session": request.request.session_id,
        "messages": request.request.input.iter().map(message).collect::<Vec<_>>(),
        "history": [request.history.start, request.history.end],
        "new": request.new_messages().map(|(place, _)| place).collect::<Vec<_>>(),
        "turn": request.turn,
        "ids": request.message_ids,
        "protocol_events": request.protocol_events,
        "agent": request.agent,
        "answered": request.answered.iter().map(|item| &item.id).collect::<Vec<_>>(),
        "state": serde_json::from_str::<Value>(request.session_state.text()).expect("JSON"),
    })
}

struct PuppetTurn {
    url: String,
    body: Option<Value>,
    needs_history: bool,
    options: PuppetOptions,
    looked_up: bool,
    task: Option<String>,
    losses: Losses,
}

#[derive(Deserialize)]
struct Frame {
    text: Option<String>,
    call: Option<(String, String)>,
    task: Option<String>,
    lose: Option<String>,
    event: Option<Value>,
    end: Option<String>,
}

impl AgentTurn for PuppetTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        if let Some(url) = self.options.document.as_ref().filter(|_| !std::mem::replace(&mut self.looked_up, true)) {
            let request = HttpRequest::published(url.as_str());
            return Ok(Next::Send(if self.options.trusted { request.trusted() } else { request }));
        }
        let Some(body) = self.body.take() else { return Ok(Next::Finished) };
        Ok(Next::Send(HttpRequest::post(&self.url, body.to_string().into_bytes())))
    }

    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        let document = match answer {
            Ok(document) => String::from_utf8_lossy(document).into_owned(),
            Err(fault) if fault.upstream_status == Some(404) => "none".to_owned(),
            Err(fault) => return Err(fault.clone()),
        };
        if let Some(body) = &mut self.body {
            body["document"] = document.into();
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let frame: Frame = serde_json::from_slice(frame.data).expect("the tests' agents write frames");
        if let Some(text) = frame.text {
            sink.emit(&AgentEvent::text("answer", &text))?;
        }
        if let Some((id, name)) = frame.call {
            sink.emit(&AgentEvent::message(&id, MessageType::FunctionCall))?;
            let part = CallPart {
                call_id: id.as_str().into(),
                name: name.into(),
                arguments: "{}".into(),
                ..CallPart::default()
            };
            sink.emit(&AgentEvent::call(&id, part))?;
        }
        if let Some(event) = frame.event {
            sink.emit(&AgentEvent::message("event", MessageType::ProtocolEvent))?;
            let data = Json::from_serialize(&json!({ "protocol": PUPPET, "event": event }));
            sink.emit(&AgentEvent::Content(ContentEvent::append("event", ContentValue::OwnedData(data))))?;
        }
        if frame.lose.is_some() {
            self.losses.lost(ContentKind::Sampling, "puppets have no strings for it");
        }
        self.task = frame.task.or(self.task.take());
        if frame.end.is_some() {
            sink.emit(&AgentEvent::completed())?;
        }
        Ok(())
    }

    fn on_body(&mut self, _: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        sink.emit(&AgentEvent::completed())
    }

    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        self.needs_history = fault.upstream_status == Some(404);
        Err(fault)
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        refusal.to_fault()
    }

    fn cancel(&self) -> Option<HttpRequest> {
        let task = self.task.as_ref().filter(|_| self.options.stops)?;
        Some(HttpRequest::post(format!("{}/stop/{task}", self.url), b"{}".to_vec()))
    }

    fn cancels_once_known(&self) -> bool {
        self.options.stops && self.task.is_none()
    }

    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        (status == 409).then(|| String::from_utf8_lossy(body).into_owned())
    }

    fn needs_history(&self) -> bool {
        self.needs_history
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    fn session_state(&self) -> Option<Json> {
        Some(Json::from_serialize(&json!({ "known": true })))
    }
}

/// Asks for the agent's health.
struct PuppetProbe {
    url: Option<String>,
    findings: Vec<Finding>,
}

impl AgentProbe for PuppetProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        self.url.take().map(|url| HttpRequest { purpose: Purpose::Lookup, ..HttpRequest::lookup(url) })
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        self.findings.push(match answer {
            Ok(answer) if answer.status == 200 => Finding::good("healthy"),
            Ok(answer) => Finding::problem(format!("the health check says {}", answer.status)),
            Err(fault) => Finding::problem(fault.message.clone()),
        });
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// The clients' half: the Agent API, for clients that read the agents' own events. It shows no more than that it has
/// lost the reasoning of each run.
pub struct PuppetApi;

impl ProtocolAdapter for PuppetApi {
    const NAME: &'static str = PUPPET;
    type Options = <Native as ProtocolAdapter>::Options;

    fn mount(mount: &Mount, options: Self::Options) -> Result<Mounted, String> {
        let mut mounted = Native::mount(mount, options)?;
        let endpoints = mounted.endpoints.into_iter().map(|endpoint| {
            let open = endpoint.open;
            Endpoint { open: Box::new(move || Box::new(Forgetful::new(open()))), ..endpoint }
        });
        mounted.endpoints = endpoints.collect();
        Ok(mounted)
    }

    fn capabilities(options: &Self::Options) -> ClientCapabilities {
        let mut capabilities = Native::capabilities(options);
        capabilities.protocol_events = Some(PUPPET);
        capabilities
    }
}

/// An exchange that notes a loss with everything it writes, as one whose protocol has no reasoning.
struct Forgetful {
    exchange: Box<dyn Exchange>,
    losses: Losses,
}

impl Forgetful {
    fn new(exchange: Box<dyn Exchange>) -> Self {
        Self { exchange, losses: Losses::new() }
    }

    fn forget(&mut self) {
        self.losses = Losses::new();
        self.losses.lost(ContentKind::Reasoning, "puppets have no thoughts");
    }
}

impl Exchange for Forgetful {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.exchange.decode(request)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<interlingua_core::Next, Fault> {
        self.forget();
        self.exchange.reply(reply, out)
    }

    fn on_not_found(&mut self, fault: &Fault) -> Option<Call> {
        self.exchange.on_not_found(fault)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.exchange.fail(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.exchange.head(head);
    }

    fn begin(&mut self, run: RunView<'_>, out: &mut Out) {
        self.exchange.begin(run, out);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.forget();
        self.exchange.encode(step, out)
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.exchange.pause(run, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.exchange.interrupt(fault, out);
    }

    fn heartbeat(&mut self, out: &mut Out) {
        self.exchange.heartbeat(out);
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    fn builds_on(&self) -> Option<RunId> {
        self.exchange.builds_on()
    }

    fn partition(&self) -> Option<&str> {
        self.exchange.partition()
    }
}
