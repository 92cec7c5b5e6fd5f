//! Endpoints that report on a context without calling the agent: `POST /responses/input_tokens`, an estimate, and
//! `POST /responses/compact`, the context as one item (docs/protocols/responses.md#state).

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_adapter_kit::token_estimate;
use interlingua_core::exchange::Exchange;
use interlingua_core::tree::Node;
use interlingua_core::{Call, Fault, Next, Out, Reply, Request, RunId};

use super::MountedRoute;
use super::context::{Context, ResolvedRequest};
use crate::decode::{self, Purpose, encode_compaction};
use crate::fault;
use crate::wire::{Compaction, InputTokens, Item, Usage};

/// The report of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// The number of input tokens.
    Tokens,
    /// The context as one item.
    Compaction,
}

/// Resolves a context and reports on it.
pub(crate) struct ContextReport {
    shared: Arc<MountedRoute>,
    kind: ReportKind,
    headers: ResponseHeaders,
    /// The agent of the requested model. `None`: the request names no model, or the agent was passed on to the engine.
    agent: Option<String>,
    request: Option<decode::CreateRequest>,
    context: Option<Context>,
    /// Base of the ids in the report.
    new_id: Option<RunId>,
    /// Unix time in milliseconds.
    now: u64,
}

impl ContextReport {
    pub(crate) fn new(shared: Arc<MountedRoute>, kind: ReportKind) -> Self {
        Self {
            shared,
            kind,
            headers: ResponseHeaders::default(),
            agent: None,
            request: None,
            context: None,
            new_id: None,
            now: 0,
        }
    }

    /// The next lookup. A complete context ends with the check of the caller's right to use the agent.
    fn next_call(&mut self) -> Call {
        let lookup = self.context.as_mut().and_then(Context::next);
        lookup.unwrap_or_else(|| self.agent.take().map_or(Call::Nothing, Call::CheckAgent))
    }

    fn write(&self, resolved: ResolvedRequest, out: &mut Out) -> Result<(), Fault> {
        let (Some(request), Some(new_id)) = (&self.request, self.new_id) else { return Err(Fault::unexpected_reply()) };
        let mut messages = resolved.history;
        messages.extend(resolved.input);
        self.headers.apply(&mut out.head);

        match self.kind {
            ReportKind::Tokens => {
                let tools = token_estimate::of_tools(&request.echo.tools);
                let tokens = token_estimate::of_messages(request.preamble.iter().chain(&messages)) + tools;
                out.json(&InputTokens { object: "response.input_tokens", input_tokens: tokens as u64 });
            }
            ReportKind::Compaction => {
                let usage = Usage::from_input_tokens(token_estimate::of_messages(&messages) as u64);
                let content = encode_compaction(&messages);
                let id = new_id.to_prefixed("cmp_");
                let output = [Item::Compaction { id: &id, encrypted_content: &content }];
                let id = new_id.to_prefixed(crate::ids::RESPONSE_PREFIX);
                let (object, created_at) = ("response.compaction", self.now / 1000);
                out.json(&Compaction { id: &id, object, created_at, output: &output, usage });
            }
        }
        Ok(())
    }
}

impl Exchange for ContextReport {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.new_id = Some(request.new_id);
        self.now = request.now;

        let object = Node::parse_object(request.body)?;
        let purpose = Purpose::Inspect { model_required: self.kind == ReportKind::Compaction };
        let mut create = decode::CreateRequest::parse(&object, &self.shared.options, purpose)?;
        if !create.echo.model.is_empty() {
            self.agent = Some(self.shared.names.agent(&create.echo.model)?.to_owned());
        }

        self.context = Some(Context::new(Arc::clone(&self.shared), &mut create, false, true)?);
        self.request = Some(create);
        Ok(self.next_call())
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Reply::Done = reply {
            let resolved = self.context.take().map(Context::finish).transpose()?.unwrap_or_default();
            self.write(resolved, out)?;
            return Ok(Next::Done);
        }
        if let Some(context) = &mut self.context {
            context.accept(&reply)?;
        }
        Ok(Next::Call(self.next_call()))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = self.context.as_ref().map_or_else(|| fault.clone(), |context| context.map_fault(fault));
        self.headers.write_error(&fault::error(&fault), &fault, out);
    }
}
