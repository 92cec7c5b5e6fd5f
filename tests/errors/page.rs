//! `docs/errors.md`: the table of classes and what each is recognised by, written from the data that is played and
//! compiled.

use std::fmt::Write as _;
use std::path::Path;

use interlingua_core::error_class::tables::{CODES, STATUSES, WORDINGS};
use interlingua_core::{Blame, FaultKind as K, error_class};

use crate::expected::{REPORTED, of};

const HEAD: &str = "# Errors of agents

The gateway assigns one class to each error of an agent. Each class has one answer in each protocol of clients. The form of
the agent's error does not matter: an HTTP status, an event of a stream, or JSON or plain text with status 200. `tests/errors`
tests every class in every form for every pair of protocols, and generates this page:
`INSTA_UPDATE=always cargo test -p interlingua --test errors`.

Errors of the client's own request are on the pages of the protocols.

## Classes

The message is the sentence in the first column. If the error concerns the client's request, the agent's text follows,
without secrets, paths and stack traces ([filter](protocols/agent-api.md#error-text)). The Agent API and AG-UI use the code
as it is. AG-Kit, and `details.error_code` in Anthropic Messages, use it in lower case. A2A has it in
`agent_api.error.code` in the metadata of a failed task. The status is the HTTP status before a stream has begun. HITL
answers with status 200 and `status: \"error\"`.

| class | code | status | retry helps |
| --- | --- | --- | --- |
";

const CLIENTS: &str = "
**Retry helps**: no agent has processed the request, and the same request may succeed later. For all other classes,
Responses, Chat Completions and Anthropic Messages answer with `x-should-retry: false` if the status would make their SDKs
repeat the request (408, 409, 429, 500 and above), and no answer has `retry-after`. The gateway never sends a request again
to an agent that has begun its answer.

| code | OpenAI: status, `type`, `code` | `response.error.code` | Anthropic: status, `type` | A2A over REST: status, name |
| --- | --- | --- | --- | --- |
";

const AGENTS: &str = "
An error after the agent's first event ends the stream, with the same type and code in an error frame, `response.failed`,
`error`, `FAILED`, or `RUN_ERROR`. A code of the agent that belongs to no class is passed on to clients of the Agent API,
AG-UI, AG-Kit, A2A and, as `error_code`, Anthropic Messages. Clients of other protocols receive the code of a failed agent.

The gateway authenticates to the agent with its own credentials. If the agent refuses them, the client receives an error of
the agent, never a 401 or 403.

## Recognition

The code determines the class, otherwise a phrase in the text, otherwise the status. A status inside the error is used if the
answer has none.
Errors are found in `{\"error\": …}`, `{\"errors\": […]}`, `{\"detail\": …}`, `{\"message\", \"code\"}`, `{\"error_type\",
\"error_message\"}`, `{\"object\": \"error\", …}`, lists of them, JSON within a text, and plain text. For an HTML page
only the status is used.

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

    text.push_str("\nThe first matching row applies. Codes and types, case-insensitive:\n\n| codes of agents | code |\n| --- | --- |\n");
    for (class, codes) in CODES {
        let _ = writeln!(text, "| {} | `{}` |", list(codes), class.code());
    }

    text.push_str(
        "\nPhrases, case-insensitive. The first matching row applies:\n\n| the text contains | code |\n| --- | --- |\n",
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
