//! `docs/errors.md`: the table of classes and what each is recognised by, written from the data that is played and compiled.

use std::fmt::Write as _;
use std::path::Path;

use interlingua_core::error_class::tables::{CODES, STATUSES, WORDINGS};
use interlingua_core::{Blame, FaultKind as K, error_class};

use crate::expected::{REPORTED, of};

const HEAD: &str = "# Errors of agents

Each error of an agent gets one class, and each class one answer in each protocol of clients, whichever form the agent
chose: an HTTP status, an event of a stream, JSON or plain text with status 200. `tests/errors` plays every class, in every
form, from an agent of every protocol to a client of every protocol. Written by
`INSTA_UPDATE=always cargo test -p interlingua --test errors`.

Faults of the client's own request are on the pages of the protocols.

## Classes

The message is this sentence, followed by the agent's own words if they are about the client's request, without secrets,
paths and stack traces ([filter](protocols/agent-api.md#error-text)). The code is that of the Agent API and of AG-UI, in
lower case that of AG-Kit and of `details.error_code` in Anthropic Messages, and `agent_api.error.code` in the metadata of a
failed task of A2A. The status is that of these protocols before a stream has begun. The human-in-the-loop service answers
with status 200 and `status: \"error\"`.

| class | code | status | retry helps |
| --- | --- | --- | --- |
";

const CLIENTS: &str = "
**Retry helps**: no agent has worked on the request, and the same request may succeed later. Otherwise the answers of
Responses, Chat Completions and Anthropic Messages have `x-should-retry: false` where their SDKs would repeat the request by
the status alone (408, 409, 429, 500 and above), and no answer names a pause. An agent that has begun its answer never gets
the same request twice, whatever went wrong.

| code | OpenAI: status, `type`, `code` | `response.error.code` | Anthropic: status, `type` | A2A over REST: status, name |
| --- | --- | --- | --- | --- |
";

const AGENTS: &str = "
A failure after the agent's first word ends the stream, with the same type and code in an error frame, `response.failed`,
`error`, `FAILED`, or `RUN_ERROR`. An agent's own code that no class has is passed on to clients of the Agent API, AG-UI and
A2A; for all others it is that of an agent that failed.

The agent's credentials are the gateway's: an agent that refuses them is a failure of the agent to clients, never a 401 or
403.

## Recognition

A code decides first, then a wording, then a status. A status that the error names itself counts where the answer has none.
Errors are found in `{\"error\": …}`, `{\"errors\": […]}`, `{\"detail\": …}`, `{\"message\", \"code\"}`, `{\"error_type\",
\"error_message\"}`, `{\"object\": \"error\", …}`, lists of them, JSON within a text, and plain text. Of a page for people only
the status counts.

| status | code |
| --- | --- |
";

/// The text of the page.
fn page() -> String {
    let mut text = HEAD.to_owned();
    for reported in REPORTED {
        let sentence = match reported.class {
            K::UpstreamUnreachable => "the agent could not be reached".into(),
            K::UpstreamTruncated => "the agent broke off its answer".into(),
            K::UpstreamGarbage => "the agent's answer could not be understood".into(),
            K::UpstreamTooLarge => "the answer is larger than a run may be".into(),
            class => error_class::sentence(class, None),
        };
        let retry = if reported.retry_helps { "yes" } else { "no" };
        let _ = writeln!(text, "| {sentence} | `{}` | {} | {retry} |", reported.code, reported.status);
    }

    text.push_str(CLIENTS);
    for reported in REPORTED {
        let (openai, anthropic, a2a) = (reported.openai, reported.anthropic, reported.a2a);
        let _ = writeln!(
            text,
            "| `{}` | {} `{}` `{}` | `{}` | {} `{}` | {} `{}` |",
            reported.code, openai.0, openai.1, openai.2, reported.response, anthropic.0, anthropic.1, a2a.0, a2a.1
        );
    }

    text.push_str(AGENTS);
    for (statuses, class) in STATUSES {
        let (first, last) = (statuses.start(), statuses.end());
        let range = if first == last { first.to_string() } else { format!("{first}–{last}") };
        let _ = writeln!(text, "| {range} | `{}` |", class.code());
    }
    let _ = writeln!(text, "| all others | `{}` |", K::AgentFailed.code());

    text.push_str("\nThe first row that fits counts. Codes and types, in any case:\n\n| codes of agents | code |\n| --- | --- |\n");
    for (class, codes) in CODES {
        let _ = writeln!(text, "| {} | `{}` |", list(codes), class.code());
    }

    text.push_str(
        "\nWordings, in any case; the first row that fits counts:\n\n| the text contains | code |\n| --- | --- |\n",
    );
    for (class, wordings) in WORDINGS {
        let _ = writeln!(text, "| {} | `{}` |", list(wordings), class.code());
    }
    text
}

fn list(words: &[&str]) -> String {
    // Two backticks hold a text with one.
    let quoted = |word: &&str| if word.contains('`') { format!("`` {word} ``") } else { format!("`{word}`") };
    words.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_errors_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let current = page();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &current).expect("the page is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, current, "write docs/errors.md again with INSTA_UPDATE=always");
}

#[test]
fn every_fault_of_agents_is_in_the_table() {
    for kind in K::ALL.iter().filter(|kind| kind.blame() == Blame::Upstream) {
        let reported = of(*kind);
        assert_eq!((reported.code, reported.status), (kind.code(), kind.status()), "{kind:?}");
        assert_eq!(reported.retry_helps, kind.retry_helps(), "{kind:?}");
    }
}
