//! What is answered without asking the agent: `POST /responses/input_tokens`, an estimate, and
//! `POST /responses/compact`, a context in one item (section 12).

use std::sync::Arc;

use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::model::{Body, Message};
use interlingua_core::tree::Node;
use interlingua_core::{Call, Fault, Json, Next, Out, Reply, Request, RunId, Step};

use super::context::{Context, Resolved};
use super::{Address, Shared, astray};
use crate::decode::{self, Purpose, compacted};
use crate::wire::{Compaction, InputTokens, Item, Usage};

/// Characters of English in a token, by rule of thumb. No tokenizer is known of an agent nobody knows.
const BYTES_PER_TOKEN: usize = 4;
/// What a message costs besides its text.
const PER_MESSAGE: usize = 4;
/// What an image, a sound or a file costs, whatever its size.
const PER_MEDIUM: usize = 256;

/// Which of the two is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// How many tokens the request is.
    Tokens,
    /// The context as one item.
    Compaction,
}

/// Looks at a context.
pub(crate) struct Count {
    shared: Arc<Shared>,
    wanted: Wanted,
    address: Address,
    asked: Option<decode::Create>,
    context: Option<Context>,
    fresh: Option<RunId>,
    now: u64,
}

impl Count {
    pub(crate) fn new(shared: Arc<Shared>, wanted: Wanted) -> Self {
        Self { shared, wanted, address: Address::default(), asked: None, context: None, fresh: None, now: 0 }
    }

    fn go_on(&mut self) -> Call {
        self.context.as_mut().and_then(Context::next).unwrap_or(Call::Nothing)
    }

    fn write(&self, resolved: Resolved, out: &mut Out) -> Result<(), Fault> {
        let (Some(asked), Some(fresh)) = (&self.asked, self.fresh) else { return Err(astray()) };
        let mut messages = resolved.history;
        messages.extend(resolved.input);
        self.address.on(&mut out.head);
        match self.wanted {
            Wanted::Tokens => {
                let tools: usize = asked.echo.tools.iter().map(|tool| tool.text().len()).sum();
                let tokens = estimate(asked.preamble.iter().chain(&messages)) + tools / BYTES_PER_TOKEN;
                out.json(&InputTokens { object: "response.input_tokens", input_tokens: tokens as u64 });
            }
            Wanted::Compaction => {
                let usage = Usage::of_input(estimate(messages.iter()) as u64);
                let kept = compacted(&messages);
                let id = fresh.to_prefixed("cmp_");
                let output = [Item::Compaction { id: &id, encrypted_content: &kept }];
                let id = fresh.to_prefixed(crate::ids::RESPONSE);
                let (object, created_at) = ("response.compaction", self.now / 1000);
                out.json(&Compaction { id: &id, object, created_at, output: &output, usage });
            }
        }
        Ok(())
    }
}

/// Roughly how many tokens messages are.
fn estimate<'a>(messages: impl Iterator<Item = &'a Message>) -> usize {
    messages
        .map(|message| {
            let contents = message.content.iter().map(|content| match &content.body {
                Body::Text(text) | Body::Refusal(text) => text.len().div_ceil(BYTES_PER_TOKEN),
                Body::Data(data) => data.text().len().div_ceil(BYTES_PER_TOKEN),
                Body::Other(_) => Json::from_serialize(content).text().len().div_ceil(BYTES_PER_TOKEN),
                Body::Image(_) | Body::Video(_) | Body::Audio { .. } | Body::File(_) => PER_MEDIUM,
            });
            PER_MESSAGE + contents.sum::<usize>()
        })
        .sum()
}

impl Exchange for Count {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.address = Address::of(request);
        self.fresh = Some(request.fresh);
        self.now = request.now;
        let object = Node::parse_object(request.body)?;
        let purpose = Purpose::Look { model: self.wanted == Wanted::Compaction };
        let mut asked = decode::Create::read(&object, &self.shared.options, purpose)?;
        if !asked.echo.model.is_empty() {
            self.shared.agent(&asked.echo.model)?;
        }
        self.context = Some(Context::new(Arc::clone(&self.shared), &mut asked, false, true)?);
        self.asked = Some(asked);
        Ok(self.go_on())
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Reply::Done = reply {
            let resolved = self.context.take().map(Context::finish).transpose()?.unwrap_or_default();
            self.write(resolved, out)?;
            return Ok(Next::Done);
        }
        if let Some(context) = &mut self.context {
            context.take(&reply)?;
        }
        Ok(Next::Call(self.go_on()))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = self.context.as_ref().map_or_else(|| fault.clone(), |context| context.lost(fault));
        self.address.refuse(&fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
