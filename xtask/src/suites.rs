//! The table of conformance suites. A suite is a folder below `tests/conformance/`; how one is run is said in
//! `conformance`, how one is added in the crate's documentation.

use std::time::Duration;

/// One set of scripts against one configuration of the gateway.
pub(crate) struct Suite {
    /// Its folder below `tests/conformance/`, and what `--only` calls it.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Run one after the other against the same gateway.
    pub(crate) scripts: &'static [&'static str],
    /// A script that serves an agent on the port it is told by `--port`, answering `GET /health` when it is ready.
    pub(crate) upstream: Option<&'static str>,
    /// Whether `cargo xtask test` runs it. The others run by name alone.
    pub(crate) in_ci: bool,
    /// How long one script may take.
    pub(crate) limit: Duration,
}

/// What runs a suite's scripts. Packages are pinned in `requirements.txt` or `package.json` of its folder.
pub(crate) enum Kind {
    Python,
    // The first suite with an official Node client ends this allowance.
    #[allow(dead_code)]
    Node,
}

/// Every suite there is.
pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "agent-api",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: true,
        limit: Duration::from_secs(120),
    },
    // 550 MB of packages: by name alone.
    Suite {
        name: "agentscope",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: Some("agent.py"),
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
    // The same client, one major version back, which is what LangChain takes.
    Suite {
        name: "responses-older",
        kind: Kind::Python,
        scripts: &["../responses/client.py", "langchain.py"],
        upstream: None,
        in_ci: true,
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
        in_ci: true,
        limit: Duration::from_secs(180),
    },
    // 400 MB of packages: by name alone.
    Suite {
        name: "codex",
        kind: Kind::Node,
        scripts: &["client.mjs"],
        upstream: Some("agent.mjs"),
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
    // The clients of generation 0.3, which most agents in the field are still written for.
    Suite {
        name: "a2a-older",
        kind: Kind::Python,
        scripts: &["client.py"],
        upstream: None,
        in_ci: true,
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
        in_ci: true,
        limit: Duration::from_secs(180),
    },
];
