//! The queries: everything that only reads. Not here: the threads that ask them ([`super::readers`]), and anything that
//! changes the file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use interlingua_core::call::{Cursor, RunInfo, RunState};
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, Written};
use interlingua_core::run::Record;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use uuid::Uuid;

use crate::store::{Document, Entry, Found, Query, RunHead, StoreError, Stored, Version, Weight};

/// What a query may fail with.
pub(super) enum Failed {
    Sql(rusqlite::Error),
    Store(StoreError),
    /// The file is not there any more.
    Gone(StoreError),
}

impl Failed {
    /// True if whatever else is tried would fail alike: not for want of room, which may suffice for something smaller.
    pub(super) fn is_of_all(&self) -> bool {
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

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn load(connection: &mut Connection, id: RunId) -> Result<Option<Arc<Stored>>, Failed> {
    // One transaction: facts and lines are of the same moment.
    let moment = connection.transaction()?;
    let found = moment
        .prepare_cached("SELECT number, about, hidden FROM runs WHERE id = ?1")?
        .query_row([id.0.as_bytes().as_slice()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, bool>(2)?))
        })
        .optional()?;
    let Some((number, about, hidden)) = found else { return Ok(None) };
    let (record, about) = (record(&moment, id, number)?, facts(id, &about, hidden)?);
    Ok(Some(Arc::new(Stored { record, about })))
}

/// A run made again of all its lines.
pub(super) fn record(moment: &Connection, id: RunId, number: i64) -> Result<Record, Failed> {
    let mut lines = Vec::new();
    let mut segments = moment.prepare_cached("SELECT bytes FROM lines WHERE run = ?1 ORDER BY first, number")?;
    let mut segments = segments.query([number])?;
    while let Some(row) = segments.next()? {
        lines.extend_from_slice(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(journal::read(&lines).map_err(|why| StoreError::corrupt(format_args!("run {id}"), why))?)
}

/// What is known of a run besides, as its row has it.
pub(super) fn facts(id: RunId, about: &[u8], hidden: bool) -> Result<RunInfo, Failed> {
    let Written(mut about): Written<RunInfo> =
        serde_json::from_slice(about).map_err(|why| StoreError::corrupt(format_args!("facts of run {id}"), why))?;
    if hidden {
        // Retention may have hidden it, which is written in the row alone.
        (about.stored, about.retention) = (false, None);
    }
    Ok(about)
}

/// How many bytes the lines of a run have. Lengths stand in front of the bytes, which are not read for that.
pub(super) const SIZE: &str = "(SELECT ifnull(sum(length(bytes)), 0) FROM lines WHERE run = runs.number)";

pub(super) fn weigh(connection: &mut Connection, id: RunId) -> Result<Option<Weight>, Failed> {
    let weight =
        format!("SELECT number, upto, changed_at, hidden, length(about), ended, {SIZE} FROM runs WHERE id = ?1");
    let mut weight = connection.prepare_cached(&weight)?;
    let weight = weight.query_row([id.0.as_bytes().as_slice()], |row| {
        let mut state = DefaultHasher::new();
        for column in 0..5 {
            row.get::<_, i64>(column)?.hash(&mut state);
        }
        let (ended, lines): (bool, i64) = (row.get(5)?, row.get(6)?);
        let bytes = u64::try_from(lines + row.get::<_, i64>(4)?).unwrap_or(0).max(1);
        Ok(Weight { bytes, state: ended.then(|| state.finish()) })
    });
    Ok(weight.optional()?)
}

/// The condition of a query, and what its question marks stand for.
fn condition(query: &Query) -> (String, Vec<Value>) {
    let mut sql = String::from("NOT hidden");
    let mut values: Vec<Value> = Vec::new();
    let mut also = |condition: &str, with: Vec<Value>| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.extend(with);
    };
    let any_of = |column: &str, count: usize| format!("{column} IN ({})", vec!["?"; count].join(","));
    let text = |text: &String| Value::Text(text.clone());
    let filter = &query.filter;
    if let Some(owner) = &query.owner {
        also("owner = ?", vec![text(owner)]);
    }
    if !query.agents.is_empty() {
        also(&any_of("agent", query.agents.len()), query.agents.iter().map(text).collect());
    }
    if let Some(session) = &filter.session {
        also("session = ?", vec![text(session)]);
    }
    if let Some(protocol) = &filter.protocol {
        also("protocol = ?", vec![text(protocol)]);
    }
    if !filter.states.is_empty() {
        let words = filter.states.iter().map(|state| Value::Text(state.as_str().into()));
        also(&any_of("state", filter.states.len()), words.collect());
    }
    if let Some(since) = filter.changed_since {
        also("changed_at >= ?", vec![Value::Integer(int(since))]);
    }
    for (route, before) in &query.gone {
        let gone = "NOT (route IS ? AND ended = 1 AND changed_at < ?)";
        also(gone, vec![text(route), Value::Integer(int(*before))]);
    }
    (sql, values)
}

pub(super) fn find(connection: &mut Connection, query: &Query) -> Result<Found, Failed> {
    let moment = connection.transaction()?;
    let (condition, mut values) = condition(query);
    let total: i64 = moment
        .prepare_cached(&format!("SELECT count(*) FROM runs WHERE {condition}"))?
        .query_row(params_from_iter(&values), |row| row.get(0))?;
    let limit = if query.filter.limit == 0 { Query::LIMIT } else { query.filter.limit };
    let mut sql = format!("SELECT id, agent, session, state, changed_at, {SIZE} FROM runs WHERE {condition}");
    if let Some(cursor) = query.filter.cursor {
        sql.push_str(" AND (changed_at, id) < (?, ?)");
        values.extend([Value::Integer(int(cursor.changed_at)), Value::Blob(cursor.id.0.as_bytes().to_vec())]);
    }
    sql.push_str(" ORDER BY changed_at DESC, id DESC LIMIT ?");
    values.push(Value::Integer(i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1))));
    let mut runs = Vec::new();
    let mut statement = moment.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(&values))?;
    while let Some(row) = rows.next()? {
        runs.push(head(row)?);
    }
    let more = runs.len() > limit;
    runs.truncate(limit);
    let last = runs.last().filter(|_| more);
    let next = last.map(|head| Cursor { changed_at: head.changed_at, id: head.id });
    Ok(Found { runs, total: usize::try_from(total).unwrap_or(0), next })
}

fn head(row: &Row<'_>) -> Result<RunHead, Failed> {
    let word: String = row.get(3)?;
    Ok(RunHead {
        id: id(row, 0)?,
        agent: row.get(1)?,
        session: row.get(2)?,
        state: RunState::parse(&word).ok_or_else(|| StoreError::corrupt("state of a run", format_args!("'{word}'")))?,
        changed_at: u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
        size: u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
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
) -> Result<Option<RunId>, Failed> {
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

pub(super) fn recover(connection: &mut Connection) -> Result<Vec<RunId>, Failed> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM runs WHERE ended = 0 AND state NOT IN ('waiting', 'waiting_for_auth')
         ORDER BY created_at, id",
    )?;
    let ids = statement.query_map([], |row| id(row, 0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

pub(super) fn get(connection: &mut Connection, collection: &str, key: &str) -> Result<Option<Document>, Failed> {
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
) -> Result<Vec<Entry>, Failed> {
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
        // Keys that begin alike stand together.
        if !key.starts_with(prefix) {
            break;
        }
        entries.push(Entry { key, document: document(row, 0)? });
    }
    Ok(entries)
}

fn document(row: &Row<'_>, column: usize) -> Result<Document, rusqlite::Error> {
    let version = |column| row.get::<_, i64>(column).map(|version| Version(u64::try_from(version).unwrap_or(0)));
    Ok(Document {
        value: Bytes::from(row.get::<_, Vec<u8>>(column)?),
        version: version(column + 1)?,
        made: version(column + 2)?,
    })
}

/// A number for a column: SQLite's have a sign. Times and counts stay far below.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
