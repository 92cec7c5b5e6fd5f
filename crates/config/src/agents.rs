//! Agents: names, limits and the keeper of their history.
//!
//! Not here: their protocols and addresses ([`super::upstreams`]).

use std::ops::Range;
use std::sync::Arc;

use interlingua_core::capability::HistoryNeed;
use interlingua_core::size::Size;

use super::diagnostics::Diagnostic;
use super::document::AgentTable;
use super::located::{Entries, Table, WithSpan};
use super::settings::{Agent, History, HistoryLimit};
use super::upstream_settings::Upstream;
use super::validator::Validator;
use super::{limits, upstreams};

/// An agent that the file declares.
pub(super) struct DeclaredAgent {
    pub(super) name: String,
    pub(super) span: Range<usize>,
    /// `None` if the agent has errors. They are already reported; routes may still name the agent.
    pub(super) agent: Option<Arc<Agent>>,
}

/// Names are part of paths. A longer name would make a path unreadable.
const MAX_NAME_LEN: usize = 64;

pub(super) fn resolve(agents: &Entries<Table<AgentTable>>, validator: &mut Validator<'_, '_>) -> Vec<DeclaredAgent> {
    let mut known = Vec::new();
    for (name, table) in agents.iter() {
        check_name(name, validator);
        let agent = agent(name, table, validator).map(Arc::new);
        known.push(DeclaredAgent { name: name.value.clone(), span: name.span.clone(), agent });
    }
    known
}

/// Rejects characters that would have to be escaped in a path.
fn check_name(name: &WithSpan<String>, validator: &mut Validator<'_, '_>) {
    let text = name.value.as_str();
    let fine = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());

    if !fine || text.len() > MAX_NAME_LEN {
        validator.report(
            Diagnostic::error(format!("invalid agent name {text:?}"))
                .at(&name.span)
                .label("names are part of paths: up to 64 letters, digits, \"-\", \"_\" and \".\""),
        );
    }
}

fn agent(
    name: &WithSpan<String>,
    located: &WithSpan<Table<AgentTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<Agent> {
    let table = &located.value;
    let turns =
        WithSpan { value: u64::from(table.history_limit.turns.value), span: table.history_limit.turns.span.clone() };
    let turns = validator.between(&turns, "turns", 1, u64::from(u32::MAX));
    let bytes = validator.at_least(&table.history_limit.bytes, "bytes", Size::kibibytes(1));
    let max_run_bytes = validator.at_least(&table.max_run_bytes, "max_run_bytes", Size::kibibytes(1));
    let Some(upstream) = &table.upstream else {
        // An error in the upstream itself is reported already.
        if !validator.rejected.contains(&located.span, "upstream") {
            validator.report(
                Diagnostic::error(format!("agent {:?} has no upstream", name.value))
                    .at(&name.span)
                    .label("write upstream = { protocol = \"…\", url = \"…\" }"),
            );
        }
        return None;
    };

    let upstream = upstreams::resolve(name, upstream, validator)?;
    let history = history(name, table.history.as_ref(), &upstream, validator);
    Some(Agent {
        name: name.value.clone(),
        description: table.description.clone(),
        version: table.version.clone(),
        history,
        history_limit: HistoryLimit { turns: usize::try_from(turns).unwrap_or(usize::MAX), bytes },
        parallel_turns: table.parallel_turns,
        server_label: table.server_label.clone(),
        max_run_bytes,
        limits: limits::of_agent(&table.limits, validator),
        upstream,
    })
}

/// The configured keeper of the history, else the one that the agent needs.
fn history(
    agent: &WithSpan<String>,
    configured: Option<&WithSpan<History>>,
    upstream: &Upstream,
    validator: &mut Validator<'_, '_>,
) -> History {
    let needed = upstream.capabilities.history;
    let Some(configured) = configured else {
        return match needed {
            HistoryNeed::KeptByAgent | HistoryNeed::KeptByAgentOnly => History::Upstream,
            HistoryNeed::SentEachTime => History::Gateway,
        };
    };

    if configured.value == History::Upstream && needed == HistoryNeed::SentEachTime {
        let message = format!("agent {:?} would forget every turn: history = \"upstream\"", agent.value);
        validator.report(
            Diagnostic::error(message)
                .at(&configured.span)
                .label("write history = \"gateway\", or leave it out")
                .help(format!("agents that speak {:?} keep no history", upstream.protocol)),
        );
    }
    if configured.value == History::Gateway && needed == HistoryNeed::KeptByAgentOnly {
        let message = format!("agent {:?} cannot be sent its history: history = \"gateway\"", agent.value);
        validator.report(
            Diagnostic::error(message)
                .at(&configured.span)
                .label("write history = \"upstream\", or leave it out")
                .help(format!("the protocol {:?} has no place for a history", upstream.protocol)),
        );
    }
    configured.value
}
