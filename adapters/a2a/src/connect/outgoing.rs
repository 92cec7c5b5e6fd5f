//! The message of a turn: the new part of the request's input, and the answers in it, as parts.
//!
//! Not here: ids of context and task, which the session stores (`turn`), and the form of answers (`answers`).

use std::borrow::Cow;

use interlingua_adapter_kit::output_parts;
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{self, MessageType, Role};
use interlingua_core::{Extra, Fault, Json};
use serde::Deserialize;
use serde_json::json;

use super::answers::Answers;
use super::options::UpstreamOptions;
use super::session::{SessionState, storable};
use crate::parts;
use crate::wire::{self, Content, Message, Part, Raw, to_raw};

/// The message of a turn, independent of the agent's version.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// The client's id of the last message.
    pub(super) id: Option<String>,
    /// The id of a message that has none.
    pub(super) fallback_id: String,
    parts: Vec<Part<'static>>,
    /// Earlier messages, for an agent that does not know them.
    transcript: Vec<Part<'static>>,
    metadata: Option<Raw<'static>>,
    extensions: Vec<Cow<'static, str>>,
    /// `metadata` beside the message.
    pub(super) request_metadata: Option<Json>,
    pub(super) accepted_output_modes: Vec<String>,
    /// The session's id, for agents that take it as context.
    pub(super) session_id: Option<String>,
    /// It answers what a task waits for: sent to another task, it would make no sense.
    pub(super) is_answer: bool,
    /// The task that asked, where the answered item says so.
    pub(super) task_id: Option<String>,
    /// It only says that no one decides: the task is canceled.
    pub(super) cancels: bool,
}

/// `metadata.a2a` of a message that came over this protocol.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientMetadata {
    extensions: Vec<String>,
    metadata: Option<Json>,
    parts: Vec<Json>,
}

/// The field `a2a` of a request that came over this protocol.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReceivedRequest {
    metadata: Option<Extra>,
    accepted_output_modes: Vec<String>,
}

impl Outgoing {
    /// The message of a request. `session`: as it is stored.
    ///
    /// # Errors
    /// If it has an answer that decides nothing.
    pub(super) fn new(
        turn: &TurnRequest<'_>,
        options: &UpstreamOptions,
        session: &SessionState,
        losses: &mut Losses,
    ) -> Result<Self, Fault> {
        let request = turn.request;
        let (earlier, mut new) = earlier_and_new(turn);
        note_losses(request, &earlier, options, losses);

        let mut id = None;
        let mut parts = Vec::new();
        let mut received = ClientMetadata::default();
        let mut answers = Answers::new(turn.answered, &session.calls);
        answers.prepare(&mut new)?;
        for message in new {
            if let Some(own) = message.id.as_deref().and_then(storable) {
                id = Some(own);
            }
            match &message.kind {
                MessageType::McpApprovalResponse => parts.extend(answers.decisions(message)?),
                kind if kind.is_output() => {
                    parts.extend(answers.outputs(message));
                    // Pictures beside the text of an output.
                    let media = message.content.iter().filter(|content| output_parts::is_medium(content));
                    parts.extend(media.filter_map(|content| parts::as_sent(content, None)).map(owned));
                }
                _ => {
                    let own = received_of(message);
                    parts.extend(contents(message, &own));
                    received.extensions.extend(own.extensions);
                    received.metadata = own.metadata.or(received.metadata);
                }
            }
        }
        if answers.has_lost_reason {
            losses.lost(ContentKind::ApprovalReason, "ADK's confirmation takes a yes or a no alone");
        }
        if parts.is_empty() {
            // A message must have a part. To continue an agent without a new message, the part is empty.
            parts.push(Part::text(""));
        }

        let transcript =
            if options.transcript { earlier.iter().flat_map(|&message| past(message)).collect() } else { Vec::new() };
        let (request_metadata, accepted_output_modes) = beside(request);
        Ok(Self {
            id,
            fallback_id: request.id.as_deref().and_then(storable).unwrap_or_else(|| "message".to_owned()),
            parts,
            transcript,
            metadata: received.metadata.map(|metadata| Cow::Owned(metadata.raw().to_owned())),
            extensions: received.extensions.into_iter().map(Cow::Owned).collect(),
            request_metadata,
            accepted_output_modes,
            session_id: request.session_id.as_deref().and_then(storable),
            is_answer: answers.any(),
            cancels: answers.only_cancel(),
            task_id: answers.task_id(),
        })
    }

    /// Earlier messages were given, for an agent that does not know them.
    pub(super) const fn has_transcript(&self) -> bool {
        !self.transcript.is_empty()
    }

    /// The message, for a context and a task.
    pub(super) fn message<'m>(
        &'m self,
        id: &'m str,
        context: Option<&'m str>,
        task: Option<&'m str>,
        last_task: Option<&'m str>,
        is_known: bool,
    ) -> Message<'m> {
        let transcript = if is_known { &[][..] } else { &self.transcript[..] };
        Message {
            id: Cow::Borrowed(id),
            context: context.map(Cow::Borrowed),
            task: task.map(Cow::Borrowed),
            role: wire::Role::User,
            parts: transcript.iter().chain(&self.parts).cloned().collect(),
            metadata: self.metadata.clone(),
            extensions: self.extensions.clone(),
            // A continued task refers to no other task.
            references: last_task.filter(|_| task.is_none()).map(Cow::Borrowed).into_iter().collect(),
        }
    }
}

/// Earlier messages, and those that are new. Where the gateway put the history in, it says which they are.
fn earlier_and_new<'a>(turn: &TurnRequest<'a>) -> (Vec<&'a model::Message>, Vec<&'a model::Message>) {
    let input: &'a [model::Message] = &turn.request.input;
    if turn.history.is_empty() {
        return split(input);
    }
    (input[turn.history.clone()].iter().collect(), turn.new_messages().map(|(_, message)| message).collect())
}

/// Notes what reaches the agent only in metadata that few agents read, or not at all.
fn note_losses(
    request: &model::AgentRequest,
    earlier: &[&model::Message],
    options: &UpstreamOptions,
    losses: &mut Losses,
) {
    const IN_METADATA: &str = "sent in metadata.agent_api, which few agents read";
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) && !options.client_tools {
        losses.lost(ContentKind::ToolDeclaration, IN_METADATA);
    }
    if request.sampling != model::Sampling::default() && !options.client_tools {
        losses.lost(ContentKind::Sampling, IN_METADATA);
    }
    let is_text = |message: &&&model::Message| message.kind == MessageType::Message;
    if !earlier.is_empty() && options.transcript {
        losses.changed(ContentKind::History, "earlier messages go ahead as texts, with their role in metadata");
        if earlier.iter().filter(is_text).count() < earlier.len() {
            losses.lost(ContentKind::History, "of earlier turns only texts are sent");
        }
    } else if !earlier.is_empty() {
        losses.lost(ContentKind::History, "left out by the option transcript");
    }
}

/// Splits the input into earlier messages and new ones: those after the agent's last message. Answered calls and
/// approvals are messages of the agent too; the messages before them are not new.
fn split(input: &[model::Message]) -> (Vec<&model::Message>, Vec<&model::Message>) {
    let is_question =
        |message: &&model::Message| matches!(message.kind, MessageType::FunctionCall | MessageType::McpApprovalRequest);
    let is_agents = |message: &model::Message| match &message.kind {
        MessageType::Message => message.role == Some(Role::Assistant),
        MessageType::FunctionCall | MessageType::McpApprovalRequest => false,
        MessageType::FunctionCallOutput | MessageType::McpApprovalResponse => false,
        MessageType::A2uiAction => false,
        MessageType::Other(_) => message.role == Some(Role::Assistant),
        _ => true,
    };
    let start = input.iter().rposition(is_agents).map_or(0, |place| place + 1);
    let (earlier, tail) = input.split_at(start);
    let question = tail.iter().position(|message| is_question(&message)).unwrap_or(0);
    let earlier = earlier.iter().chain(&tail[..question]).collect();
    (earlier, tail[question..].iter().filter(|message| !is_question(message)).collect())
}

fn received_of(message: &model::Message) -> ClientMetadata {
    #[derive(Deserialize)]
    struct Outer {
        a2a: ClientMetadata,
    }
    let outer =
        message.metadata.as_ref().filter(|json| json.text().contains("\"a2a\"")).and_then(Json::decode::<Outer>);
    outer.map(|outer| outer.a2a).unwrap_or_default()
}

/// The contents of a message, as they were sent if they came over this protocol.
fn contents(message: &model::Message, received: &ClientMetadata) -> Vec<Part<'static>> {
    let extras = received.parts.iter().map(|json| Some(json).filter(|json| !json.is_null()));
    let extras = extras.chain(std::iter::repeat(None));
    let parts = message.content.iter().zip(extras).filter_map(|(content, extras)| parts::as_sent(content, extras));
    parts
        .map(|part| {
            let part = owned(part);
            // A2A has no instructions apart from messages.
            let is_plain = part.metadata.is_none() && message.role == Some(Role::System);
            if is_plain { part.with_metadata(to_raw(&json!({ "role": "system" }))) } else { part }
        })
        .collect()
}

/// An earlier message: its texts, with who said them.
fn past(message: &model::Message) -> Vec<Part<'static>> {
    if message.kind != MessageType::Message {
        return Vec::new();
    }
    let role = message.role.as_ref().map_or("user", Role::as_str);
    let texts = message.content.iter().filter_map(model::Content::as_text).filter(|text| !text.is_empty());
    texts.map(|text| Part::text(text.to_owned()).with_metadata(to_raw(&json!({ "role": role })))).collect()
}

fn owned(part: Part<'_>) -> Part<'static> {
    let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    let own_raw = |raw: Raw<'_>| -> Raw<'static> { Cow::Owned(raw.into_owned()) };
    Part {
        content: match part.content {
            Content::Text(text) => Content::Text(own(text)),
            Content::Bytes(bytes) => Content::Bytes(own(bytes)),
            Content::Url(url) => Content::Url(own(url)),
            Content::Data(data) => Content::Data(own_raw(data)),
        },
        filename: part.filename.map(own),
        media_type: part.media_type.map(own),
        metadata: part.metadata.map(own_raw),
    }
}

/// The fields beside the message: the metadata, and the output modes that the client accepts. The metadata has what the
/// client sent over this protocol, and under `agent_api` the model, the sampling and the tools of the request, which
/// most agents cannot use.
fn beside(request: &model::AgentRequest) -> (Option<Json>, Vec<String>) {
    let received: ReceivedRequest = request.extra.get("a2a").and_then(Json::decode).unwrap_or_default();
    let mut own = Extra::new();
    if let Some(model) = &request.model {
        own.push("model", Json::from_serialize(model));
    }
    let sampling = &request.sampling;
    for (name, number) in [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("frequency_penalty", sampling.frequency_penalty),
        ("presence_penalty", sampling.presence_penalty),
    ] {
        if let Some(number) = number {
            own.push(name, Json::from_serialize(&number));
        }
    }
    for (name, number) in [("max_tokens", sampling.max_tokens), ("n", sampling.n), ("seed", sampling.seed)] {
        if let Some(number) = number {
            own.push(name, Json::from_serialize(&number));
        }
    }
    if let Some(stop) = &sampling.stop {
        own.push("stop", Json::from_serialize(stop));
    }
    if let Some(tools) = request.tools.as_ref().filter(|tools| !tools.is_empty()) {
        own.push("tools", Json::from_serialize(tools));
    }

    let mut metadata = received.metadata.unwrap_or_default();
    if !own.is_empty() {
        metadata.set("agent_api", Json::from_serialize(&own));
    }
    ((!metadata.is_empty()).then(|| Json::from_serialize(&metadata)), received.accepted_output_modes)
}
