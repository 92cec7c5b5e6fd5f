//! A protocol of the tests that uses the parts of the contract which no shipped protocol needs yet: streams that follow
//! no run, streams over several runs, pages of sessions, interruption of a busy session, seals, trailers, and
//! WebSockets with state and parallel messages.
//!
//! Not here: protocols that exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use interlingua_core::call::{
    Busy, Listen, ListenSession, Notice, Order, Reply, SessionCall, SessionCursor, SessionFilter, Target,
};
use interlingua_core::exchange::{Connection, Endpoint, Mount, Mounted, Request, WebSocketRules};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::options::NoOptions;
use interlingua_core::owner::Owner;
use interlingua_core::seal::Sealer;
use interlingua_core::step::Step;
use interlingua_core::{
    Call, Delivery, Event, Exchange, Fault, FaultKind, Flow, Next, Out, ProtocolAdapter, RunCall, RunId, RunPolicy,
    Thread,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The protocol's name.
pub const CONTRACT: &str = "contract";

/// The protocol.
pub struct Contract;

/// The purpose of the seals.
const PURPOSE: &str = "test";

impl ProtocolAdapter for Contract {
    const NAME: &'static str = CONTRACT;
    type Options = NoOptions;

    fn mount(mount: &Mount, _: NoOptions) -> Result<Mounted, String> {
        let agent: Arc<str> = mount.agents[0].name.as_str().into();
        let open = move |operation| {
            let agent = Arc::clone(&agent);
            move || ContractExchange::new(&agent, operation)
        };
        let (message, connections) = (open(Operation::Message), Arc::new(AtomicU64::new(0)));
        let connect = move || -> Box<dyn Connection> {
            let number = connections.fetch_add(1, Ordering::Relaxed);
            Box::new(Counting { number, messages: AtomicU64::new(0), open: Box::new(message.clone()) })
        };
        let rules = WebSocketRules { parallel: 3, max_lifetime: None, connect: Some(Box::new(connect)) };

        let endpoints = vec![
            Endpoint::post("/runs", open(Operation::Run)),
            Endpoint::get("/sessions", open(Operation::Sessions)),
            Endpoint::get("/listen", open(Operation::Listen)),
            Endpoint::get("/follow", open(Operation::Follow)),
            Endpoint::post_text("/seal", open(Operation::Seal)),
            Endpoint::post_text("/open", open(Operation::Open)),
            Endpoint { http2_only: true, ..Endpoint::post("/trailers", open(Operation::Trailers)) },
            Endpoint { websocket: Some(rules), ..Endpoint::get("/socket", open(Operation::Message)) },
        ];
        let fallback = open(Operation::Seal);
        Ok(Mounted::new(endpoints, Box::new(move || Box::new(fallback()))))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Run,
    Sessions,
    Listen,
    Follow,
    Seal,
    Open,
    Trailers,
    Message,
}

/// A connection that counts its messages.
struct Counting {
    number: u64,
    messages: AtomicU64,
    open: Box<dyn Fn() -> ContractExchange + Send>,
}

impl Connection for Counting {
    fn open(&self) -> Box<dyn Exchange> {
        let message = self.messages.fetch_add(1, Ordering::Relaxed);
        Box::new(ContractExchange { place: Some((self.number, message)), ..(self.open)() })
    }
}

/// A request that starts a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunBody {
    session: Option<String>,
    text: String,
    #[serde(default)]
    busy: String,
    #[serde(default)]
    stream: bool,
}

struct ContractExchange {
    agent: Arc<str>,
    operation: Operation,
    /// The session of a stream, and its latest run.
    session: Option<String>,
    latest: Option<RunId>,
    /// The call with which a stream continues.
    next: Option<Call>,
    /// The result of an operation that needs no answer of the engine.
    result: Value,
    /// The numbers of the connection and of the message.
    place: Option<(u64, u64)>,
}

impl ContractExchange {
    fn new(agent: &Arc<str>, operation: Operation) -> Self {
        let agent = Arc::clone(agent);
        Self { agent, operation, session: None, latest: None, next: None, result: Value::Null, place: None }
    }

    fn run(&self, body: &[u8]) -> Result<Call, Fault> {
        let body: RunBody = serde_json::from_slice(body)
            .map_err(|error| Fault::new(FaultKind::Invalid, format!("the body is not valid: {error}")))?;
        let input = vec![Message::user(&body.text)].into();
        let mut call = RunCall::new(&*self.agent, AgentRequest { input, ..AgentRequest::default() });
        call.thread = body.session.map_or(Thread::New, Thread::Session);
        call.delivery = if body.stream { Delivery::Stream } else { Delivery::Background };
        call.policy = RunPolicy::background().with_busy(match &*body.busy {
            "interrupt" => Busy::Interrupt,
            "rollback" => Busy::Rollback,
            "refuse" => Busy::Refuse,
            _ => Busy::Queue,
        });
        Ok(Call::Run(Box::new(call)))
    }

    fn listen(&self) -> Call {
        let session = self.session.clone().map(|session| ListenSession {
            agent: self.agent.to_string(),
            session,
            user: None,
            after: self.latest,
        });
        Call::Listen(Listen { agents: session.is_none(), session })
    }

    fn write(&self, out: &mut Out, mut value: Value) {
        match self.place {
            Some((connection, message)) => {
                value["connection"] = connection.into();
                value["message"] = message.into();
                out.write_json(&value);
                out.write_raw(b"\n");
            }
            None => out.frame(None, &value),
        }
    }
}

fn sessions(request: &Request<'_>) -> Result<Call, Fault> {
    let invalid = |name: &str| Fault::new(FaultKind::Invalid, format!("'{name}' is not valid"));
    let cursor = request.query("after").map(|after| {
        let (at, rest) = after.split_once('/').ok_or_else(|| invalid("after"))?;
        let (agent, id) = rest.split_once('/').ok_or_else(|| invalid("after"))?;
        let at = at.parse().map_err(|_| invalid("after"))?;
        Ok::<_, Fault>(SessionCursor { at, agent: agent.to_owned(), id: id.to_owned() })
    });
    let limit = request.query("limit").map(|limit| limit.parse().map_err(|_| invalid("limit")));
    Ok(Call::Session(SessionCall::List(SessionFilter {
        agent: request.query("agent").map(Into::into),
        order: if request.query("newest").is_some() { Order::NewestFirst } else { Order::OldestFirst },
        limit: limit.transpose()?.unwrap_or(0),
        cursor: cursor.transpose()?,
        ..SessionFilter::default()
    })))
}

fn sealed(sealer: &Sealer, owner: &Owner, operation: Operation, text: &str) -> Result<Value, Fault> {
    if operation == Operation::Seal {
        return sealer.seal(PURPOSE, owner, text.as_bytes()).map(Value::from);
    }
    let opened = sealer.open(PURPOSE, owner, text)?;
    Ok(opened.map_or(Value::Null, |data| String::from_utf8_lossy(&data).into()))
}

impl Exchange for ContractExchange {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        match self.operation {
            Operation::Run | Operation::Trailers | Operation::Message => self.run(request.body),
            Operation::Sessions => sessions(request),
            Operation::Listen => {
                self.session = request.query("session").map(Into::into);
                Ok(self.listen())
            }
            Operation::Follow => {
                let run = request.query("run").and_then(|run| RunId::parse(&run));
                let run = run.ok_or_else(|| Fault::new(FaultKind::Invalid, "'run' is not valid"))?;
                Ok(Call::Follow(Target::Run(run)))
            }
            Operation::Seal | Operation::Open => {
                let text = String::from_utf8_lossy(request.body);
                self.result = sealed(request.sealer, &request.caller.owner, self.operation, &text)?;
                Ok(Call::Describe)
            }
        }
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => {
                let run = view.run();
                out.json(&json!({ "run": run.id.to_string(), "session": run.session_id }));
                out.trailer("status", "replied");
            }
            Reply::Sessions(page) => out.json(&json!({
                "sessions": page.sessions.iter().map(|session| &session.id).collect::<Vec<_>>(),
                "total": page.total,
                "next": page.next.as_ref().map(|next| format!("{}/{}/{}", next.at, next.agent, next.id)),
            })),
            Reply::Agents(_) => out.json(&self.result),
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        out.status(fault.kind.status());
        if self.operation == Operation::Trailers {
            out.trailer("status", fault.code());
            return;
        }
        if self.place.is_some() {
            return self.write(out, json!({ "code": fault.code() }));
        }
        out.json(&json!({ "code": fault.code(), "message": fault.message }));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match step.event {
            Event::ContentDelta { .. } => self.write(out, json!({ "delta": step.delta() })),
            Event::AnswerStarted { turn } => {
                if let Some(run) = step.run.turns[turn as usize].answered_by {
                    self.write(out, json!({ "answered_by": run.to_string() }));
                    self.next = Some(Call::Follow(Target::Run(run)));
                    return Flow::Next;
                }
            }
            Event::RunFinished { .. } => {
                out.trailer("status", "streamed");
                self.latest = Some(step.run.id);
                self.write(out, json!({ "end": step.run.id.to_string() }));
                if self.session.is_some() {
                    self.next = Some(self.listen());
                    return Flow::Next;
                }
                return Flow::Close;
            }
            _ => {}
        }
        Flow::More
    }

    fn on_notice(&mut self, notice: Notice, out: &mut Out) -> Flow {
        match notice {
            Notice::Begin => self.write(out, json!({ "notice": "begin" })),
            Notice::Agents => self.write(out, json!({ "notice": "agents" })),
            Notice::Run(run) => {
                self.write(out, json!({ "notice": "run", "run": run.to_string() }));
                self.next = Some(Call::Follow(Target::Run(run)));
                return Flow::Next;
            }
        }
        Flow::More
    }

    fn next_call(&mut self) -> Option<Call> {
        self.next.take()
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        out.trailer("status", fault.code());
        self.write(out, json!({ "code": fault.code() }));
    }
}
