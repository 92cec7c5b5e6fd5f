//! A run of one process, as other processes see it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use interlingua::store::Store;
use interlingua_core::call::RunInfo;
use interlingua_core::event::End;
use interlingua_core::journal;

use super::{Fabric, end_recovered, loaded, old_processes, open_working, processes, recover};
use crate::live::id;

/// Collects what there is of a run from an event on, until the run is over.
fn collect(store: &Arc<dyn Store>, from: u64) -> tokio::task::JoinHandle<(Vec<u8>, Option<RunInfo>)> {
    let mut updates = store.follow(id(1), from).expect("other processes write runs");
    tokio::spawn(async move {
        let (mut lines, mut last, mut is_first) = (Vec::new(), None, true);
        while let Some(update) = updates.next().await {
            let update = update.unwrap();
            assert!(!is_first || update.info.is_some(), "the first update has the metadata");
            is_first = false;
            lines.extend_from_slice(&update.lines);
            last = update.info.map(|info| *info).or(last);
        }
        (lines, last)
    })
}

pub(crate) async fn updates_continue_any_part_of_a_run_to_what_is_loaded(fabric: &dyn Fabric) {
    let [one, other, third, follower] = old_processes(fabric).await;
    let mut followers = Vec::new();
    let mut follow = |process: &super::Process, from: u64| followers.push((from, collect(process, from)));

    // A turn on one, with followers everywhere.
    let run = open_working(&one, 1).await;
    for process in [&one, &third, &follower] {
        follow(process, 0);
    }
    for word in 0..20 {
        run.append(&**one, &format!("{word} "));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.finish_turn();
    one.settle(&run.journal()).await.unwrap();

    // The next turn on another one, which dies.
    let run = loaded(&other, 1).await;
    follow(&follower, run.stored().record.len());
    follow(&follower, run.stored().record.len() - 7);
    other.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    for word in 0..20 {
        run.append(&**other, &format!("{word} "));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.until_durable(run.stored().record.len()).await;
    follow(&third, run.stored().record.len());
    follow(&one, run.stored().record.len() - 3);
    other.fate.kill();
    run.append(&**other, "what no one sees ");

    fabric.pass(fabric.lease()).await;
    assert_eq!(recover(&third, 1).await, [id(1)]);
    end_recovered(&third, id(1)).await;
    let stored = follower.load(id(1)).await.unwrap().unwrap();
    assert!(stored.record.is_finished());

    // And those that come when it is over.
    for from in 0..=stored.record.len() {
        follow(&follower, from);
    }

    for (from, collected) in followers {
        let collected = tokio::time::timeout(Duration::from_secs(20), collected).await;
        let (lines, info) = collected.expect("the run is over").unwrap();
        let (mut whole, mut rest) = (Vec::new(), Vec::new());
        journal::write(&stored.record, 0, &mut whole);
        journal::write(&stored.record, from, &mut rest);
        whole.truncate(whole.len() - rest.len());
        let record = journal::read(&[whole, lines].concat()).unwrap();
        assert_eq!(record, stored.record, "from {from}");
        assert_eq!(info.as_ref(), Some(&stored.info), "from {from}");
    }
}

pub(crate) async fn nothing_follows_a_run_that_is_deleted(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    let ends = async |from: u64| {
        let collected = collect(&other, from);
        tokio::time::timeout(Duration::from_secs(20), collected).await.expect("it ends").unwrap()
    };
    assert_eq!(ends(0).await, (Vec::new(), None), "there is no such run");

    let run = open_working(&one, 1).await;
    let mut updates = other.follow(id(1), 0).expect("other processes write runs");
    let first = tokio::time::timeout(Duration::from_secs(20), updates.next()).await.expect("it is there");
    assert!(first.unwrap().unwrap().info.is_some());
    run.end(End::Canceled);
    assert!(one.remove(id(1)).await.unwrap());
    while let Some(update) = tokio::time::timeout(Duration::from_secs(20), updates.next()).await.expect("it ends") {
        update.unwrap();
    }
    assert_eq!(ends(3).await, (Vec::new(), None));
}
