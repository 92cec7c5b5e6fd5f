//! Lists of runs that cannot be read: they hide no others. Not here: reading such a run (`tests/upgrades/damaged.rs`).

use std::path::Path;
use std::sync::Arc;

use interlingua::store::{Query, Sqlite, SqliteOptions, Store};
use interlingua_core::call::{Filter, Order, RunState};
use interlingua_core::event::End;

use crate::contract::open_run;
use crate::live::{RunSpec, id};

/// Gives runs a state of a later version: more of them in a row than there are on a page.
const DAMAGE: &str = "UPDATE store.runs SET state = 'later' WHERE created_at % 10 IN (2, 3, 4, 5, 8, 9)";
/// All others.
const READABLE: [u64; 3] = [1, 6, 7];

async fn write_runs(store: &Arc<dyn Store>) {
    for number in 1..10 {
        let spec = RunSpec { id: id(number.into()), at: 1000 + number, ..RunSpec::default() };
        open_run(store, &spec, RunState::Ended(End::Completed), 2000 + number).await;
    }
}

async fn assert_all_others_are_listed(store: &Arc<dyn Store>) {
    for (order, limit) in [Order::LatestChange, Order::NewestFirst, Order::OldestFirst]
        .into_iter()
        .flat_map(|order| [1, 2, 3, 8, 9, 10].map(|limit| (order, limit)))
    {
        let (mut listed, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let filter = Filter { limit, order, cursor, ..Filter::default() };
            let page = store.find(Query { filter, ..Query::default() }).await.unwrap();
            assert!(page.runs.len() <= limit);
            listed.extend(page.runs.iter().map(|head| head.created_at - 1000));
            pages += 1;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if !order.is_ascending() {
            listed.reverse();
        }
        assert_eq!(listed, READABLE, "{order:?}, {limit} on a page");
        assert_eq!(pages, 9_usize.div_ceil(limit), "{order:?}, {limit} on a page");
    }
}

#[tokio::test]
async fn more_unreadable_runs_than_fit_on_a_page_of_a_file_hide_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let open = |path: &Path| Arc::new(Sqlite::open(path, &SqliteOptions::default()).unwrap()) as Arc<dyn Store>;
    let store = open(&path);
    write_runs(&store).await;
    store.close().await.unwrap();
    drop(store);
    rusqlite::Connection::open(&path).unwrap().execute_batch(&DAMAGE.replace("store.", "")).unwrap();
    assert_all_others_are_listed(&open(&path)).await;
}

#[tokio::test]
async fn more_unreadable_runs_than_fit_on_a_page_of_a_database_hide_no_others() {
    let database = interlingua_testing_postgres::database();
    let store = interlingua::store::Postgres::open(&crate::postgres_options(&database.url())).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    write_runs(&store).await;
    database.sql(&DAMAGE.replace("store.", "interlingua.")).unwrap();
    assert_all_others_are_listed(&store).await;
}
