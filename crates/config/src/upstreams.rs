//! Upstreams of agents: protocol, servers, headers and limits.
//!
//! Not here: the agent's own settings and the keeper of its history ([`super::agents`]).

use std::ops::Range;
use std::sync::Arc;

use interlingua_core::answer::{ALL_DECISIONS, NATIVE_DECISIONS};
use interlingua_core::capability::{HistoryNeed, UpstreamCapabilities};
use interlingua_core::pending::Decision;
use interlingua_core::size::Size;
use secrecy::ExposeSecret as _;
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{
    EjectTable, EndpointTable, HealthTable, RetryBudgetTable, TimeoutsTable, UpstreamLimitsTable, UpstreamTable,
};
use super::headers;
use super::located::{Table, WithSpan};
use super::options::Options;
use super::plain_http;
use super::protocols::{Protocols, UpstreamProtocol};
use super::tree::TomlValue;
use super::upstream_connection;
use super::upstream_settings::{
    Affinity, Eject, Endpoint, HealthCheck, Identity, IdentityKind, RetryBudget, Timeouts, Upstream, UpstreamLimits,
};
use super::validator::Validator;
use super::{quiet, suggest};
use interlingua_base::identity::IdentityKey;

pub(super) fn resolve(
    agent: &WithSpan<String>,
    located: &WithSpan<Table<UpstreamTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<Upstream> {
    let table = &located.value;
    let headers =
        headers::resolve(&table.headers, validator.folder, validator.env, &validator.rejected, &mut validator.found);
    let forward = headers::forward(&table.forward, &headers, &mut validator.found);
    let identity = identity(table, validator);
    let timeouts = timeouts(&table.timeouts, validator);
    let retries = WithSpan { value: u64::from(table.retries.value), span: table.retries.span.clone() };
    let retries = validator.between(&retries, "retries", 0, 10);
    let max_event = validator.at_least(&table.max_event, "max_event", Size::kibibytes(1));
    let endpoints = endpoints(agent, table, validator);
    let health = table.health.as_ref().and_then(|health| health_check(health, validator));
    let tls = table.tls.as_ref().and_then(|tls| upstream_connection::tls(tls, &endpoints, validator));
    let pinned = table.tls.as_ref().and_then(|tls| tls.value.server_name.as_ref()).map(|name| &name.span);
    let proxy = table.proxy.as_ref().and_then(|proxy| upstream_connection::proxy(proxy, pinned, validator));
    let eject = eject(table.eject.as_ref(), endpoints.len(), validator);
    let retry_budget = retry_budget(&table.retry_budget, validator);
    let limits = limits(&table.limits, validator);
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
    let written = SettingPositions::new(protocol, table, &raw_options);
    let options = (declared.read)(raw_options, &mut validator.found);
    check_url(agent, located, protocol, declared, validator);
    plain_http::check(agent, &endpoints, &plain_http::SentCredentials { headers: &headers, table }, validator);

    let options = options?;
    let mut capabilities = connected(agent, &options, declared, &endpoints, &written, validator);
    if table.approval_extension.value {
        capabilities.decisions =
            extended_decisions(&table.approval_extension, capabilities.decisions, protocol, validator);
    }
    let affinity = affinity(table, &capabilities, protocol, validator);

    Some(Upstream {
        protocol: protocol.value.clone(),
        endpoints: endpoints.into_iter().map(|(endpoint, _)| endpoint).collect(),
        affinity,
        health,
        eject,
        retry_budget,
        limits,
        headers,
        forward,
        identity: identity?,
        tls,
        proxy,
        timeouts,
        retries: u32::try_from(retries).unwrap_or(0),
        max_event,
        capabilities,
        options,
    })
}

/// The protocol of that name. An unknown name is reported.
fn find_protocol<'a>(protocol: &WithSpan<String>, validator: &mut Validator<'_, 'a>) -> Option<&'a UpstreamProtocol> {
    let protocols: &'a Protocols = validator.protocols;
    let declared = protocols.upstreams().iter().find(|one| one.name == protocol.value);
    if declared.is_none() {
        let names = protocols.upstream_names();
        let fallback = if protocols.client_names().any(|name| name == protocol.value) {
            "supported for clients only"
        } else {
            "unknown name"
        };
        let label = suggest::protocol(&protocol.value, names, |product| protocols.of_product(product), fallback);
        validator.report(
            Diagnostic::error(format!("unknown upstream protocol {:?}", protocol.value))
                .at(&protocol.span)
                .label(label)
                .help(upstream_protocols(validator)),
        );
    }
    declared
}

/// Checks that there is a URL if and only if the protocol needs one.
fn check_url(
    agent: &WithSpan<String>,
    located: &WithSpan<Table<UpstreamTable>>,
    protocol: &WithSpan<String>,
    declared: &UpstreamProtocol,
    validator: &mut Validator<'_, '_>,
) {
    let table = &located.value;
    let rejected = ["url", "urls"].iter().any(|key| validator.rejected.contains(&located.span, key));
    let given = table.url.as_ref().map(|url| &url.span).or(table.urls.as_ref().map(|urls| &urls.span));
    match (given, declared.built_in) {
        (None, false) if !rejected => validator.report(
            Diagnostic::error(format!("the upstream of agent {:?} has no URL", agent.value))
                .at(&protocol.span)
                .label("this protocol needs url = \"http://…\""),
        ),
        (Some(span), true) => validator.report(
            Diagnostic::error(format!("protocol {:?} has no URL", protocol.value))
                .at(span)
                .label("leave it out: the agent is part of the gateway")
                .also(&protocol.span, "built in"),
        ),
        _ => {}
    }

    if let (Some(name), true) = (table.forward.first(), declared.built_in) {
        validator.report(
            Diagnostic::error(format!(
                "protocol {:?} has no server that headers could be forwarded to",
                protocol.value
            ))
            .at(&name.span)
            .label("leave it out: the agent is part of the gateway"),
        );
    }
    let connection = [table.tls.as_ref().map(|tls| &tls.span), table.proxy.as_ref().map(|proxy| &proxy.span)];
    let identity = (table.identity.value != IdentityKind::None).then_some(&table.identity.span);
    for span in connection.into_iter().chain([identity]).flatten().filter(|_| declared.built_in) {
        validator.report(
            Diagnostic::error(format!("protocol {:?} has no server to connect to", protocol.value))
                .at(span)
                .label("leave it out: the agent is part of the gateway"),
        );
    }
    if let Some(health) = &table.health
        && declared.built_in
    {
        validator.report(
            Diagnostic::error(format!("protocol {:?} has no server to check", protocol.value))
                .at(&health.span)
                .label("leave it out: the agent is part of the gateway"),
        );
    }
}

/// The agent's servers, with their positions in the file.
fn endpoints(
    agent: &WithSpan<String>,
    table: &UpstreamTable,
    validator: &mut Validator<'_, '_>,
) -> Vec<(Endpoint, Range<usize>)> {
    let Some(urls) = &table.urls else {
        let url = table.url.as_ref().and_then(|url| Some((validator.url(url, "url")?, url.span.clone())));
        return url.map(|(url, span)| (Endpoint { url, weight: 1 }, span)).into_iter().collect();
    };

    if let Some(url) = &table.url {
        let message = format!("the upstream of agent {:?} has both \"url\" and \"urls\"", agent.value);
        let error = Diagnostic::error(message).at(&urls.span).label("give one of them").also(&url.span, "here");
        validator.report(error);
    }
    if urls.value.is_empty() {
        let error = Diagnostic::error("\"urls\" is empty").at(&urls.span).label("write [{ url = \"http://…\" }]");
        validator.report(error);
    }

    let mut endpoints: Vec<(Endpoint, Range<usize>)> = Vec::new();
    for located in &urls.value {
        let Some((endpoint, span)) = endpoint(located, validator) else { continue };
        // URLs that differ only in their query name the same server.
        if let Some((_, first)) = endpoints.iter().find(|(known, _)| known.shown() == endpoint.shown()) {
            validator.report(
                Diagnostic::error("two endpoints have the same URL")
                    .at(&span)
                    .label("give it a higher weight instead")
                    .also(first, "here"),
            );
        }
        endpoints.push((endpoint, span));
    }
    endpoints
}

fn endpoint(
    located: &WithSpan<Table<EndpointTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<(Endpoint, Range<usize>)> {
    let weight = validator.between_u32(&located.value.weight, "weight", 1, 100);
    let Some(url) = &located.value.url else {
        if !validator.rejected.contains(&located.span, "url") {
            validator.report(
                Diagnostic::error("an endpoint has no URL").at(&located.span).label("write { url = \"http://…\" }"),
            );
        }
        return None;
    };
    Some((Endpoint { url: validator.url(url, "url")?, weight }, url.span.clone()))
}

fn health_check(located: &WithSpan<Table<HealthTable>>, validator: &mut Validator<'_, '_>) -> Option<HealthCheck> {
    let table = &located.value;
    let every = validator.positive(&table.every, "every");
    let timeout = validator.positive(&table.timeout, "timeout");
    if timeout >= every {
        let span = if table.timeout.span.is_empty() { &table.every.span } else { &table.timeout.span };
        let message = "\"timeout\" must be shorter than \"every\"";
        validator.report(Diagnostic::error(message).at(span).label("one check ends before the next one"));
    }
    let healthy = validator.between_u32(&table.healthy, "healthy", 1, 1000);
    let unhealthy = validator.between_u32(&table.unhealthy, "unhealthy", 1, 1000);

    let Some(path) = &table.path else {
        if !validator.rejected.contains(&located.span, "path") {
            validator.report(
                Diagnostic::error("\"health\" has no path").at(&located.span).label("write path = \"/health\""),
            );
        }
        return None;
    };
    // A path that starts with two slashes would name another host.
    if !path.value.starts_with('/') || path.value.starts_with("//") || path.value.contains(['\\', '#']) {
        let error = Diagnostic::error("\"path\" is not a path").at(&path.span);
        validator.report(error.label("must begin with one \"/\", and have no \"#\" and no \"\\\""));
    }
    Some(HealthCheck { path: path.value.clone(), every, timeout, healthy, unhealthy })
}

fn eject(table: Option<&WithSpan<Table<EjectTable>>>, endpoints: usize, validator: &mut Validator<'_, '_>) -> Eject {
    let defaults = Table::default();
    let given = table.map_or(&defaults, |located| &located.value);
    let settings = Eject {
        failures: validator.between_u32(&given.failures, "failures", 1, 1000),
        share: validator.share(&given.share, "share"),
        pause: validator.positive(&given.pause, "pause"),
        longest: given.longest.value.0,
        most: validator.share(&given.most, "most"),
    };
    if settings.longest < settings.pause {
        // One of the two may be a default, which has no position in the file.
        let (span, label) = match table {
            Some(located) if given.longest.span.is_empty() => (&located.span, "give it a longer one"),
            _ => (&given.longest.span, "a pause is at least so long"),
        };
        let error = Diagnostic::error("\"longest\" is shorter than \"pause\"").at(span).label(label);
        validator.report(error.also(&given.pause.span, "here"));
    }
    if let Some(located) = table
        && endpoints == 1
    {
        let warning = Diagnostic::warning("\"eject\" has no effect").at(&located.span);
        validator.report(warning.label("one endpoint alone is never ejected"));
    }
    settings
}

fn retry_budget(table: &RetryBudgetTable, validator: &mut Validator<'_, '_>) -> RetryBudget {
    RetryBudget {
        share: validator.share(&table.share, "share"),
        least: validator.between_u32(&table.least, "least", 0, 1000),
    }
}

fn limits(table: &UpstreamLimitsTable, validator: &mut Validator<'_, '_>) -> UpstreamLimits {
    UpstreamLimits {
        runs: validator.between_u32(&table.runs, "runs", 1, 1_000_000),
        queue: validator.between_u32(&table.queue, "queue", 0, 1_000_000),
        wait: validator.positive(&table.wait, "wait"),
    }
}

/// The identity of callers that the agent receives. `None` if the key cannot be used.
fn identity(table: &UpstreamTable, validator: &mut Validator<'_, '_>) -> Option<Identity> {
    let wanted = &table.identity;
    let Some(located) = &table.identity_key else {
        return match wanted.value {
            IdentityKind::None => Some(Identity::None),
            IdentityKind::Derived => Some(Identity::Derived),
            IdentityKind::Jwt => {
                let error = Diagnostic::error("identity = \"jwt\" needs a key").at(&wanted.span);
                validator.report(error.label("write identity_key = { file = \"identity.pem\" }"));
                None
            }
        };
    };

    let key = match located.value.read(&located.span, validator.folder, validator.env, &mut validator.found) {
        Ok(key) => key,
        Err(_) if validator.rejected.any_in(&located.span) => return None,
        Err(error) => {
            validator.report(error);
            return None;
        }
    };
    let key = match IdentityKey::from_pem(key.expose_secret()) {
        Ok(key) => key,
        Err(reason) => {
            let error = Diagnostic::error(format!("\"identity_key\" {reason}")).at(&located.span);
            let label = "make one with `openssl genpkey -algorithm ed25519`";
            validator.report(error.label(label));
            return None;
        }
    };
    if wanted.value == IdentityKind::Jwt {
        return Some(Identity::Jwt(Arc::new(key)));
    }
    let warning = Diagnostic::warning("\"identity_key\" is not used").at(&located.span);
    validator.report(warning.label("only with identity = \"jwt\""));
    Some(if wanted.value == IdentityKind::Derived { Identity::Derived } else { Identity::None })
}

/// The decisions of an agent with the approval extension. It widens those of the plain canonical approval only: any other
/// connector writes decisions in the form of its protocol, so a decision that it does not name would arrive as another.
fn extended_decisions(
    configured: &WithSpan<bool>,
    taken: &'static [Decision],
    protocol: &WithSpan<String>,
    validator: &mut Validator<'_, '_>,
) -> &'static [Decision] {
    if taken == NATIVE_DECISIONS {
        return ALL_DECISIONS;
    }

    let words: Vec<&str> = taken.iter().map(|decision| decision.as_str()).collect();
    let words = if words.is_empty() { "no decisions".to_owned() } else { words.join(", ") };
    let label = format!("agents that speak {:?} get {words}, with it or without", protocol.value);
    let warning = Diagnostic::warning("\"approval_extension\" has no effect").at(&configured.span);
    validator.report(warning.label(label));
    taken
}

/// The endpoint for the turns of a session. A single endpoint takes all turns.
fn affinity(
    table: &UpstreamTable,
    capabilities: &UpstreamCapabilities,
    protocol: &WithSpan<String>,
    validator: &mut Validator<'_, '_>,
) -> Affinity {
    if let Some(configured) = &table.affinity
        && configured.value != Affinity::None
    {
        let why = if table.urls.is_none() {
            Some("the agent has one endpoint: write urls = [{ url = \"…\" }, …]".to_owned())
        } else if capabilities.history == HistoryNeed::SentEachTime {
            Some(format!("agents that speak {:?} keep no history", protocol.value))
        } else {
            None
        };
        if let Some(label) = why {
            validator.report(Diagnostic::warning("\"affinity\" has no effect").at(&configured.span).label(label));
        }
    }

    let configured = table.affinity.as_ref().map_or(Affinity::Session, |configured| configured.value);
    if table.urls.is_some() { configured } else { Affinity::None }
}

/// Positions of the settings that a connector may complain about.
struct SettingPositions<'a> {
    protocol: &'a WithSpan<String>,
    /// `url` and the options by name, with their values.
    settings: Vec<(String, Range<usize>)>,
}

impl<'a> SettingPositions<'a> {
    fn new(protocol: &'a WithSpan<String>, table: &UpstreamTable, options: &TomlValue<'_>) -> Self {
        let url = table.url.as_ref().map(|url| ("url".to_owned(), url.span.clone()));
        let options = options.get_ref().as_table().into_iter().flatten();
        let options = options.map(|(name, value)| (name.get_ref().to_string(), value.span()));
        Self { protocol, settings: url.into_iter().chain(options).collect() }
    }

    /// The position of the setting that a sentence names first, else that of the protocol.
    fn place(&self, sentence: &str) -> &Range<usize> {
        let mut words = sentence.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_');
        let named = words.find_map(|word| self.settings.iter().find(|(name, _)| name == word));
        named.map_or(&self.protocol.span, |(_, span)| span)
    }
}

/// Creates a connector for each endpoint, without any request, and reports its errors and warnings.
fn connected(
    agent: &WithSpan<String>,
    options: &Options,
    declared: &UpstreamProtocol,
    endpoints: &[(Endpoint, Range<usize>)],
    written: &SettingPositions<'_>,
    validator: &mut Validator<'_, '_>,
) -> UpstreamCapabilities {
    if declared.built_in {
        return try_connect(agent, options, declared, None, written, validator).unwrap_or_default();
    }

    // Without a URL, a connector that needs one is not created: the missing URL is already reported.
    let mut found: Option<(UpstreamCapabilities, &Range<usize>)> = None;
    for (endpoint, span) in endpoints {
        let Some(capabilities) = try_connect(agent, options, declared, Some(&endpoint.url), written, validator) else {
            // The other endpoints would give the same error.
            return UpstreamCapabilities::default();
        };
        match &found {
            Some((first, at)) if *first != capabilities => {
                let message = format!("the endpoints of agent {:?} differ in what they can do", agent.value);
                let error = Diagnostic::error(message).at(span).label("write an agent of its own for it");
                validator.report(error.also(at, "the first one"));
            }
            Some(_) => {}
            None => found = Some((capabilities, span)),
        }
    }
    found.map(|(capabilities, _)| capabilities).unwrap_or_default()
}

fn try_connect(
    agent: &WithSpan<String>,
    options: &Options,
    declared: &UpstreamProtocol,
    url: Option<&Url>,
    written: &SettingPositions<'_>,
    validator: &mut Validator<'_, '_>,
) -> Option<UpstreamCapabilities> {
    // The second line of a connector's message is the remedy.
    match declared.try_connect.as_ref().map(|try_connect| try_connect(url, options)) {
        Some(Err(reason)) => {
            let (reason, label) = reason.split_once('\n').unwrap_or((&reason, "cannot be used like this"));
            let message = format!("upstream of agent {:?}: {reason}", agent.value);
            validator.report(Diagnostic::error(message).at(written.place(reason)).label(label));
            None
        }
        Some(Ok(connected)) => {
            for warning in connected.warnings {
                let (warning, label) = warning.split_once('\n').map_or((&*warning, None), |(w, l)| (w, Some(l)));
                let message = format!("upstream of agent {:?}: {warning}", agent.value);
                // Several endpoints may give the same warning.
                if !validator.found.iter().any(|known| known.message() == message) {
                    let diagnostic = Diagnostic::warning(message).at(written.place(warning));
                    let diagnostic = diagnostic.code(quiet::UPSTREAM, Some(&agent.value));
                    validator.report(match label {
                        Some(label) => diagnostic.label(label),
                        None => diagnostic,
                    });
                }
            }
            Some(connected.capabilities)
        }
        None => Some(UpstreamCapabilities::default()),
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
