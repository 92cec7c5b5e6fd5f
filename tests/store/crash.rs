//! `kill -9` during writes: acknowledged writes are complete; all others are complete or absent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use interlingua::store::{Coordination, DocumentStore, Expect, Query, RunStore, Sqlite, SqliteOptions};
use interlingua_core::RunId;
use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::run::Record;
use uuid::Uuid;

use crate::live::{ActiveRun, RunSpec};

/// Environment variable with the path of the child's database. Without it the child's test does nothing.
const FILE_VARIABLE: &str = "INTERLINGUA_TEST_STORE";
const ROUND_VARIABLE: &str = "INTERLINGUA_TEST_ROUND";

/// Number of runs that are active at the same time.
const CONCURRENT_RUNS: u128 = 16;

/// The text of a run, word by word; derived from its id, so that the parent process knows it too.
fn words(id: RunId) -> impl Iterator<Item = String> {
    let number = id.0.as_u128();
    (0..number % 37 + 3).map(move |word| format!("{number}:{word} "))
}

/// Appends to runs forever and prints what was acknowledged. Run by [`acknowledged_writes_survive_kill_9`] in a
/// separate process.
#[tokio::test]
async fn child_process_that_writes_until_it_is_killed() {
    let (Ok(path), Ok(round)) = (std::env::var(FILE_VARIABLE), std::env::var(ROUND_VARIABLE)) else { return };

    let store = Sqlite::open(Path::new(&path), &SqliteOptions::default()).unwrap();

    let base = (round.parse::<u128>().unwrap() + 1) << 64;
    let print = |line: String| std::io::stdout().write_all(line.as_bytes()).unwrap();
    for wave in 0.. {
        let ids = (0..CONCURRENT_RUNS).map(|run| RunId(Uuid::from_u128(base + wave * CONCURRENT_RUNS + run)));
        let runs: Vec<_> = ids.map(|id| ActiveRun::new(&RunSpec { id, ..RunSpec::default() })).collect();

        let mut remaining: Vec<_> = Vec::new();
        for run in &runs {
            store.open(&run.journal(), run.claim()).await.unwrap();
            let id = run.stored().record.run().id;
            print(format!("\nopened {id}\n"));
            run.start();
            remaining.push((run, id, words(id)));
        }
        while let Some((run, id, mut words)) = remaining.pop() {
            if let Some(word) = words.next() {
                run.append(&store, &word);
                remaining.insert(0, (run, id, words));
                continue;
            }
            // Every fourth run is left running.
            if id.0.as_u128() % 4 != 0 {
                run.end(End::Completed);
                store.settle(&run.journal()).await.unwrap();
                print(format!("\nended {id}\n"));
            }
        }

        let value = Bytes::from(format!("{wave}"));
        store.put("waves", &round, value, Expect::Any, 0).await.unwrap().unwrap();
        print(format!("\nwave {wave}\n"));
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut acknowledged: BTreeMap<RunId, &str> = BTreeMap::new();
    // The child is killed after a few and after many lines, and each round reuses the file.
    for (round, lines) in [(0_u64, 3), (1, 60), (2, 333), (3, 1200)] {
        let mut wave = None;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1", "crash::child_process_that_writes_until_it_is_killed"])
            .env(FILE_VARIABLE, &path)
            .env(ROUND_VARIABLE, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledgements = 0;
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();

        let mut parse_line = |line: String| {
            let Some((state, rest)) = line.split_once(' ') else { return false };
            match (state, RunId::parse(rest)) {
                ("opened", Some(id)) => {
                    acknowledged.entry(id).or_insert("opened");
                }
                ("ended", Some(id)) => {
                    acknowledged.insert(id, "ended");
                }
                ("wave", _) => wave = rest.parse::<u64>().ok().or(wave),
                _ => return false,
            }
            true
        };

        while acknowledgements < lines {
            let line = output.next().expect("the child runs until it is killed").unwrap();
            acknowledgements += u32::from(parse_line(line));
        }

        child.kill().unwrap();
        child.wait().unwrap();
        // Output before the kill counts too; the last line may be incomplete.
        for line in output.map_while(Result::ok) {
            parse_line(line);
        }

        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        if let Some(wave) = wave {
            let document = store.get("waves", &round.to_string()).await.unwrap().unwrap();
            let stored: u64 = std::str::from_utf8(&document.value).unwrap().parse().unwrap();
            assert!(stored >= wave, "wave {wave} was acknowledged, wave {stored} is there");
        }
        check_runs(&store, &acknowledged).await;
        end_interrupted_runs(&store).await;
    }
}

/// Checks that every stored run is consistent, and that all acknowledged runs exist.
async fn check_runs(store: &Sqlite, acknowledged: &BTreeMap<RunId, &str>) {
    for (id, state) in acknowledged {
        let stored = store.load(*id).await.unwrap().unwrap_or_else(|| panic!("{state} run {id} is lost"));
        if *state == "ended" {
            assert_eq!(stored.info.state, RunState::Ended(End::Completed), "run {id}");
            assert_eq!(stored.record.run().messages[0].text(), words(*id).collect::<String>(), "run {id}");
        }
    }

    let mut query = Query::default();
    query.filter.limit = usize::MAX;
    let found = store.find(query).await.unwrap();
    assert!(found.total >= acknowledged.len());
    for head in found.runs {
        let stored = store.load(head.id).await.unwrap().unwrap();
        let full: String = words(head.id).collect();
        if let Some(message) = stored.record.run().messages.first() {
            let text = message.text();
            assert!(full.starts_with(&text) && (text.is_empty() || text.ends_with(' ')), "run {}: {text}", head.id);
        }

        check_events(&stored.record);
        assert_eq!(matches!(head.state, RunState::Ended(_)), stored.record.is_finished(), "run {}", head.id);
    }
}

/// Checks that the events of a loaded record are complete.
fn check_events(record: &Record) {
    assert!(matches!(record.step(0).unwrap().event, interlingua_core::Event::RunStarted));
    for step in record.steps(0) {
        assert!(!matches!(step.event, interlingua_core::Event::ContentDelta { .. }) || step.delta().ends_with(' '));
    }
}

/// Ends interrupted runs, as the engine does after a crash.
async fn end_interrupted_runs(store: &Sqlite) {
    let interrupted = store.recover().await.unwrap();
    for id in &interrupted {
        let run = ActiveRun::restore(Arc::unwrap_or_clone(store.load(*id).await.unwrap().unwrap()));
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.end(End::Failed);
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(*id).await.unwrap().unwrap(), run.stored());
    }
    assert_eq!(store.recover().await.unwrap(), []);
}
