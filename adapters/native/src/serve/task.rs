//! Background tasks and stopping a session, as in the runtime and the applications built on it
//! (docs/protocols/agent-api.md#sessions-and-background-tasks).

use std::sync::Arc;

use interlingua_core::call::{Call, Delivery, Filter, Reply, RunState, RunView, Target};
use interlingua_core::exchange::{Exchange, Next};
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, FaultKind, Out, Request, RunId};
use serde::{Serialize, Serializer};

use crate::decode::body;
use crate::decode::run_id::run_id;
use crate::encode::frames;
use crate::serve::fault;
use crate::serve::process::run_call;
use crate::{ResponseForm, Route};

/// `POST /process/task`. Unlike the runtime, which accepts everything with 200, it refuses invalid requests.
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
        let mut agent_request = AgentRequest::parse(&object)?;

        // Checked but ignored: the operator sets the time limits of an agent.
        object.number("timeout")?;
        agent_request.extra.remove("timeout");
        Ok(run_call(&self.route, agent_request, Delivery::Background))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => out.json(&SubmittedTask {
                task_id: view.run().id.to_string(),
                status: "submitted",
                queue: "stream_query",
                message: "Stream query task submitted successfully",
            }),
            Reply::Waiting(view, _) => fault::write_waiting(view, out),
            reply => return Err(fault::unexpected(&reply)),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}

#[derive(Serialize)]
struct SubmittedTask {
    task_id: String,
    status: &'static str,
    queue: &'static str,
    message: &'static str,
}

/// `GET /process/task/{id}`
pub(crate) struct Poll {
    route: Arc<Route>,
    /// The id in the path, as the client sent it.
    id: String,
    form: ResponseForm,
}

impl Poll {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { id: String::new(), form: route.form(), route: Arc::clone(route) }
    }
}

impl Exchange for Poll {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.id = request.param("id").to_owned();
        self.form = self.route.form_of(request)?;
        Ok(Call::Fetch(Target::Run(run_id(request)?)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(fault::unexpected(&reply)) };
        let form = self.form;

        match view.info.state {
            RunState::Queued => out.json(&UnfinishedTask { status: "pending", started_at: None }),
            RunState::Running => {
                let started_at = view.run().turns.first().map(|turn| turn.started_at / 1000);
                out.json(&UnfinishedTask { status: "running", started_at });
            }
            // Only runs of other protocols can be waiting. They are reported with the end of their last turn.
            RunState::Waiting | RunState::WaitingForAuth | RunState::Ended(_) => {
                out.json(&FinishedTask { status: "finished", result: FinalResponse { form, view } })
            }
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if fault.kind != FaultKind::NotFound {
            return fault::write(fault, out);
        }

        // The runtime answers an unknown task with 200, and its clients expect that.
        out.status(200);
        out.json(&Unknown { error: format!("Task {} not found", self.id) });
    }
}

#[derive(Serialize)]
struct UnfinishedTask {
    status: &'static str,
    /// Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<u64>,
}

#[derive(Serialize)]
struct FinishedTask<'a> {
    status: &'static str,
    result: FinalResponse<'a>,
}

/// The final response; its status may be `failed`.
struct FinalResponse<'a> {
    form: ResponseForm,
    view: RunView<'a>,
}

impl Serialize for FinalResponse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        frames::with_response(self.form, self.view, |response| response.serialize(serializer))
    }
}

#[derive(Serialize)]
struct Unknown {
    error: String,
}

/// `POST /stop`: cancels the running and the queued runs of a session, and withdraws its pending items. It succeeds
/// even if there is nothing to stop or no such session.
#[derive(Default)]
pub(crate) struct Stop {
    /// The runs that are still to be canceled, in reverse order.
    remaining: Vec<RunId>,
    /// The session, until its latest run is canceled: an ended run can still have pending items.
    session: Option<String>,
}

impl Stop {
    fn take_latest(&mut self) -> Target {
        Target::Latest(self.session.take().unwrap_or_default())
    }

    fn next(&mut self, out: &mut Out) -> Next {
        match self.remaining.pop() {
            Some(run) => Next::Call(Call::Cancel(Target::Run(run))),
            None if self.session.is_some() => Next::Call(Call::Cancel(self.take_latest())),
            None => {
                out.status(200);
                out.json(&StoppedTask { status: "success", message: "no run is active in the session" });
                Next::Done
            }
        }
    }
}

impl Exchange for Stop {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        /// A session cannot have more active and queued runs than this.
        const MAX_RUNS: usize = 100;

        let object = body::object(request)?;
        // Checked but ignored: the owner is the caller, whatever user the request names.
        object.string("user_id")?;

        let session = object.required("session_id")?.string()?.into_owned();
        self.session = Some(session.clone());
        let states = vec![RunState::Queued, RunState::Running, RunState::Waiting, RunState::WaitingForAuth];
        Ok(Call::List(Filter { session: Some(session), states, limit: MAX_RUNS, heads: true, ..Filter::default() }))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Runs(page) => {
                // Queued runs are canceled first, so that none of them starts when the active run ends.
                let (queued, active): (Vec<RunView<'_>>, Vec<RunView<'_>>) =
                    page.runs.iter().copied().partition(|view| view.info.state == RunState::Queued);
                self.remaining = active.into_iter().chain(queued).map(|view| view.run().id).collect();
            }
            Reply::Run(_) => {}
            reply => return Err(fault::unexpected(&reply)),
        }
        Ok(self.next(out))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        // The run was deleted after it was listed: continue with the next one.
        if let Some(run) = self.remaining.pop() {
            return Some(Call::Cancel(Target::Run(run)));
        }
        self.session.is_some().then(|| Call::Cancel(self.take_latest()))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if fault.kind != FaultKind::NotFound {
            return fault::write(fault, out);
        }

        // The last target does not exist, so nothing is left to stop.
        *self = Self::default();
        self.next(out);
    }
}

#[derive(Serialize)]
struct StoppedTask {
    status: &'static str,
    message: &'static str,
}
