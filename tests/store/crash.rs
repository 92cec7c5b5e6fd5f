//! `kill -9` in the middle of work: what was acknowledged is whole, what was not is whole or absent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use interlingua::store::{Expect, Query, Sqlite, SqliteOptions, Store};
use interlingua_core::RunId;
use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::run::Record;
use uuid::Uuid;

use crate::live::{ActiveRun, Made};

/// Tells the child which file to write. Without it, the child's test has nothing to do.
const FILE: &str = "INTERLINGUA_TEST_STORE";
const ROUND: &str = "INTERLINGUA_TEST_ROUND";

/// How many runs grow at the same time.
const AT_ONCE: u128 = 16;

/// What a run says, word by word: told by its id, so that the parent knows it too.
fn words(id: RunId) -> impl Iterator<Item = String> {
    let number = id.0.as_u128();
    (0..number % 37 + 3).map(move |word| format!("{number}:{word} "))
}

/// Grows runs without end and says what was acknowledged. Run by [`what_was_acknowledged_survives_kill_9`] in a process
/// of its own.
#[tokio::test]
async fn a_child_that_writes_until_it_is_killed() {
    let (Ok(path), Ok(round)) = (std::env::var(FILE), std::env::var(ROUND)) else { return };
    let store = Sqlite::open(Path::new(&path), &SqliteOptions::default()).unwrap();
    let base = (round.parse::<u128>().unwrap() + 1) << 64;
    let say = |line: String| std::io::stdout().write_all(line.as_bytes()).unwrap();
    for wave in 0.. {
        let ids = (0..AT_ONCE).map(|run| RunId(Uuid::from_u128(base + wave * AT_ONCE + run)));
        let runs: Vec<_> = ids.map(|id| ActiveRun::new(&Made { id, ..Made::default() })).collect();
        let mut left: Vec<_> = Vec::new();
        for run in &runs {
            store.open(&run.journal()).await.unwrap();
            let id = run.stored().record.run().id;
            say(format!("\nopened {id}\n"));
            run.begin();
            left.push((run, id, words(id)));
        }
        while let Some((run, id, mut words)) = left.pop() {
            if let Some(word) = words.next() {
                run.say(&store, &word);
                left.insert(0, (run, id, words));
                continue;
            }
            // Every fourth one is left running.
            if id.0.as_u128() % 4 != 0 {
                run.end(End::Completed);
                store.settle(&run.journal()).await.unwrap();
                say(format!("\nended {id}\n"));
            }
        }
        let value = Bytes::from(format!("{wave}"));
        store.put("waves", &round, value, Expect::Anything, 0).await.unwrap().unwrap();
        say(format!("\nwave {wave}\n"));
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut acknowledged: BTreeMap<RunId, &str> = BTreeMap::new();
    // Killed sooner and later, and each time the file is used again.
    for (round, lines) in [(0_u64, 3), (1, 60), (2, 333), (3, 1200)] {
        let mut wave = None;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1", "crash::a_child_that_writes_until_it_is_killed"])
            .env(FILE, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = 0;
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut take = |line: String| {
            let Some((word, rest)) = line.split_once(' ') else { return false };
            match (word, RunId::parse(rest)) {
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
        while said < lines {
            let line = output.next().expect("the child lives until it is killed").unwrap();
            said += u32::from(take(line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died counts, too; the last line may be cut.
        for line in output.map_while(Result::ok) {
            take(line);
        }

        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        if let Some(wave) = wave {
            let document = store.get("waves", &round.to_string()).await.unwrap().unwrap();
            let stored: u64 = std::str::from_utf8(&document.value).unwrap().parse().unwrap();
            assert!(stored >= wave, "wave {wave} was acknowledged, wave {stored} is there");
        }
        check_runs(&store, &acknowledged).await;
        close_what_was_cut(&store).await;
    }
}

/// Every run that is there is whole as far as it goes, and those that were acknowledged are there.
async fn check_runs(store: &Sqlite, acknowledged: &BTreeMap<RunId, &str>) {
    for (id, word) in acknowledged {
        let stored = store.load(*id).await.unwrap().unwrap_or_else(|| panic!("{word} run {id} is lost"));
        if *word == "ended" {
            assert_eq!(stored.about.state, RunState::Ended(End::Completed), "run {id}");
            assert_eq!(stored.record.run().messages[0].text(), words(*id).collect::<String>(), "run {id}");
        }
    }
    let mut query = Query::default();
    query.filter.limit = usize::MAX;
    let found = store.find(query).await.unwrap();
    assert!(found.total >= acknowledged.len());
    for head in found.runs {
        let stored = store.load(head.id).await.unwrap().unwrap();
        let whole: String = words(head.id).collect();
        if let Some(message) = stored.record.run().messages.first() {
            let text = message.text();
            assert!(whole.starts_with(&text) && (text.is_empty() || text.ends_with(' ')), "run {}: {text}", head.id);
        }
        assert_grammar(&stored.record);
        assert_eq!(matches!(head.state, RunState::Ended(_)), stored.record.is_finished(), "run {}", head.id);
    }
}

/// The rows of what is loaded say what the record says: nothing is half there.
fn assert_grammar(record: &Record) {
    assert!(matches!(record.step(0).unwrap().event, interlingua_core::Event::RunStarted));
    for step in record.steps(0) {
        assert!(!matches!(step.event, interlingua_core::Event::ContentDelta { .. }) || step.delta().ends_with(' '));
    }
}

/// As the engine does after a crash.
async fn close_what_was_cut(store: &Sqlite) {
    let cut = store.recover().await.unwrap();
    for id in &cut {
        let run = ActiveRun::again(Arc::unwrap_or_clone(store.load(*id).await.unwrap().unwrap()));
        store.open(&run.journal()).await.unwrap();
        run.end(End::Failed);
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(*id).await.unwrap().unwrap(), run.stored());
    }
    assert_eq!(store.recover().await.unwrap(), []);
}
