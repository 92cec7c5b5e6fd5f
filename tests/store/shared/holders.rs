//! Owners of runs: the right to write, and the view of other processes.

use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{Claim, DocumentWrite, Expect, Signal, StoreError};
use interlingua_core::event::End;

use super::{Fabric, loaded, open_waiting, open_working, processes};
use crate::live::{ActiveRun, id};

pub(crate) async fn one_of_two_that_claim_a_waiting_run_gets_it(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    for number in 0..20 {
        open_waiting(&one, number).await;
        let (mine, theirs) = (loaded(&one, number).await, loaded(&other, number).await);
        let (a, b) = (mine.journal(), theirs.journal());
        let (first, second) = tokio::join!(one.open(&a, mine.claim()), async { other.open(&b, theirs.claim()).await });

        let (winner, run, loser, refused) = match (first, second) {
            (Ok(()), Err(StoreError::Fenced)) => (&one, mine, &other, theirs),
            (Err(StoreError::Fenced), Ok(())) => (&other, theirs, &one, mine),
            both => panic!("one gets it: {both:?}"),
        };

        // What the other one does with it reaches no one.
        refused.start();
        refused.append(&***loser, "refused ");
        let _ = loser.settle(&refused.journal()).await;
        run.start();
        run.append(&***winner, "written ");
        run.end(End::Completed);
        winner.settle(&run.journal()).await.unwrap();
        assert_eq!(*loser.load(id(number)).await.unwrap().unwrap(), run.stored());
    }
}

pub(crate) async fn a_claim_of_another_length_is_refused(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    open_waiting(&one, 1).await;
    let outdated = loaded(&other, 1).await;
    let claim = outdated.claim();

    let run = loaded(&one, 1).await;
    one.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.finish_turn();
    one.settle(&run.journal()).await.unwrap();

    let Claim::Existing { events } = claim else { panic!("it was loaded") };
    for events in [events, events + 1, 0] {
        let refused = other.open(&outdated.journal(), Claim::Existing { events }).await;
        assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    }
    let refused = other.open(&outdated.journal(), Claim::New).await;
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), run.stored());

    let current = loaded(&other, 1).await;
    other.open(&current.journal(), current.claim()).await.unwrap();

    // Nor can one be claimed that was deleted.
    open_waiting(&one, 2).await;
    let deleted = loaded(&other, 2).await;
    assert!(one.remove(id(2)).await.unwrap());
    let refused = other.open(&deleted.journal(), deleted.claim()).await;
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    assert!(one.load(id(2)).await.unwrap().is_none());
}

pub(crate) async fn a_run_that_another_holds_can_be_read_and_nothing_else(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    let run = open_working(&one, 1).await;
    let copy = loaded(&other, 1).await;
    for claim in [copy.claim(), Claim::New] {
        let refused = other.open(&copy.journal(), claim).await;
        assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    }
    let refused = other.remove(id(1)).await;
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");

    copy.end(End::Failed);
    other.touch(&copy.journal());
    let _ = other.settle(&copy.journal()).await;
    run.append(&**one, "more ");
    run.end(End::Completed);
    one.settle(&run.journal()).await.unwrap();
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), run.stored());
    assert!(other.remove(id(1)).await.unwrap(), "no one holds a run that has ended");
}

pub(crate) async fn a_signal_reaches_the_holder_even_if_it_listens_later(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    open_working(&one, 1).await;
    open_waiting(&one, 2).await;
    let mut elsewhere = other.signals();
    other.signal(id(1), Signal::Cancel).await.unwrap();
    other.signal(id(2), Signal::Cancel).await.unwrap();
    one.signal(id(1), Signal::ReceiversChanged).await.unwrap();

    let mut signals = one.signals();
    let mut received = Vec::new();
    while received.len() < 2 {
        let signal = tokio::time::timeout(Duration::from_secs(20), signals.recv()).await.unwrap().unwrap();
        if !received.contains(&signal) {
            received.push(signal);
        }
    }
    assert_eq!(received, [(id(1), Signal::Cancel), (id(1), Signal::ReceiversChanged)], "no one holds a run that waits");

    // Nor is a signal lost that comes while the holder stands still.
    one.fate.pause();
    other.signal(id(1), Signal::Cancel).await.unwrap();
    one.fate.resume();
    loop {
        let signal = tokio::time::timeout(Duration::from_secs(20), signals.recv()).await.unwrap().unwrap();
        if signal == (id(1), Signal::Cancel) {
            break;
        }
    }
    // The caller ignores what it has nothing to do with.
    while let Ok((run, _)) = elsewhere.try_recv() {
        assert_eq!(run, id(1));
    }
}

pub(crate) async fn a_confirmed_write_is_visible_everywhere(fabric: &dyn Fabric) {
    let all: [_; 3] = processes(fabric).await;
    for round in 0..30_u128 {
        let writer = &all[usize::try_from(round).unwrap() % 3];
        let run = ActiveRun::numbered(round);
        writer.open(&run.journal(), run.claim()).await.unwrap();
        for reader in &all {
            assert_eq!(reader.load(id(round)).await.unwrap().unwrap().record.len(), 1, "opened in {round}");
        }
        run.start();
        run.append(&***writer, "word ");
        writer.settle(&run.journal()).await.unwrap();
        for reader in &all {
            assert_eq!(*reader.load(id(round)).await.unwrap().unwrap(), run.stored(), "settled in {round}");
        }
        run.end(End::Completed);
        writer.settle(&run.journal()).await.unwrap();

        let value = Bytes::from(round.to_string());
        let version = writer.put("c", "k", value.clone(), Expect::Any, 0).await.unwrap().unwrap();
        for reader in &all {
            let document = reader.get("c", "k").await.unwrap().unwrap();
            assert_eq!((document.value, document.version), (value.clone(), version));
        }
        assert!(writer.remove(id(round)).await.unwrap());
        for reader in &all {
            assert!(reader.load(id(round)).await.unwrap().is_none());
        }
    }
}

pub(crate) async fn documents_written_together_are_seen_together(fabric: &dyn Fabric) {
    const ROUNDS: usize = 40;
    let [one, other, reader] = processes(fabric).await;
    for key in ["p/a", "p/b"] {
        one.put("c", key, Bytes::from_static(b"0"), Expect::Absent, 0).await.unwrap().unwrap();
    }

    let write = async |writer: &super::Process| {
        let mut written = 0;
        while written < ROUNDS {
            let both = writer.list("c", "p/", None, 9).await.unwrap();
            let count: usize = std::str::from_utf8(&both[0].document.value).unwrap().parse().unwrap();
            let next = both.iter().map(|entry| DocumentWrite {
                collection: "c",
                key: entry.key.clone(),
                value: Some(Bytes::from((count + 1).to_string())),
                expect: Expect::Version(entry.document.version),
            });
            written += usize::from(writer.write(next.collect(), 0).await.unwrap().is_ok());
        }
    };
    let read = async || {
        loop {
            let both = reader.list("c", "p/", None, 9).await.unwrap();
            assert_eq!(both[0].document.value, both[1].document.value);
            if both[0].document.value == (2 * ROUNDS).to_string() {
                return;
            }
        }
    };
    tokio::join!(write(&one), write(&other), read());
}
