//! Background tasks and stopping, as the runtime and the applications on it have them (Agent API, section 10).

use std::sync::Arc;

use interlingua_core::call::{Call, Delivery, Filter, Reply, RunState, RunView, Target};
use interlingua_core::event::Step;
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, FaultKind, Out, Request, RunId};
use serde::{Serialize, Serializer};

use crate::frames;
use crate::process::run_call;
use crate::{Route, Terminal, body, fault, runs};

/// `POST /process/task`. Unlike the runtime, which says 200 to everything, it refuses what cannot be run.
pub(crate) struct Submit {
    route: Arc<Route>,
}

impl Submit {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route) }
    }
}

impl Exchange for Submit {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let object = body::object(request)?;
        let mut asked = AgentRequest::parse(&object)?;
        // Read and not honoured: how long an agent may take is the operator's to say.
        object.number("timeout")?;
        asked.extra.remove("timeout");
        Ok(run_call(&self.route, asked, Delivery::Background))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => out.json(&Submitted {
                task_id: view.run().id.to_string(),
                status: "submitted",
                queue: "stream_query",
                message: "Stream query task submitted successfully",
            }),
            Reply::Waiting(view) => fault::write_waiting(view, out),
            reply => return Err(fault::unexpected(&reply)),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

#[derive(Serialize)]
struct Submitted {
    task_id: String,
    status: &'static str,
    queue: &'static str,
    message: &'static str,
}

/// `GET /process/task/{id}`
pub(crate) struct Poll {
    route: Arc<Route>,
    asked: String,
}

impl Poll {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), asked: String::new() }
    }
}

impl Exchange for Poll {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.asked = request.param("id").to_owned();
        Ok(Call::Fetch(Target::Run(runs::run_id(request)?)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(fault::unexpected(&reply)) };
        let terminal = self.route.options.terminal;
        match view.info.state {
            RunState::Queued => out.json(&Unfinished { status: "pending", started_at: None }),
            RunState::Running => {
                let started_at = view.run().turns.first().map(|turn| turn.started_at / 1000);
                out.json(&Unfinished { status: "running", started_at });
            }
            // A run of another protocol that waits is shown as its last turn left it.
            RunState::Waiting | RunState::WaitingForAuth | RunState::Ended(_) => {
                out.json(&Finished { status: "finished", result: Whole { terminal, view } })
            }
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if fault.kind != FaultKind::NotFound {
            return fault::write(fault, out);
        }
        // As clients of the runtime expect it.
        out.status(200);
        out.json(&Unknown { error: format!("Task {} not found", self.asked) });
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

#[derive(Serialize)]
struct Unfinished {
    status: &'static str,
    /// Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<u64>,
}

#[derive(Serialize)]
struct Finished<'a> {
    status: &'static str,
    result: Whole<'a>,
}

/// The final response, which may itself have failed.
struct Whole<'a> {
    terminal: Terminal,
    view: RunView<'a>,
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        frames::with_response(self.terminal, self.view, |response| response.serialize(serializer))
    }
}

#[derive(Serialize)]
struct Unknown {
    error: String,
}

/// `POST /stop`: ends what runs in a session and what waits for its turn there, and withdraws what it asks. A session
/// with nothing to stop, or none at all, is a success too.
#[derive(Default)]
pub(crate) struct Stop {
    /// What is still to be stopped, the next one last.
    left: Vec<RunId>,
    /// The session, until its latest run was let go of: one that has ended may still ask something.
    session: Option<String>,
}

impl Stop {
    fn latest(&mut self) -> Target {
        Target::Latest(self.session.take().unwrap_or_default())
    }

    fn next(&mut self, out: &mut Out) -> Next {
        match self.left.pop() {
            Some(run) => Next::Call(Call::Cancel(Target::Run(run))),
            None if self.session.is_some() => Next::Call(Call::Cancel(self.latest())),
            None => {
                out.status(200);
                out.json(&Stopped { status: "success", message: "nothing runs in the session any more" });
                Next::Done
            }
        }
    }
}

impl Exchange for Stop {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        /// More turns do not queue for one session.
        const MOST: usize = 100;
        let object = body::object(request)?;
        // The owner is who asks; whoever else a request names has no say.
        object.string("user_id")?;
        let session = object.required("session_id")?.string()?.into_owned();
        self.session = Some(session.clone());
        let states = vec![RunState::Queued, RunState::Running, RunState::Waiting, RunState::WaitingForAuth];
        Ok(Call::List(Filter { session: Some(session), states, limit: MOST, heads: true, ..Filter::default() }))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Runs(page) => {
                // Those that wait are stopped first: none of them is to have its turn when the one under way ends.
                let (waiting, working): (Vec<RunView<'_>>, Vec<RunView<'_>>) =
                    page.runs.iter().copied().partition(|view| view.info.state == RunState::Queued);
                self.left = working.into_iter().chain(waiting).map(|view| view.run().id).collect();
            }
            Reply::Run(_) => {}
            reply => return Err(fault::unexpected(&reply)),
        }
        Ok(self.next(out))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        // Gone since it was listed.
        if let Some(run) = self.left.pop() {
            return Some(Call::Cancel(Target::Run(run)));
        }
        self.session.is_some().then(|| Call::Cancel(self.latest()))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if fault.kind != FaultKind::NotFound {
            return fault::write(fault, out);
        }
        // What was looked for last is not there: nothing is left.
        *self = Self::default();
        self.next(out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

#[derive(Serialize)]
struct Stopped {
    status: &'static str,
    message: &'static str,
}
