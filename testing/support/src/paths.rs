//! The routes of a gateway that serves all protocols like the shipped configuration, and every path of it, with `x` for
//! parameters.
//!
//! Shared by the behaviour tests, which check that every path is listed, and the fault runs (`faults/`).

macro_rules! mounts {
    ($($protocol:literal at $path:literal,)+) => {
        /// Every client protocol, and the path of its route.
        pub const MOUNTS: &[(&str, &str)] = &[$(($protocol, $path)),+];

        /// Configuration of these routes.
        pub const ROUTES: &str = concat!($("[[routes]]\nprotocol = \"", $protocol, "\"\npath = \"", $path, "\"\n"),+);
    };
}

mounts! {
    "agent-api" at "/agents/{agent}",
    "responses" at "/v1",
    "chat-completions" at "/v1",
    "anthropic-messages" at "/anthropic",
    "a2a" at "/a2a/{agent}",
    "ag-kit" at "/ag-kit/{agent}",
    "ag-ui" at "/ag-ui/{agent}",
    "hitl" at "/hitl/{agent}",
}

/// Configuration of the same routes, each with further lines of its table.
pub fn routes_with(own: &str) -> String {
    ROUTES.replace("[[routes]]\n", &format!("[[routes]]\n{own}\n"))
}

/// Paths of the protocols, with agent `demo`.
pub const PATHS: &[&str] = &[
    "/a2a/demo",
    "/a2a/demo/.well-known/agent-card.json",
    "/a2a/demo/.well-known/agent.json",
    "/a2a/demo/agent/authenticatedExtendedCard",
    "/a2a/demo/extendedAgentCard",
    "/a2a/demo/message:send",
    "/a2a/demo/message:stream",
    "/a2a/demo/tasks",
    "/a2a/demo/tasks/x",
    "/a2a/demo/tasks/x/pushNotificationConfigs",
    "/a2a/demo/tasks/x/pushNotificationConfigs/x",
    "/a2a/demo/tasks/x:cancel",
    "/a2a/demo/tasks/x:subscribe",
    "/a2a/demo/v1/card",
    "/a2a/demo/v1/message:send",
    "/a2a/demo/v1/message:stream",
    "/a2a/demo/v1/tasks",
    "/a2a/demo/v1/tasks/x",
    "/a2a/demo/v1/tasks/x/pushNotificationConfigs",
    "/a2a/demo/v1/tasks/x/pushNotificationConfigs/x",
    "/a2a/demo/v1/tasks/x:cancel",
    "/a2a/demo/v1/tasks/x:subscribe",
    "/a2a/demo/x/extendedAgentCard",
    "/a2a/demo/x/message:send",
    "/a2a/demo/x/message:stream",
    "/a2a/demo/x/tasks",
    "/a2a/demo/x/tasks/x",
    "/a2a/demo/x/tasks/x/pushNotificationConfigs",
    "/a2a/demo/x/tasks/x/pushNotificationConfigs/x",
    "/a2a/demo/x/tasks/x:cancel",
    "/a2a/demo/x/tasks/x:subscribe",
    "/ag-kit/demo/healthz",
    "/ag-kit/demo/send-message",
    "/ag-kit/demo/v1/aibot/bots/x/send-message",
    "/ag-ui/demo",
    "/agents/demo/health",
    "/agents/demo/process",
    "/agents/demo/process/task",
    "/agents/demo/process/task/x",
    "/agents/demo/runs",
    "/agents/demo/runs/x",
    "/agents/demo/runs/x/cancel",
    "/agents/demo/runs/x/events",
    "/agents/demo/stop",
    "/anthropic",
    "/anthropic/api/hello",
    "/anthropic/v1/messages",
    "/anthropic/v1/messages/count_tokens",
    "/anthropic/v1/models",
    "/anthropic/v1/models/x",
    "/hitl/demo/agent/active/sessionid/x",
    "/hitl/demo/agent/invoke",
    "/hitl/demo/agent/resume",
    "/hitl/demo/agent/session/x",
    "/hitl/demo/agent/session/x/x",
    "/hitl/demo/agent/sessionids/x",
    "/hitl/demo/agent/status/x",
    "/hitl/demo/agent/status/x/x",
    "/hitl/demo/system/info",
    "/v1/chat/completions",
    "/v1/chat/completions/x",
    "/v1/chat/completions/x/messages",
    "/v1/conversations",
    "/v1/conversations/x",
    "/v1/conversations/x/items",
    "/v1/conversations/x/items/x",
    "/v1/models",
    "/v1/models/x",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/responses/x",
    "/v1/responses/x/cancel",
    "/v1/responses/x/input_items",
];

/// Paths of the gateway itself.
pub const OWN_PATHS: &[&str] = &["/healthz", "/readyz"];

/// Paths of the admin listener.
pub const ADMIN_PATHS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/gateway",
    "/api/config",
    "/api/routes",
    "/api/agents",
    "/api/runs",
    "/api/callers",
    "/api/reload",
    "/api/log",
];
