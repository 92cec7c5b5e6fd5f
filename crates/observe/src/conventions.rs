//! Names that others have chosen: those of the semantic conventions of OpenTelemetry.
//!
//! GenAI: `open-telemetry/semantic-conventions-genai` v0.1.0, which is in development and builds on the conventions
//! v1.45.0, whose HTTP part is stable. A later version is another set of these constants and a line in the changelog.
//! Spans carry no schema URL: that release names none.

// Resource and HTTP, of the conventions v1.45.0.
pub(super) const SERVICE_NAME: &str = "service.name";
pub(super) const SERVICE_VERSION: &str = "service.version";
pub(super) const SERVICE_INSTANCE_ID: &str = "service.instance.id";
pub(super) const HTTP_REQUEST_METHOD: &str = "http.request.method";
pub(super) const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
pub(super) const HTTP_ROUTE: &str = "http.route";
pub(super) const HTTP_REQUEST_BODY_SIZE: &str = "http.request.body.size";
pub(super) const HTTP_RESPONSE_BODY_SIZE: &str = "http.response.body.size";
pub(super) const URL_PATH: &str = "url.path";
pub(super) const URL_SCHEME: &str = "url.scheme";
pub(super) const CLIENT_ADDRESS: &str = "client.address";
pub(super) const SERVER_ADDRESS: &str = "server.address";
pub(super) const SERVER_PORT: &str = "server.port";
pub(super) const NETWORK_PROTOCOL_NAME: &str = "network.protocol.name";
pub(super) const NETWORK_PROTOCOL_VERSION: &str = "network.protocol.version";
pub(super) const ERROR_TYPE: &str = "error.type";

// GenAI v0.1.0.
pub(super) const OPERATION_NAME: &str = "gen_ai.operation.name";
pub(super) const INVOKE_AGENT: &str = "invoke_agent";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
pub(super) const PROVIDER_NAME: &str = "gen_ai.provider.name";
pub(super) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(super) const AGENT_VERSION: &str = "gen_ai.agent.version";
pub(super) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub(super) const RESPONSE_ID: &str = "gen_ai.response.id";
pub(super) const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const TOKEN_TYPE: &str = "gen_ai.token.type";
pub(super) const INVOKE_AGENT_DURATION: &str = "gen_ai.invoke_agent.duration";
pub(super) const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.operation.time_to_first_chunk";
pub(super) const TOKEN_USAGE: &str = "gen_ai.client.token.usage";

// Our own, where the conventions have nothing.
pub(super) const REQUEST_ID: &str = "interlingua.request.id";
pub(super) const CALLER: &str = "interlingua.caller";
pub(super) const CLIENT_PROTOCOL: &str = "interlingua.protocol";
pub(super) const CLIENT_LEFT: &str = "interlingua.client_left";
pub(super) const RUN_STATE: &str = "interlingua.run.state";
pub(super) const QUEUED_MS: &str = "interlingua.queued_ms";
pub(super) const RETRY_EVENT: &str = "interlingua.retry";
pub(super) const RETRY_REASON: &str = "interlingua.retry.reason";
pub(super) const WAITING_EVENT: &str = "interlingua.waiting";
pub(super) const RESUMED_EVENT: &str = "interlingua.resumed";
pub(super) const PENDING_ITEMS: &str = "interlingua.pending_items";
pub(super) const ACCESS_EVENT: &str = "interlingua.access";

/// Why an agent stopped, in the words of the conventions as far as they have one. `outcome`: the state of its run;
/// `waits`: it waits for a decision, or for a call to be run.
#[must_use]
pub const fn finish_reason(outcome: &'static str, waits: bool) -> &'static str {
    match outcome.as_bytes() {
        _ if waits => "tool_call",
        b"completed" => "stop",
        b"incomplete" => "length",
        b"failed" => "error",
        _ => outcome,
    }
}
