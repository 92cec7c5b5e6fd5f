//! The protocols that the load client speaks: where their requests go and what is in them. A protocol that the gateway
//! serves is measured in pairs once it stands here.
//!
//! Not here: how an answer is read, which is the same for all ([`crate::wire`]).

use crate::script::Script;

/// A protocol of clients.
pub(crate) struct Client {
    /// Its name in `gateway.toml`.
    pub(crate) protocol: &'static str,
    /// The path of its route.
    pub(crate) route: &'static str,
    /// The path of its requests.
    pub(crate) path: &'static str,
    /// A further line of the head of its requests.
    pub(crate) header: &'static str,
    /// The body that carries a script, for a session.
    pub(crate) body: fn(Script, &str) -> String,
}

/// Every protocol. The first one is also spoken where no gateway is.
pub(crate) const CLIENTS: &[Client] = &[AGENT_API, A2A, RESPONSES, CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, AG_UI];

const AGENT_API: Client = Client {
    protocol: "agent-api",
    route: "/agents/{agent}",
    path: "/agents/rig/process",
    header: "",
    body: |script, session| {
        format!(
            "{{\"input\":[{{\"role\":\"user\",\"type\":\"message\",\"content\":[{{\"type\":\"text\",\"text\":\"rig:{script}\"}}]}}],\
             \"session_id\":\"{session}\",\"user_id\":\"{session}\"}}"
        )
    },
};

const A2A: Client = Client {
    protocol: "a2a",
    route: "/a2a/{agent}",
    path: "/a2a/rig/message:stream",
    header: "a2a-version: 1.0\r\n",
    body: |script, session| {
        format!(
            "{{\"message\":{{\"messageId\":\"m\",\"contextId\":\"{session}\",\"role\":\"ROLE_USER\",\
             \"parts\":[{{\"text\":\"rig:{script}\"}}]}}}}"
        )
    },
};

const RESPONSES: Client = Client {
    protocol: "responses",
    route: "/v1",
    path: "/v1/responses",
    header: "",
    body: |script, _| {
        let streams = streams(script);
        format!("{{\"model\":\"rig\",\"stream\":{streams},\"input\":\"rig:{script}\"}}")
    },
};

const CHAT_COMPLETIONS: Client = Client {
    protocol: "chat-completions",
    route: "/chat/v1",
    path: "/chat/v1/chat/completions",
    header: "",
    body: |script, _| of_messages("", script),
};

const ANTHROPIC_MESSAGES: Client = Client {
    protocol: "anthropic-messages",
    route: "/anthropic",
    path: "/anthropic/v1/messages",
    header: "anthropic-version: 2023-06-01\r\n",
    body: |script, _| of_messages("\"max_tokens\":9999,", script),
};

const AG_UI: Client = Client {
    protocol: "ag-ui",
    route: "/ag-ui/{agent}",
    path: "/ag-ui/rig",
    header: "",
    body: |script, session| {
        format!(
            "{{\"threadId\":\"{session}\",\"runId\":\"run_{session}\",\"state\":{{}},\"tools\":[],\"context\":[],\
             \"forwardedProps\":{{}},\"messages\":[{{\"id\":\"m\",\"role\":\"user\",\"content\":\"rig:{script}\"}}]}}"
        )
    },
};

/// Whether clients of model APIs ask for a stream.
fn streams(script: Script) -> bool {
    script != Script::Call
}

/// A request that carries its conversation, with further fields.
fn of_messages(fields: &str, script: Script) -> String {
    let streams = streams(script);
    format!(
        "{{\"model\":\"rig\",{fields}\"stream\":{streams},\
         \"messages\":[{{\"role\":\"user\",\"content\":\"rig:{script}\"}}]}}"
    )
}

/// The client of a protocol.
///
/// # Panics
/// No client has this name, which is a mistake in a table of this program.
pub(crate) fn client(protocol: &str) -> &'static Client {
    let found = CLIENTS.iter().find(|client| client.protocol == protocol);
    found.unwrap_or_else(|| panic!("no client speaks {protocol:?}"))
}
