//! Converts the document into settings: the order of the checks, and the checks of server and store.

use std::path::Path;

use interlingua_core::duration::Period;
use interlingua_core::network;
use interlingua_core::size::Size;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{Document, ServerLimitsTable, ServerTable, ServerTimeoutsTable};
use super::host::Host;
use super::listen::parse_listen_address;
use super::located::WithSpan;
use super::protocols::Protocols;
use super::secret::{Env, Sources};
use super::settings::{Server, ServerLimits, ServerTimeouts, Settings};
use super::store;
use super::tree::{self, RejectedEntries, TomlValue};
use super::validator::Validator;
use super::{admin, agents, auth, callers, carried, exposure, fingerprint, observe, quiet, routes, tls};
use interlingua_base::secrets::Masks;

/// Checks the complete document. The settings are `None` if an essential part is missing. The masks cover the secrets
/// of the document and of the files and variables that it names.
pub(super) fn resolve(
    tree: Spanned<DeTable<'_>>,
    folder: &Path,
    protocols: &Protocols,
    env: &Env<'_>,
) -> (Option<Settings>, Vec<Diagnostic>, Masks) {
    let sources = Sources::new(env);
    let (mut settings, mut found) = resolve_from(tree, folder, protocols, &sources);
    let secrets = sources.into_secrets();
    if secrets.is_full() {
        let error = Diagnostic::error("there are more secrets than the gateway can mask in its logs");
        found.push(error.help("move query parameters of URLs that are no secrets to the options of the agent"));
    }
    let masks = secrets.masks();
    if let Some(settings) = &mut settings {
        settings.secrets = masks.clone();
    }
    (settings, found, masks)
}

fn resolve_from(
    mut tree: Spanned<DeTable<'_>>,
    folder: &Path,
    protocols: &Protocols,
    env: &Sources<'_>,
) -> (Option<Settings>, Vec<Diagnostic>) {
    let fingerprints = fingerprint::of_agents(tree.get_ref(), folder, env);
    let options = take_options(tree.get_mut());
    let mut validator =
        Validator { protocols, env, folder, rejected: RejectedEntries::default(), found: Vec::new(), options };
    let root = Spanned::new(tree.span(), DeValue::Table(tree.into_inner()));
    let document = tree::read::<Document>("the file", root, &mut validator.rejected, &mut validator.found);
    let Some(document) = document else {
        return (None, validator.found);
    };

    let server = server(&document.server, &mut validator);
    let heartbeat = validator.positive(&document.server.heartbeat, "heartbeat");
    let store = store::resolve(&document.store, &mut validator);
    let known = agents::resolve(&document.agents, &mut validator);
    let public_url = server.as_ref().and_then(|server| server.public_url.as_deref());
    let reached = auth::AuthContext {
        has_proxies: server.as_ref().is_some_and(|server| !server.trusted_proxies.is_empty()),
        has_client_ca: server
            .as_ref()
            .and_then(|server| server.tls.as_ref())
            .is_some_and(|tls| tls.client_ca.is_some()),
    };
    let auth = auth::resolve(&document.auth, reached, &mut validator);
    let methods = auth::set_up(&document.auth.value);
    let callers = callers::resolve(&document.callers, &known, &document.auth.value, &mut validator);
    let is_local = server.as_ref().is_none_or(|server| server.listen.ip().to_canonical().is_loopback());
    let shared = routes::RouteContext { heartbeat, public_url, auth: methods, is_local };
    let routes = routes::resolve(&document.routes, &known, shared, &mut validator);
    carried::check(&document, &routes, &mut validator);
    let event_readers = carried::event_readers(protocols, &routes);
    if let Some(server) = &server {
        exposure::check(&document, server, methods, &mut validator);
    }
    let agents = known.into_iter().filter_map(|known| known.agent).collect();
    let public = server.as_ref().map(|server| server.listen);
    let admin = document.admin.as_ref().and_then(|admin| admin::resolve(admin, public, &mut validator));
    let observe = observe::resolve(&document.observe, &mut validator);
    quiet::apply(&document.server.quiet, &mut validator.found);
    let settings = server.map(|server| Settings {
        server,
        store,
        auth,
        callers,
        agents,
        routes,
        admin,
        observe,
        fingerprints,
        event_readers,
        secrets: Masks::default(),
    });
    (settings, validator.found)
}

/// Moves the protocols' own options out of the tree. Their index replaces them.
fn take_options<'i>(tree: &mut DeTable<'i>) -> Vec<TomlValue<'i>> {
    let mut taken = Vec::new();
    let mut take = |table: &mut DeValue<'i>| {
        if let DeValue::Table(table) = table
            && let Some(options) = table.get_mut("options")
        {
            let number = DeValue::String(taken.len().to_string().into());
            let replacement = Spanned::new(options.span(), number);
            taken.push(std::mem::replace(options, replacement));
        }
    };
    if let Some(DeValue::Table(agents)) = tree.get_mut("agents").map(Spanned::get_mut) {
        for (_, agent) in agents.iter_mut() {
            if let DeValue::Table(agent) = agent.get_mut()
                && let Some(upstream) = agent.get_mut("upstream")
            {
                take(upstream.get_mut());
            }
        }
    }

    if let Some(DeValue::Array(routes)) = tree.get_mut("routes").map(Spanned::get_mut) {
        for route in routes.iter_mut() {
            take(route.get_mut());
        }
    }
    taken
}

fn server(table: &ServerTable, validator: &mut Validator<'_, '_>) -> Option<Server> {
    let listen = parse_listen_address(&table.listen.value);
    if let Err(label) = &listen {
        validator
            .report(Diagnostic::error("\"listen\" is not an address with a port").at(&table.listen.span).label(label));
    }

    let public_url = table.public_url.as_ref().and_then(|located| {
        let url = validator.url(located, "public_url")?;
        if url.query().is_some() {
            let message = "\"public_url\" cannot have a query";
            validator.report(Diagnostic::error(message).at(&located.span).label("leave it out"));
        }
        Some(url.as_str().trim_end_matches('/').to_owned())
    });
    let workers = match &table.workers {
        Some(workers) => validator.between(workers, "workers", 1, 1024),
        None => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
    };
    let mut trusted_proxies = Vec::new();
    for proxy in &table.trusted_proxies {
        match network::parse(&proxy.value) {
            Ok(network) => trusted_proxies.push(network),
            Err(label) => validator
                .report(Diagnostic::error(format!("{:?} is not a network", proxy.value)).at(&proxy.span).label(label)),
        }
    }

    let max_body = validator.at_least(&table.max_body, "max_body", Size::kibibytes(1));
    let timeouts = server_timeouts(&table.timeouts, validator);
    let limits = server_limits(&table.limits, &table.max_body, validator);
    let allowed_hosts = table.allowed_hosts.as_ref().map(|hosts| allowed_hosts(hosts, validator));
    let tls = table.tls.as_ref().and_then(|tls| tls::files(tls, validator));
    Some(Server {
        listen: listen.ok()?,
        public_url,
        workers: usize::try_from(workers).unwrap_or(1),
        max_body,
        timeouts,
        limits,
        shutdown_delay: table.shutdown_delay.value.0,
        drain: table.drain.value.0,
        trusted_proxies,
        forwarded: table.forwarded,
        allowed_hosts,
        tls,
    })
}

fn server_timeouts(table: &ServerTimeoutsTable, validator: &mut Validator<'_, '_>) -> ServerTimeouts {
    const MIN: Period = Period::milliseconds(10);
    const MAX: Period = Period::seconds(3600);
    let mut checked = |period, key| validator.within(period, key, MIN, MAX);

    ServerTimeouts {
        head: checked(&table.head, "head"),
        body: checked(&table.body, "body"),
        write: checked(&table.write, "write"),
        idle: checked(&table.idle, "idle"),
        message: checked(&table.message, "message"),
        ping: checked(&table.ping, "ping"),
    }
}

fn server_limits(
    table: &ServerLimitsTable,
    max_body: &WithSpan<Size>,
    validator: &mut Validator<'_, '_>,
) -> ServerLimits {
    const MAX_CONNECTIONS: u64 = 1_000_000;
    let mut number =
        |number, key, min, max| usize::try_from(validator.between(number, key, min, max)).unwrap_or(usize::MAX);
    let connections = number(&table.connections, "connections", 1, MAX_CONNECTIONS);
    let per_address = table.connections_per_address.as_ref();
    let per_address = per_address.map(|located| number(located, "connections_per_address", 1, MAX_CONNECTIONS));
    let json_depth = number(&table.json_depth, "json_depth", 8, 128);
    let json_values = number(&table.json_values, "json_values", 1_000, 10_000_000);
    let runs = number(&table.runs, "runs", 1, 10_000_000);
    let queued_turns = number(&table.queued_turns, "queued_turns", 1, 4_096);
    let receivers = number(&table.receivers, "receivers", 1, 1_000_000);
    let pushes = number(&table.pushes, "pushes", 2, 1_000_000);
    let sockets = number(&table.sockets, "sockets", 1, MAX_CONNECTIONS);
    let per_caller = table.sockets_per_caller.as_ref();
    let per_caller = per_caller.map(|located| number(located, "sockets_per_caller", 1, MAX_CONNECTIONS));
    let followers = number(&table.followers, "followers", 1, MAX_CONNECTIONS);
    let http2_streams = number(&table.http2_streams, "http2_streams", 1, 1_000);
    let streams_per_address = table.http2_streams_per_address.as_ref();
    let streams_per_address =
        streams_per_address.map(|located| number(located, "http2_streams_per_address", 1, MAX_CONNECTIONS));
    let http2_resets = number(&table.http2_resets, "http2_resets", 10, 100_000);
    let http2_control_frames = number(&table.http2_control_frames, "http2_control_frames", 100, 1_000_000);
    let unread = validator.at_least(&table.unread, "unread", Size::mebibytes(1));
    let page = validator.at_least(&table.page, "page", Size::kibibytes(64));
    // The HTTP library rejects heads of more than 128 KiB, whose target it does not know.
    let head = validator.size_between(&table.head, "head", Size::kibibytes(4), Size::kibibytes(64));

    let bodies = table.bodies.value;
    if bodies < max_body.value {
        // Point at the value in the file: the other one may be a default.
        let span = if table.bodies.span.is_empty() { &max_body.span } else { &table.bodies.span };
        validator.report(
            Diagnostic::error("\"bodies\" is smaller than \"max_body\"")
                .at(span)
                .label(format!("a body of \"{}\" would never be accepted", max_body.value)),
        );
    }
    ServerLimits {
        connections,
        connections_per_address: per_address.unwrap_or(256),
        connections_per_loopback_address: per_address.unwrap_or(connections),
        bodies: bodies.bytes(),
        unread,
        json_depth,
        json_values,
        runs,
        queued_turns,
        receivers,
        pushes,
        page,
        head,
        sockets,
        sockets_per_caller: per_caller.unwrap_or(256),
        sockets_per_loopback_address: per_caller.unwrap_or(sockets),
        followers,
        http2_streams,
        http2_streams_per_address: streams_per_address.unwrap_or(1_000),
        http2_streams_per_loopback_address: streams_per_address.unwrap_or(followers),
        http2_resets,
        http2_control_frames,
    }
}

fn allowed_hosts(located: &[WithSpan<String>], validator: &mut Validator<'_, '_>) -> Vec<Host> {
    let mut hosts = Vec::new();
    for host in located {
        match host.value.parse::<Host>() {
            Ok(read) => hosts.push(read),
            Err(label) => {
                // A complete URL is the most common error.
                let suggestion = Url::parse(&host.value).ok().and_then(|url| Some(url.host_str()?.to_owned()));
                let label = suggestion.map_or_else(|| label.to_owned(), |name| format!("did you mean {name:?}?"));
                validator
                    .report(Diagnostic::error(format!("{:?} is not a host", host.value)).at(&host.span).label(label));
            }
        }
    }

    hosts
}
