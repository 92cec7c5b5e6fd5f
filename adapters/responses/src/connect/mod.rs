//! Agents and model servers that speak Responses: the connector, and what it is made of.
//!
//! See `docs/protocols/responses.md`. A turn sends one request (`request`) and reads the
//! answer, streamed or polled (`reader`, `items`, `slots`, `wire`), takes it up again if the server works on without a
//! connection (`turn`), and keeps what the next request needs (`session`). Not here: what serves Responses to clients.

mod calls;
mod deltas;
mod endpoint;
mod errors;
mod items;
mod options;
mod probe;
mod reader;
mod request;
mod session;
mod slots;
mod turn;
mod undecided;
mod wire;

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::Fault;
use interlingua_core::capability::{AskKinds, Cancel, HistoryNeed, Media, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::loss::Losses;
use interlingua_core::model::{Content, Message, MessageType};
use interlingua_core::opaque;
use interlingua_core::pending::{Decision, approval_id};
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::ServerSigns;

pub use options::{Background, Chain, Incomplete, McpHistory, Part, Penalties, SystemRole, UpstreamOptions, User};

use self::endpoint::{Endpoint, PATH};
use self::reader::Reader;
use self::request::RequestBody;
use self::session::SessionState;
use self::turn::ResponsesTurn;

/// Calls agents and model servers that speak Responses.
#[derive(Clone, Copy, Debug)]
pub struct ResponsesUpstream;

impl UpstreamAdapter for ResponsesUpstream {
    const NAME: &'static str = crate::ids::NAME;
    const SIGNS: ServerSigns = ServerSigns {
        endpoints: &["/responses"],
        is_of_models: true,
        models: Some("/models"),
        products: &["openai", "open_ai", "gpt", "azure_openai", "openai_responses"],
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check()?;
        let endpoint = Arc::new(Endpoint::parse(url)?);
        Ok(Box::new(ResponsesConnector { endpoint, options: Arc::new(options) }))
    }
}

struct ResponsesConnector {
    endpoint: Arc<Endpoint>,
    options: Arc<UpstreamOptions>,
}

impl Connector for ResponsesConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let options = &self.options;
        let mut capabilities = UpstreamCapabilities::default();
        let is_background = options.background != Background::Off;
        capabilities.streaming = options.background != Background::Poll;
        capabilities.history = if options.sends_all() { HistoryNeed::SentEachTime } else { HistoryNeed::KeptByAgent };
        capabilities.client_tools = true;
        // `mcp_approval_response` says yes or no.
        capabilities.decisions = &[Decision::Accept, Decision::Reject];
        capabilities.asks = AskKinds { approval: true, ..AskKinds::default() };
        capabilities.input_media = Media {
            image: options.takes(Part::Image),
            audio: options.takes(Part::Audio),
            video: options.takes(Part::Video),
            file: options.takes(Part::File),
        };
        capabilities.output_media = Media { image: true, audio: true, ..Media::NONE };
        capabilities.cancel = if is_background { Cancel::Request } else { Cancel::CloseConnection };
        capabilities.resume = is_background;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities.tool_outputs = ToolOutputs::Together;
        capabilities.wants_model = options.model.is_none();
        capabilities
    }

    fn turn(&self, turn: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let options = &self.options;
        let stored = SessionState::parse(turn.session_state);
        // A request with the history continues no response.
        let is_new = !turn.history.is_empty() || options.sends_all();
        let previous = stored.response.clone().filter(|_| !is_new && options.chain == Chain::PreviousResponseId);
        let conversation = stored.conversation.clone().filter(|_| !is_new && options.chain == Chain::Conversation);
        let goes_on = previous.is_some() || conversation.is_some();

        // The server would refuse to continue a response with open items. The history omits them.
        let answered = answered_ids(&turn.request.input);
        let needs_history = goes_on && !stored.open_calls.iter().all(|open| answered.contains(open));

        let named = turn.request.tools.as_deref();
        let kept = if options.sticky_tools { stored.tools.as_slice() } else { &[] };
        let origin = opaque::origin(crate::ids::NAME, turn.agent);
        let mut losses = Losses::new();
        let body = RequestBody {
            options,
            turn,
            previous: previous.as_deref(),
            open_calls: &stored.open_calls,
            tools: named.unwrap_or(kept),
            origin: &origin,
            goes_on,
        };
        let (body, names) = body.to_json(&mut losses);

        let run = turn.request.id.as_deref().unwrap_or("answer");
        let mut reader = Reader::new(format!("{run}_{}", turn.turn), origin);
        reader.losses = losses;
        reader.names = names;
        reader.completes_incomplete = options.incomplete == Incomplete::Completed;
        let tools = named.filter(|_| options.sticky_tools).map(<[_]>::to_vec);
        let mut turn = ResponsesTurn::new(Arc::clone(&self.endpoint), Arc::clone(options), body, reader, stored);
        turn.tools = tools;
        turn.goes_on = goes_on;
        turn.needs_history = needs_history;
        if conversation.is_some() {
            turn.conversation = conversation;
            turn.step = Some(turn::Step::Ask);
        }
        Ok(Box::new(turn))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.options.warnings();
        if !self.endpoint.has_path {
            let url = self.endpoint.url();
            warnings.insert(
                0,
                format!(
                    "url has no path, so \"{url}\" is called: most servers answer at \"/v1{PATH}\", and elsewhere with 404"
                ),
            );
        }
        warnings
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::ResponsesProbe::new(&self.endpoint, &self.options))
    }
}

/// The calls and questions that these messages answer.
fn answered_ids(input: &[Message]) -> HashSet<String> {
    let outputs = input.iter().flat_map(Message::outputs).map(|output| output.call_id);
    let responses = input.iter().filter(|message| message.kind == MessageType::McpApprovalResponse);
    let decided = responses.flat_map(|message| message.content.iter().filter_map(Content::as_data));
    outputs.chain(decided.filter_map(approval_id)).collect()
}
