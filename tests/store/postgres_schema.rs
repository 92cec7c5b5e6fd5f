//! Versions of the schema in PostgreSQL: made once by many gateways that start at once, migrated with their content,
//! read by gateways of the previous version, and refused if they are newer. Not here: the stored data.

use std::sync::Arc;

use bytes::Bytes;
use interlingua::store::{Expect, Postgres, Store, StoreError};
use interlingua_testing_postgres::Database;

/// The schema as its first version made it. Never changed.
const FIRST: &str = include_str!("../../crates/store-postgres/src/schema.sql");

async fn try_open(database: &Database<'_>) -> Result<Arc<dyn Store>, StoreError> {
    let options = crate::postgres_options(&database.url());
    let opened = tokio::task::spawn_blocking(move || Postgres::open(&options)).await.unwrap();
    opened.map(|store| Arc::new(store) as Arc<dyn Store>)
}

fn versions(database: &Database<'_>) -> String {
    database.sql("SELECT string_agg(version::text, ',' ORDER BY version) FROM interlingua.migrations").unwrap()
}

#[tokio::test]
async fn gateways_that_start_at_once_make_the_schema_once() {
    let database = interlingua_testing_postgres::database();
    let stores = futures_util::future::join_all((0..6).map(|_| try_open(&database))).await;
    let stores: Vec<_> = stores.into_iter().map(Result::unwrap).collect();
    assert_eq!(versions(&database), "1,2,3,4");
    assert_eq!(database.sql("SELECT count(*) FROM interlingua.replicas WHERE state = 'active'").unwrap(), "6");
    stores[0].put("c", "k", Bytes::from_static(b"v"), Expect::Absent, 1).await.unwrap().unwrap();
    assert_eq!(stores[5].get("c", "k").await.unwrap().unwrap().value, "v");
}

#[tokio::test]
async fn a_schema_of_the_first_version_is_migrated_with_its_data() {
    let database = interlingua_testing_postgres::database();
    database.sql(&format!("CREATE SCHEMA interlingua;\n{}", FIRST.replace("il.", "interlingua."))).unwrap();
    database
        .sql(
            "INSERT INTO interlingua.documents (collection, key, owner, version, created, put_at, writer, value)
             VALUES ('c', 'k', '', nextval('interlingua.versions'), 1, 1, gen_random_uuid(), 'kept');
             INSERT INTO interlingua.replicas (id, state, version, journal)
             VALUES ('00000000-0000-0000-0000-00000000000a', 'active', '0', 1);
             INSERT INTO interlingua.leases VALUES ('taken', 'one', '2999-01-01'), ('over', 'one', '2020-01-01')",
        )
        .unwrap();
    assert_eq!(versions(&database), "1");

    let store = try_open(&database).await.unwrap();
    assert_eq!(versions(&database), "1,2,3,4");
    assert_eq!(store.get("c", "k").await.unwrap().unwrap().value, "kept");
    let minute = std::time::Duration::from_secs(60);
    assert!(!store.lease("taken", "other", minute).await.unwrap());
    assert!(store.lease("over", "other", minute).await.unwrap());

    // What a gateway of the version before says to the new schema.
    database
        .sql(
            "SELECT interlingua.renew('00000000-0000-0000-0000-00000000000a', 1);
             INSERT INTO interlingua.leases AS l (name, holder, until) VALUES ('theirs', 'one', '2999-01-01')
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until",
        )
        .unwrap();
    assert!(!store.lease("theirs", "other", minute).await.unwrap());
}

#[tokio::test]
async fn gateways_that_start_at_once_migrate_an_old_schema_once() {
    let database = interlingua_testing_postgres::database();
    database.sql(&format!("CREATE SCHEMA interlingua;\n{}", FIRST.replace("il.", "interlingua."))).unwrap();
    database
        .sql(
            "INSERT INTO interlingua.documents (collection, key, owner, version, created, put_at, writer, value)
             VALUES ('c', 'k', '', nextval('interlingua.versions'), 1, 1, gen_random_uuid(), 'kept')",
        )
        .unwrap();
    let stores = futures_util::future::join_all((0..6).map(|_| try_open(&database))).await;
    let stores: Vec<_> = stores.into_iter().map(Result::unwrap).collect();
    assert_eq!(versions(&database), "1,2,3,4");
    for store in stores {
        assert_eq!(store.get("c", "k").await.unwrap().unwrap().value, "kept");
    }
}

#[tokio::test]
async fn a_newer_schema_is_used_if_it_can_be_read_and_refused_otherwise() {
    let database = interlingua_testing_postgres::database();
    drop(try_open(&database).await.unwrap());
    database.sql("INSERT INTO interlingua.migrations (version, reader) VALUES (98, 2)").unwrap();
    let store = try_open(&database).await.unwrap();
    store.put("c", "k", Bytes::new(), Expect::Absent, 1).await.unwrap().unwrap();
    assert_eq!(versions(&database), "1,2,3,4,98", "nothing is done again");

    database.sql("INSERT INTO interlingua.migrations (version, reader) VALUES (99, 5)").unwrap();
    let refused = try_open(&database).await.err().unwrap();
    assert!(matches!(refused, StoreError::NewerSchema { found: 99, .. }), "{refused}");
    // A running store continues.
    store.put("c", "k", Bytes::new(), Expect::Any, 1).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    let database = interlingua_testing_postgres::database();
    // A table of this name is not ours.
    database.sql("CREATE SCHEMA interlingua; CREATE TABLE interlingua.leases (something int)").unwrap();
    assert!(try_open(&database).await.is_err());
    let tables = "SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = 'interlingua'";
    assert_eq!(database.sql(tables).unwrap(), "leases");

    database.sql("DROP TABLE interlingua.leases").unwrap();
    let store = try_open(&database).await.unwrap();
    store.put("c", "k", Bytes::new(), Expect::Absent, 1).await.unwrap().unwrap();
}
