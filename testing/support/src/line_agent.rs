//! A protocol of the tests whose agent is a program: it keeps one connection over the program's standard streams for
//! all sessions and turns.
//!
//! Not here: the program (`line_agent.py`), and protocols that exist.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::answer::{ALL_DECISIONS, AnswerBody, native};
use interlingua_core::capability::{HistoryNeed, UpstreamCapabilities};
use interlingua_core::connector::{
    AgentLink, AgentTurn, Connector, EventSink, LinkInfo, LinkMessages, LinkOut, Next, TurnRequest,
};
use interlingua_core::event::Millis;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::Decision;
use interlingua_core::{Fault, FaultKind, Json, sse};
use interlingua_upstream::link::{Dial, LinkLimits, LinkUpstream, Wire, lines};
use interlingua_upstream::{InProcessAgent, Upstream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

/// The agent of the tests that is a program.
pub struct LineAgent;

/// Options of the agent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LineOptions {
    /// The file in which the program lists the sessions that were cancelled.
    log: String,
}

impl InProcessAgent for LineAgent {
    const NAME: &'static str = "lines";
    type Options = LineOptions;

    fn open(options: LineOptions) -> Arc<dyn Upstream> {
        let limit = Duration::from_secs(60);
        let limits = LinkLimits::default();
        Arc::new(LinkUpstream::new(Arc::new(LineConnector), Arc::new(Program(options)), limits, limit, limit))
    }
}

/// Starts the program.
struct Program(LineOptions);

impl Dial for Program {
    fn dial(&self) -> BoxFuture<'static, Result<Wire, Fault>> {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("line_agent.py"), &self.0.log]).kill_on_drop(true);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        ready(match started {
            Ok(mut program) => {
                let (write, read) = (program.stdin.take().expect("piped"), program.stdout.take().expect("piped"));
                // It ends with its standard input, or with the gateway.
                tokio::spawn(async move { program.wait().await });
                Ok(lines(read, write, LinkLimits::default().max_message))
            }
            Err(error) => Err(Fault::new(FaultKind::UpstreamUnreachable, "no program").with_source(error)),
        })
        .boxed()
    }
}

struct LineConnector;

impl Connector for LineConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::KeptByAgentOnly;
        capabilities.decisions = ALL_DECISIONS;
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let session = request.request.session_id.clone().unwrap_or_default();
        let input = &request.request.input;
        let message = match input.iter().flat_map(native).next() {
            Some(answer) => {
                let accepted = matches!(answer.given, AnswerBody::Decided { decision: Decision::Accept, .. });
                json!({ "answer": answer.id, "result": if accepted { "accept" } else { "reject" } })
            }
            None => {
                let text = input.last().map(|message| message.text()).unwrap_or_default();
                json!({ "method": "prompt", "session": session, "text": text })
            }
        };
        let state: Value = serde_json::from_str(request.session_state.text()).unwrap_or_default();
        let needs = (!request.answered.is_empty()).then(|| state["link"].clone());
        Ok(Box::new(LineTurn { session, message: Some(message), needs, link: None, connects: true, is_over: false }))
    }

    fn link(&self) -> Option<Box<dyn AgentLink>> {
        Some(Box::<LineLink>::default())
    }
}

/// The connection: gives requests their ids, and remembers what is open.
#[derive(Default)]
struct LineLink {
    handshake: Option<Json>,
    requests: u64,
    /// The session of each open prompt, by its id.
    prompts: HashMap<u64, String>,
    questions: Vec<String>,
}

impl LineLink {
    fn request(&mut self, mut message: Value, out: &mut LinkOut) -> u64 {
        self.requests += 1;
        message["id"] = self.requests.into();
        out.write(message.to_string().into_bytes());
        self.requests
    }
}

impl AgentLink for LineLink {
    fn open(&mut self, _: Millis, out: &mut LinkOut) {
        self.request(json!({ "method": "initialize" }), out);
    }

    fn handshake(&self) -> Option<Json> {
        self.handshake.clone()
    }

    fn on_message(&mut self, message: &[u8], _: Millis, out: &mut LinkOut) -> Result<(), Fault> {
        let read: Value = serde_json::from_slice(message)
            .map_err(|error| Fault::new(FaultKind::UpstreamGarbage, "the agent sent no JSON").with_source(error))?;
        if let Some(session) = read["session"].as_str() {
            if let Some(id) = read["id"].as_str() {
                self.questions.push(id.to_owned());
            }
            out.deliver(session, message);
        } else if self.handshake.is_none() {
            self.handshake = Some(Json::from_serialize(&read["result"]));
        } else if let Some(session) = read["id"].as_u64().and_then(|id| self.prompts.remove(&id))
            && read["result"] != "cancelled"
        {
            out.deliver(&session, message);
        }
        Ok(())
    }

    fn on_send(&mut self, topic: &str, message: Vec<u8>, _: Millis, out: &mut LinkOut) {
        let message: Value = serde_json::from_slice(&message).expect("turns write JSON");
        if message["method"] == "prompt" {
            let id = self.request(message, out);
            self.prompts.insert(id, topic.to_owned());
        } else if let Some(id) = message["answer"].as_str() {
            // A question is answered once.
            if let Some(place) = self.questions.iter().position(|open| open == id) {
                self.questions.swap_remove(place);
                out.write(json!({ "id": id, "result": message["result"] }).to_string().into_bytes());
            }
        } else {
            out.write(message.to_string().into_bytes());
        }
    }

    fn is_needed(&self) -> bool {
        !self.questions.is_empty()
    }
}

struct LineTurn {
    session: String,
    message: Option<Value>,
    /// The link on which the answered question was asked.
    needs: Option<Value>,
    link: Option<String>,
    connects: bool,
    is_over: bool,
}

impl AgentTurn for LineTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        if std::mem::take(&mut self.connects) {
            return Ok(Next::Connect);
        }
        Ok(self.message.take().map_or(Next::Finished, |message| {
            let messages = vec![message.to_string().into_bytes()];
            Next::Converse(LinkMessages { topic: self.session.clone(), messages })
        }))
    }

    fn on_link(&mut self, link: &LinkInfo) -> Result<(), Fault> {
        if self.needs.as_ref().is_some_and(|needed| *needed != link.id) {
            return Err(Fault::new(FaultKind::UpstreamTruncated, "the agent no longer waits for this decision"));
        }
        self.link = Some(link.id.clone());
        Ok(())
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let read: Value = serde_json::from_slice(frame.data).expect("the link has read it");
        if let Some(text) = read["text"].as_str() {
            sink.emit(&AgentEvent::text("answer", text))?;
        } else if read["method"] == "ask" {
            let id = read["id"].as_str().unwrap_or_default();
            let data = json!({ "id": id, "name": read["name"], "arguments": "{}", "server_label": "lines" });
            let value = ContentValue::OwnedData(Json::from_serialize(&data));
            sink.emit(&AgentEvent::whole(id, MessageType::McpApprovalRequest, Role::Assistant, value))?;
            self.is_over = true;
            sink.emit(&AgentEvent::completed())?;
        } else {
            self.is_over = true;
            sink.emit(&AgentEvent::completed())?;
        }
        Ok(())
    }

    fn on_body(&mut self, _: &[u8], _: &mut dyn EventSink) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::UpstreamGarbage, "a link has no bodies"))
    }

    fn leaves_answer(&self) -> bool {
        self.is_over
    }

    fn cancel_messages(&self) -> Option<LinkMessages> {
        let message = json!({ "method": "cancel", "session": self.session }).to_string().into_bytes();
        Some(LinkMessages { topic: self.session.clone(), messages: vec![message] })
    }

    fn session_state(&self) -> Option<Json> {
        self.link.as_ref().map(|link| Json::from_serialize(&json!({ "link": link })))
    }
}
