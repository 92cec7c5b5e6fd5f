//! Agents: their names, their limits and their upstreams.

use std::ops::Range;
use std::sync::Arc;

use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{HistoryNeed, UpstreamCapabilities};
use interlingua_core::size::Size;
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{AgentTable, TimeoutsTable, UpstreamTable};
use super::headers;
use super::located::{Entries, Located, Table};
use super::options::Options;
use super::protocols::{Protocols, UpstreamProtocol};
use super::settings::{Agent, History, HistoryLimit, Timeouts, Upstream};
use super::suggest;
use super::validator::Validator;

/// An agent that the file declares.
pub(super) struct DeclaredAgent {
    pub(super) name: String,
    pub(super) span: Range<usize>,
    /// `None` if the agent has errors. They are already reported; routes may still name the agent.
    pub(super) agent: Option<Arc<Agent>>,
}

/// Names are part of paths, which longer names would make unreadable.
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

/// Names are part of paths: characters that would have to be escaped there are rejected.
fn check_name(name: &Located<String>, validator: &mut Validator<'_, '_>) {
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
    name: &Located<String>,
    located: &Located<Table<AgentTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<Agent> {
    let table = &located.value;
    let turns =
        Located { value: u64::from(table.history_limit.turns.value), span: table.history_limit.turns.span.clone() };
    let turns = validator.between(&turns, "turns", 1, u64::from(u32::MAX));
    let bytes = validator.at_least(&table.history_limit.bytes, "bytes", Size::kibibytes(1));
    let max_run_bytes = validator.at_least(&table.max_run_bytes, "max_run_bytes", Size::kibibytes(1));
    let Some(upstream) = &table.upstream else {
        // If the upstream itself could not be read, that is already reported.
        if !validator.rejected.contains(&located.span, "upstream") {
            validator.report(
                Diagnostic::error(format!("agent {:?} has no upstream", name.value))
                    .at(&name.span)
                    .label("write upstream = { protocol = \"…\", url = \"…\" }"),
            );
        }
        return None;
    };

    let upstream = self::upstream(name, upstream, validator)?;
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
        upstream,
    })
}

/// Who keeps the history: as configured, else as the agent needs it.
fn history(
    agent: &Located<String>,
    configured: Option<&Located<History>>,
    upstream: &Upstream,
    validator: &mut Validator<'_, '_>,
) -> History {
    let needed = upstream.capabilities.history;
    let Some(configured) = configured else {
        return match needed {
            HistoryNeed::KeptByAgent => History::Upstream,
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
    configured.value
}

fn upstream(
    agent: &Located<String>,
    located: &Located<Table<UpstreamTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<Upstream> {
    let table = &located.value;
    let headers =
        headers::resolve(&table.headers, validator.folder, validator.env, &validator.rejected, &mut validator.found);
    let timeouts = timeouts(&table.timeouts, validator);
    let retries = Located { value: u64::from(table.retries.value), span: table.retries.span.clone() };
    let retries = validator.between(&retries, "retries", 0, 10);
    let max_event = validator.at_least(&table.max_event, "max_event", Size::kibibytes(1));
    let url = table.url.as_ref().and_then(|url| validator.url(url, "url"));
    let Some(protocol) = &table.protocol else {
        if !validator.rejected.contains(&located.span, "protocol") {
            validator.report(
                Diagnostic::error(format!("the upstream of agent {:?} has no protocol", agent.value))
                    .at(&located.span)
                    .label(upstream_protocols(validator)),
            );
        }
        return None;
    };

    let declared = find_protocol(protocol, validator)?;
    let raw_options = validator.options(table.options.as_ref(), protocol);
    let options = (declared.read)(raw_options, &mut validator.found);
    check_url(agent, located, protocol, declared, validator);

    let options = options?;
    let mut capabilities = connected(agent, &options, declared, url.as_ref(), protocol, validator);
    if table.approval_extension {
        capabilities.decisions = ALL_DECISIONS;
    }

    Some(Upstream {
        protocol: protocol.value.clone(),
        url,
        headers,
        timeouts,
        retries: u32::try_from(retries).unwrap_or(0),
        max_event,
        capabilities,
        options,
    })
}

/// The protocol of that name, which is reported if there is none.
fn find_protocol<'a>(protocol: &Located<String>, validator: &mut Validator<'_, 'a>) -> Option<&'a UpstreamProtocol> {
    let protocols: &'a Protocols = validator.protocols;
    let declared = protocols.upstreams().iter().find(|one| one.name == protocol.value);
    if declared.is_none() {
        let names = protocols.upstream_names();
        let fallback = if protocols.client_names().any(|name| name == protocol.value) {
            "supported for clients only"
        } else {
            "unknown name"
        };
        let label = suggest::label(&protocol.value, names, fallback);
        validator.report(
            Diagnostic::error(format!("unknown upstream protocol {:?}", protocol.value))
                .at(&protocol.span)
                .label(label)
                .help(upstream_protocols(validator)),
        );
    }
    declared
}

/// Checks that there is a URL exactly if the protocol needs one.
fn check_url(
    agent: &Located<String>,
    located: &Located<Table<UpstreamTable>>,
    protocol: &Located<String>,
    declared: &UpstreamProtocol,
    validator: &mut Validator<'_, '_>,
) {
    match (&located.value.url, declared.built_in) {
        (None, false) if !validator.rejected.contains(&located.span, "url") => validator.report(
            Diagnostic::error(format!("the upstream of agent {:?} has no URL", agent.value))
                .at(&protocol.span)
                .label("this protocol needs url = \"http://…\""),
        ),
        (Some(url), true) => validator.report(
            Diagnostic::error(format!("protocol {:?} has no URL", protocol.value))
                .at(&url.span)
                .label("leave it out: the agent is part of the gateway")
                .also(&protocol.span, "built in"),
        ),
        _ => {}
    }
}

/// Tries to connect, without any request, and reports what the connector has to say.
fn connected(
    agent: &Located<String>,
    options: &Options,
    declared: &UpstreamProtocol,
    url: Option<&Url>,
    protocol: &Located<String>,
    validator: &mut Validator<'_, '_>,
) -> UpstreamCapabilities {
    // A connector that needs a URL is not tried without one: the missing URL is already reported.
    let try_connect = declared.try_connect.as_ref().filter(|_| url.is_some() || declared.built_in);
    match try_connect.map(|try_connect| try_connect(url, options)) {
        Some(Err(reason)) => {
            let (reason, label) = reason.split_once('\n').unwrap_or((&reason, "cannot be used like this"));
            let message = format!("upstream of agent {:?}: {reason}", agent.value);
            validator.report(Diagnostic::error(message).at(&protocol.span).label(label));
            UpstreamCapabilities::default()
        }
        Some(Ok(connected)) => {
            for warning in connected.warnings {
                let message = format!("upstream of agent {:?}: {warning}", agent.value);
                validator.report(Diagnostic::warning(message).at(&protocol.span));
            }
            connected.capabilities
        }
        None => UpstreamCapabilities::default(),
    }
}

fn timeouts(table: &TimeoutsTable, validator: &mut Validator<'_, '_>) -> Timeouts {
    Timeouts {
        connect: validator.positive(&table.connect, "connect"),
        first_byte: validator.positive(&table.first_byte, "first_byte"),
        idle: validator.positive(&table.idle, "idle"),
        total: validator.positive(&table.total, "total"),
    }
}

fn upstream_protocols(validator: &Validator<'_, '_>) -> String {
    format!("upstream protocols: {}", suggest::list(validator.protocols.upstream_names()))
}
