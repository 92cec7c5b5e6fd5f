//! The queries that change nothing. Not here: the connections they run on ([`super::reads`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use interlingua_core::call::{Cursor, Order, RunInfo, RunState};
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, SerializedValue};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Database;
use super::reads::ReadError;
use super::text;
use super::tracked::{int, tag};
use interlingua_store::{
    Document, DocumentEntry, LoadCost, Query, RunHead, RunPage, StoreError, StoredRun, Version, code_in_head,
    code_prefixes, without_tools,
};

pub(super) async fn load(database: &Database, id: RunId) -> Result<Option<Arc<StoredRun>>, ReadError> {
    // One statement, so that metadata and lines are of the same moment.
    let sql = "
        SELECT r.about, r.hidden, (SELECT string_agg(l.bytes, ''::bytea ORDER BY l.first) FROM il.lines l WHERE l.run = r.id),
               r.upto
        FROM il.runs r WHERE r.id = $1";
    let Some(row) = database.row(sql, &[(&id.0, Type::UUID)]).await? else { return Ok(None) };
    let lines: Option<&[u8]> = row.get(2);
    let record = journal::read(lines.unwrap_or_default())
        .map_err(|error| StoreError::corrupt(format_args!("run {id}"), error))?;
    // An incomplete last line is dropped when lines are read.
    if int(record.len()) < row.get::<_, i64>(3) {
        return Err(StoreError::corrupt(format_args!("run {id}"), "its last events are missing").into());
    }
    Ok(Some(Arc::new(StoredRun { record, info: parse_info(id, row.get(0), row.get(1))? })))
}

/// The metadata in a run's row.
pub(super) fn parse_info(id: RunId, info: &[u8], hidden: bool) -> Result<RunInfo, ReadError> {
    let SerializedValue(mut info): SerializedValue<RunInfo> = serde_json::from_slice(info)
        .map_err(|error| StoreError::corrupt(format_args!("metadata of run {id}"), error))?;
    if hidden {
        // Retention hides a run only by setting this column.
        (info.stored, info.retention) = (false, None);
    }
    Ok(info)
}

pub(super) async fn load_cost(database: &Database, id: RunId) -> Result<Option<LoadCost>, ReadError> {
    let sql = "SELECT upto, changed_at, hidden, size, ended, tags FROM il.runs WHERE id = $1";
    let Some(row) = database.row(sql, &[(&id.0, Type::UUID)]).await? else { return Ok(None) };
    let (upto, changed_at, size): (i64, i64, i64) = (row.get(0), row.get(1), row.get(3));
    let mut hasher = DefaultHasher::new();
    (id.0, upto, changed_at, row.get::<_, bool>(2), size, row.get::<_, Vec<String>>(5)).hash(&mut hasher);
    let bytes = u64::try_from(size).unwrap_or(0).max(1);
    Ok(Some(LoadCost { bytes, fingerprint: row.get::<_, bool>(4).then(|| hasher.finish()) }))
}

pub(super) async fn owner_of(database: &Database, id: RunId) -> Result<Option<String>, ReadError> {
    let row = database.row("SELECT owner FROM il.runs WHERE id = $1", &[(&id.0, Type::UUID)]).await?;
    Ok(row.map(|row| text::original(row.get(0)).into_owned()))
}

pub(super) async fn heads(database: &Database, ids: &[RunId]) -> Result<Vec<StoredRun>, ReadError> {
    let wanted: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let sql = "SELECT id, about, hidden, head FROM il.runs WHERE id = ANY ($1)";
    let mut found = HashMap::new();
    for row in database.rows(sql, &[(&wanted, Type::UUID_ARRAY)]).await? {
        let id = RunId(row.get(0));
        let read = || -> Result<StoredRun, ReadError> {
            let record =
                journal::read(row.get(3)).map_err(|error| StoreError::corrupt(format_args!("run {id}"), error))?;
            Ok(StoredRun { record, info: without_tools(parse_info(id, row.get(1), row.get(2))?) })
        };
        match read() {
            Ok(head) => drop(found.insert(id, head)),
            // One damaged run must not hide all others.
            Err(ReadError::Store(error @ StoreError::Corrupt { .. })) => {
                tracing::error!(%error, "a run is left out of a list");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

/// The runs that match a query.
macro_rules! found {
    () => {
        "
    FROM il.runs WHERE NOT hidden
      AND ($1::text IS NULL OR owner = $1) AND ($2::text[] IS NULL OR agent = ANY ($2))
      AND ($3::text IS NULL OR session = $3) AND ($4::text IS NULL OR protocol = $4)
      AND ($5::text[] IS NULL OR state = ANY ($5)) AND ($6::bigint IS NULL OR changed_at >= $6)
      AND NOT EXISTS (SELECT FROM unnest($7::text[], $8::bigint[]) AS x(route, before)
                      WHERE x.route = runs.route AND runs.ended AND runs.changed_at < x.before)
      AND tags @> $9::text[]
      AND ($10::text IS NULL OR id = $11::uuid OR preview ILIKE $10 OR session ILIKE $10 OR owner ILIKE $10
           OR (state IN ('failed', 'rejected', 'incomplete', 'canceled')
               AND (position($12::bytea IN head) > 0 OR position($13::bytea IN head) > 0)))"
    };
}

/// A page of them: in an order, after a run with a time and an id.
macro_rules! page {
    ($time:literal, $follows:literal, $direction:literal) => {
        concat!(
            "SELECT id, agent, session, state, changed_at, size, created_at, protocol, owner, upto, preview ",
            found!(),
            " AND ($14::bigint IS NULL OR (",
            $time,
            ", id) ",
            $follows,
            " ($14, $15::uuid)) ORDER BY ",
            $time,
            " ",
            $direction,
            ", id ",
            $direction,
            " LIMIT $16"
        )
    };
}

const COUNT: &str = concat!("SELECT count(*) ", found!());
const LATEST_CHANGE: &str = page!("changed_at", "<", "DESC");
const OLDEST_FIRST: &str = page!("created_at", ">", "ASC");
const NEWEST_FIRST: &str = page!("created_at", "<", "DESC");

pub(super) async fn find(database: &Database, query: &Query) -> Result<RunPage, ReadError> {
    let filter = &query.filter;
    let list = |values: Vec<String>| (!values.is_empty()).then_some(values);
    let agents = list(query.agents.iter().map(|agent| text::kept(agent).into_owned()).collect());
    let (owner, session) = (query.owner.as_deref().map(text::kept), filter.session.as_deref().map(text::kept));
    let protocol = filter.protocol.as_deref().map(text::kept);
    let states = list(filter.states.iter().map(|state| state.as_str().to_owned()).collect());
    let since = filter.changed_since.map(int);
    let (routes, before): (Vec<Cow<'_, str>>, Vec<i64>) =
        query.expired_before.iter().map(|(route, before)| (text::kept(route), int(*before))).unzip();
    let limit = if filter.limit == 0 { Query::LIMIT } else { filter.limit };
    let most = i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1));
    let (at, id) = filter.cursor.map(|cursor| (int(cursor.at), cursor.id.0)).unzip();
    let tags: Vec<String> = filter.tags.iter().map(|(name, value)| tag(name, value)).collect();
    let pattern = query.text.as_deref().map(pattern);
    let named = query.text.as_deref().and_then(RunId::parse).map(|id| id.0);
    let codes = query.text.as_deref().and_then(code_prefixes).map(|codes| codes.map(|code| code_in_head(&code)));
    let (code, capitals) = codes.map(|[code, capitals]| (code, capitals)).unzip();
    let filters: [(&(dyn ToSql + Sync), Type); 13] = [
        (&owner, Type::TEXT),
        (&agents, Type::TEXT_ARRAY),
        (&session, Type::TEXT),
        (&protocol, Type::TEXT),
        (&states, Type::TEXT_ARRAY),
        (&since, Type::INT8),
        (&routes, Type::TEXT_ARRAY),
        (&before, Type::INT8_ARRAY),
        (&tags, Type::TEXT_ARRAY),
        (&pattern, Type::TEXT),
        (&named, Type::UUID),
        (&code, Type::BYTEA),
        (&capitals, Type::BYTEA),
    ];
    let mut page_parameters = filters.to_vec();
    page_parameters.extend([(&at as &(dyn ToSql + Sync), Type::INT8), (&id, Type::UUID), (&most, Type::INT8)]);

    let page = match filter.order {
        Order::LatestChange => LATEST_CHANGE,
        Order::OldestFirst => OLDEST_FIRST,
        Order::NewestFirst => NEWEST_FIRST,
    };
    let (total, rows) = futures_util::try_join!(async { database.row(COUNT, &filters).await }, async {
        database.rows(page, &page_parameters).await
    })?;
    let total: i64 = total.map_or(0, |row| row.get(0));
    let mut runs = Vec::with_capacity(rows.len());
    for row in rows.iter().take(limit) {
        match head(row) {
            Ok(head) => runs.push(head),
            // One damaged run must not hide all others.
            Err(ReadError::Store(error @ StoreError::Corrupt { .. })) => {
                tracing::error!(%error, "a run is left out of a list");
            }
            Err(error) => return Err(error),
        }
    }
    // The next page follows the last row, even one that cannot be read.
    let next = (rows.len() > limit).then(|| cursor(&rows[limit - 1], filter.order));
    Ok(RunPage { runs, total: usize::try_from(total).unwrap_or(0), next })
}

/// A text as it may stand anywhere in another one, for LIKE.
fn pattern(wanted: &str) -> String {
    let escaped = text::kept(wanted).replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// The place of a row in an order.
fn cursor(row: &Row, order: Order) -> Cursor {
    let (changed_at, created_at): (i64, i64) = (row.get(4), row.get(6));
    Cursor { at: order.time(created_at.unsigned_abs(), changed_at.unsigned_abs()), id: RunId(row.get(0)) }
}

fn head(row: &Row) -> Result<RunHead, ReadError> {
    let name: String = row.get(3);
    Ok(RunHead {
        id: RunId(row.get(0)),
        agent: text::original(row.get(1)).into_owned(),
        session: text::original(row.get(2)).into_owned(),
        state: RunState::parse(&name).ok_or_else(|| StoreError::corrupt("state of a run", format!("'{name}'")))?,
        changed_at: row.get::<_, i64>(4).unsigned_abs(),
        size: row.get::<_, i64>(5).unsigned_abs(),
        created_at: row.get::<_, i64>(6).unsigned_abs(),
        protocol: text::original(row.get(7)).into_owned(),
        owner: text::original(row.get(8)).into_owned(),
        events: row.get::<_, i64>(9).unsigned_abs(),
        preview: text::original(row.get(10)).into_owned(),
    })
}

pub(super) async fn latest(
    database: &Database,
    agents: &[String],
    owner: &str,
    session: &str,
) -> Result<Option<RunId>, ReadError> {
    let sql = "
        SELECT id FROM il.runs WHERE owner = $1 AND session = $2 AND NOT hidden
          AND (cardinality($3::text[]) = 0 OR agent = ANY ($3)) ORDER BY created_at DESC, id DESC LIMIT 1";
    let agents: Vec<Cow<'_, str>> = agents.iter().map(|agent| text::kept(agent)).collect();
    let (owner, session) = (text::kept(owner), text::kept(session));
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&owner, Type::TEXT), (&session, Type::TEXT), (&agents, Type::TEXT_ARRAY)];
    Ok(database.row(sql, &parameters).await?.map(|row| RunId(row.get(0))))
}

pub(super) async fn get(database: &Database, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
    let sql = "SELECT value, version, created FROM il.documents WHERE collection = $1 AND key = $2";
    let row = database.row(sql, &[(&collection, Type::TEXT), (&key, Type::TEXT)]).await?;
    Ok(row.map(|row| document(&row)))
}

pub(super) async fn list(
    database: &Database,
    collection: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<DocumentEntry>, ReadError> {
    let (from, past) = match after {
        Some(after) if after >= prefix => (after, true),
        _ => (prefix, false),
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let end = end_of_prefix(prefix);
    // Keys are compared by bytes, and those with the same prefix are adjacent.
    let sql = "
        SELECT value, version, created, key FROM il.documents
        WHERE collection = $1 AND key >= $2 AND (key > $2 OR NOT $3) AND ($4::text IS NULL OR key < $4)
        ORDER BY key LIMIT $5";
    let parameters: [(&(dyn ToSql + Sync), Type); 5] =
        [(&collection, Type::TEXT), (&from, Type::TEXT), (&past, Type::BOOL), (&end, Type::TEXT), (&limit, Type::INT8)];
    let rows = database.rows(sql, &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| DocumentEntry { key: text::original(row.get(3)).into_owned(), document: document(row) })
        .collect())
}

/// The first text after all texts with this prefix, if there is one.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // The range skips what is no character.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

fn document(row: &Row) -> Document {
    let version = |column| Version(row.get::<_, i64>(column).unsigned_abs());
    Document { value: Bytes::from(row.get::<_, Vec<u8>>(0)), version: version(1), created: version(2) }
}

/// The number of documents of a principal in a collection, with all its routes and tenants.
pub(super) async fn count(database: &Database, collection: &str, principal: &str) -> Result<u64, ReadError> {
    // '0' is the character after '/'.
    let sql = "
        SELECT count(*) FROM il.documents
        WHERE collection = $1 AND (owner = $2 OR owner >= $2 || '/' AND owner < $2 || '0')";
    let row = database.row(sql, &[(&collection, Type::TEXT), (&principal, Type::TEXT)]).await?;
    Ok(row.map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
}
