//! Leases: who does what only one of all replicas does. A lease ends with the replica that has it. Not here: the lease
//! of a replica itself ([`super::writer`], [`super::recover`]).

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::database::{Database, Parameters};
use super::inner::Inner;
use interlingua_store::StoreError;

/// This replica, if it is not fenced. The one who fences it waits until the statement is over, so that nothing of it
/// comes after its leases were taken from it.
macro_rules! this_replica {
    () => {
        "me AS (SELECT id FROM il.replicas WHERE id = $1 AND state = 'active' FOR KEY SHARE)"
    };
}

const ACQUIRE: &str = concat!(
    "WITH ",
    this_replica!(),
    ", taken AS (
        INSERT INTO il.leases AS l (name, holder, until, replica)
        SELECT $2, $3, clock_timestamp() + $4::float8 * interval '1 second', id FROM me
        ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, replica = excluded.replica
        WHERE l.holder = excluded.holder OR l.until <= clock_timestamp() RETURNING name)
    SELECT EXISTS (SELECT FROM me), EXISTS (SELECT FROM taken)"
);
const RELEASE: &str = concat!(
    "WITH ",
    this_replica!(),
    ", gone AS (
        DELETE FROM il.leases WHERE name = $2 AND holder = $3 AND EXISTS (SELECT FROM me) RETURNING name)
    SELECT EXISTS (SELECT FROM me), EXISTS (SELECT FROM gone)"
);

/// Acquires a lease, or renews it. False: another holder has it.
pub(super) async fn acquire(inner: &Inner, name: &str, holder: &str, seconds: f64) -> Result<bool, StoreError> {
    let replica = inner.replica();
    let parameters: [(&(dyn ToSql + Sync), Type); 4] =
        [(&replica, Type::UUID), (&name, Type::TEXT), (&holder, Type::TEXT), (&seconds, Type::FLOAT8)];
    change(inner, ACQUIRE, &parameters).await
}

/// Releases a lease, if this holder has it.
pub(super) async fn release(inner: &Inner, name: &str, holder: &str) -> Result<(), StoreError> {
    let replica = inner.replica();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&replica, Type::UUID), (&name, Type::TEXT), (&holder, Type::TEXT)];
    change(inner, RELEASE, &parameters).await.map(drop)
}

/// Runs one of the statements. True if it changed anything.
async fn change(inner: &Inner, sql: &'static str, parameters: Parameters<'_>) -> Result<bool, StoreError> {
    let changed = |row: Option<Row>| match row {
        Some(row) if row.get(0) => Ok(row.get(1)),
        _ => Err(StoreError::Fenced),
    };
    inner.reads.read(async |database: &Database| Ok(changed(database.row(sql, parameters).await?)?)).await
}
