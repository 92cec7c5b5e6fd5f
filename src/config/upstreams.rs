//! How agents are reached: the protocol, the URL, headers and limits of an upstream.
//!
//! Not here: what the agent is and who keeps its history ([`super::agents`]).

use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::size::Size;
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{TimeoutsTable, UpstreamTable};
use super::headers;
use super::located::{Located, Table};
use super::options::Options;
use super::protocols::{Protocols, UpstreamProtocol};
use super::settings::{Timeouts, Upstream};
use super::suggest;
use super::validator::Validator;

pub(super) fn resolve(
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
