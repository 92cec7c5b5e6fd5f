//! A mock engine that keeps everything in memory, and a client that talks to it through an exchange, as the server
//! does. Its agent does what the test specifies.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use interlingua_core::answer::{ALL_DECISIONS, AskContext, Outcome, Waiting};
use interlingua_core::call::{
    AgentCard, Busy, Delivery, DocumentCall, Replaces, Reply, RunInfo, RunState, RunView, SessionCall, SessionItem,
    SessionPage, SessionView, Target, Thread,
};
use interlingua_core::capability::ToolOutputs;
use interlingua_core::exchange::{Mounted, Next};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::pending::Pending;
use interlingua_core::run::{Record, RunError};
use interlingua_core::{Call, End, Exchange, Extra, Fault, FaultKind, Json, Mount, Out, ProtocolAdapter, RunId};
use interlingua_core_testkit::{self as testkit, NOW};
use interlingua_hitl::{Hitl, Options};

/// A session of the mock engine.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) waiting: Waiting,
    pub(crate) runs: Vec<(Record, RunInfo)>,
    pub(crate) is_working: bool,
    pub(crate) user: Option<String>,
}

/// The agent's behaviour in its next turn.
pub(crate) enum AgentAction {
    /// Sends these Agent API frames.
    Frames(Vec<String>),
    /// Fails during the turn.
    Fails(&'static str),
    /// Cannot be reached.
    Refuses(FaultKind),
}

/// The mock engine with its mounted adapter.
pub(crate) struct Gateway {
    mounted: Mounted,
    pub(crate) documents: BTreeMap<(String, String), Json>,
    /// Values that another gateway writes before this one: the next document is changed by them.
    pub(crate) written_meanwhile: Vec<Json>,
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) agent: Vec<AgentAction>,
    /// The messages that the agent received.
    pub(crate) agent_input: Vec<String>,
    pub(crate) calls: Vec<String>,
    pub(crate) now: u64,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: serde_json::Value,
    pub(crate) text: String,
}

impl Gateway {
    pub(crate) fn new(options: &str) -> Self {
        let card = AgentCard { name: "demo".into(), decisions: ALL_DECISIONS, ..AgentCard::default() };
        let mount = Mount { path: "/hitl".into(), agents: vec![Arc::new(card)], public_url: None, schemes: Vec::new() };
        let options: Options = serde_json::from_str(options).expect("options");
        Self {
            mounted: Hitl::mount(&mount, options).expect("mounts"),
            documents: BTreeMap::new(),
            written_meanwhile: Vec::new(),
            sessions: BTreeMap::new(),
            agent: Vec::new(),
            agent_input: Vec::new(),
            calls: Vec::new(),
            now: NOW,
        }
    }

    /// Sets the messages that the agent sends next.
    pub(crate) fn agent_sends(&mut self, frames: Vec<Vec<String>>) -> &mut Self {
        let completed = r#"{"object":"response","status":"completed","id":"response_1"}"#.to_owned();
        self.agent_does(AgentAction::Frames(frames.into_iter().flatten().chain([completed]).collect()))
    }

    pub(crate) fn agent_does(&mut self, action: AgentAction) -> &mut Self {
        self.agent.insert(0, action);
        self
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Response {
        self.request("POST", path, body.as_bytes(), "application/json")
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, b"", "")
    }

    pub(crate) fn delete(&mut self, path: &str) -> Response {
        self.request("DELETE", path, b"", "")
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8], media: &str) -> Response {
        let (endpoint, params) =
            testkit::endpoint(&self.mounted, method, path).unwrap_or_else(|| panic!("no endpoint {method} {path}"));
        let mut exchange = (endpoint.open)();
        let request = testkit::ClientRequest {
            headers: &[("content-type", media)],
            params: &params,
            body,
            base_url: "",
            now: self.now,
            ..testkit::ClientRequest::new(method, path)
        };

        let mut out = Out::new();
        let mut call = request.decode(&mut *exchange);
        loop {
            let next = match call {
                Err(fault) => {
                    exchange.fail(&fault, &mut out);
                    break;
                }
                Ok(call) => self.serve(call, &mut *exchange, &mut out),
            };
            call = match next {
                Ok(Next::Done) => break,
                Ok(Next::Call(next)) => Ok(next),
                Err(fault) => match exchange.on_not_found(&fault).filter(|_| fault.kind == FaultKind::NotFound) {
                    Some(fallback) => Ok(fallback),
                    None => Err(fault),
                },
            };
            out = Out::new();
        }

        let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
        let body = serde_json::from_str(&text).expect("JSON");
        Response { status: out.head.status, body, text }
    }

    fn serve(&mut self, call: Call, exchange: &mut dyn Exchange, out: &mut Out) -> Result<Next, Fault> {
        let name = format!("{call:?}");
        self.calls.push(name.split('(').next().unwrap_or_default().to_owned());
        match call {
            Call::Document(call) => {
                let found: Vec<(String, Json)> = match call {
                    DocumentCall::Get { collection, key } => {
                        let found = self.documents.get(&(collection, key.clone()));
                        found.map(|value| (key, value.clone())).into_iter().collect()
                    }
                    DocumentCall::List { collection, prefix } => self
                        .documents
                        .iter()
                        .filter(|((known, key), _)| *known == collection && key.starts_with(&prefix))
                        .map(|((_, key), value)| (key.clone(), value.clone()))
                        .collect(),
                    DocumentCall::Put { collection, key, value, replaces } => {
                        let place = (collection, key);
                        if !self.written_meanwhile.is_empty() {
                            self.documents.insert(place.clone(), self.written_meanwhile.remove(0));
                        }
                        let known = self.documents.get(&place).cloned();
                        let may_replace = match &replaces {
                            Replaces::Anything => true,
                            Replaces::Nothing => known.is_none(),
                            Replaces::Value(value) => known.as_ref() == Some(value),
                        };
                        if may_replace {
                            self.documents.insert(place, value);
                            return exchange.reply(Reply::Done, out);
                        }
                        known.map(|value| (place.1, value)).into_iter().collect()
                    }
                    DocumentCall::Delete { collection, key } => {
                        self.documents.remove(&(collection, key));
                        return exchange.reply(Reply::Done, out);
                    }
                };
                exchange.reply(Reply::Documents(&found), out)
            }
            Call::Session(SessionCall::Get { session }) => {
                let found = self.sessions.get(&session).map(|known| view(&session, known, true));
                let found = found.ok_or_else(|| Fault::not_found("the session"))?;
                exchange.reply(Reply::Session(&[found]), out)
            }
            Call::Session(SessionCall::List(_)) => {
                let sessions: Vec<SessionView> =
                    self.sessions.iter().map(|(id, known)| view(id, known, false)).collect();
                exchange.reply(Reply::Sessions(&SessionPage { total: sessions.len(), sessions, next: None }), out)
            }
            Call::Session(SessionCall::Delete { session }) => {
                self.sessions.remove(&session).ok_or_else(|| Fault::not_found("the session"))?;
                exchange.reply(Reply::Done, out)
            }
            Call::Fetch(Target::Run(id)) => {
                let mut runs = self.sessions.values().flat_map(|session| &session.runs);
                let found = runs.find(|(record, _)| record.run().id == id);
                let (record, about) = found.ok_or_else(|| Fault::not_found("the run"))?;
                exchange.reply(Reply::Run(RunView { record, info: about, pending: &[] }), out)
            }
            Call::Run(run) => self.run(*run, exchange, out),
            Call::Nothing => exchange.reply(Reply::Done, out),
            other => panic!("{other:?}"),
        }
    }

    fn run(
        &mut self,
        run: interlingua_core::RunCall,
        exchange: &mut dyn Exchange,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        let Thread::Session(id) = &run.thread else { panic!("in a session") };
        assert_eq!((run.delivery, run.policy.busy, run.policy.detached), (Delivery::Collect, Some(Busy::Refuse), true));
        assert_eq!(run.request.session_id.as_ref(), Some(id));

        let session = self.sessions.entry(id.clone()).or_default();
        session.user = session.user.take().or(run.request.user_id.clone());
        if session.is_working {
            return Err(Fault::new(FaultKind::Busy, format!("session '{id}' is busy")));
        }

        let (taken, input) = match session.waiting.take(run.request.input, run.answers, run.answer_policy, self.now) {
            Outcome::Send { taken, input, .. } => (taken, input),
            Outcome::Refused(fault) => return Err(fault),
            Outcome::Wait(_) => {
                let pending: Vec<Pending> = session.waiting.open().map(|open| open.item.clone()).collect();
                let (record, about) = session.runs.last().expect("a run asked");
                return exchange.reply(Reply::Waiting(RunView { record, info: about, pending: &pending }, None), out);
            }
        };

        self.agent_input.extend(input.iter().map(|message| Json::from_serialize(message).text().to_owned()));

        let run_id = RunId(uuid::Uuid::from_u128(session.runs.len() as u128 + 1));
        let action = self.agent.pop().expect("the test sets the agent's next action");
        let record = match action {
            AgentAction::Refuses(kind) => {
                session.waiting.reopen(taken);
                return Err(Fault::new(kind, "the agent is not available"));
            }
            AgentAction::Frames(frames) => normalized(run_id, id, input, &frames, self.now, None),
            AgentAction::Fails(why) => normalized(run_id, id, input, &[], self.now, Some(why)),
        };
        let sent = session.waiting.confirm_sent(taken);
        let asked = AskContext {
            run: run_id,
            now: self.now,
            terms: run.answer_policy,
            tools: &[],
            decisions: ALL_DECISIONS,
            tool_outputs: ToolOutputs::Each,
        };
        session.waiting.ask(sent, record.run().pending(), &asked);
        let pending = session.waiting.pending_of(run_id);

        let about = RunInfo {
            protocol: "hitl".into(),
            owner: "anonymous".into(),
            state: RunState::Ended(record.run().end.expect("ended")),
            changed_at: self.now,
            previous: None,
            delivery: Delivery::Collect,
            stored: true,
            request: AgentRequest::default(),
            labels: Json::null(),
            tags: interlingua_core::call::Tags::new(),
            retention: None,
        };

        session.runs.push((record, about));
        let (record, about) = session.runs.last().expect("just pushed");
        exchange.reply(Reply::Run(RunView { record, info: about, pending: &pending }), out)
    }
}

fn view(id: &str, session: &Session, with_items: bool) -> SessionView {
    let latest = session.runs.last();
    let items = session.runs.iter().filter(|_| with_items).flat_map(|(record, _)| {
        record.run().conversation().enumerate().map(|(place, message)| SessionItem {
            id: format!("item_{place}"),
            run: Some(record.run().id),
            message,
        })
    });
    SessionView {
        user: session.user.clone(),
        id: id.to_owned(),
        agent: "demo".into(),
        created_at: NOW,
        updated_at: latest.map_or(NOW, |(record, _)| record.now()),
        items: items.collect(),
        pending: session.waiting.open().map(|open| open.item.clone()).collect(),
        latest: latest.map(|(record, _)| record.run().id),
        state: if session.is_working { Some(RunState::Running) } else { latest.map(|(_, about)| about.state) },
        labels: Extra::new(),
    }
}

fn normalized(id: RunId, session: &str, input: Input, frames: &[String], now: u64, failure: Option<&str>) -> Record {
    use interlingua_core::agent_api::Frame;
    use interlingua_core::normalize::Normalizer;
    let mut record = Record::new(interlingua_core::Run::new(id, "demo", session, now));
    record.start_turn(input);
    if let Some(why) = failure {
        record.close(End::Failed, Some(RunError { code: "AGENT_ERROR".into(), message: why.to_owned() }));
        return record;
    }

    let mut normalizer = Normalizer::new(1 << 20);
    for frame in frames {
        normalizer
            .emit(&mut record, &Frame::parse(frame.as_bytes()).expect("a frame").event())
            .expect("within the limit");
    }

    normalizer.end_of_body(&mut record);

    let end = record.run().turns.last().and_then(|turn| turn.end).expect("ended");
    record.finish_run(end);
    record
}

// Shorthands for Agent API frames.

/// The frame of a complete message with one data content.
pub(crate) fn data_message(id: &str, kind: &str, body: &str) -> Vec<String> {
    let role = if kind.ends_with("_output") { "tool" } else { "assistant" };
    vec![format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"{kind}","role":"{role}","content":[{{"type":"data","data":{body}}}]}}"#
    )]
}

/// The frame of a complete message with one text.
pub(crate) fn text_message(id: &str, kind: &str, text: &str) -> Vec<String> {
    vec![format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"{kind}","role":"assistant","content":[{{"type":"text","text":{text:?}}}]}}"#
    )]
}

/// The frame of an approval request.
pub(crate) fn approval_request(id: &str) -> Vec<String> {
    data_message(
        &format!("m_{id}"),
        "mcp_approval_request",
        &format!(r#"{{"id":"{id}","name":"book_hotel","arguments":"{{\"nights\":2}}","server_label":"travel"}}"#),
    )
}

pub(crate) fn invoke(user: &str, query: &str) -> String {
    format!(r#"{{"user_id":"{user}","query":"{query}"}}"#)
}

pub(crate) fn resume(user: &str, session: &str, response_type: &str, args: &str) -> String {
    format!(r#"{{"user_id":"{user}","session_id":"{session}","response_type":"{response_type}","args":{args}}}"#)
}
