//! Rights of callers: the checks of `[callers]`. Not here: limits (`limits.rs`).

use super::access::{AuthTable, CallerTable};
use super::agents::DeclaredAgent;
use super::diagnostics::Diagnostic;
use super::located::{Entries, Table, WithSpan};
use super::settings::{CallerKind, CallerProfile, ConsoleRole};
use super::validator::Validator;
use super::{limits, quiet, suggest};
use crate::keys;

/// Name of the table for callers that have no other table.
const DEFAULT: &str = "default";
/// The table for callers of routes without authentication.
const ANONYMOUS: &str = "anonymous";

pub(super) fn resolve(
    tables: &Entries<Table<CallerTable>>,
    known: &[DeclaredAgent],
    auth: &AuthTable,
    validator: &mut Validator<'_, '_>,
) -> Vec<CallerProfile> {
    check_ambiguous(tables, auth, validator);
    let mut profiles = Vec::new();
    for (name, table) in tables.iter() {
        check_source(name, &table.value, auth, validator);
        profiles.push(profile(name, &table.value, known, validator));
    }
    profiles
}

fn issuers(auth: &AuthTable) -> impl Iterator<Item = &str> + Clone {
    auth.jwt.iter().filter_map(|table| table.value.issuer.as_ref()).map(|issuer| issuer.value.as_str())
}

/// Warns of tables whose name can be proven in several ways. Each issuer chooses the names in its tokens, so it could
/// choose the name of someone else's key.
fn check_ambiguous(tables: &Entries<Table<CallerTable>>, auth: &AuthTable, validator: &mut Validator<'_, '_>) {
    let others = usize::from(auth.keys.is_some()) + usize::from(auth.certificates.is_some());
    let is_ambiguous = |name: &str, table: &CallerTable| {
        let is_named = table.scopes.is_empty() && !matches!(name, DEFAULT | ANONYMOUS);
        let by_tokens = if table.issuer.is_some() { 1 } else { auth.jwt.len() };
        let sources = match (table.kind.as_ref().map(|kind| kind.value), table.issuer.is_some()) {
            (Some(CallerKind::Keys | CallerKind::Certificates), _) => 1,
            (Some(CallerKind::Jwt), _) | (None, true) => by_tokens,
            (None, false) if is_named => others + by_tokens,
            // Scopes are claims of tokens.
            (None, false) => by_tokens,
        };
        (is_named || !table.scopes.is_empty()) && sources > 1
    };
    let ambiguous: Vec<&WithSpan<String>> =
        tables.iter().filter(|(name, table)| is_ambiguous(&name.value, &table.value)).map(|(name, _)| name).collect();
    let Some(first) = ambiguous.first() else { return };
    let names: Vec<String> = ambiguous.iter().map(|name| format!("[callers.{}]", as_key(&name.value))).collect();
    validator.report(
        Diagnostic::warning(format!(
            "several kinds of credentials or issuers can prove the name of {}",
            names.join(", ")
        ))
        .at(&first.span)
        .label("anyone who proves this name in any of these ways has these rights")
        .help("set kind = \"keys\", \"jwt\" or \"certificates\", and issuer = \"…\" where several issue tokens")
        .code(quiet::CALLER_KINDS, None),
    );
}

/// A name for the head of a table, in quotes if one of its characters needs them.
fn as_key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { name.to_owned() } else { format!("{name:?}") }
}

/// Checks `kind` and `issuer` against the credentials that `[auth]` accepts.
fn check_source(name: &WithSpan<String>, table: &CallerTable, auth: &AuthTable, validator: &mut Validator<'_, '_>) {
    let first = table.kind.as_ref().map(|kind| &kind.span).or(table.issuer.as_ref().map(|issuer| &issuer.span));
    let Some(first) = first else { return };
    if matches!(name.value.as_str(), DEFAULT | ANONYMOUS) {
        let diagnostic = Diagnostic::error(format!("[callers.{}] cannot have kind or issuer", name.value)).at(first);
        return validator
            .report(diagnostic.label("this table is not for one kind of callers: give the table another name"));
    }

    if let Some(kind) = &table.kind {
        let (is_accepted, setting) = match kind.value {
            CallerKind::Keys => (auth.keys.is_some(), "auth.keys"),
            CallerKind::Jwt => (!auth.jwt.is_empty(), "auth.jwt"),
            CallerKind::Certificates => (auth.certificates.is_some(), "auth.certificates"),
        };
        if !is_accepted {
            let message = format!("[callers.{}] has no effect: {setting} is not set", name.value);
            validator
                .report(Diagnostic::warning(message).at(&kind.span).label("no caller has credentials of this kind"));
        } else if kind.value != CallerKind::Jwt && !table.scopes.is_empty() {
            let message = format!("[callers.{}] has no effect: only tokens have scopes", name.value);
            validator.report(Diagnostic::warning(message).at(&kind.span).label("write \"jwt\", or leave out scopes"));
        }
    }

    let Some(issuer) = &table.issuer else { return };
    if table.kind.as_ref().is_some_and(|kind| kind.value != CallerKind::Jwt) {
        let diagnostic = Diagnostic::error("only tokens have an issuer").at(&issuer.span);
        return validator.report(diagnostic.label("leave it out, or write kind = \"jwt\""));
    }
    if !issuers(auth).any(|known| known == issuer.value) {
        let label = suggest::label(&issuer.value, issuers(auth), "no issuer in [[auth.jwt]] has this name");
        validator.report(
            Diagnostic::error(format!("unknown issuer {:?}", issuer.value))
                .at(&issuer.span)
                .label(label)
                .help(format!("issuers: {}", suggest::list(issuers(auth)))),
        );
    }
}

fn profile(
    name: &WithSpan<String>,
    table: &CallerTable,
    known: &[DeclaredAgent],
    validator: &mut Validator<'_, '_>,
) -> CallerProfile {
    // Names in tokens and certificates may contain any character, names of keys may not. A quoted table is meant for
    // the former.
    if name.value.is_empty() || name.value.chars().any(char::is_control) || name.value.len() > keys::MAX_CALLER_LEN {
        let message = format!("invalid caller name {:?}", name.value);
        validator.report(Diagnostic::error(message).at(&name.span).label("write up to 256 characters on one line"));
    }
    if let (Some(scope), true) = (table.scopes.first(), matches!(name.value.as_str(), DEFAULT | ANONYMOUS)) {
        let diagnostic = Diagnostic::error(format!("[callers.{}] cannot have scopes", name.value)).at(&scope.span);
        validator.report(diagnostic.label("give the table another name"));
    }
    for scope in table.scopes.iter().filter(|scope| scope.value.is_empty() || scope.value.contains(' ')) {
        let diagnostic = Diagnostic::error(format!("{:?} is not a scope", scope.value)).at(&scope.span);
        validator.report(diagnostic.label("write one scope without spaces"));
    }

    if table.console.is_some() && name.value == ANONYMOUS {
        let diagnostic = Diagnostic::error("[callers.anonymous] cannot have console").at(&name.span);
        validator.report(diagnostic.label("someone who signs in has a key, and a name"));
    }
    if table.console == Some(ConsoleRole::Act) && name.value == DEFAULT {
        validator.report(
            Diagnostic::warning("every key without a table of its own may act in the console")
                .at(&name.span)
                .label("its holder may decide, cancel and delete for all callers")
                .help("write console = \"act\" in the tables of named callers instead")
                .code(quiet::CONSOLE_ACT, None),
        );
    }

    let agents = table.agents.as_ref().map(|agents| {
        let names = || known.iter().map(|agent| agent.name.as_str());
        check_names(agents, names, "agent", validator)
    });
    let clients = validator.protocols;
    let protocols = table
        .protocols
        .as_ref()
        .map(|protocols| check_names(protocols, || clients.client_names(), "protocol", validator));
    CallerProfile {
        name: name.value.clone(),
        scopes: table.scopes.iter().map(|scope| scope.value.clone()).collect(),
        kind: table.kind.as_ref().map(|kind| kind.value),
        issuer: table.issuer.as_ref().map(|issuer| issuer.value.clone()),
        agents,
        protocols,
        console: table.console,
        limits: limits::of_caller(&table.limits, validator),
    }
}

/// Reports unknown names.
fn check_names<'k, I: Iterator<Item = &'k str>>(
    names: &[WithSpan<String>],
    known: impl Fn() -> I,
    what: &str,
    validator: &mut Validator<'_, '_>,
) -> Vec<String> {
    for name in names {
        if !known().any(|known| known == name.value) {
            let label = suggest::label(&name.value, known(), "unknown name");
            validator.report(
                Diagnostic::error(format!("unknown {what} {:?}", name.value))
                    .at(&name.span)
                    .label(label)
                    .help(format!("{what}s: {}", suggest::list(known()))),
            );
        }
    }
    names.iter().map(|name| name.value.clone()).collect()
}
