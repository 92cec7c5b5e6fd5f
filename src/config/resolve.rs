//! From the document to the settings: the order of the checks, and those of server and store.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::{
    Document, Located, RetentionTable, ServerLimitsTable, ServerTable, ServerTimeoutsTable, Slot, StoreTable,
};
use super::duration::Period;
use super::host::Host;
use super::network::Network;
use super::protocols::Protocols;
use super::secret::{self, Env};
use super::settings::{Retention, Server, ServerLimits, ServerTimeouts, Settings, Store, StoreKind};
use super::size::Size;
use super::tree::{self, Cuts, Written};
use super::{agents, routes};

/// What every check may look at, and where it leaves what it found.
pub(super) struct Validator<'i, 'a> {
    pub(super) protocols: &'a Protocols,
    pub(super) surroundings: &'a Env<'a>,
    pub(super) folder: &'a Path,
    pub(super) cuts: Cuts,
    pub(super) found: Vec<Diagnostic>,
    options: Vec<Written<'i>>,
}

/// Checks the whole document; settings come out only where nothing essential is missing.
pub(super) fn resolve(
    mut tree: Spanned<DeTable<'_>>,
    folder: &Path,
    protocols: &Protocols,
    surroundings: &Env<'_>,
) -> (Option<Settings>, Vec<Diagnostic>) {
    let options = take_options(tree.get_mut());
    let mut checking = Validator { protocols, surroundings, folder, cuts: Cuts::default(), found: Vec::new(), options };
    let whole = Spanned::new(tree.span(), DeValue::Table(tree.into_inner()));
    let document = tree::read::<Document>("the file", whole, &mut checking.cuts, &mut checking.found);
    let Some(document) = document else {
        return (None, checking.found);
    };
    let server = server(&document.server, &mut checking);
    let heartbeat = checking.positive(&document.server.heartbeat, "heartbeat");
    let store = store(&document.store, &mut checking);
    let known = agents::resolve(&document.agents, &mut checking);
    let public_url = server.as_ref().and_then(|server| server.public_url.as_deref());
    let routes = routes::resolve(&document.routes, &known, heartbeat, public_url, &mut checking);
    if let Some(server) = &server {
        routes::check_exposure(&document.routes, server.listen.ip(), &mut checking);
    }
    let agents = known.into_iter().filter_map(|known| known.agent).collect();
    let settings = server.map(|server| Settings { server, store, agents, routes });
    (settings, checking.found)
}

impl<'i> Validator<'i, '_> {
    pub(super) fn mistake(&mut self, mistake: Diagnostic) {
        self.found.push(mistake);
    }

    /// The options that were written at `slot`, the secrets they name in their places, or an empty table standing at `owner`.
    pub(super) fn options(&mut self, slot: Option<&Slot>, owner: &Located<String>) -> Written<'i> {
        match slot.and_then(|slot| self.options.get(slot.0)) {
            Some(options) => {
                let mut options = options.clone();
                secret::reveal(&mut options, self.folder, self.surroundings, &mut self.found);
                options
            }
            None => Spanned::new(owner.place.clone(), DeValue::Table(DeTable::new())),
        }
    }

    /// A duration that must not be zero.
    pub(super) fn positive(&mut self, period: &Located<Period>, key: &str) -> Duration {
        if period.value.0.is_zero() {
            self.mistake(
                Diagnostic::error(format!("{key:?} cannot be zero"))
                    .at(&period.place)
                    .label("must be at least \"1ms\""),
            );
        }
        period.value.0
    }

    /// A duration that must lie within bounds.
    pub(super) fn within(&mut self, period: &Located<Period>, key: &str, least: Period, most: Period) -> Duration {
        if !(least..=most).contains(&period.value) {
            self.mistake(
                Diagnostic::error(format!("{key:?} cannot be \"{}\"", period.value))
                    .at(&period.place)
                    .label(format!("must lie between \"{least}\" and \"{most}\"")),
            );
        }
        period.value.0
    }

    /// A size that must not be smaller than makes sense.
    pub(super) fn at_least(&mut self, size: &Located<Size>, key: &str, least: Size) -> usize {
        if size.value < least {
            self.mistake(
                Diagnostic::error(format!("{key:?} is too small"))
                    .at(&size.place)
                    .label(format!("must be at least \"{least}\"")),
            );
        }
        size.value.bytes()
    }

    /// A number that must lie within bounds.
    pub(super) fn between(&mut self, number: &Located<u64>, key: &str, least: u64, most: u64) -> u64 {
        if !(least..=most).contains(&number.value) {
            let bounds = match most {
                u64::MAX => format!("must be at least {least}"),
                _ => format!("must lie between {least} and {most}"),
            };
            self.mistake(
                Diagnostic::error(format!("{key:?} cannot be {}", number.value)).at(&number.place).label(bounds),
            );
        }
        number.value
    }

    /// An absolute http(s) URL without secrets in it.
    pub(super) fn url(&mut self, text: &Located<String>, key: &str) -> Option<Url> {
        let scheme = if key == "public_url" { "https" } else { "http" };
        match web_url(&text.value, scheme) {
            Ok(url) => {
                crate::secrets::remember_url(&url);
                Some(url)
            }
            Err(label) => {
                let message = format!("{key:?} is not a URL the gateway can use");
                self.mistake(Diagnostic::error(message).at(&text.place).label(label));
                None
            }
        }
    }
}

/// Takes the protocols' own options out of the tree, leaving their numbers behind.
fn take_options<'i>(tree: &mut DeTable<'i>) -> Vec<Written<'i>> {
    let mut taken = Vec::new();
    let mut take = |table: &mut DeValue<'i>| {
        if let DeValue::Table(table) = table
            && let Some(options) = table.get_mut("options")
        {
            let number = DeValue::String(taken.len().to_string().into());
            let left = Spanned::new(options.span(), number);
            taken.push(std::mem::replace(options, left));
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

fn server(table: &ServerTable, checking: &mut Validator<'_, '_>) -> Option<Server> {
    let listen = listen_address(&table.listen.value);
    if let Err(label) = &listen {
        checking.mistake(
            Diagnostic::error("\"listen\" is not an address with a port").at(&table.listen.place).label(label),
        );
    }
    let public_url = table.public_url.as_ref().and_then(|written| {
        let url = checking.url(written, "public_url")?;
        if url.query().is_some() {
            let message = "\"public_url\" cannot have a query";
            checking.mistake(Diagnostic::error(message).at(&written.place).label("leave it out"));
        }
        Some(url.as_str().trim_end_matches('/').to_owned())
    });
    let workers = match &table.workers {
        Some(workers) => checking.between(workers, "workers", 1, 1024),
        None => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
    };
    let mut trusted_proxies = Vec::new();
    for proxy in &table.trusted_proxies {
        match proxy.value.parse::<Network>() {
            Ok(network) => trusted_proxies.push(network),
            Err(label) => checking.mistake(
                Diagnostic::error(format!("{:?} is not a network", proxy.value)).at(&proxy.place).label(label),
            ),
        }
    }
    let max_body = checking.at_least(&table.max_body, "max_body", Size::kibibytes(1));
    let timeouts = server_timeouts(&table.timeouts, checking);
    let limits = server_limits(&table.limits, &table.max_body, checking);
    let allowed_hosts = table.allowed_hosts.as_ref().map(|hosts| allowed_hosts(hosts, checking));
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

fn server_timeouts(table: &ServerTimeoutsTable, checking: &mut Validator<'_, '_>) -> ServerTimeouts {
    const MIN_LEN: Period = Period::milliseconds(10);
    const LONGEST: Period = Period::seconds(3600);
    let mut checked = |period, key| checking.within(period, key, MIN_LEN, LONGEST);

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
    checking: &mut Validator<'_, '_>,
) -> ServerLimits {
    const MAX_CONNECTIONS: u64 = 1_000_000;
    let mut number =
        |number, key, least, most| usize::try_from(checking.between(number, key, least, most)).unwrap_or(usize::MAX);
    let connections = number(&table.connections, "connections", 1, MAX_CONNECTIONS);
    let per_address = table.connections_per_address.as_ref();
    let per_address = per_address.map(|written| number(written, "connections_per_address", 1, MAX_CONNECTIONS));
    let json_depth = number(&table.json_depth, "json_depth", 8, 128);
    let json_values = number(&table.json_values, "json_values", 1_000, 10_000_000);

    let bodies = table.bodies.value;
    if bodies < max_body.value {
        // Pointed out where something was written: one of the two may be a default.
        let place = if table.bodies.place.is_empty() { &max_body.place } else { &table.bodies.place };
        checking.mistake(
            Diagnostic::error("\"bodies\" is smaller than \"max_body\"")
                .at(place)
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

fn allowed_hosts(written: &[Located<String>], checking: &mut Validator<'_, '_>) -> Vec<Host> {
    let mut hosts = Vec::new();
    for host in written {
        match host.value.parse::<Host>() {
            Ok(read) => hosts.push(read),
            Err(label) => {
                // Most people have the URL at hand.
                let meant = Url::parse(&host.value).ok().and_then(|url| Some(url.host_str()?.to_owned()));
                let label = meant.map_or_else(|| label.to_owned(), |meant| format!("did you mean {meant:?}?"));
                checking
                    .mistake(Diagnostic::error(format!("{:?} is not a host", host.value)).at(&host.place).label(label));
            }
        }
    }
    hosts
}

fn store(table: &StoreTable, checking: &mut Validator<'_, '_>) -> Store {
    let (kind, path) = (table.kind.value, &table.path);
    if kind == StoreKind::Memory && !path.place.is_empty() {
        checking.mistake(
            Diagnostic::warning("a store in memory has no file")
                .at(&path.place)
                .label("has no effect; did you mean kind = \"sqlite\"?"),
        );
    }
    if path.value.is_empty() {
        let mistake = Diagnostic::error("the store's path is empty").at(&path.place);
        checking.mistake(mistake.label("name a file, like \"data/interlingua.db\""));
    }
    let RetentionTable { age, runs, bytes } = &*table.retention;
    Store {
        kind,
        path: checking.folder.join(&path.value),
        retention: Retention {
            age: checking.positive(age, "age"),
            runs: checking.between(runs, "runs", 1, u64::MAX),
            bytes: checking.at_least(bytes, "bytes", Size::mebibytes(1)) as u64,
        },
    }
}

/// Reads an address, or says how it might have been meant.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let meant = if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        format!("0.0.0.0:{port}")
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("127.0.0.1:{port}")
    } else if let Ok(address) = text.parse::<IpAddr>() {
        SocketAddr::new(address, 8080).to_string()
    } else {
        return Err("write an address and a port, like \"127.0.0.1:8080\"".to_owned());
    };
    Err(format!("did you mean {meant:?}?"))
}

/// Reads a URL, or says what to do about it. What was written is not repeated unless it surely
/// holds no secret.
fn web_url(text: &str, scheme: &str) -> Result<Url, String> {
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
