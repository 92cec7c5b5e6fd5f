//! Exchanges: a client's request in any dialect in, its answer out.
//!
//! One [`Serve`] is one request. `rpc` and `rest` find out what is asked for in their binding, one module for each
//! group of operations carries it out, `write` spells the answer. Not here: what a task is (`crate::task`).

mod fallback;
mod list;
mod params;
mod push;
mod rest;
mod rpc;
mod send;
mod stream;
mod write;

use std::sync::Arc;

use interlingua_core::answer::{NOT_TAKEN, UNDECIDED};
use interlingua_core::call::{Call, Reply, RunState, RunView, Target};
use interlingua_core::event::Step;
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::out::Head;
use interlingua_core::{Fault, FaultKind, Out, Request, RunId};

pub(crate) use fallback::Fallback;
pub(crate) use push::{COLLECTION, Config};
pub(crate) use rest::REST;

use crate::Route;
use crate::card;
use crate::dialect::{Binding, Dialect, Generation, Operation};
use crate::errors::{self, Problem};
use crate::task::{self, Shown};
use crate::updates::Updates;
use crate::wire::{Spelled, read};
use params::Params;
use stream::Streaming;
use write::Writer;

/// One request and its answer.
pub(crate) struct Serve {
    route: Arc<Route>,
    entry: Entry,
    write: Writer,
    /// The tenant, as path or body name it.
    tenant: Option<String>,
    /// The agent of that tenant.
    agent: String,
    doing: Doing,
    streaming: Option<Streaming>,
}

/// How the request came in.
#[derive(Clone, Copy)]
enum Entry {
    Rpc,
    Rest(Generation, Operation),
}

/// How far an operation is.
enum Doing {
    /// Nothing was understood yet, or nothing is left to do.
    Nothing,
    Get(Shown),
    /// `true` once the run was looked at and told to stop.
    Cancel(RunId, bool),
    /// `true` once the run was looked at.
    Subscribe(RunId),
    List(list::Listing),
    Send(Box<send::Sending>),
    Push(push::Pushing),
    ExtendedCard(String),
}

impl Serve {
    /// A request to the JSON-RPC endpoint.
    pub(crate) fn rpc(route: &Arc<Route>) -> Self {
        Self::new(route, Entry::Rpc, Binding::JsonRpc, Generation::V1)
    }

    /// A request to a resource of the REST binding.
    pub(crate) fn rest(route: &Arc<Route>, generation: Generation, operation: Operation) -> Self {
        Self::new(route, Entry::Rest(generation, operation), Binding::Rest, generation)
    }

    fn new(route: &Arc<Route>, entry: Entry, binding: Binding, generation: Generation) -> Self {
        Self {
            route: Arc::clone(route),
            entry,
            write: Writer::new(Dialect { binding, generation }),
            tenant: None,
            agent: route.agents[0].name.clone(),
            doing: Doing::Nothing,
            streaming: None,
        }
    }

    /// What every operation has in common, then the operation itself.
    fn begin_operation(
        &mut self,
        operation: Operation,
        params: Result<Params<'_>, Fault>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        self.write.operation = Some(operation);
        self.extensions(request)?;
        self.capable(operation, params.as_ref().ok(), request)?;
        let params = &params?;
        self.tenant(params)?;
        if !matches!(operation, Operation::Send | Operation::Stream | Operation::ExtendedCard) {
            // That of a message is judged with the message.
            read::json_object(&params.object, "metadata")?;
        }
        match operation {
            Operation::Send | Operation::Stream => self.send(operation == Operation::Stream, params, request),
            Operation::Get => {
                let id = self.subject(params.required("id", "id")?);
                self.doing = Doing::Get(Shown::all(params.history_length()?));
                Ok(Call::Fetch(Target::Run(params::task_id(&id)?)))
            }
            Operation::Cancel => {
                let id = params::task_id(&self.subject(params.required("id", "id")?))?;
                self.doing = Doing::Cancel(id, false);
                Ok(Call::Fetch(Target::Run(id)))
            }
            Operation::Subscribe => {
                let id = params::task_id(&self.subject(params.required("id", "id")?))?;
                self.doing = Doing::Subscribe(id);
                Ok(Call::Fetch(Target::Run(id)))
            }
            Operation::List => self.list(params),
            Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush => {
                self.push(operation, params, request)
            }
            Operation::ExtendedCard => {
                self.doing = Doing::ExtendedCard(self.route.url(request.base_url));
                Ok(self.route.card_call())
            }
        }
    }

    /// Whether the route can do this at all: judged before the parameters are, as far as they can be read (section 7).
    fn capable(&self, operation: Operation, params: Option<&Params<'_>>, request: &Request<'_>) -> Result<(), Fault> {
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

    /// The task a request is about: errors name it.
    fn subject(&mut self, id: String) -> String {
        self.write.task = Some(id.clone());
        id
    }

    /// Activates what the client lists and the card declares (section 12).
    fn extensions(&mut self, request: &Request<'_>) -> Result<(), Fault> {
        let listed = ["a2a-extensions", "x-a2a-extensions"].into_iter().filter_map(|name| request.header(name));
        let listed: Vec<&str> = listed.flat_map(|value| value.split(',')).map(str::trim).collect();
        for extension in &self.route.options.extensions {
            if listed.contains(&extension.uri.as_str()) {
                self.write.extensions.push(extension.uri.clone());
            } else if extension.required {
                let problem = if self.write.dialect.is_old() {
                    Problem::UnsupportedOperation
                } else {
                    Problem::ExtensionRequired
                };
                return Err(errors::fault(problem, format!("the extension '{}' is required", extension.uri)));
            }
        }
        Ok(())
    }

    /// The tenant, and the agent it stands for (section 12).
    fn tenant(&mut self, params: &Params<'_>) -> Result<(), Fault> {
        let in_path = params.path("tenant");
        if self.write.dialect.is_old() {
            return self.agent_of(None);
        }
        let told = params.text("tenant")?;
        if let (Some(path), Some(told)) = (in_path, &told)
            && path != told
        {
            return Err(Fault::invalid("tenant", "path and body name different tenants"));
        }
        let tenant = in_path.map(str::to_owned).or(told);
        self.agent_of(tenant.as_deref())?;
        self.tenant = tenant;
        Ok(())
    }

    fn agent_of(&mut self, tenant: Option<&str>) -> Result<(), Fault> {
        let tenants = &self.route.options.tenants;
        match tenant {
            None => Ok(()),
            // Its paths would be those of 0.3.
            Some("v1") => Err(Fault::invalid("tenant", "'v1' is no tenant")),
            Some(tenant) if tenant.chars().any(char::is_control) || tenant.len() > 256 => {
                Err(Fault::invalid("tenant", "must have at most 256 characters, and no control characters"))
            }
            Some(_) if tenants.is_empty() => Ok(()),
            Some(tenant) => {
                let agent = tenants.get(tenant).ok_or_else(|| Fault::invalid("tenant", "no such tenant"))?;
                self.agent.clone_from(agent);
                Ok(())
            }
        }
    }

    /// Judges whether a run is a task of this route.
    fn visible(&self, view: RunView<'_>) -> Result<(), Fault> {
        if self.route.shows(view, &self.agent) {
            Ok(())
        } else {
            Err(errors::fault(Problem::TaskNotFound, "no such task"))
        }
    }

    /// What the engine says of an answer, with the place the answer stands in: the engine knows no parts.
    fn placed(&self, fault: &Fault) -> Option<Fault> {
        let Doing::Send(sending) = &self.doing else { return None };
        let about_answer = matches!(fault.code.as_deref(), Some(UNDECIDED | NOT_TAKEN)) && fault.field.is_none();
        about_answer.then(|| fault.clone().with_field(sending.answer_path()))
    }

    /// Writes a task alone.
    fn write_task(&self, view: RunView<'_>, shown: Shown, out: &mut Out) {
        let mut updates = Updates::new(&self.route);
        let task = task::task(&mut updates, &self.route, view, shown);
        self.write.result(&Spelled(&task, self.write.dialect.form()), out);
    }
}

impl Exchange for Serve {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.write.hears(request);
        match self.entry {
            Entry::Rpc => self.decode_rpc(request),
            Entry::Rest(generation, operation) => self.decode_rest(generation, operation, request),
        }
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match (std::mem::replace(&mut self.doing, Doing::Nothing), reply) {
            (Doing::Get(shown), Reply::Run(view)) => {
                self.visible(view)?;
                self.write_task(view, shown, out);
                Ok(Next::Done)
            }
            (Doing::Cancel(id, false), Reply::Run(view)) => {
                self.visible(view)?;
                // A run of another protocol that has ended may still ask something: that is withdrawn.
                if matches!(view.about.state, RunState::Ended(_)) && view.pending.is_empty() {
                    return Err(errors::fault(Problem::TaskNotCancelable, "the task has ended"));
                }
                self.doing = Doing::Cancel(id, true);
                Ok(Next::Call(Call::Cancel(Target::Run(id))))
            }
            (Doing::Cancel(_, true), Reply::Run(view)) => {
                // It may have ended another way just before.
                let is_own = view.about.protocol == crate::NAME;
                if is_own && view.about.state != RunState::Ended(interlingua_core::End::Canceled) {
                    return Err(errors::fault(Problem::TaskNotCancelable, "the task has ended"));
                }
                self.write_task(view, Shown::all(None), out);
                Ok(Next::Done)
            }
            (Doing::Subscribe(id), Reply::Run(view)) => {
                self.visible(view)?;
                if matches!(view.about.state, RunState::Ended(_)) {
                    return Err(errors::fault(Problem::UnsupportedOperation, "the task has ended"));
                }
                self.streaming = Some(Streaming::subscribed(&self.route));
                Ok(Next::Call(Call::Attach(Target::Run(id))))
            }
            (Doing::List(listing), Reply::Runs(page)) => {
                self.write_list(&listing, &page, out);
                Ok(Next::Done)
            }
            (Doing::Send(sending), reply) => self.sent(sending, reply, out),
            (Doing::Push(pushing), reply) => self.pushed(pushing, reply, out),
            (Doing::ExtendedCard(url), reply) => {
                let variant = match self.write.dialect.generation {
                    Generation::V1 => card::Variant::V1,
                    Generation::V03 => card::Variant::V03,
                };
                let published = if let Reply::FetchedDocument(published) = reply { published } else { None };
                let card = self.route.card(variant, &url, self.route.extended_card(), published);
                out.header("cache-control", "private");
                self.write.result(&card, out);
                Ok(Next::Done)
            }
            _ => Err(Fault::new(FaultKind::Internal, "the answer fits no question")),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let placed = self.placed(fault);
        self.write.fail(placed.as_ref().unwrap_or(fault), &self.route.options.versions, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.write.stream_head(head);
    }

    fn begin(&mut self, view: RunView<'_>, out: &mut Out) {
        if let Some(streaming) = &mut self.streaming {
            streaming.begin(&self.route, view, &self.write, out);
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match &mut self.streaming {
            Some(streaming) => streaming.take(step, &self.write, out),
            None => Flow::Close,
        }
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.write.interrupt(fault, &self.route.options.versions, out);
    }

    fn partition(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}
