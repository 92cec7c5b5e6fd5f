//! What every store promises, asked of every store there is; and what a store in a file promises besides. Not here: what
//! the engine makes of it.

// What fails here fails the test.
#![expect(clippy::unwrap_used)]

mod contract;
mod crash;
mod failing;
mod file;
mod live;
mod publishing;
mod retention;

use std::sync::Arc;

use interlingua::store::{Memory, Sqlite, SqliteOptions, Store};

/// A store to ask, and its folder if it has one.
pub(crate) struct Asked {
    pub(crate) store: Arc<dyn Store>,
    _folder: Option<tempfile::TempDir>,
}

fn memory() -> Asked {
    Asked { store: Arc::new(Memory::new()), _folder: None }
}

fn sqlite() -> Asked {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    Asked { store: Arc::new(store), _folder: Some(folder) }
}

macro_rules! hold_to_the_contract {
    ($($told:ident: $($promise:ident),+;)+) => {
        mod a_memory_store {
            $($(#[tokio::test] async fn $promise() { crate::$told::$promise(&crate::memory().store).await })+)+
        }
        mod a_sqlite_store {
            $($(#[tokio::test] async fn $promise() { crate::$told::$promise(&crate::sqlite().store).await })+)+
        }
    };
}

hold_to_the_contract! {
    contract:
        a_settled_run_is_loaded_as_it_was,
        a_run_that_was_not_opened_is_not_stored,
        a_run_goes_on_after_it_was_settled,
        a_touch_takes_a_settled_run_up_again,
        a_removed_run_stays_away,
        what_is_flushed_is_safe,
        a_dropped_future_cancels_nothing,
        runs_that_grow_at_once_do_not_mix,
        runs_are_found_by_every_filter,
        heads_show_what_lists_show_and_nothing_that_was_said,
        a_run_is_weighed_without_being_loaded,
        pages_hold_while_runs_change,
        an_ended_run_that_is_not_stored_is_not_found,
        the_latest_run_of_a_session_was_accepted_last,
        of_many_writers_one_wins,
        a_version_is_never_used_twice,
        documents_are_listed_by_key,
        a_lease_has_one_holder_until_it_runs_out,
        signals_reach_who_listens,
        a_closed_store_says_so;
    publishing:
        what_is_told_is_safe_in_a_moment,
        what_was_confirmed_was_published,
        a_removed_run_has_nothing_to_lose,
        what_was_taken_back_is_not_stored;
    retention:
        retention_forgets_what_ended_first,
        a_route_keeps_its_runs_for_as_long_as_it_says,
        a_route_keeps_no_more_runs_than_it_says,
        what_others_are_built_upon_is_hidden_by_its_route,
        what_goes_with_a_run_goes_with_it,
        what_counts_as_forgotten_is_on_no_page,
        a_run_that_goes_on_is_kept_anew,
        many_runs_are_forgotten_in_small_batches,
        whoever_has_most_loses_first,
        a_route_counts_the_runs_of_each_owner,
        documents_are_bounded_by_number_and_go_with_their_parts,
        what_has_too_many_bytes_is_taken_from_whoever_has_most,
        nothing_that_has_not_ended_is_ever_forgotten;
}
