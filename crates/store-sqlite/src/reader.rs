//! The read-only queries. Not here: the threads that run them ([`super::readers`]), and anything that changes the file.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use interlingua_core::call::{Cursor, Order, RunInfo, RunState};
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, SerializedValue};
use interlingua_core::run::Record;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use uuid::Uuid;

use interlingua_store::{
    Document, DocumentEntry, LoadCost, Query, RunHead, RunPage, StoreError, StoredRun, Version, code_in_head,
    code_prefixes,
};

/// Why a query or a write failed.
pub(super) enum QueryError {
    Sql(rusqlite::Error),
    Store(StoreError),
    /// The file was removed or replaced.
    Gone(StoreError),
}

impl QueryError {
    /// True if every other operation would fail for the same reason. A full disk does not count: there may be room for
    /// something smaller.
    pub(super) fn affects_everything(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        match self {
            Self::Sql(error) => matches!(
                error.sqlite_error_code(),
                Some(
                    Code::DatabaseBusy
                        | Code::DatabaseLocked
                        | Code::SystemIoFailure
                        | Code::ReadOnly
                        | Code::CannotOpen
                        | Code::PermissionDenied
                        | Code::DatabaseCorrupt
                        | Code::NotADatabase
                )
            ),
            Self::Gone(_) => true,
            Self::Store(_) => false,
        }
    }
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn load(connection: &mut Connection, id: RunId) -> Result<Option<Arc<StoredRun>>, QueryError> {
    // One transaction, so that metadata and lines are of the same moment.
    let snapshot = connection.transaction()?;
    let found = snapshot
        .prepare_cached("SELECT number, about, hidden FROM runs WHERE id = ?1")?
        .query_row([id.0.as_bytes().as_slice()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, bool>(2)?))
        })
        .optional()?;
    let Some((number, info, hidden)) = found else { return Ok(None) };
    let (record, info) = (load_record(&snapshot, id, number)?, parse_info(id, &info, hidden)?);
    Ok(Some(Arc::new(StoredRun { record, info })))
}

/// The file lacks events that it is known to have had.
pub(super) fn incomplete(id: RunId) -> StoreError {
    StoreError::corrupt(format_args!("run {id}"), "its first events are missing")
}

/// Rebuilds a run's record from all of its journal lines.
pub(super) fn load_record(snapshot: &Connection, id: RunId, number: i64) -> Result<Record, QueryError> {
    let mut lines = Vec::new();
    let mut segments = snapshot.prepare_cached("SELECT bytes FROM lines WHERE run = ?1 ORDER BY first, number")?;
    let mut segments = segments.query([number])?;
    while let Some(row) = segments.next()? {
        lines.extend_from_slice(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }

    let record = journal::read(&lines).map_err(|error| StoreError::corrupt(format_args!("run {id}"), error))?;
    // An incomplete last line is dropped when lines are read.
    let events: i64 =
        snapshot.prepare_cached("SELECT upto FROM runs WHERE number = ?1")?.query_row([number], |row| row.get(0))?;
    if int(record.len()) < events {
        return Err(StoreError::corrupt(format_args!("run {id}"), "its last events are missing").into());
    }
    Ok(record)
}

/// The metadata in a run's row.
pub(super) fn parse_info(id: RunId, info: &[u8], hidden: bool) -> Result<RunInfo, QueryError> {
    let SerializedValue(mut info): SerializedValue<RunInfo> = serde_json::from_slice(info)
        .map_err(|error| StoreError::corrupt(format_args!("metadata of run {id}"), error))?;

    if hidden {
        // Retention hides a run only by setting this column.
        (info.stored, info.retention) = (false, None);
    }
    Ok(info)
}

/// SQL for the size of a run's lines. SQLite reads the lengths without reading the blobs.
pub(super) const SIZE_SQL: &str = "(SELECT ifnull(sum(length(bytes)), 0) FROM lines WHERE run = runs.number)";

pub(super) fn load_cost(connection: &mut Connection, id: RunId) -> Result<Option<LoadCost>, QueryError> {
    let sql = format!(
        "SELECT number, upto, changed_at, hidden, length(about), ended, {SIZE_SQL}, tags FROM runs WHERE id = ?1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let cost = statement.query_row([id.0.as_bytes().as_slice()], |row| {
        let mut hasher = DefaultHasher::new();
        for column in 0..5 {
            row.get::<_, i64>(column)?.hash(&mut hasher);
        }
        row.get::<_, Option<String>>(7)?.hash(&mut hasher);

        let (ended, lines): (bool, i64) = (row.get(5)?, row.get(6)?);
        let bytes = u64::try_from(lines + row.get::<_, i64>(4)?).unwrap_or(0).max(1);
        Ok(LoadCost { bytes, fingerprint: ended.then(|| hasher.finish()) })
    });
    Ok(cost.optional()?)
}

pub(super) fn owner_of(connection: &mut Connection, id: RunId) -> Result<Option<String>, QueryError> {
    let mut statement = connection.prepare_cached("SELECT owner FROM runs WHERE id = ?1")?;
    Ok(statement.query_row([id.0.as_bytes().as_slice()], |row| row.get(0)).optional()?)
}

/// The number of documents of a principal in a collection, with all its routes and tenants.
pub(super) fn count(connection: &mut Connection, collection: &str, principal: &str) -> Result<u64, QueryError> {
    // '0' is the character after '/'.
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM documents WHERE collection = ?1
         AND (owner = ?2 OR owner >= ?2 || '/' AND owner < ?2 || '0')",
    )?;
    let count: i64 = statement.query_row([collection, principal], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// The WHERE clause of a query and its parameters.
fn condition(query: &Query) -> (String, Vec<Value>) {
    let mut sql = String::from("NOT hidden");
    let mut values: Vec<Value> = Vec::new();
    let mut and = |condition: &str, parameters: Vec<Value>| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.extend(parameters);
    };

    let any_of = |column: &str, count: usize| format!("{column} IN ({})", vec!["?"; count].join(","));
    let text = |text: &String| Value::Text(text.clone());
    let filter = &query.filter;

    if let Some(owner) = &query.owner {
        and("owner = ?", vec![text(owner)]);
    }
    if !query.agents.is_empty() {
        and(&any_of("agent", query.agents.len()), query.agents.iter().map(text).collect());
    }
    if let Some(session) = &filter.session {
        and("session = ?", vec![text(session)]);
    }
    if let Some(protocol) = &filter.protocol {
        and("protocol = ?", vec![text(protocol)]);
    }
    if !filter.states.is_empty() {
        let states = filter.states.iter().map(|state| Value::Text(state.as_str().into()));
        and(&any_of("state", filter.states.len()), states.collect());
    }
    if let Some(since) = filter.changed_since {
        and("changed_at >= ?", vec![Value::Integer(int(since))]);
    }
    if !filter.tags.is_empty() {
        and("tags IS NOT NULL", Vec::new());
    }
    for (name, value) in &filter.tags {
        let has = "EXISTS (SELECT 1 FROM json_each(tags) AS tag WHERE tag.key = ? AND tag.atom = ?)";
        and(has, vec![text(name), text(value)]);
    }
    if let Some(wanted) = &query.text {
        let pattern = Value::Text(format!("%{}%", escaped_pattern(wanted)));
        let mut either =
            vec!["(ifnull(preview, '') || char(10) || session || char(10) || owner) LIKE ? ESCAPE '!'".to_owned()];
        let mut wanted_values = vec![pattern];
        if let Some(id) = RunId::parse(wanted) {
            either.push("id = ?".to_owned());
            wanted_values.push(Value::Blob(id.0.as_bytes().to_vec()));
        }
        if let Some(codes) = code_prefixes(wanted) {
            // Only few runs fail, so their heads can be searched without an index.
            either.push(format!("({FAILED} AND (instr(head, ?) > 0 OR instr(head, ?) > 0))"));
            wanted_values.extend(codes.iter().map(|code| Value::Blob(code_in_head(code))));
        }
        and(&format!("({})", either.join(" OR ")), wanted_values);
    }
    for (route, before) in &query.expired_before {
        let gone = "NOT (route IS ? AND ended = 1 AND changed_at < ?)";
        and(gone, vec![text(route), Value::Integer(int(*before))]);
    }

    (sql, values)
}

/// Runs that may have an error code.
const FAILED: &str = "state IN ('failed', 'rejected', 'incomplete', 'canceled')";

/// A text as part of a pattern of LIKE, with `!` as the escape character.
fn escaped_pattern(text: &str) -> String {
    text.replace('!', "!!").replace('%', "!%").replace('_', "!_")
}

pub(super) fn find(connection: &mut Connection, query: &Query) -> Result<RunPage, QueryError> {
    let snapshot = connection.transaction()?;
    let (condition, mut values) = condition(query);
    let total: i64 = snapshot
        .prepare_cached(&format!("SELECT count(*) FROM runs WHERE {condition}"))?
        .query_row(params_from_iter(&values), |row| row.get(0))?;

    let limit = if query.filter.limit == 0 { Query::LIMIT } else { query.filter.limit };
    let order = query.filter.order;
    let (time, follows, direction) = match order {
        Order::LatestChange => ("changed_at", "<", "DESC"),
        Order::OldestFirst => ("created_at", ">", "ASC"),
        Order::NewestFirst => ("created_at", "<", "DESC"),
    };
    let mut sql = format!(
        "SELECT id, agent, session, state, created_at, changed_at, {SIZE_SQL}, protocol, owner, upto, preview FROM runs WHERE {condition}"
    );
    if let Some(cursor) = query.filter.cursor {
        let _ = write!(sql, " AND ({time}, id) {follows} (?, ?)");
        values.extend([Value::Integer(int(cursor.at)), Value::Blob(cursor.id.0.as_bytes().to_vec())]);
    }
    let _ = write!(sql, " ORDER BY {time} {direction}, id {direction} LIMIT ?");
    values.push(Value::Integer(i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1))));

    let mut runs = Vec::new();
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(&values))?;
    let (mut count, mut last, mut next) = (0, None, None);
    while let Some(row) = rows.next()? {
        if count == limit {
            next = last;
            break;
        }
        count += 1;
        // The next page follows the last row, even one that cannot be read.
        last = Some(cursor(row, order)?);
        match head(row) {
            Ok(head) => runs.push(head),
            // One damaged run must not hide all others.
            Err(QueryError::Store(error @ StoreError::Corrupt { .. })) => {
                tracing::error!(%error, "a run is left out of a list");
            }
            Err(error) => return Err(error),
        }
    }

    Ok(RunPage { runs, total: usize::try_from(total).unwrap_or(0), next })
}

/// The place of a row in an order.
fn cursor(row: &Row<'_>, order: Order) -> Result<Cursor, rusqlite::Error> {
    let time = |column| row.get::<_, i64>(column).map(|time| u64::try_from(time).unwrap_or(0));
    Ok(Cursor { at: order.time(time(4)?, time(5)?), id: id(row, 0)? })
}

fn head(row: &Row<'_>) -> Result<RunHead, QueryError> {
    let name: String = row.get(3)?;
    Ok(RunHead {
        id: id(row, 0)?,
        agent: row.get(1)?,
        session: row.get(2)?,
        state: RunState::parse(&name).ok_or_else(|| StoreError::corrupt("state of a run", format!("'{name}'")))?,
        created_at: u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
        changed_at: u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
        size: u64::try_from(row.get::<_, i64>(6)?).unwrap_or(0),
        protocol: row.get(7)?,
        owner: row.get(8)?,
        events: u64::try_from(row.get::<_, i64>(9)?).unwrap_or(0),
        preview: row.get::<_, Option<String>>(10)?.unwrap_or_default(),
    })
}

pub(super) fn id(row: &Row<'_>, column: usize) -> Result<RunId, rusqlite::Error> {
    row.get::<_, [u8; 16]>(column).map(|bytes| RunId(Uuid::from_bytes(bytes)))
}

pub(super) fn latest(
    connection: &mut Connection,
    agents: &[String],
    owner: &str,
    session: &str,
) -> Result<Option<RunId>, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, agent FROM runs WHERE owner = ?1 AND session = ?2 AND NOT hidden
         ORDER BY created_at DESC, id DESC",
    )?;

    let mut rows = statement.query([owner, session])?;
    while let Some(row) = rows.next()? {
        let agent: String = row.get(1)?;
        if agents.is_empty() || agents.contains(&agent) {
            return Ok(Some(id(row, 0)?));
        }
    }
    Ok(None)
}

pub(super) fn recover(connection: &mut Connection) -> Result<Vec<RunId>, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM runs WHERE ended = 0 AND state NOT IN ('waiting', 'waiting_for_auth')
         ORDER BY created_at, id",
    )?;
    let ids = statement.query_map([], |row| id(row, 0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

pub(super) fn get(connection: &mut Connection, collection: &str, key: &str) -> Result<Option<Document>, QueryError> {
    let mut statement =
        connection.prepare_cached("SELECT value, version, made FROM documents WHERE collection = ?1 AND key = ?2")?;
    Ok(statement.query_row([collection, key], |row| document(row, 0)).optional()?)
}

pub(super) fn list(
    connection: &mut Connection,
    collection: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<DocumentEntry>, QueryError> {
    let (from, past) = match after {
        Some(after) if after >= prefix => (after, true),
        _ => (prefix, false),
    };
    let mut statement = connection.prepare_cached(
        "SELECT value, version, made, key FROM documents
         WHERE collection = ?1 AND key >= ?2 AND (key > ?2 OR NOT ?3) ORDER BY key",
    )?;

    let mut rows = statement.query(params![collection, from, past])?;
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(row) = rows.next()?
    {
        let key: String = row.get(3)?;
        // Keys with the same prefix are adjacent.
        if !key.starts_with(prefix) {
            break;
        }
        entries.push(DocumentEntry { key, document: document(row, 0)? });
    }
    Ok(entries)
}

fn document(row: &Row<'_>, column: usize) -> Result<Document, rusqlite::Error> {
    let version = |column| row.get::<_, i64>(column).map(|version| Version(u64::try_from(version).unwrap_or(0)));
    Ok(Document {
        value: Bytes::from(row.get::<_, Vec<u8>>(column)?),
        version: version(column + 1)?,
        created: version(column + 2)?,
    })
}

/// An integer for a column: SQLite integers are signed. Times and counts stay far below the limit.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
