//! A stand-in for the engine that keeps everything in memory, and a client that talks through an exchange to it, as
//! the server would. Its agent says what the test tells it to.

#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use interlingua_core::answer::{Asked, Outcome, Waiting};
use interlingua_core::call::{
    AgentCard, Busy, Delivery, DocumentCall, Reply, RunInfo, RunState, RunView, SessionCall, SessionItem, SessionView,
    Target, Thread,
};
use interlingua_core::exchange::{Caller, Mounted, Next};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::pending::Pending;
use interlingua_core::run::{Record, RunError};
use interlingua_core::testkit::NOW;
use interlingua_core::{
    Call, End, Exchange, Extra, Fault, FaultKind, Json, Mount, Out, ProtocolAdapter, Request, RunId,
};
use interlingua_hitl::{Hitl, Options};

/// A session of the stand-in.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) waiting: Waiting,
    pub(crate) runs: Vec<(Record, RunInfo)>,
    pub(crate) is_working: bool,
    pub(crate) user: Option<String>,
}

/// What the agent does when it is asked.
pub(crate) enum Says {
    /// These messages, native frames.
    Frames(Vec<String>),
    /// It fails, once it was asked.
    Fails(&'static str),
    /// It is not there.
    Refuses(FaultKind),
}

/// The stand-in.
pub(crate) struct Gateway {
    mounted: Mounted,
    pub(crate) documents: BTreeMap<(String, String), Json>,
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) agent: Vec<Says>,
    /// What the agent was asked, in native messages.
    pub(crate) heard: Vec<String>,
    pub(crate) calls: Vec<String>,
    pub(crate) now: u64,
}

/// An answer: its status and body.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: serde_json::Value,
    pub(crate) text: String,
}

impl Gateway {
    pub(crate) fn new(options: &str) -> Self {
        let card = AgentCard { name: "demo".into(), approval_extension: true, ..AgentCard::default() };
        let mount =
            Mount { path: "/hitl".into(), agents: vec![Arc::new(card)], public_url: None, authenticates: false };
        let options: Options = serde_json::from_str(options).expect("options");
        Self {
            mounted: Hitl::mount(&mount, options).expect("mounts"),
            documents: BTreeMap::new(),
            sessions: BTreeMap::new(),
            agent: Vec::new(),
            heard: Vec::new(),
            calls: Vec::new(),
            now: NOW,
        }
    }

    /// What the agent says next.
    pub(crate) fn says(&mut self, frames: Vec<Vec<String>>) -> &mut Self {
        let completed = r#"{"object":"response","status":"completed","id":"response_1"}"#.to_owned();
        self.does(Says::Frames(frames.into_iter().flatten().chain([completed]).collect()))
    }

    pub(crate) fn does(&mut self, says: Says) -> &mut Self {
        self.agent.insert(0, says);
        self
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answered {
        self.request("POST", path, body.as_bytes(), "application/json")
    }

    pub(crate) fn get(&mut self, path: &str) -> Answered {
        self.request("GET", path, b"", "")
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answered {
        self.request("DELETE", path, b"", "")
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8], media: &str) -> Answered {
        let found = self.mounted.endpoints.iter().find_map(|endpoint| {
            let params = matches(endpoint.path, path)?;
            (endpoint.method.as_str() == method).then(|| ((endpoint.open)(), params))
        });
        let (mut exchange, params) = found.unwrap_or_else(|| panic!("no endpoint {method} {path}"));
        let caller = Caller { owner: "anonymous".into(), authenticated: false };
        let request = Request {
            method,
            path,
            params: &params,
            query: "",
            headers: &[("content-type", media)],
            body,
            base_url: "",
            caller: &caller,
            now: self.now,
            fresh: interlingua_core::testkit::RUN,
        };
        let mut out = Out::new();
        let mut call = exchange.decode(&request);
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
                Err(fault) => match exchange.missed(&fault).filter(|_| fault.kind == FaultKind::NotFound) {
                    Some(instead) => Ok(instead),
                    None => Err(fault),
                },
            };
            out = Out::new();
        }
        let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
        let body = serde_json::from_str(&text).expect("JSON");
        Answered { status: out.head.status, body, text }
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
                    DocumentCall::Put { collection, key, value } => {
                        self.documents.insert((collection, key), value);
                        return exchange.reply(Reply::Done, out);
                    }
                    DocumentCall::Delete { collection, key } => {
                        self.documents.remove(&(collection, key));
                        return exchange.reply(Reply::Done, out);
                    }
                };
                exchange.reply(Reply::Documents(&found), out)
            }
            Call::Session(SessionCall::Look { session }) => {
                let found = self.sessions.get(&session).map(|known| view(&session, known, true));
                let found = found.ok_or_else(|| Fault::not_found("the session"))?;
                exchange.reply(Reply::Session(&[found]), out)
            }
            Call::Session(SessionCall::List) => {
                let views: Vec<SessionView> = self.sessions.iter().map(|(id, known)| view(id, known, false)).collect();
                exchange.reply(Reply::Session(&views), out)
            }
            Call::Session(SessionCall::Delete { session }) => {
                self.sessions.remove(&session).ok_or_else(|| Fault::not_found("the session"))?;
                exchange.reply(Reply::Done, out)
            }
            Call::Fetch(Target::Run(id)) => {
                let mut runs = self.sessions.values().flat_map(|session| &session.runs);
                let found = runs.find(|(record, _)| record.run().id == id);
                let (record, about) = found.ok_or_else(|| Fault::not_found("the run"))?;
                exchange.reply(Reply::Run(RunView { record, about, pending: &[] }), out)
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
        assert_eq!((run.delivery, run.busy, run.detached), (Delivery::Collect, Some(Busy::Refuse), true));
        assert_eq!(run.request.session_id.as_ref(), Some(id));
        let session = self.sessions.entry(id.clone()).or_default();
        session.user = session.user.take().or(run.request.user_id.clone());
        if session.is_working {
            return Err(Fault::new(FaultKind::Busy, format!("session '{id}' is busy")));
        }
        let input = match session.waiting.take(run.request.input, run.answers, run.answer_policy, self.now) {
            Outcome::Goes { input, .. } => input,
            Outcome::Refused(fault) => return Err(fault),
            Outcome::Waits => {
                let pending: Vec<Pending> = session.waiting.open().map(|open| open.item.clone()).collect();
                let (record, about) = session.runs.last().expect("a run asked");
                return exchange.reply(Reply::Waiting(RunView { record, about, pending: &pending }), out);
            }
        };
        self.heard.extend(input.iter().map(|message| Json::from_serialize(message).text().to_owned()));
        let run_id = RunId(uuid::Uuid::from_u128(session.runs.len() as u128 + 1));
        let says = self.agent.pop().expect("the agent was told what to say");
        let record = match says {
            Says::Refuses(kind) => {
                session.waiting.reopen();
                return Err(Fault::new(kind, "the agent is not available"));
            }
            Says::Frames(frames) => heard(run_id, id, input, &frames, self.now, None),
            Says::Fails(why) => heard(run_id, id, input, &[], self.now, Some(why)),
        };
        session.waiting.settled();
        let asked =
            Asked { run: run_id, now: self.now, terms: run.answer_policy, tools: &[], approval_extension: true };
        session.waiting.ask(record.run().pending(), &asked);
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
            retention: None,
        };
        session.runs.push((record, about));
        let (record, about) = session.runs.last().expect("just pushed");
        exchange.reply(Reply::Run(RunView { record, about, pending: &pending }), out)
    }
}

fn view(id: &str, session: &Session, whole: bool) -> SessionView {
    let latest = session.runs.last();
    let items = session.runs.iter().filter(|_| whole).flat_map(|(record, _)| {
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

/// A run heard as these frames.
fn heard(id: RunId, session: &str, input: Input, frames: &[String], now: u64, fails: Option<&str>) -> Record {
    use interlingua_core::agent_api::Frame;
    use interlingua_core::normalize::Normalizer;
    let mut record = Record::new(interlingua_core::Run::new(id, "demo", session, now));
    record.start_turn(input);
    if let Some(why) = fails {
        record.cut(End::Failed, Some(RunError { code: "AGENT_ERROR".into(), message: why.to_owned() }));
        return record;
    }
    let mut normalizer = Normalizer::new(1 << 20);
    for frame in frames {
        normalizer.hear(&mut record, &Frame::parse(frame.as_bytes()).expect("a frame")).expect("within the limit");
    }
    normalizer.end_of_body(&mut record);
    let end = record.run().turns.last().and_then(|turn| turn.end).expect("ended");
    record.finish_run(end);
    record
}

/// What stands in the path's `{name}`s.
fn matches(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    if pattern.len() != path.len() {
        return None;
    }
    let mut params: HashMap<String, String> = HashMap::new();
    for (part, given) in pattern.iter().zip(path) {
        match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => {
                params.insert(name.to_owned(), given.to_owned());
            }
            None if *part != given => return None,
            None => {}
        }
    }
    Some(params.into_iter().collect())
}

// Native frames, short.

/// A whole message with one data content.
pub(crate) fn whole(id: &str, kind: &str, body: &str) -> Vec<String> {
    let role = if kind.ends_with("_output") { "tool" } else { "assistant" };
    vec![format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"{kind}","role":"{role}","content":[{{"type":"data","data":{body}}}]}}"#
    )]
}

/// A whole message with one text.
pub(crate) fn said(id: &str, kind: &str, text: &str) -> Vec<String> {
    vec![format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"{kind}","role":"assistant","content":[{{"type":"text","text":{text:?}}}]}}"#
    )]
}

/// A request for an approval.
pub(crate) fn asks(id: &str) -> Vec<String> {
    whole(
        &format!("m_{id}"),
        "mcp_approval_request",
        &format!(r#"{{"id":"{id}","name":"book_hotel","arguments":"{{\"nights\":2}}","server_label":"travel"}}"#),
    )
}

pub(crate) fn invoke(user: &str, query: &str) -> String {
    format!(r#"{{"user_id":"{user}","query":"{query}"}}"#)
}

pub(crate) fn resume(user: &str, session: &str, word: &str, args: &str) -> String {
    format!(r#"{{"user_id":"{user}","session_id":"{session}","response_type":"{word}","args":{args}}}"#)
}
