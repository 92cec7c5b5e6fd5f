//! Checks of `[store]`: kind, place and retention. Not here: the table as written in the file ([`super::store_table`]),
//! and opening the store (`src/gateway`).

use std::ops::Range;
use std::time::Duration;

use interlingua_core::duration::Period;
use interlingua_core::size::Size;
use secrecy::SecretString;

use super::diagnostics::Diagnostic;
use super::located::{Table, WithSpan};
use super::secret::SecretTable;
use super::store_settings::{PostgresStore, Retention, Store, StoreKind};
use super::store_table::{RetentionTable, StoreTable};
use super::validator::Validator;

/// PostgreSQL limits names to 63 bytes. The channel of notifications between gateways is named "interlingua " and the
/// schema.
const MAX_SCHEMA: usize = 51;
/// One connection to write, one to listen, and at least one to read.
const MIN_CONNECTIONS: u64 = 3;
const MAX_CONNECTIONS: u64 = 100;
const MIN_LEASE: Period = Period(Duration::from_secs(2));
const MAX_LEASE: Period = Period(Duration::from_secs(300));

pub(super) fn resolve(located: &WithSpan<Table<StoreTable>>, validator: &mut Validator<'_, '_>) -> Store {
    let table = &*located.value;
    let (kind, path) = (table.kind.value, &table.path);
    if kind != StoreKind::Sqlite && !path.span.is_empty() {
        let place = if kind == StoreKind::Memory { "in memory" } else { "in a database" };
        validator.report(
            Diagnostic::warning(format!("\"path\" is ignored for a store {place}"))
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
        postgres: postgres(table, &located.span, validator),
        retention: Retention {
            age: validator.positive(age, "age"),
            runs: validator.between(runs, "runs", 1, u64::MAX),
            bytes: validator.at_least(bytes, "bytes", Size::mebibytes(1)) as u64,
        },
    }
}

/// `span`: of the table.
fn postgres(table: &StoreTable, span: &Range<usize>, validator: &mut Validator<'_, '_>) -> Option<PostgresStore> {
    let StoreTable { kind, url, schema, lease, connections, .. } = table;
    if kind.value != StoreKind::Postgres {
        let spans = [("schema", &schema.span), ("lease", &lease.span), ("connections", &connections.span)];
        let url = url.as_ref().map(|url| ("url", &url.span));
        for (key, span) in spans.into_iter().chain(url).filter(|(_, span)| !span.is_empty()) {
            let warning = Diagnostic::warning(format!("{key:?} is ignored unless the store is a database")).at(span);
            validator.report(warning.label("did you mean kind = \"postgres\"?"));
        }
        return None;
    }

    if !is_schema_name(&schema.value) {
        let label = format!(
            "must have at most {MAX_SCHEMA} of A-Z, a-z, 0-9, \"_\" and \"-\", and begin with a letter or \"_\""
        );
        validator.report(Diagnostic::error("\"schema\" cannot be a name").at(&schema.span).label(label));
    }
    let lease = validator.within(lease, "lease", MIN_LEASE, MAX_LEASE);
    let connections = validator.between(connections, "connections", MIN_CONNECTIONS, MAX_CONNECTIONS);
    let Some(url) = url else {
        if !validator.rejected.contains(span, "url") {
            let error = Diagnostic::error("a store in a database needs \"url\"").at(&kind.span);
            validator.report(error.label("write url = { env = \"DATABASE_URL\" }"));
        }
        return None;
    };
    Some(PostgresStore {
        url: read_url(url, validator)?,
        schema: schema.value.clone(),
        lease,
        connections: usize::try_from(connections).unwrap_or(usize::MAX),
    })
}

/// The name is also part of function bodies, where quoting cannot separate other characters from the code.
fn is_schema_name(name: &str) -> bool {
    name.len() <= MAX_SCHEMA
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn read_url(url: &WithSpan<SecretTable>, validator: &mut Validator<'_, '_>) -> Option<SecretString> {
    match url.value.read(&url.span, validator.folder, validator.env, &mut validator.found) {
        Ok(read) => Some(read),
        Err(_) if validator.rejected.any_in(&url.span) => None,
        Err(error) => {
            validator.report(error);
            None
        }
    }
}
