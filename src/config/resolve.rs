//! Converts the document into settings: the order of the checks, and the checks of server and store.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use interlingua_core::duration::Period;
use interlingua_core::network;
use interlingua_core::size::Size;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{
    Document, Located, OptionsRef, RetentionTable, ServerLimitsTable, ServerTable, ServerTimeoutsTable, StoreTable,
};
use super::host::Host;
use super::protocols::Protocols;
use super::secret::{self, Env};
use super::settings::{Retention, Server, ServerLimits, ServerTimeouts, Settings, Store, StoreKind};
use super::tree::{self, Rejected, TomlValue};
use super::{agents, carried, routes};

/// The input of every check, and the diagnostics found so far.
pub(super) struct Validator<'i, 'a> {
    pub(super) protocols: &'a Protocols,
    pub(super) env: &'a Env<'a>,
    pub(super) folder: &'a Path,
    pub(super) rejected: Rejected,
    pub(super) found: Vec<Diagnostic>,
    options: Vec<TomlValue<'i>>,
}

/// Checks the complete document. The settings are `None` if something essential is missing.
pub(super) fn resolve(
    mut tree: Spanned<DeTable<'_>>,
    folder: &Path,
    protocols: &Protocols,
    env: &Env<'_>,
) -> (Option<Settings>, Vec<Diagnostic>) {
    let options = take_options(tree.get_mut());
    let mut validator = Validator { protocols, env, folder, rejected: Rejected::default(), found: Vec::new(), options };
    let root = Spanned::new(tree.span(), DeValue::Table(tree.into_inner()));
    let document = tree::read::<Document>("the file", root, &mut validator.rejected, &mut validator.found);
    let Some(document) = document else {
        return (None, validator.found);
    };

    let server = server(&document.server, &mut validator);
    let heartbeat = validator.positive(&document.server.heartbeat, "heartbeat");
    let store = store(&document.store, &mut validator);
    let known = agents::resolve(&document.agents, &mut validator);
    let public_url = server.as_ref().and_then(|server| server.public_url.as_deref());
    let routes = routes::resolve(&document.routes, &known, heartbeat, public_url, &mut validator);
    carried::check(&document.routes, &routes, &mut validator);
    if let Some(server) = &server {
        routes::check_exposure(&document.routes, server.listen.ip(), &mut validator);
    }
    let agents = known.into_iter().filter_map(|known| known.agent).collect();
    let settings = server.map(|server| Settings { server, store, agents, routes });
    (settings, validator.found)
}

impl<'i> Validator<'i, '_> {
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// The options behind `reference`, with the secrets they refer to inserted; an empty table with the span of `owner`
    /// if there are none.
    pub(super) fn options(&mut self, reference: Option<&OptionsRef>, owner: &Located<String>) -> TomlValue<'i> {
        match reference.and_then(|reference| self.options.get(reference.0)) {
            Some(options) => {
                let mut options = options.clone();
                secret::insert_secrets(&mut options, self.folder, self.env, &mut self.found);
                options
            }
            None => Spanned::new(owner.span.clone(), DeValue::Table(DeTable::new())),
        }
    }

    /// Checks that a duration is not zero.
    pub(super) fn positive(&mut self, period: &Located<Period>, key: &str) -> Duration {
        if period.value.0.is_zero() {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be zero")).at(&period.span).label("must be at least \"1ms\""),
            );
        }
        period.value.0
    }

    /// Checks that a duration is within bounds.
    pub(super) fn within(&mut self, period: &Located<Period>, key: &str, min: Period, max: Period) -> Duration {
        if !(min..=max).contains(&period.value) {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be \"{}\"", period.value))
                    .at(&period.span)
                    .label(format!("must be between \"{min}\" and \"{max}\"")),
            );
        }

        period.value.0
    }

    /// Checks that a size is not too small.
    pub(super) fn at_least(&mut self, size: &Located<Size>, key: &str, min: Size) -> usize {
        if size.value < min {
            self.report(
                Diagnostic::error(format!("{key:?} is too small"))
                    .at(&size.span)
                    .label(format!("must be at least \"{min}\"")),
            );
        }

        size.value.bytes()
    }

    /// Checks that a number is within bounds.
    pub(super) fn between(&mut self, number: &Located<u64>, key: &str, min: u64, max: u64) -> u64 {
        if !(min..=max).contains(&number.value) {
            let bounds = match max {
                u64::MAX => format!("must be at least {min}"),
                _ => format!("must be between {min} and {max}"),
            };
            self.report(
                Diagnostic::error(format!("{key:?} cannot be {}", number.value)).at(&number.span).label(bounds),
            );
        }

        number.value
    }

    /// Parses an absolute http(s) URL that contains no user info.
    pub(super) fn url(&mut self, text: &Located<String>, key: &str) -> Option<Url> {
        let scheme = if key == "public_url" { "https" } else { "http" };
        match parse_web_url(&text.value, scheme) {
            Ok(url) => {
                crate::secrets::remember_url(&url);
                Some(url)
            }
            Err(label) => {
                let message = format!("{key:?} is not a URL the gateway can use");
                self.report(Diagnostic::error(message).at(&text.span).label(label));
                None
            }
        }
    }
}

/// Takes the protocols' own options out of the tree, and leaves their index in their place.
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
    Some(Server {
        listen: listen.ok()?,
        public_url,
        workers: usize::try_from(workers).unwrap_or(1),
        max_body,
        timeouts,
        limits,
        drain: table.drain.value.0,
        trusted_proxies,
        forwarded: table.forwarded,
        allowed_hosts,
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
    }
}

fn server_limits(
    table: &ServerLimitsTable,
    max_body: &Located<Size>,
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

    let bodies = table.bodies.value;
    if bodies < max_body.value {
        // Point at the one that is in the file: the other may be a default.
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
        json_depth,
        json_values,
    }
}

fn allowed_hosts(located: &[Located<String>], validator: &mut Validator<'_, '_>) -> Vec<Host> {
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

fn store(table: &StoreTable, validator: &mut Validator<'_, '_>) -> Store {
    let (kind, path) = (table.kind.value, &table.path);
    if kind == StoreKind::Memory && !path.span.is_empty() {
        validator.report(
            Diagnostic::warning("\"path\" is ignored for a store in memory")
                .at(&path.span)
                .label("did you mean kind = \"sqlite\"?"),
        );
    }

    if path.value.is_empty() {
        let diagnostic = Diagnostic::error("\"path\" of the store is empty").at(&path.span);
        validator.report(diagnostic.label("write a file name, like \"data/interlingua.db\""));
    }
    let RetentionTable { age, runs, bytes } = &*table.retention;
    Store {
        kind,
        path: validator.folder.join(&path.value),
        retention: Retention {
            age: validator.positive(age, "age"),
            runs: validator.between(runs, "runs", 1, u64::MAX),
            bytes: validator.at_least(bytes, "bytes", Size::mebibytes(1)) as u64,
        },
    }
}

/// Parses an address with a port. The error is a suggestion.
fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }

    let suggestion = if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        format!("0.0.0.0:{port}")
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("127.0.0.1:{port}")
    } else if let Ok(address) = text.parse::<IpAddr>() {
        SocketAddr::new(address, 8080).to_string()
    } else {
        return Err("write an address and a port, like \"127.0.0.1:8080\"".to_owned());
    };
    Err(format!("did you mean {suggestion:?}?"))
}

/// Parses a URL. The error says what to write instead, and repeats the input only if it cannot hold a secret.
fn parse_web_url(text: &str, scheme: &str) -> Result<Url, String> {
    let simple = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:/-_[]".contains(&byte));
    let label = match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            if simple && !text.is_empty() && !text.contains("://") {
                format!("did you mean \"{scheme}://{text}\"?")
            } else {
                "must begin with http:// or https://".to_owned()
            }
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "a URL must not hold a password; use headers with { env } or { file }".to_owned()
        }
        Ok(url) if url.fragment().is_some() => "leave out what follows the #".to_owned(),
        Ok(url) => return Ok(url),
        Err(url::ParseError::RelativeUrlWithoutBase) if simple && !text.is_empty() => {
            format!("did you mean \"{scheme}://{}\"?", text.trim_start_matches('/'))
        }
        Err(url::ParseError::RelativeUrlWithoutBase) => "must begin with http:// or https://".to_owned(),
        Err(error) => error.to_string(),
    };

    Err(label)
}
