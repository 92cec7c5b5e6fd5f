//! The contract of [`Store`], tested with every implementation, and the additional guarantees of a store in a file. Not
//! here: the engine's use of the store.

// An error here fails the test.
#![expect(clippy::unwrap_used)]

mod connections;
mod contract;
mod crash;
mod failing;
mod file;
mod followed;
mod live;
mod postgres;
mod postgres_cuts;
mod postgres_held;
mod postgres_outages;
mod postgres_schema;
mod publishing;
mod retention;
mod shared;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use interlingua::store::{Memory, Postgres, PostgresOptions, Sqlite, SqliteOptions, Store};

use interlingua_testing_support::replicas::{self, Hub};

/// A store under test, and its directory if it has one.
pub(crate) struct TestStore {
    pub(crate) store: Arc<dyn Store>,
    _directory: Option<tempfile::TempDir>,
}

fn memory() -> TestStore {
    TestStore { store: Arc::new(Memory::new()), _directory: None }
}

fn sqlite() -> TestStore {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    TestStore { store: Arc::new(store), _directory: Some(directory) }
}

fn postgres() -> TestPostgres {
    let database = interlingua_testing_postgres::database();
    let store = Postgres::open(&postgres_options(&database.url())).unwrap();
    TestPostgres { store: Arc::new(store), _database: database }
}

/// A store in a database of its own.
pub(crate) struct TestPostgres {
    pub(crate) store: Arc<dyn Store>,
    _database: interlingua_testing_postgres::Database<'static>,
}

/// For a database that is reached without TLS.
fn postgres_options(url: &str) -> PostgresOptions {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    PostgresOptions {
        url: url.to_owned(),
        schema: "interlingua".to_owned(),
        lease: std::time::Duration::from_secs(10),
        readers: 2,
        tls: Arc::new(tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()),
        metrics: None,
    }
}

/// The rules for a store that no other process uses.
macro_rules! test_contract_of_one {
    ($($module:ident: $($test:ident),+;)+) => {
        mod a_memory_store_of_one_process {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::memory().store).await })+)+
        }
        mod a_sqlite_store_of_one_process {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::sqlite().store).await })+)+
        }
    };
}

test_contract_of_one! {
    contract: a_touch_reactivates_a_settled_run;
    publishing: withdrawn_events_are_not_stored;
}

/// One of the users of a store that several processes share.
fn replica() -> TestStore {
    TestStore { store: Hub::on_file(Duration::from_secs(10)).join(), _directory: None }
}

macro_rules! test_contract {
    ($($module:ident: $($test:ident),+;)+) => {
        mod a_replica_of_a_shared_store {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::replica().store).await })+)+
        }
        mod a_memory_store {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::memory().store).await })+)+
        }
        mod a_sqlite_store {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::sqlite().store).await })+)+
        }
        mod a_postgres_store {
            $($(#[tokio::test] async fn $test() { crate::$module::$test(&crate::postgres().store).await })+)+
        }
    };
}

test_contract! {
    contract:
        a_settled_run_is_loaded_as_it_was,
        a_run_that_was_not_opened_is_not_stored,
        a_run_continues_after_it_was_settled,
        a_removed_run_stays_removed,
        flushed_events_are_durable,
        a_dropped_future_cancels_nothing,
        concurrent_runs_do_not_mix,
        runs_are_found_by_every_filter,
        runs_are_found_by_how_they_began,
        runs_are_found_by_their_tags,
        runs_are_listed_in_the_order_of_their_creation,
        heads_contain_no_messages,
        the_load_cost_of_a_run_is_known_without_loading_it,
        the_owner_of_a_run_is_known_without_loading_it,
        documents_are_counted_by_principal,
        pages_are_stable_while_runs_change,
        an_ended_run_that_is_not_stored_is_not_found,
        the_latest_run_of_a_session_was_accepted_last,
        one_of_many_concurrent_writers_wins,
        a_version_is_never_reused,
        documents_written_together_are_all_written_or_none,
        documents_written_together_have_one_winner,
        documents_are_listed_by_key,
        a_lease_has_one_holder_until_it_expires,
        signals_reach_all_listeners,
        a_closed_store_reports_it;
    publishing:
        events_become_durable_quickly,
        confirmed_events_are_published,
        a_removed_run_does_not_block_its_followers,
        evicted_events_stay_in_the_store;
    retention:
        retention_deletes_the_oldest_runs_first,
        a_route_keeps_its_runs_for_its_own_time_to_live,
        a_route_keeps_at_most_its_maximum_of_runs,
        a_run_that_others_continue_is_hidden_by_its_route,
        attached_documents_are_deleted_with_their_run,
        expired_runs_are_on_no_page,
        a_run_that_continues_restarts_its_time_to_live,
        many_runs_are_deleted_in_small_batches,
        the_largest_owner_loses_first,
        a_route_counts_the_runs_of_each_owner,
        documents_are_limited_by_number_and_deleted_with_their_parts,
        the_byte_limit_takes_from_the_largest_owner,
        who_is_over_their_own_bound_loses_their_own_oldest,
        the_own_bound_of_a_route_counts_that_route,
        the_own_bound_of_documents_takes_only_from_their_owner,
        the_own_bound_of_bytes_takes_only_from_their_owner,
        runs_that_have_not_ended_are_never_deleted;
}
