//! `POST /chat/completions` (docs/protocols/chat-completions.md#request).

use std::sync::Arc;

use interlingua_adapter_kit::model_options::Disconnect;
use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_core::answer::chat::{ApprovalForm, Marker};
use interlingua_core::answer::{Answer, AnswerBody, AnswerPolicy, NOT_WAITING};
use interlingua_core::call::{Resent, RunView};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::out::Head;
use interlingua_core::policy::RunPolicy;
use interlingua_core::tree::Node;
use interlingua_core::{Call, Delivery, Fault, Json, Next, Out, Reply, Request, RunCall, RunId, Step, Thread};

use super::MountedRoute;
use super::judge::Judge;
use crate::decode::{self, ChatRequest, unmatched};
use crate::echo::Echo;
use crate::encode::Encoder;
use crate::fault;
use crate::tags;

/// Completes a conversation.
pub(crate) struct Complete {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    /// Id of the new run, and when the request came.
    id: Option<(RunId, u64)>,
    echo: Echo,
    stream: bool,
    /// Path of the first new output that has no call in the request.
    unmatched: Option<String>,
    encoder: Option<Encoder>,
    losses: Losses,
}

impl Complete {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self {
            shared,
            headers: ResponseHeaders::default(),
            id: None,
            echo: Echo::default(),
            stream: false,
            unmatched: None,
            encoder: None,
            losses: Losses::new(),
        }
    }

    fn call(&mut self, mut chat: ChatRequest, session: Option<String>, id: RunId) -> Result<RunCall, Fault> {
        let agent = self.shared.names.agent(&chat.echo.model)?;
        let mut call = RunCall::new(agent, std::mem::take(&mut chat.request));
        call.preamble = chat.take_instructions();
        let conversation = chat.conversation;
        call.id = Some(id);
        call.delivery = if chat.stream { Delivery::Stream } else { Delivery::Collect };

        let options = &self.shared.options;
        let detached = options.disconnect == Disconnect::Detach;
        call.policy = RunPolicy::attached().with_detached(detached).with_busy(options.busy.into());
        let echo = &chat.echo;
        call.answer_policy = AnswerPolicy {
            asking: options.asker(echo.approvals).policy(&|name| echo.tool(name).is_some()),
            asks_again: true,
            // A question that the client never sees can only be canceled.
            ttl: (echo.approvals == ApprovalForm::Refuse).then_some(std::time::Duration::ZERO),
            ..AnswerPolicy::default()
        };
        call.labels = Json::from_serialize(echo);
        if let Some(messages) = chat.stored {
            call.tags = tags::parse(&echo.model, &echo.metadata);
            call.attachments = vec![(decode::MESSAGES, messages)];
        }

        // The engine knows whether the gateway asked for these.
        self.unmatched = conversation.unmatched.first().map(|output| output.path.clone());
        let answers = conversation.unmatched.into_iter();
        call.answers = answers.map(|output| Answer::new(output.call_id, AnswerBody::Text(output.output))).collect();
        call.request.input = conversation.new.into();

        let marker = conversation.last.as_ref().and_then(|last| Marker::find(&last.text));
        let in_words = marker.zip(conversation.only_words.as_deref()).map(|(marker, words)| marker.answer(words));
        let judge = Judge { shared: Arc::clone(&self.shared), echo: chat.echo.clone(), last: conversation.last };
        let resent = Resent::new(conversation.history, Arc::new(judge));
        call.thread = Thread::Resent(Box::new(Resent { session, in_words, ..resent }));

        self.losses = chat.losses;
        (self.echo, self.stream) = (chat.echo, chat.stream);
        Ok(call)
    }

    /// The fault of a request whose outputs answer nothing that the gateway asked.
    fn map_fault(&self, fault: &Fault) -> Fault {
        match &self.unmatched {
            Some(path) if fault.code.as_deref() == Some(NOT_WAITING) => unmatched(path),
            _ => fault.clone(),
        }
    }
}

impl Exchange for Complete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.id = Some((request.new_id, request.now));
        let object = Node::parse_object(request.body)?;
        let chat = ChatRequest::parse(&object, &self.shared.options)?;
        let session = decode::session(&object, |name| request.header(name), &self.shared.options)?;
        self.call(chat, session, request.new_id).map(|call| Call::Run(Box::new(call)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let (shared, echo) = (Arc::clone(&self.shared), self.echo.clone());
        match reply {
            Reply::Run(view) => {
                self.headers.apply(&mut out.head);
                let losses = Encoder::write_whole(shared, echo, view, out);
                self.losses.extend(losses.as_slice());
            }
            // Nothing went to the agent: the session waits for an answer first.
            Reply::Waiting(view, reason) => {
                let Some((id, now)) = self.id else { return Err(Fault::unexpected_reply()) };
                self.headers.apply(&mut out.head);
                if self.stream {
                    out.head.set_event_stream();
                }
                let about = (id, now, view.run().agent.as_str());
                Encoder::write_questions(shared, echo, about, (view.pending, reason), self.stream, out);
            }
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = self.map_fault(fault);
        self.headers.write_error(&fault::error(&fault), &fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.headers.apply(head);
        head.set_event_stream();
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        self.encoder = Some(Encoder::stream(Arc::clone(&self.shared), self.echo.clone(), run.run()));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let Some(encoder) = self.encoder.as_mut() else { return Flow::Close };
        let flow = encoder.encode(step, out);
        if flow == Flow::Close {
            self.losses.extend(encoder.losses());
        }
        flow
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        Encoder::interrupt(fault, out);
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }
}
