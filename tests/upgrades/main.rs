//! Stores that an earlier gateway wrote: today's gateway opens them, shows their runs, takes answers to their pending
//! items, and continues their conversations.
//!
//! `tests/upgrades/<commit>` holds the stores of one commit. Its README lists the contents. After a change of the
//! stored form these tests have to pass with the old files: write a migration, never new files in place of the old
//! ones.
//!
//! ```text
//! cargo test --test upgrades                                    opens every store, as CI does
//! cargo test --test upgrades -- --ignored                       writes the stores of this commit to UPGRADES_FOLDER
//! ```
//!
//! Not here: migrations of the tables alone (`tests/store`), and the copy from SQLite to PostgreSQL
//! (`tests/replicas/migrate.rs`).

// An error here fails the test.
#![expect(clippy::unwrap_used)]

mod by_hand;
mod check;
mod contents;
mod damaged;
mod demo;
mod fields;
mod files;
mod played;
mod stand;
use interlingua_testing_support as support;

use std::path::Path;

use contents::Contents;
use files::{Files, Kind};
use stand::Stand;

/// The commits whose stores are in this folder.
const COMMITS: [&str; 1] = ["89b47047"];

/// Copies of every store: all commits, all kinds.
fn all_stores() -> impl Iterator<Item = Files> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrades");
    let kinds = [Kind::Sqlite, Kind::Postgres];
    COMMITS.into_iter().flat_map(move |commit| {
        let folder = folder.join(commit);
        kinds.into_iter().map(move |kind| Files::restore(folder.clone(), kind))
    })
}

/// A gateway of today on a copy of a store.
pub(crate) struct OpenedCopy {
    pub(crate) stand: Stand,
    pub(crate) contents: Contents,
    /// Names the store in failures.
    pub(crate) what: String,
}

impl OpenedCopy {
    /// Starts the gateway. `end`: the end of the scenarios that scripted agents play.
    pub(crate) async fn start(files: Files, end: usize) -> Self {
        let what = files.name();
        let contents = files.contents();
        let stand = Stand::start(files, played::plays(&contents.played, end), &contents.received).await;
        Self { stand, contents, what }
    }
}

/// Writes the stores of this commit. Run it once for a commit whose stores a later gateway has to open.
#[tokio::test]
#[ignore = "writes the files that the other tests open"]
async fn write_the_stores_of_this_commit() {
    let folder = std::env::var("UPGRADES_FOLDER").expect("UPGRADES_FOLDER names the folder to write to");
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let mut stand = Stand::start(Files::empty(kind), Vec::new(), &[]).await;
        let mut contents = demo::write(&stand).await;
        contents.played = played::write(&stand).await;
        contents.received = stand.received();
        stand.stop().await;
        stand.files().save(Path::new(&folder), &contents);
    }
}
