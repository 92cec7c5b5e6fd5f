//! `POST /v1/messages/count_tokens`: an estimate, since the tokenizers of agents are unknown.

use std::sync::Arc;

use interlingua_adapter_kit::fallback::ErrorWriter as _;
use interlingua_adapter_kit::token_estimate;
use interlingua_core::exchange::Exchange;
use interlingua_core::tree::Node;
use interlingua_core::{Call, Fault, Next, Out, Reply, Request};

use super::{MountedRoute, ResponseHeaders};
use crate::decode::{MessagesRequest, Purpose};
use crate::wire::InputTokens;

/// Counts the tokens of a request.
pub(crate) struct Count {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    tokens: usize,
}

impl Count {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, headers: ResponseHeaders::default(), tokens: 0 }
    }
}

impl Exchange for Count {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        let object = Node::parse_object(request.body)?;
        let mut parsed = MessagesRequest::parse(&object, &self.shared.options, Purpose::Count)?;
        let agent = match parsed.echo.model.as_str() {
            "" => None,
            model => Some(self.shared.models.agent(model)?.to_owned()),
        };

        let preamble = parsed.preamble();
        let conversation = &parsed.conversation;
        let messages = preamble.iter().chain(&conversation.history).chain(&conversation.input);
        let tools = parsed.request.tools.as_deref().unwrap_or_default();
        self.tokens = token_estimate::of_messages(messages) + token_estimate::of_tools(tools);
        Ok(agent.map_or(Call::Nothing, Call::CheckAgent))
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        self.headers.apply(&mut out.head);
        out.json(&InputTokens { input_tokens: self.tokens as u64 });
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write(fault, out);
    }
}
