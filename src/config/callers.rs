//! What callers may do: the checks of `[callers]`. Not here: limits (`limits.rs`).

use super::access::CallerTable;
use super::agents::DeclaredAgent;
use super::diagnostics::Diagnostic;
use super::located::{Entries, Located, Table};
use super::settings::CallerProfile;
use super::validator::Validator;
use super::{limits, suggest};
use crate::keys;

pub(super) fn resolve(
    tables: &Entries<Table<CallerTable>>,
    known: &[DeclaredAgent],
    validator: &mut Validator<'_, '_>,
) -> Vec<CallerProfile> {
    tables.iter().map(|(name, table)| profile(name, &table.value, known, validator)).collect()
}

fn profile(
    name: &Located<String>,
    table: &CallerTable,
    known: &[DeclaredAgent],
    validator: &mut Validator<'_, '_>,
) -> CallerProfile {
    // Names of token claims and certificates may hold any character, names of keys may not: a table with quotes is for
    // the former.
    if name.value.is_empty() || name.value.chars().any(char::is_control) || name.value.len() > keys::MAX_CALLER_LEN {
        let message = format!("invalid caller name {:?}", name.value);
        validator.report(Diagnostic::error(message).at(&name.span).label("write up to 256 characters on one line"));
    }
    if let (Some(scope), true) = (table.scopes.first(), matches!(name.value.as_str(), "default" | "anonymous")) {
        let diagnostic = Diagnostic::error(format!("[callers.{}] cannot have scopes", name.value)).at(&scope.span);
        validator.report(diagnostic.label("give the table another name"));
    }
    for scope in table.scopes.iter().filter(|scope| scope.value.is_empty() || scope.value.contains(' ')) {
        let diagnostic = Diagnostic::error(format!("{:?} is not a scope", scope.value)).at(&scope.span);
        validator.report(diagnostic.label("write one scope without spaces"));
    }

    if table.console.is_some() && name.value == "anonymous" {
        let diagnostic = Diagnostic::error("[callers.anonymous] cannot have console").at(&name.span);
        validator.report(diagnostic.label("someone who signs in has a key, and a name"));
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
        agents,
        protocols,
        console: table.console,
        limits: limits::of_caller(&table.limits, validator),
    }
}

/// Checks names that have to be known.
fn check_names<'k, I: Iterator<Item = &'k str>>(
    names: &[Located<String>],
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
