//! A process that the others have not seen for a lease, and its runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{DocumentWrite, Expect, Signal, StoreError};
use interlingua_core::call::RunState;
use interlingua_core::event::End;

use super::{Fabric, end_recovered, loaded, old_processes, open_waiting, open_working, processes, recover};
use crate::live::{ActiveRun, id};

/// Checks that every one of these was refused.
macro_rules! assert_fenced {
    ($($write:expr),+ $(,)?) => {$(
        let result = tokio::time::timeout(Duration::from_secs(20), $write).await.expect("it is refused");
        assert!(matches!(result, Err(StoreError::Fenced)), "{}: {result:?}", stringify!($write));
    )+};
}

pub(crate) async fn every_write_of_a_fenced_process_is_refused(fabric: &dyn Fabric) {
    let [fenced, other] = old_processes(fabric).await;
    let run = open_working(&fenced, 1).await;
    let waiting = open_waiting(&fenced, 2).await;
    open_working(&other, 9).await;
    let kept = fenced.put("c", "kept", Bytes::from_static(b"kept"), Expect::Absent, 0).await.unwrap().unwrap();
    let ticket = fenced.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    assert!(fenced.lease("key", "holder", Duration::MAX).await.unwrap());
    assert!(!other.lease("key", "another", Duration::MAX).await.unwrap());
    let before = run.stored();

    fenced.fate.pause();
    run.append(&**fenced, "too late ");
    run.end(End::Completed);
    fenced.touch(&run.journal());
    let new = ActiveRun::numbered(3);
    let (new_journal, waiting_journal) = (new.journal(), waiting.journal());
    let opened = fenced.open(&new_journal, new.claim());
    let reopened = fenced.open(&waiting_journal, waiting.claim());
    let settled = fenced.settle(&run.journal());
    let removed = fenced.remove(id(2));
    let put = fenced.put("c", "new", Bytes::new(), Expect::Absent, 0);
    let write = DocumentWrite { collection: "c", key: "new".into(), value: Some(Bytes::new()), expect: Expect::Any };
    let written = fenced.write(vec![write], 0);
    let deleted = fenced.delete("c", "kept", Expect::Version(kept));
    let queued = fenced.turns().queue_turn("t", None, 9);
    let left = fenced.turns().leave_turn(ticket.clone());
    let leased = fenced.lease("other key", "holder", Duration::MAX);
    let released = fenced.release("key", "holder");
    let signaled = fenced.signal(id(9), Signal::Cancel);
    let flushed = fenced.flush();

    fabric.pass(fabric.lease()).await;
    assert_eq!(recover(&other, 1).await, [id(1)]);
    fenced.fate.resume();
    assert_fenced!(reopened, settled, removed, put, written, deleted, left, signaled, flushed);
    // What begins something is not kept until a database that does not answer is back, and leases are not either.
    for refused in [opened.await, queued.await.map(drop), leased.await.map(drop), released.await] {
        assert!(matches!(refused, Err(StoreError::Fenced | StoreError::Unavailable { .. })), "{refused:?}");
    }
    assert!(run.is_lost(), "it learns that its run was lost");
    assert!(run.durable() <= before.record.len() || run.durable() == u64::MAX, "nothing more is published");

    // Nothing of it is anywhere.
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), before);
    assert_eq!(*other.load(id(2)).await.unwrap().unwrap(), waiting.stored());
    assert!(other.load(id(3)).await.unwrap().is_none());
    assert!(other.get("c", "new").await.unwrap().is_none() && other.get("c", "kept").await.unwrap().is_some());
    let nowhere = other.signals().try_recv();
    assert!(nowhere.is_err(), "{nowhere:?}");
    for session in ["s", "t"] {
        assert!(other.turns().queue_turn(session, None, 0).await.unwrap().is_some(), "the line is empty");
    }
    assert!(other.lease("key", "another", Duration::MAX).await.unwrap(), "its leases are free");
    assert!(other.lease("other key", "another", Duration::MAX).await.unwrap());

    // Lost runs stay lost, and new ones work.
    fenced.touch(&run.journal());
    assert_fenced!(fenced.settle(&run.journal()));
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), before);
    end_recovered(&other, id(1)).await;
    let next = open_working(&fenced, 4).await;
    assert_eq!(*other.load(id(4)).await.unwrap().unwrap(), next.stored());
    assert!(fenced.turns().queue_turn("u", None, 0).await.unwrap().is_some());
}

pub(crate) async fn a_process_that_was_late_but_not_fenced_loses_nothing(fabric: &dyn Fabric) {
    let [late, other] = old_processes(fabric).await;
    let run = open_working(&late, 1).await;
    let ticket = late.turns().queue_turn("s", None, 0).await.unwrap().unwrap();
    late.fate.pause();
    run.append(&**late, "meanwhile ");
    let put = late.put("c", "k", Bytes::new(), Expect::Absent, 0);
    // No one looks for it.
    fabric.pass(fabric.lease() * 3).await;
    late.fate.resume();

    put.await.unwrap().unwrap();
    late.turns().wait_for_turn(&ticket).await.unwrap();
    assert_eq!(other.recover().await.unwrap(), []);
    run.until_durable(run.stored().record.len()).await;
    run.append(&**late, "later ");
    run.end(End::Completed);
    late.settle(&run.journal()).await.unwrap();
    assert!(!run.is_lost());
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), run.stored());
}

pub(crate) async fn who_was_connected_for_less_than_a_lease_fences_nothing(fabric: &dyn Fabric) {
    let [silent, paused] = old_processes(fabric).await;
    let run = open_working(&silent, 1).await;
    silent.fate.pause();
    paused.fate.pause();
    fabric.pass(fabric.lease()).await;
    paused.fate.resume();
    let new = fabric.join().await;
    for process in [&paused, &new] {
        assert_eq!(process.recover().await.unwrap(), [], "it cannot know whether others were connected");
    }
    silent.fate.resume();
    run.append(&**silent, "more ");
    silent.settle(&run.journal()).await.unwrap();

    silent.fate.pause();
    fabric.pass(fabric.lease()).await;
    assert_eq!(recover(&new, 1).await, [id(1)]);
    silent.fate.resume();
    assert_fenced!(silent.settle(&run.journal()));
}

pub(crate) async fn runs_of_a_fenced_process_are_handed_out_once(fabric: &dyn Fabric) {
    const RUNS: u128 = 90;
    let [dead, one, other, third] = old_processes(fabric).await;
    let active = open_working(&one, 1000).await;
    for number in 0..RUNS {
        // Not in the order of their ids.
        open_working(&dead, number * 7 % RUNS).await;
    }
    open_waiting(&dead, 100).await;
    let ended = open_working(&dead, 101).await;
    ended.end(End::Completed);
    dead.settle(&ended.journal()).await.unwrap();
    dead.fate.kill();
    assert_eq!(one.recover().await.unwrap(), [], "not before its lease is over");

    // One of those that take them over dies too.
    fabric.pass(fabric.lease()).await;
    let lost = recover(&third, 1).await;
    assert!(lost.is_sorted() && lost[0] == id(0) && lost.len() < 80, "the oldest first, few at a time: {lost:?}");
    end_recovered(&third, lost[0]).await;
    let half_done = ActiveRun::restore(Arc::unwrap_or_clone(third.load(lost[1 % lost.len()]).await.unwrap().unwrap()));
    if lost.len() > 1 {
        third.open(&half_done.journal(), half_done.claim()).await.unwrap();
    }
    third.fate.kill();

    let mut handed_out = Vec::new();
    let mut done = BTreeSet::from([lost[0]]);
    for round in 0.. {
        assert!(round < 2000, "{} runs", handed_out.len());
        let (mine, theirs) = tokio::join!(one.recover(), other.recover());
        for (process, ids) in [(&one, mine.unwrap()), (&other, theirs.unwrap())] {
            for id in ids {
                handed_out.push(id);
                end_recovered(process, id).await;
                assert!(done.insert(id), "handed out twice: {id}");
            }
        }
        if handed_out.len() + lost.len() == RUNS as usize {
            fabric.pass(fabric.lease()).await;
        }
        if done.len() == RUNS as usize {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    assert_eq!(done, (0..RUNS).map(id).collect());
    for process in [&one, &other] {
        assert_eq!(process.recover().await.unwrap(), []);
        for number in 0..RUNS {
            let stored = process.load(id(number)).await.unwrap().unwrap();
            assert_eq!(stored.info.state, RunState::Ended(End::Failed), "{number}");
        }
    }
    active.append(&**one, "as before ");
    active.end(End::Completed);
    one.settle(&active.journal()).await.unwrap();
    let waiting = loaded(&other, 100).await;
    other.open(&waiting.journal(), waiting.claim()).await.unwrap();
}

pub(crate) async fn a_process_that_is_fenced_lets_its_last_writes_be_seen(fabric: &dyn Fabric) {
    let [fenced, other] = old_processes(fabric).await;
    let run = open_working(&fenced, 1).await;
    for word in 0..50 {
        run.append(&**fenced, &format!("{word} "));
    }
    drop(fenced.put("c", "k", Bytes::from_static(b"last"), Expect::Absent, 0));
    let ended = open_working(&fenced, 2).await;
    ended.end(End::Completed);
    drop(fenced.settle(&ended.journal()));
    let sent = run.stored();
    fenced.fate.kill();

    // Each write in progress is stored now, or never will be.
    fabric.pass(fabric.lease()).await;
    let recovered = recover(&other, 1).await;
    assert!(recovered.contains(&id(1)));
    let seen = other.load(id(1)).await.unwrap().unwrap();
    assert!(seen.record.len() >= run.durable().min(sent.record.len()), "what was published is there");
    let document = other.get("c", "k").await.unwrap();
    let end = other.load(id(2)).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), *seen);
    assert_eq!(other.get("c", "k").await.unwrap(), document);
    assert_eq!(*other.load(id(2)).await.unwrap().unwrap(), *end);
    assert_eq!(
        recovered.contains(&id(2)),
        end.info.state == RunState::Running,
        "a run that has ended is not recovered"
    );
}

pub(crate) async fn a_process_that_leaves_leaves_its_runs_at_once(fabric: &dyn Fabric) {
    let [leaving, other] = processes(fabric).await;
    let run = open_working(&leaving, 1).await;
    run.append(&**leaving, "last ");
    leaving.store.close().await.unwrap();
    assert!(matches!(leaving.load(id(1)).await, Err(StoreError::Closed)));

    // No lease has to end.
    assert_eq!(recover(&other, 1).await, [id(1)]);
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), run.stored());
    end_recovered(&other, id(1)).await;
    other.put("c", "k", Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
}

pub(crate) async fn what_a_process_did_while_it_was_cut_off_is_written_later(fabric: &dyn Fabric) {
    let [cut, other] = old_processes(fabric).await;
    let (growing, ending) = (open_working(&cut, 1).await, open_working(&cut, 2).await);
    let before = growing.stored();
    cut.fate.cut_off();
    growing.append(&**cut, "meanwhile ");
    ending.end(End::Completed);
    let settled = tokio::time::timeout(fabric.lease(), cut.settle(&ending.journal())).await;
    assert!(matches!(settled, Ok(Err(StoreError::Unavailable { .. })) | Err(_)), "{settled:?}");
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), before);
    assert!(growing.durable() <= before.record.len() || growing.durable() == u64::MAX);

    cut.fate.reconnect();
    for run in [&growing, &ending] {
        run.until_durable(run.stored().record.len()).await;
    }
    cut.settle(&growing.journal()).await.unwrap();
    assert_eq!(*other.load(id(1)).await.unwrap().unwrap(), growing.stored());
    assert_eq!(*other.load(id(2)).await.unwrap().unwrap(), ending.stored());
    growing.end(End::Completed);
    cut.settle(&growing.journal()).await.unwrap();
    assert_eq!(other.recover().await.unwrap(), []);
}
