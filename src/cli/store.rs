//! `interlingua store`: copies everything from a store of one kind to one of another. Not here: how it is read and
//! written ([`interlingua_store`]).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};

use crate::Gateway;
use interlingua_base::secrets;
use interlingua_config::Settings;
use interlingua_store::{StoreError, TransferTotals};
use interlingua_store_postgres::{Import, Postgres};
use interlingua_store_sqlite::SqliteExport;

/// Time between two lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Subcommand, Debug)]
pub(super) enum Store {
    /// Copy everything from a SQLite file to the empty PostgreSQL database of the configuration
    ///
    /// Stop the gateway first. The configuration has to say kind = "postgres" already; the file is that of its "path",
    /// or --file. All of it is copied, or nothing. The file stays as it is.
    Migrate {
        /// The kind of the store that is read
        #[arg(long, value_name = "KIND")]
        from: SourceStore,
        /// The kind of the store that is filled
        #[arg(long, value_name = "KIND")]
        to: TargetStore,
        /// The SQLite file, if it is not "path" of [store]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Leave out what cannot be read, or has names too long for the database, and list it
        #[arg(long)]
        skip: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SourceStore {
    Sqlite,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum TargetStore {
    Postgres,
}

impl Store {
    /// Runs the command. The error is the exit code of a wrong configuration.
    pub(super) fn run(&self, gateway: &Gateway, config: &Path) -> Result<anyhow::Result<()>, i32> {
        let Self::Migrate { from: SourceStore::Sqlite, to: TargetStore::Postgres, file, skip } = self;
        let settings = super::load(gateway, config)?;
        if settings.store.postgres.is_none() {
            eprintln!(
                "error: {} does not name the database: write kind = \"postgres\" and \"url\" into [store] first",
                config.display()
            );
            return Err(2);
        }
        Ok(migrate(&settings, file.as_deref(), *skip))
    }
}

fn count(number: u64, noun: &str) -> String {
    super::count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

fn migrate(settings: &Settings, file: Option<&Path>, skip: bool) -> anyhow::Result<()> {
    let options = Gateway::postgres_options(settings)?;
    let file = file.unwrap_or(&settings.store.path);
    let mut source = SqliteExport::open(file).map_err(|error| match error {
        StoreError::InUse { .. } => anyhow::anyhow!("{error}: stop it first"),
        error => error.into(),
    })?;
    let (totals, last_version) = (source.totals()?, source.last_version()?);

    let (mut skipped, mut is_one_refused, mut reported) = (0_u64, false, Instant::now());
    let mut skips = |error: &StoreError| {
        // Without the database or the file there is no next one.
        let is_about_one = matches!(error, StoreError::Corrupt { .. } | StoreError::Unusable { .. });
        is_one_refused |= is_about_one;
        if skip && is_about_one {
            skipped += 1;
            eprintln!("left out: {}", secrets::mask(&error.to_string()));
        }
        skip && is_about_one
    };
    let mut progress = |done: &TransferTotals| {
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            let (runs, documents) = (done.runs, done.documents);
            eprintln!("copied {runs} of {} runs, {documents} of {} documents", totals.runs, totals.documents);
        }
    };
    let import = Import { items: &mut source, last_version, skips: &mut skips, progress: &mut progress };
    let copied = Postgres::import(&options, import);
    let hint = if is_one_refused && !skip { "; --skip leaves out what cannot be read or kept" } else { "" };
    let copied = copied.with_context(|| format!("nothing was copied{hint}"))?;

    let TransferTotals { runs, unfinished, events, documents, bytes } = copied;
    let schema = &options.schema;
    let (runs, documents) = (count(runs, "run"), count(documents, "document"));
    println!(
        "copied to schema {schema}: {runs} with {}, {documents}, {}",
        count(events, "event"),
        count(bytes, "byte")
    );
    if unfinished > 0 {
        println!("{} under way: the next gateway that starts closes what was, as failed", count(unfinished, "run"));
    }
    if skipped > 0 {
        println!("{} left out", count(skipped, "item"));
    }
    println!("{} is as it was: keep it until you do not want to go back", file.display());
    Ok(())
}
