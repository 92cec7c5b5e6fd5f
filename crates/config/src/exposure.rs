//! Exposure of the gateway to the network: errors for settings that must be explicit, and warnings for settings that
//! weaken it.
//!
//! Not here: the origins of web pages (`routes.rs`), and secrets (`secret.rs`, `validator.rs`).

use std::net::IpAddr;

use interlingua_core::network::{self, IpNet};
use interlingua_core::public_address::is_local_name;
use url::{Host, Url};

use super::access::Texts;
use super::diagnostics::Diagnostic;
use super::document::{Document, RouteTable, ServerTable};
use super::located::{Table, WithSpan};
use super::settings::{Methods, Server};
use super::tls_table::TlsTable;
use super::tree::TomlValue;
use super::validator::Validator;
use super::{quiet, secret};
use interlingua_base::tls::TlsFiles;

/// Checks the addresses, the proxies and the open routes.
pub(super) fn check(document: &Document, server: &Server, methods: Methods, validator: &mut Validator<'_, '_>) {
    check_tls(&document.server, server, validator);
    check_proxies(document, validator);
    let address = server.listen.ip();
    if address.to_canonical().is_loopback() {
        check_clients_behind_proxy(document, server, validator);
        return;
    }

    if server.tls.is_none() && server.trusted_proxies.is_empty() {
        validator.report(
            Diagnostic::warning(format!("the gateway listens on {} without TLS", server.listen))
                .at(&document.server.listen.span)
                .label("conversations and credentials can be read on the way")
                .help("set tls = { cert = \"…\", key = \"…\" }, or trusted_proxies if a proxy has TLS")
                .code(quiet::NO_TLS, None),
        );
    }
    check_routes(document, address, methods, validator);
}

/// Reports networks of trusted proxies that include clients: such a client chooses its own address and, with a
/// certificate header, its own name.
fn check_proxies(document: &Document, validator: &mut Validator<'_, '_>) {
    let certificates = document.auth.value.certificates.as_ref();
    let header = certificates.and_then(|table| table.value.header.as_ref());
    for proxy in &document.server.trusted_proxies {
        if !network::parse(&proxy.value).is_ok_and(|network| includes_clients(&network)) {
            continue;
        }
        validator.report(match header {
            Some(header) => {
                let message = format!(
                    "every client is a trusted proxy, and may name any caller in the header {:?}",
                    header.value
                );
                Diagnostic::error(message)
                    .at(&proxy.span)
                    .label("name the addresses of your proxies only, like \"10.0.0.7\"")
                    .also(&header.span, "the caller's name is read from this header")
            }
            None => Diagnostic::warning("every client is a trusted proxy, and may claim any address as its own")
                .at(&proxy.span)
                .label("name the addresses of your proxies only, like \"10.0.0.7\""),
        });
    }
}

/// True for networks larger than any private one: 10.0.0.0/8 of IPv4, fc00::/7 of IPv6.
fn includes_clients(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() < 8,
        IpNet::V6(network) => network.prefix_len() < 7,
    }
}

/// Warns if a proxy on this machine seems to serve the public URL, but is not trusted: all clients then share its
/// address.
fn check_clients_behind_proxy(document: &Document, server: &Server, validator: &mut Validator<'_, '_>) {
    let Some(public_url) = &document.server.public_url else { return };
    // Another check reports invalid URLs.
    let is_local = Url::parse(&public_url.value).map_or(true, |url| match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => is_local_name(name),
        None => true,
    });
    if is_local || !server.trusted_proxies.is_empty() {
        return;
    }
    validator.report(
        Diagnostic::warning(
            "clients behind a proxy share one address: limits and blocks of an address hold for all of them",
        )
        .at(&public_url.span)
        .label("a proxy on this machine seems to serve this URL")
        .help("set trusted_proxies = [\"127.0.0.1\", \"::1\"], and let the proxy set X-Forwarded-For")
        .code(quiet::SHARED_ADDRESS, None),
    );
}

/// On a non-loopback address, an open route must be declared as such, so that a changed listen address alone does not
/// expose it. With a method in `[auth]`, authentication is the default of every route.
fn check_routes(document: &Document, address: IpAddr, methods: Methods, validator: &mut Validator<'_, '_>) {
    let is_open = |auth: &WithSpan<Texts>| matches!(auth.value, Texts::One(_));
    let (open, undeclared): (Vec<_>, Vec<_>) = document
        .routes
        .iter()
        .filter(|table| match &table.value.auth {
            Some(auth) => is_open(auth),
            None => !methods.any() && !validator.rejected.contains(&table.span, "auth"),
        })
        .partition(|table| table.value.auth.is_some());

    if let Some(first) = open.first() {
        validator.report(
            Diagnostic::warning(format!("anyone who can connect may use {}", paths(&open)))
                .at(&first.span)
                .label("auth = \"none\", and the gateway does not only listen on this machine")
                .code(quiet::OPEN_ROUTES, None),
        );
    }
    if let Some(first) = undeclared.first() {
        let (routes, verb) = (paths(&undeclared), if undeclared.len() == 1 { "does" } else { "do" });
        validator.report(
            Diagnostic::error(format!("the gateway listens on {address}, but {routes} {verb} not say who may use it"))
                .at(&first.span)
                .label("write auth = [\"keys\"], or auth = \"none\" to let anyone who can connect use it")
                .help("or listen on 127.0.0.1, behind a proxy that checks credentials"),
        );
    }
}

/// The routes of a message, by their paths.
fn paths(routes: &[&WithSpan<Table<RouteTable>>]) -> String {
    let path = |route: &&WithSpan<Table<RouteTable>>| {
        route.value.path.as_ref().map_or("?", |path| path.value.as_str()).to_owned()
    };
    let paths: Vec<String> = routes.iter().map(path).collect();
    format!("{} {}", if paths.len() == 1 { "the route" } else { "the routes" }, paths.join(", "))
}

fn check_tls(table: &ServerTable, server: &Server, validator: &mut Validator<'_, '_>) {
    let (Some(files), Some(written)) = (&server.tls, &table.tls) else { return };
    check_private_key(written, files, validator);
    if let Some(url) = &table.public_url
        && url.value.starts_with("http://")
    {
        validator.report(
            Diagnostic::warning("\"public_url\" begins with http://, but the gateway has TLS")
                .at(&url.span)
                .label("did you mean https://?"),
        );
    }
}

/// Warns of a private key of TLS that other users can read.
pub(super) fn check_private_key(
    written: &WithSpan<Table<TlsTable>>,
    files: &TlsFiles,
    validator: &mut Validator<'_, '_>,
) {
    if let Some(key) = &written.value.key {
        let warning = secret::readable_by_others(&files.key, key, validator.env);
        validator.found.extend(warning);
    }
}

/// Checks the options of a route that have the same name in every protocol.
pub(super) fn check_options(options: &TomlValue<'_>, validator: &mut Validator<'_, '_>) {
    let option = options.get_ref().as_table().and_then(|table| table.get("push_allow_http"));
    if let Some(option) = option.filter(|option| option.get_ref().as_bool() == Some(true)) {
        validator.report(
            Diagnostic::warning("receivers may be reached without TLS")
                .at(&option.span())
                .label("what they are sent can be read on the way"),
        );
    }
}
