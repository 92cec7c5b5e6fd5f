//! The agents: their names, their bounds, and how each is reached.

use std::ops::Range;
use std::sync::Arc;

use super::diagnostics::Diagnostic;
use super::document::{AgentTable, Entries, Located, Table, TimeoutsTable, UpstreamTable};
use super::headers;
use super::resolve::Validator;
use super::settings::{Agent, HistoryLimit, Timeouts, Upstream};
use super::size::Size;
use super::suggest;

/// An agent the file speaks of.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) place: Range<usize>,
    /// `None` where something about it is wrong. That has been told; routes may still name it.
    pub(super) agent: Option<Arc<Agent>>,
}

/// Names longer than this make unreadable paths.
const MAX_NAME_LEN: usize = 64;

pub(super) fn resolve(agents: &Entries<Table<AgentTable>>, checking: &mut Validator<'_, '_>) -> Vec<Known> {
    let mut known = Vec::new();
    for (name, table) in agents.iter() {
        check_name(name, checking);
        let agent = agent(name, table, checking).map(Arc::new);
        known.push(Known { name: name.value.clone(), place: name.place.clone(), agent });
    }
    known
}

/// Names stand in paths: what would have to be escaped there is refused.
fn check_name(name: &Located<String>, checking: &mut Validator<'_, '_>) {
    let text = name.value.as_str();
    let fine = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !fine || text.len() > MAX_NAME_LEN {
        checking.mistake(
            Diagnostic::error(format!("an agent cannot be called {text:?}"))
                .at(&name.place)
                .label("a name stands in paths: up to 64 letters, digits, \"-\", \"_\" and \".\""),
        );
    }
}

fn agent(
    name: &Located<String>,
    written: &Located<Table<AgentTable>>,
    checking: &mut Validator<'_, '_>,
) -> Option<Agent> {
    let table = &written.value;
    let turns =
        Located { value: u64::from(table.history_limit.turns.value), place: table.history_limit.turns.place.clone() };
    let turns = checking.between(&turns, "turns", 1, u64::from(u32::MAX));
    let bytes = checking.at_least(&table.history_limit.bytes, "bytes", Size::kibibytes(1));
    let max_run_bytes = checking.at_least(&table.max_run_bytes, "max_run_bytes", Size::kibibytes(1));
    let Some(upstream) = &table.upstream else {
        // An agent that could not be read at all has been told of already.
        if !checking.cuts.contain(&written.place, "upstream") {
            checking.mistake(
                Diagnostic::error(format!("agent {:?} has no upstream", name.value))
                    .at(&name.place)
                    .label("write upstream = { protocol = \"…\", url = \"…\" }"),
            );
        }
        return None;
    };
    Some(Agent {
        name: name.value.clone(),
        description: table.description.clone(),
        version: table.version.clone(),
        history: table.history,
        history_limit: HistoryLimit { turns: usize::try_from(turns).unwrap_or(usize::MAX), bytes },
        parallel_turns: table.parallel_turns,
        server_label: table.server_label.clone(),
        max_run_bytes,
        upstream: self::upstream(name, upstream, checking)?,
    })
}

fn upstream(
    agent: &Located<String>,
    written: &Located<Table<UpstreamTable>>,
    checking: &mut Validator<'_, '_>,
) -> Option<Upstream> {
    let table = &written.value;
    let headers =
        headers::resolve(&table.headers, checking.folder, checking.surroundings, &checking.cuts, &mut checking.found);
    let timeouts = timeouts(&table.timeouts, checking);
    let retries = Located { value: u64::from(table.retries.value), place: table.retries.place.clone() };
    let retries = checking.between(&retries, "retries", 0, 10);
    let max_event = checking.at_least(&table.max_event, "max_event", Size::kibibytes(1));
    let url = table.url.as_ref().and_then(|url| checking.url(url, "url"));
    let Some(protocol) = &table.protocol else {
        if !checking.cuts.contain(&written.place, "protocol") {
            checking.mistake(
                Diagnostic::error(format!("the upstream of agent {:?} has no protocol", agent.value))
                    .at(&written.place)
                    .label(known_upstreams(checking)),
            );
        }
        return None;
    };
    let declared = checking.protocols.upstreams().iter().find(|one| one.name == protocol.value);
    let Some(declared) = declared else {
        let names = checking.protocols.upstream_names();
        let otherwise = if checking.protocols.client_names().any(|name| name == protocol.value) {
            "spoken with clients only"
        } else {
            "not known here"
        };
        let label = suggest::label(&protocol.value, names, otherwise);
        checking.mistake(
            Diagnostic::error(format!("no upstream speaks a protocol called {:?}", protocol.value))
                .at(&protocol.place)
                .label(label)
                .help(known_upstreams(checking)),
        );
        return None;
    };
    let written_options = checking.options(table.options.as_ref(), protocol);
    let options = (declared.read)(written_options, &mut checking.found);
    match (&table.url, declared.built_in) {
        (None, false) if !checking.cuts.contain(&written.place, "url") => checking.mistake(
            Diagnostic::error(format!("the upstream of agent {:?} has no URL", agent.value))
                .at(&protocol.place)
                .label("this protocol needs url = \"http://…\""),
        ),
        (Some(url), true) => checking.mistake(
            Diagnostic::error(format!("protocol {:?} has no URL", protocol.value))
                .at(&url.place)
                .label("leave it out: the agent lives in the gateway")
                .also(&protocol.place, "built in"),
        ),
        _ => {}
    }
    let options = options?;
    // A connector that needs a URL is not tried without one: that would be told twice.
    let connecting = declared.connecting.as_ref().filter(|_| url.is_some() || declared.built_in);
    match connecting.map(|connecting| connecting(url.as_ref(), &options)) {
        Some(Err(reason)) => {
            let (reason, label) = reason.split_once('\n').unwrap_or((&reason, "cannot be used so"));
            let message = format!("upstream of agent {:?}: {reason}", agent.value);
            checking.mistake(Diagnostic::error(message).at(&protocol.place).label(label));
        }
        Some(Ok(advice)) => {
            for advice in advice {
                let message = format!("upstream of agent {:?}: {advice}", agent.value);
                checking.mistake(Diagnostic::warning(message).at(&protocol.place));
            }
        }
        None => {}
    }
    Some(Upstream {
        protocol: protocol.value.clone(),
        url,
        headers,
        timeouts,
        retries: u32::try_from(retries).unwrap_or(0),
        max_event,
        approval_extension: table.approval_extension,
        options,
    })
}

fn timeouts(table: &TimeoutsTable, checking: &mut Validator<'_, '_>) -> Timeouts {
    Timeouts {
        connect: checking.positive(&table.connect, "connect"),
        first_byte: checking.positive(&table.first_byte, "first_byte"),
        idle: checking.positive(&table.idle, "idle"),
        total: checking.positive(&table.total, "total"),
    }
}

fn known_upstreams(checking: &Validator<'_, '_>) -> String {
    format!("upstreams may speak: {}", suggest::list(checking.protocols.upstream_names()))
}
