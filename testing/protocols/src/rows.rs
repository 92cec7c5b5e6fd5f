//! The rows of the registry.

use interlingua_a2a::{A2a, A2aUpstream};
use interlingua_ag_kit::{AgKit, AgKitUpstream};
use interlingua_ag_ui::{AgUi, AgUiUpstream};
use interlingua_agentscope::AgentscopeUpstream;
use interlingua_anthropic_messages::{AnthropicMessages, AnthropicMessagesUpstream};
use interlingua_chat_completions::{ChatCompletions, ChatCompletionsUpstream};
use interlingua_hitl::{Hitl, HitlUpstream};
use interlingua_mcp::Mcp;
use interlingua_native::{Native, NativeUpstream};
use interlingua_responses::{Responses, ResponsesUpstream};

use crate::{Connects, DeltaKind, ErrorEvent, Protocol, Serves, StreamForm};

const TEXT: &[DeltaKind] = &[DeltaKind::Text];
const THOUGHTS: &[DeltaKind] = &[DeltaKind::Text, DeltaKind::Reasoning];
const CALLS: &[DeltaKind] = &[DeltaKind::Text, DeltaKind::Arguments];
const ALL: &[DeltaKind] = &[DeltaKind::Text, DeltaKind::Reasoning, DeltaKind::Arguments];

/// The usual stream of a protocol whose clients send no further headers.
const POST: StreamForm = StreamForm {
    name: "",
    deltas_of: ALL,
    options: "",
    endpoint: "",
    headers: &[],
    body: "{}",
    is_websocket: false,
    gathers: false,
};

/// A2A 1.0 over JSON-RPC.
const A2A: StreamForm = StreamForm {
    name: "JSON-RPC 1.0",
    deltas_of: TEXT,
    headers: &[("a2a-version", "1.0")],
    body: r#"{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#,
    ..POST
};

/// AG-Kit.
const AG_KIT: StreamForm = StreamForm {
    endpoint: "/send-message",
    body: r#"{"conversationId":"c","messages":[{"role":"user","content":"hi"}]}"#,
    ..POST
};

/// AG-UI.
const AG_UI: StreamForm = StreamForm {
    body: r#"{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"hi"}],"tools":[{"name":"f","description":"d"}]}"#,
    ..POST
};

/// MCP, with progress.
const MCP: StreamForm = StreamForm {
    deltas_of: THOUGHTS,
    body: r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo","arguments":{"message":"hi"},"_meta":{"progressToken":1}}}"#,
    gathers: true,
    ..POST
};

/// An event without a name.
const fn error(data: &'static str, has_code: bool) -> Option<ErrorEvent> {
    Some(ErrorEvent { name: None, data, has_code })
}

/// All shipped protocols. Rigs try them in this order.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "agent-api",
        is_finished: true,
        serves: Some(Serves::with::<Native>(
            "/agents/{agent}",
            &[StreamForm { deltas_of: THOUGHTS, endpoint: "/process", body: r#"{"input":[],"stream":true}"#, ..POST }],
        )),
        connects: Some(Connects::with::<NativeUpstream>(
            "/process",
            "",
            error(r#"{"object":"response","status":"failed","error":{"code":$WORD,"message":$MESSAGE}}"#, true),
        )),
    },
    Protocol {
        name: "responses",
        is_finished: true,
        serves: Some(Serves::with::<Responses>(
            "/v1",
            &[
                StreamForm {
                    endpoint: "/responses",
                    body: r#"{"model":"demo","input":"hi","stream":true,"tools":[{"type":"function","name":"f","parameters":{}}]}"#,
                    ..POST
                },
                StreamForm {
                    name: "WebSocket",
                    endpoint: "/responses",
                    body: r#"{"type":"response.create","model":"demo","input":"hi","tools":[{"type":"function","name":"f","parameters":{}}]}"#,
                    is_websocket: true,
                    ..POST
                },
            ],
        )),
        connects: Some(Connects::with::<ResponsesUpstream>(
            "/v1",
            "model = \"m\"",
            Some(ErrorEvent {
                name: Some("response.failed"),
                data: r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":$WORD,"message":$MESSAGE}}}"#,
                has_code: true,
            }),
        )),
    },
    Protocol {
        name: "chat-completions",
        is_finished: true,
        serves: Some(Serves::with::<ChatCompletions>(
            "/v1",
            &[StreamForm {
                endpoint: "/chat/completions",
                body: r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"tools":[{"type":"function","function":{"name":"f"}}]}"#,
                ..POST
            }],
        )),
        connects: Some(
            Connects::with::<ChatCompletionsUpstream>(
                "/v1",
                "model = \"m\"",
                error(r#"{"error":{"message":$MESSAGE,"type":$TYPE,"param":null,"code":$CODE}}"#, true),
            )
            .and_fuzzed_with(&["think_tags = \"off\"", "think_tags = \"opened\""]),
        ),
    },
    Protocol {
        name: "anthropic-messages",
        is_finished: true,
        serves: Some(Serves::with::<AnthropicMessages>(
            "/anthropic",
            &[StreamForm {
                endpoint: "/v1/messages",
                body: r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true,"thinking":{"type":"adaptive"},"tools":[{"name":"f","input_schema":{"type":"object"}}]}"#,
                ..POST
            }],
        )),
        connects: Some(Connects::with::<AnthropicMessagesUpstream>(
            "",
            "model = \"m\"",
            Some(ErrorEvent {
                name: Some("error"),
                data: r#"{"type":"error","error":{"type":$WORD,"message":$MESSAGE}}"#,
                has_code: true,
            }),
        )),
    },
    Protocol {
        name: "a2a",
        is_finished: true,
        serves: Some(Serves::with::<A2a>(
            "/a2a/{agent}",
            &[
                A2A,
                StreamForm {
                    name: "JSON-RPC 0.3",
                    headers: &[("a2a-version", "0.3")],
                    body: r#"{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}"#,
                    ..A2A
                },
                StreamForm {
                    name: "REST",
                    endpoint: "/message:stream",
                    body: r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#,
                    ..A2A
                },
                StreamForm {
                    name: "reasoning in statuses",
                    deltas_of: THOUGHTS,
                    options: "reasoning = \"stream\"",
                    ..A2A
                },
                StreamForm { name: "reasoning as an artifact", options: "reasoning = \"artifact\"", ..A2A },
            ],
        )),
        connects: Some(Connects::with::<A2aUpstream>(
            "/a2a",
            "binding = \"JSONRPC\", version = \"1.0\", streaming = true, poll_interval = \"1ms\", max_poll_interval = \"1ms\"",
            error(r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":$MESSAGE}}"#, false),
        )),
    },
    Protocol {
        name: "ag-kit",
        is_finished: true,
        serves: Some(Serves::with::<AgKit>(
            "/ag-kit/{agent}",
            &[
                StreamForm { deltas_of: CALLS, ..AG_KIT },
                StreamForm { name: "reasoning as text", options: "reasoning = \"text\"", ..AG_KIT },
                StreamForm { name: "reasoning as events", options: "reasoning = \"event\"", ..AG_KIT },
            ],
        )),
        connects: Some(Connects::with::<AgKitUpstream>(
            "/send-message",
            "",
            error(r#"{"type":"error","error":$MESSAGE}"#, false),
        )),
    },
    Protocol {
        name: "ag-ui",
        is_finished: true,
        serves: Some(Serves::with::<AgUi>(
            "/ag-ui/{agent}",
            &[
                AG_UI,
                StreamForm { name: "protobuf", headers: &[("accept", "application/vnd.ag-ui.event+proto")], ..AG_UI },
            ],
        )),
        connects: Some(
            Connects::with::<AgUiUpstream>(
                "/",
                "",
                error(r#"{"type":"RUN_ERROR","code":$WORD,"message":$MESSAGE}"#, true),
            )
            .and_fuzzed_with(&[
                "events = \"drop\"",
                "events = \"all\"",
                "confirm_calls = [\"delete_file\"]",
                "events = \"all\", confirm_calls = [\"delete_file\"]",
            ]),
        ),
    },
    Protocol {
        name: "hitl",
        is_finished: true,
        serves: Some(Serves::with::<Hitl>("/hitl/{agent}", &[])),
        connects: Some(Connects::with::<HitlUpstream>(
            "",
            "poll_interval = \"1ms\", max_poll_interval = \"1ms\"",
            None,
        )),
    },
    Protocol { name: "mcp", is_finished: true, serves: Some(Serves::with::<Mcp>("/mcp", &[MCP])), connects: None },
    Protocol {
        name: "agentscope",
        is_finished: true,
        serves: None,
        connects: Some(Connects::with::<AgentscopeUpstream>(
            "",
            "agent_id = \"a\", user = \"u\", session = { chat_model_config = {} }",
            error(
                r#"{"type":"REPLY_END","id":"e1","session_id":"s1","reply_id":"0afab602e7994bfda6a3000000000001","finished_reason":"error","error":{"type":$WORD,"message":$MESSAGE}}"#,
                true,
            ),
        )),
    },
];
