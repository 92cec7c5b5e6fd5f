//! `POST /v1/messages` (docs/protocols/anthropic-messages.md#request).

use std::sync::Arc;

use interlingua_adapter_kit::fallback::ErrorWriter as _;
use interlingua_adapter_kit::model_options::Disconnect;
use interlingua_core::answer::chat::Marker;
use interlingua_core::answer::{self, Answer, AnswerBody, AnswerPolicy};
use interlingua_core::call::{Otherwise, Resent, RunView, Target as RunTarget};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::out::Head;
use interlingua_core::pending::PendingKind;
use interlingua_core::policy::RunPolicy;
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Delivery, Fault, FaultKind, Json, Next, Out, Reply, Request, RunCall, RunId, Step, Thread,
};

use super::{MountedRoute, ResponseHeaders};
use crate::decode::{self, MessagesRequest, Purpose, ThreadParam, thread_not_found};
use crate::echo::Echo;
use crate::encode::{self, BlockTarget, Encoder};
use crate::fault::ApiError;
use crate::judge::Judge;
use crate::wire::{self, MESSAGE_PREFIX};

/// Creates a message.
pub(crate) struct Create {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    run: Option<RunId>,
    /// The session that the request names.
    session: Option<String>,
    /// Until the agent is called.
    request: Option<MessagesRequest>,
    echo: Echo,
    agent: String,
    stream: bool,
    /// The run that the thread continues, while it is looked up or called.
    continues: Option<RunId>,
    /// The positions of results of unknown calls in the request.
    orphans: Vec<(String, String)>,
    encoder: Option<Encoder>,
    /// The losses of the request, and of an answer that is not streamed.
    losses: Losses,
}

impl Create {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self {
            shared,
            headers: ResponseHeaders::default(),
            run: None,
            session: None,
            request: None,
            echo: Echo::default(),
            agent: String::new(),
            stream: false,
            continues: None,
            orphans: Vec::new(),
            encoder: None,
            losses: Losses::new(),
        }
    }

    fn target(&self) -> BlockTarget {
        if self.stream { BlockTarget::Stream } else { BlockTarget::Whole }
    }

    /// The call of the agent, but for its place in a conversation.
    fn run_call(&mut self, mut request: MessagesRequest) -> RunCall {
        let options = &self.shared.options;
        let preamble = request.preamble();
        let MessagesRequest { echo, request, .. } = request;

        let mut call = RunCall::new(self.agent.clone(), request);
        call.id = self.run;
        call.preamble = preamble;
        call.delivery = if self.stream { Delivery::Stream } else { Delivery::Collect };
        let detached = options.disconnect == Disconnect::Detach;
        call.policy = RunPolicy::attached().with_detached(detached).with_busy(options.busy.into());
        call.answer_policy = AnswerPolicy {
            asking: options.asker().policy(&|name| echo.declares(name)),
            asks_again: true,
            ..AnswerPolicy::default()
        };
        call.labels = Json::from_serialize(&echo);
        self.echo = echo;
        call
    }

    /// A request that holds the whole conversation.
    fn begin_conversation(&mut self, mut request: MessagesRequest) -> Call {
        let conversation = std::mem::take(&mut request.conversation);
        let mut call = self.run_call(request);
        for orphan in conversation.orphans {
            call.answers.push(Answer::new(orphan.call_id.clone(), AnswerBody::Text(orphan.output)));
            self.orphans.push((orphan.call_id, orphan.path));
        }
        call.request.input = conversation.input.into();

        let judge = Arc::new(Judge::new(Arc::clone(&self.shared), conversation.last));
        let mut resent = Resent::new(conversation.history, judge);
        resent.session = self.session.take();
        resent.otherwise = Otherwise::NewSession;
        resent.in_words = conversation.in_words;
        call.thread = Thread::Resent(Box::new(resent));
        Call::Run(Box::new(call))
    }

    /// A request that holds only what is new in a thread: its tools and instructions are those of the thread.
    fn continue_thread(&mut self, view: RunView<'_>) -> Result<Call, Fault> {
        let Some(mut request) = self.request.take() else { return Err(Fault::unexpected_reply()) };
        let previous = view.run();
        let id = previous.id.to_prefixed(MESSAGE_PREFIX);
        let before = Echo::from_labels(&view.info.labels, &previous.agent);
        let Some(mut thread) = before.thread.filter(|_| previous.agent == self.agent && previous.end.is_some()) else {
            return Err(thread_not_found(&id));
        };

        if request.system.is_none() {
            request.system.clone_from(&thread.system);
        }
        let kept = thread.withheld_tools.take().or_else(|| view.info.request.tools.clone());
        thread.withheld_tools = request.echo.thread.take().and_then(|own| own.withheld_tools);
        if request.echo.functions.is_empty() {
            // A message that may call no tool leaves the tools to the next one.
            match &request.request.tools {
                None => request.request.tools = kept,
                Some(_) => thread.withheld_tools = kept,
            }
            request.echo.functions = before.functions;
            request.echo.hosted_tools = before.hosted_tools;
        }
        request.echo.thread = Some(thread);

        let conversation = std::mem::take(&mut request.conversation);
        if let Some(orphan) = conversation.orphans.iter().find(|orphan| !is_known(&orphan.call_id, &view)) {
            return Err(Fault::invalid(&orphan.path, "no call of the message before has this id"));
        }
        let mut call = self.run_call(request);
        let asked = view.pending.iter().find(|item| item.kind != PendingKind::Tool);
        match (asked, conversation.words) {
            // What the message before asked is answered in words.
            (Some(item), Some(words)) => {
                let marker = Marker { is_approval: item.kind == PendingKind::Approval, id: item.id.clone() };
                call.answers.push(marker.answer(&words));
            }
            _ => call.request.input = conversation.input.into(),
        }
        call.thread = Thread::After(previous.id);
        Ok(Call::Run(Box::new(call)))
    }

    /// Maps a fault of the engine to one of this endpoint.
    fn map_fault(&self, fault: &Fault) -> Fault {
        let is_missing = fault.kind == FaultKind::NotFound;
        let is_thread = fault.code.is_none() && fault.field.as_deref().is_none_or(|field| field == "thread");
        if let Some(run) = self.continues.filter(|_| is_missing && is_thread) {
            return thread_not_found(&run.to_prefixed(MESSAGE_PREFIX));
        }
        if fault.code.as_deref() == Some(answer::NOT_WAITING)
            && let Some((id, path)) = self.orphans.iter().find(|(id, _)| fault.message.contains(id.as_str()))
        {
            let message = format!("no call with the id '{id}' is in the messages, or waits for a result");
            return Fault::invalid(path, message);
        }
        fault.clone()
    }

    /// A message without content: the client wants no tokens.
    fn write_empty(&self, out: &mut Out) {
        let id = self.run.map(|run| run.to_prefixed(MESSAGE_PREFIX)).unwrap_or_default();
        let usage = wire::Usage::default();
        if self.stream {
            stream_head(&self.headers, &mut out.head);
            wire::message_start(&id, &self.echo.model, out);
            wire::message_end("max_tokens", None, usage, out);
            return;
        }
        out.json(&wire::Answer {
            id: &id,
            model: &self.echo.model,
            content: &[],
            stop_reason: Some("max_tokens"),
            stop_details: None,
            usage,
        });
    }

    /// Asks again what is open: the agent was not called.
    fn write_question(&self, view: RunView<'_>, reason: Option<&str>, out: &mut Out) {
        if self.shared.refuses_questions() {
            return ApiError::approval_required().write(None, self.headers.request_id(), out);
        }
        let id = self.run.map(|run| run.to_prefixed(MESSAGE_PREFIX)).unwrap_or_default();
        if self.stream {
            stream_head(&self.headers, &mut out.head);
        }
        encode::write_question(&self.shared, &self.echo, (view, reason), self.target(), &id, out);
    }
}

/// True if a result belongs to the message before: to a call of it, or to what it asked.
fn is_known(id: &str, view: &RunView<'_>) -> bool {
    let is_asked = view.pending.iter().any(|item| item.id == id || item.call_id.as_deref() == Some(id));
    is_asked || view.run().conversation().any(|message| message.calls().any(|call| call.call_id == id))
}

impl Exchange for Create {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.run = Some(request.new_id);

        let object = Node::parse_object(request.body)?;
        let parsed = MessagesRequest::parse(&object, &self.shared.options, Purpose::Run)?;
        self.shared.models.agent(&parsed.echo.model)?.clone_into(&mut self.agent);
        self.session = decode::session_name(request, &object, &self.shared.options)?;
        self.stream = parsed.stream;
        for _ in 0..parsed.conversation.opaque {
            self.losses.lost(ContentKind::Opaque, "blocks that only Anthropic can read are not sent");
        }

        if parsed.is_empty {
            self.echo = parsed.echo;
            return Ok(Call::CheckAgent(self.agent.clone()));
        }
        if let Some(ThreadParam::Continue(run)) = parsed.thread {
            self.continues = Some(run);
            self.request = Some(parsed);
            return Ok(Call::Fetch(RunTarget::Run(run)));
        }
        Ok(self.begin_conversation(parsed))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) if self.request.is_some() => return self.continue_thread(view).map(Next::Call),
            Reply::Run(view) => {
                self.headers.apply(&mut out.head);
                let written = Encoder::write_message(Arc::clone(&self.shared), view, &mut self.losses, out);
                if let Err(error) = written {
                    error.write(None, self.headers.request_id(), out);
                }
            }
            Reply::Waiting(view, reason) => {
                self.headers.apply(&mut out.head);
                self.write_question(view, reason, out);
            }
            Reply::Done => {
                self.headers.apply(&mut out.head);
                self.write_empty(out);
            }
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write(&self.map_fault(fault), out);
    }

    fn head(&mut self, head: &mut Head) {
        stream_head(&self.headers, head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        let request_id = self.headers.request_id().map(str::to_owned);
        let echo = std::mem::take(&mut self.echo);
        let mut encoder =
            Encoder::new(Arc::clone(&self.shared), echo, &run.run().agent, BlockTarget::Stream, request_id);
        encoder.add_losses(self.losses.as_slice());
        self.encoder = Some(encoder);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.as_mut().map_or(Flow::Close, |encoder| encoder.encode(step, out))
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        ApiError::from_fault(fault).write_event(self.headers.request_id(), out);
    }

    fn heartbeat(&mut self, out: &mut Out) {
        if let Some(encoder) = &self.encoder {
            encoder.heartbeat(out);
        }
    }

    fn losses(&self) -> &[Loss] {
        self.encoder.as_ref().map_or(self.losses.as_slice(), Encoder::losses)
    }

    fn builds_on(&self) -> Option<RunId> {
        self.continues
    }
}

/// Sets the headers of a streamed response.
fn stream_head(headers: &ResponseHeaders, head: &mut Head) {
    headers.apply(head);
    head.set_event_stream();
}
