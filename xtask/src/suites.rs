//! The table of conformance suites. A suite is a folder in `tests/conformance/`. Not here: running a suite
//! (`conformance`). Adding one is described in the documentation of the crate.

use std::time::Duration;

/// One set of scripts against one configuration of the gateway.
#[derive(Clone)]
pub(crate) struct Suite {
    /// Its folder in `tests/conformance/` and its name for `--only`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Run in order against the same gateway.
    pub(crate) scripts: &'static [&'static str],
    /// A server that the suite needs besides the gateway, most often its agent.
    pub(crate) upstream: Option<Upstream>,
    /// True if `cargo xtask test` runs it. Others run by name and with `test --all`, such as those of older clients.
    pub(crate) in_ci: bool,
    /// Time limit of one script.
    pub(crate) limit: Duration,
}

/// A server in the folder of the suite, run by the interpreter of the suite.
#[derive(Clone, Copy)]
pub(crate) struct Upstream {
    /// The script, which serves on the port after `--port`.
    pub(crate) script: &'static str,
    /// A path to which it responds with 200 once it is ready.
    pub(crate) ready: &'static str,
}

impl Upstream {
    const fn new(script: &'static str) -> Self {
        Self { script, ready: "/health" }
    }

    /// An A2A server, which publishes its card once it is ready.
    const fn with_card(script: &'static str) -> Self {
        Self { script, ready: "/.well-known/agent-card.json" }
    }
}

/// The interpreter of the scripts. A script `*.py` of a suite in Node is run by the installed Python, without packages.
/// Packages are pinned in `requirements.txt` or `package.json` of the folder.
#[derive(Clone)]
pub(crate) enum Kind {
    Python,
    Node,
    /// Node with Chromium, whose path is in `CHROMIUM`.
    Browser,
}

pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "agent-api",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(120),
    },
    Suite {
        name: "operations",
        kind: Kind::Python,
        scripts: &["client.py", "telemetry.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(60),
    },
    // 550 MB of packages: only by name.
    Suite {
        name: "agentscope",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream::new("agent.py")),
        in_ci: false,
        limit: Duration::from_secs(300),
    },
    Suite {
        name: "responses",
        kind: Kind::Python,
        scripts: &["client.py", "agents_sdk.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // The previous major version of the same client, which LangChain uses.
    Suite {
        name: "responses-older",
        kind: Kind::Python,
        scripts: &["../responses/client.py", "langchain.py"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "responses-node",
        kind: Kind::Node,
        scripts: &["client.mjs", "ai-sdk.mjs", "agents.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "responses-node-older",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "anthropic",
        kind: Kind::Python,
        scripts: &["client.py", "langchain.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // The previous generation of the same client: it sends everything with each request.
    Suite {
        name: "anthropic-older",
        kind: Kind::Python,
        scripts: &["../anthropic/client.py"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "anthropic-node",
        kind: Kind::Node,
        scripts: &["client.mjs", "ai-sdk.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "anthropic-node-older",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // 260 MB of packages: only by name.
    Suite {
        name: "claude-code",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(240),
    },
    Suite {
        name: "chat-completions",
        kind: Kind::Python,
        scripts: &["client.py", "front_end.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // The previous major version of the same client, which LangChain uses.
    Suite {
        name: "chat-completions-older",
        kind: Kind::Python,
        scripts: &["../chat-completions/client.py", "langchain.py"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "chat-completions-node",
        kind: Kind::Node,
        scripts: &["client.mjs", "ai-sdk.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "chat-completions-node-older",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // 400 MB of packages: only by name.
    Suite {
        name: "chat-completions-litellm",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // 400 MB of packages: only by name.
    Suite {
        name: "codex",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: Some(Upstream::new("agent.mjs")),
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "a2a",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // Clients of A2A 0.3, which most existing agents still use.
    Suite {
        name: "a2a-older",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "a2a-node",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "a2a-node-older",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // The official clients of MCP in each of their eras, which sign in at an authorization server of the suite.
    Suite {
        name: "mcp",
        kind: Kind::Python,
        scripts: &["client.py", "people.py", "work.py", "fast.py", "sign_in.py", "bridge.py"],
        upstream: Some(Upstream::new("authorization.py")),
        in_ci: true,
        limit: Duration::from_secs(240),
    },
    Suite {
        name: "mcp-node",
        kind: Kind::Node,
        scripts: &["client.mjs", "sign-in.mjs"],
        upstream: Some(Upstream::new("authorization.mjs")),
        in_ci: true,
        limit: Duration::from_secs(240),
    },
    // The conformance kit. 260 MB of packages, most of it a newer Node: only by name.
    Suite {
        name: "mcp-kit",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: Some(Upstream::new("agent.mjs")),
        in_ci: false,
        limit: Duration::from_secs(600),
    },
    // Keys, tokens of an issuer of their own, and client certificates at a gateway of their own.
    Suite {
        name: "callers",
        kind: Kind::Python,
        scripts: &["client.py", "tls.py"],
        upstream: Some(Upstream::new("issuer.py")),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "callers-node",
        kind: Kind::Node,
        scripts: &["client.mjs", "tls.mjs"],
        upstream: Some(Upstream::new("issuer.mjs")),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // The types of the official Python package of AG-UI.
    Suite {
        name: "ag-ui",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "ag-ui-node",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // Three versions of the same client before 1.0.
    Suite {
        name: "ag-ui-node-older",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // 330 MB of packages: only by name.
    Suite {
        name: "copilotkit",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // A page of another origin, in Chromium.
    Suite {
        name: "foreign-page",
        kind: Kind::Browser,
        scripts: &["client.mjs"],
        upstream: Some(Upstream::new("agent.mjs")),
        in_ci: true,
        limit: Duration::from_secs(300),
    },
    // The console, in Chromium.
    Suite {
        name: "console",
        kind: Kind::Browser,
        scripts: &["client.mjs"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(600),
    },
    // The gateway as the client of real A2A servers: the current generation, the previous one, and JavaScript.
    Suite {
        name: "upstream-a2a",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream::with_card("agent.py")),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "upstream-a2a-older",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream::with_card("agent.py")),
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    Suite {
        name: "upstream-a2a-node",
        kind: Kind::Node,
        scripts: &["client.py"],
        upstream: Some(Upstream::with_card("agent.mjs")),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 110 MB of packages.
    Suite {
        name: "upstream-ag-kit",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/healthz" }),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // Servers of models: a script with the habits of thirteen of them.
    Suite {
        name: "upstream-model",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream::new("agent.py")),
        in_ci: true,
        limit: Duration::from_secs(240),
    },
    // 480 MB of packages.
    Suite {
        name: "upstream-litellm",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/health/liveliness" }),
        in_ci: false,
        limit: Duration::from_secs(300),
    },
    // 150 MB of packages.
    Suite {
        name: "upstream-responses",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/readiness" }),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 45 MB of packages.
    Suite {
        name: "upstream-ag-ui",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/health" }),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 110 MB of packages.
    Suite {
        name: "upstream-ag-ui-langgraph",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/health" }),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 75 MB of packages.
    Suite {
        name: "upstream-pydantic-ai",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/health" }),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 180 MB of packages.
    Suite {
        name: "upstream-agno",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/status" }),
        in_ci: false,
        limit: Duration::from_secs(180),
    },
    // 150 MB of packages.
    Suite {
        name: "upstream-adk",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/a2a/polled/.well-known/agent-card.json" }),
        in_ci: false,
        limit: Duration::from_secs(600),
    },
    // 120 MB of packages.
    Suite {
        name: "upstream-agent-framework",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream::new("agent.py")),
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 480 MB of packages.
    Suite {
        name: "upstream-agentscope",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some(Upstream { script: "agent.py", ready: "/ready" }),
        in_ci: false,
        limit: Duration::from_secs(300),
    },
];
