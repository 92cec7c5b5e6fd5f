//! The exchanges: decode a client's request in any dialect, encode the response.
//!
//! One [`A2aExchange`] handles one request. `rpc` and `rest` decode the operation of their binding, one module per
//! group of operations runs it, `writer` encodes the response. Not here: building tasks (`crate::encode::task`).

mod claim;
mod fallback;
mod list;
pub(crate) mod notifications;
mod params;
mod push;
mod rest;
mod rpc;
mod send;
mod stream;
mod template;
mod writer;

use std::sync::Arc;

use interlingua_core::answer::{NOT_TAKEN, UNDECIDED};
use interlingua_core::call::{Call, Reply, RunState, RunView, Target};
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::out::Head;
use interlingua_core::step::Step;
use interlingua_core::{Event, Fault, FaultKind, Out, Request, RunId};

pub(crate) use fallback::Fallback;
pub(crate) use push::{COLLECTION, Config};
pub(crate) use rest::REST;

use crate::Route;
use crate::card;
use crate::dialect::{Binding, Dialect, Generation, Operation};
use crate::encode::task::{self, TaskDetail};
use crate::encode::updates::Updates;
use crate::errors::{self, Problem};
use crate::losses;
use crate::wire::{EncodedValue, read};
use params::Params;
use stream::Streaming;
use writer::Writer;

/// One request and its response.
pub(crate) struct A2aExchange {
    route: Arc<Route>,
    entry_point: EntryPoint,
    writer: Writer,
    /// Tenant from path or body.
    tenant: Option<String>,
    /// Agent of the tenant, else the first agent of the route.
    agent: String,
    state: OperationState,
    streaming: Option<Streaming>,
    losses: Losses,
}

/// The binding a request came in on.
#[derive(Clone, Copy)]
enum EntryPoint {
    Rpc,
    Rest(Generation, Operation),
}

/// Progress of an operation between calls to the engine.
enum OperationState {
    /// Not decoded yet, or done.
    Idle,
    Get(TaskDetail),
    /// `true` once the run was found and its cancellation requested.
    Cancel(RunId, bool),
    /// Waiting for the run, to attach to it.
    Subscribe(RunId),
    List(list::ListOperation),
    Send(Box<send::SendOperation>),
    Push(push::PushOperation),
    ExtendedCard(String),
}

impl A2aExchange {
    /// An exchange of the JSON-RPC endpoint.
    pub(crate) fn rpc(route: &Arc<Route>) -> Self {
        Self::new(route, EntryPoint::Rpc, Binding::JsonRpc, Generation::V1)
    }

    /// An exchange of a REST endpoint.
    pub(crate) fn rest(route: &Arc<Route>, generation: Generation, operation: Operation) -> Self {
        Self::new(route, EntryPoint::Rest(generation, operation), Binding::Rest, generation)
    }

    fn new(route: &Arc<Route>, entry_point: EntryPoint, binding: Binding, generation: Generation) -> Self {
        Self {
            route: Arc::clone(route),
            entry_point,
            writer: Writer::new(Dialect { binding, generation }),
            tenant: None,
            agent: route.agents[0].name.clone(),
            state: OperationState::Idle,
            streaming: None,
            losses: Losses::new(),
        }
    }

    /// Runs the checks common to all operations, then starts the operation.
    fn begin_operation(
        &mut self,
        operation: Operation,
        params: Result<Params<'_>, Fault>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        self.writer.operation = Some(operation);
        self.activate_extensions(request)?;
        self.check_capabilities(operation, params.as_ref().ok(), request)?;

        let params = &params?;
        self.resolve_tenant(params)?;
        if !matches!(operation, Operation::Send | Operation::Stream | Operation::ExtendedCard) {
            // Sending validates metadata together with the message.
            read::json_object(&params.object, "metadata")?;
        }

        match operation {
            Operation::Send | Operation::Stream => self.start_send(operation == Operation::Stream, params, request),
            Operation::Get => {
                let id = self.set_task(params.required("id", "id")?);
                self.state = OperationState::Get(TaskDetail::full(params.history_length()?));
                Ok(Call::Fetch(Target::Run(params::task_id(&id)?)))
            }
            Operation::Cancel => {
                let id = params::task_id(&self.set_task(params.required("id", "id")?))?;
                self.state = OperationState::Cancel(id, false);
                Ok(Call::Fetch(Target::Run(id)))
            }
            Operation::Subscribe => {
                let id = params::task_id(&self.set_task(params.required("id", "id")?))?;
                self.state = OperationState::Subscribe(id);
                Ok(Call::Fetch(Target::Run(id)))
            }
            Operation::List => self.start_list(params),
            Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush => {
                self.start_push(operation, params, request)
            }
            Operation::ExtendedCard => {
                self.state = OperationState::ExtendedCard(self.route.url(request.base_url));
                Ok(self.route.upstream_card_call())
            }
        }
    }

    /// Checks that the route supports the operation. Runs before parameter validation
    /// (docs/protocols/a2a.md#reading-requests).
    fn check_capabilities(
        &self,
        operation: Operation,
        params: Option<&Params<'_>>,
        request: &Request<'_>,
    ) -> Result<(), Fault> {
        use Operation as O;
        let options = &self.route.options;
        let pushes = match operation {
            O::SetPush | O::GetPush | O::ListPush | O::DeletePush => true,
            O::Send | O::Stream => params.is_some_and(send::wants_push),
            O::ExtendedCard if self.route.extended_card().is_none() => {
                return Err(errors::fault(Problem::UnsupportedOperation, "there is no extended card"));
            }
            O::ExtendedCard if !request.caller.authenticated => {
                return Err(Fault::new(FaultKind::Unauthenticated, "the extended card needs credentials"));
            }
            _ => false,
        };

        if pushes && !options.push {
            return Err(errors::fault(Problem::PushNotSupported, "push notifications are off"));
        }
        Ok(())
    }

    /// Stores the task id of the request, for error responses.
    fn set_task(&mut self, id: String) -> String {
        self.writer.task = Some(id.clone());
        id
    }

    /// Activates the extensions that the client lists and the card declares (docs/protocols/a2a.md#extensions).
    fn activate_extensions(&mut self, request: &Request<'_>) -> Result<(), Fault> {
        let listed = ["a2a-extensions", "x-a2a-extensions"].into_iter().filter_map(|name| request.header(name));
        let listed: Vec<&str> = listed.flat_map(|value| value.split(',')).map(str::trim).collect();

        for extension in &self.route.options.extensions {
            if listed.contains(&extension.uri.as_str()) {
                self.writer.extensions.push(extension.uri.clone());
            } else if extension.required {
                let problem = if self.writer.dialect.is_v03() {
                    Problem::UnsupportedOperation
                } else {
                    Problem::ExtensionRequired
                };
                return Err(errors::fault(problem, format!("the extension '{}' is required", extension.uri)));
            }
        }
        Ok(())
    }

    /// Determines the tenant and its agent (docs/protocols/a2a.md#tenants-and-authentication).
    fn resolve_tenant(&mut self, params: &Params<'_>) -> Result<(), Fault> {
        let in_path = params.path("tenant");
        if self.writer.dialect.is_v03() {
            return self.select_agent(None);
        }

        let in_body = params.text("tenant")?;
        if let (Some(path), Some(in_body)) = (in_path, &in_body)
            && path != in_body
        {
            return Err(Fault::invalid("tenant", "path and body name different tenants"));
        }

        let tenant = in_path.map(str::to_owned).or(in_body);
        self.select_agent(tenant.as_deref())?;
        self.tenant = tenant;
        Ok(())
    }

    fn select_agent(&mut self, tenant: Option<&str>) -> Result<(), Fault> {
        let tenants = &self.route.options.tenants;
        match tenant {
            None => Ok(()),
            // Its paths would collide with the /v1 prefix of 0.3.
            Some("v1") => Err(Fault::invalid("tenant", "must not be 'v1'")),
            Some(tenant) if tenant.chars().any(char::is_control) || tenant.len() > 256 => {
                Err(Fault::invalid("tenant", "must have at most 256 bytes, and no control characters"))
            }
            Some(_) if tenants.is_empty() => Ok(()),
            Some(tenant) => {
                let agent = tenants.get(tenant).ok_or_else(|| Fault::invalid("tenant", "no such tenant"))?;
                self.agent.clone_from(agent);
                Ok(())
            }
        }
    }

    /// Checks that a run is a task of this route.
    fn check_visible(&self, view: RunView<'_>) -> Result<(), Fault> {
        if self.route.is_visible(view, &self.agent) {
            Ok(())
        } else {
            Err(errors::fault(Problem::TaskNotFound, "no such task"))
        }
    }

    /// Adds the part's path to an engine fault about an answer; the engine does not know about parts.
    fn with_answer_path(&self, fault: &Fault) -> Option<Fault> {
        let OperationState::Send(operation) = &self.state else { return None };

        let is_about_answer = matches!(fault.code.as_deref(), Some(UNDECIDED | NOT_TAKEN)) && fault.field.is_none();
        is_about_answer.then(|| {
            let mut fault = fault.clone().with_field(operation.answer_path());
            if fault.kind == FaultKind::Conflict {
                // Other answers would be possible, so the parameter is wrong and not the operation.
                fault.kind = FaultKind::Invalid;
            }
            fault
        })
    }

    /// Writes a task as the response.
    fn write_task(&self, view: RunView<'_>, detail: TaskDetail, out: &mut Out) {
        let mut updates = Updates::new(&self.route);
        let task = task::task(&mut updates, &self.route, view, detail);
        self.writer.result(&EncodedValue(&task, self.writer.dialect.wire_format()), out);
    }
}

impl Exchange for A2aExchange {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.writer.read_accept(request);
        match self.entry_point {
            EntryPoint::Rpc => self.decode_rpc(request),
            EntryPoint::Rest(generation, operation) => self.decode_rest(generation, operation, request),
        }
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match (std::mem::replace(&mut self.state, OperationState::Idle), reply) {
            (OperationState::Get(detail), Reply::Run(view)) => {
                self.check_visible(view)?;
                self.write_task(view, detail, out);
                Ok(Next::Done)
            }
            (OperationState::Cancel(id, false), Reply::Run(view)) => {
                self.check_visible(view)?;
                // An ended run of another protocol may still have pending items, which cancel withdraws.
                if matches!(view.info.state, RunState::Ended(_)) && view.pending.is_empty() {
                    return Err(errors::fault(Problem::TaskNotCancelable, "the task has ended"));
                }

                self.state = OperationState::Cancel(id, true);
                Ok(Next::Call(Call::Cancel(Target::Run(id))))
            }
            (OperationState::Cancel(_, true), Reply::Run(view)) => {
                // The run may have ended otherwise before the cancellation.
                let is_own = view.info.protocol == crate::NAME;
                if is_own && view.info.state != RunState::Ended(interlingua_core::End::Canceled) {
                    return Err(errors::fault(Problem::TaskNotCancelable, "the task has ended"));
                }
                self.write_task(view, TaskDetail::full(None), out);
                Ok(Next::Done)
            }
            (OperationState::Subscribe(id), Reply::Run(view)) => {
                self.check_visible(view)?;
                if matches!(view.info.state, RunState::Ended(_)) {
                    return Err(errors::fault(Problem::UnsupportedOperation, "the task has ended"));
                }
                self.streaming = Some(Streaming::for_subscriber(&self.route));
                Ok(Next::Call(Call::Attach(Target::Run(id))))
            }
            (OperationState::List(operation), Reply::Runs(page)) => {
                self.write_list(&operation, &page, out);
                Ok(Next::Done)
            }
            (OperationState::Send(operation), reply) => self.continue_send(operation, reply, out),
            (OperationState::Push(operation), reply) => self.continue_push(operation, reply, out),
            (OperationState::ExtendedCard(url), reply) => {
                let variant = match self.writer.dialect.generation {
                    Generation::V1 => card::Variant::V1,
                    Generation::V03 => card::Variant::V03,
                };
                let fetched = if let Reply::FetchedDocument(fetched) = reply { fetched } else { None };

                let card = self.route.card(variant, &url, self.route.extended_card(), fetched);
                out.header("cache-control", "private");
                self.writer.result(&card, out);
                Ok(Next::Done)
            }
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault_with_path = self.with_answer_path(fault);
        self.writer.fail(fault_with_path.as_ref().unwrap_or(fault), &self.route.options.versions, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.writer.stream_head(head);
    }

    fn begin(&mut self, view: RunView<'_>, out: &mut Out) {
        if let Some(streaming) = &mut self.streaming {
            streaming.begin(&self.route, view, &self.writer, out);
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match &mut self.streaming {
            Some(streaming) => {
                if matches!(step.event, Event::TurnFinished { .. }) && !streaming.is_subscription() {
                    losses::note(step.run, &self.route.options, &mut self.losses);
                }
                streaming.encode(step, &self.writer, out)
            }
            None => Flow::Close,
        }
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.writer.interrupt(fault, &self.route.options.versions, out);
    }

    fn partition(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}
