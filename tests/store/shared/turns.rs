//! The line for the turns of a session.

use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{Expect, StoreError, Ticket};

use super::{Fabric, Process, old_processes, processes};
use crate::live::id;

async fn queue(process: &Process, session: &str) -> Ticket {
    process.turns().queue_turn(session, None, 64).await.unwrap().expect("the line is short")
}

/// True if a turn does not come within a while.
async fn has_to_wait(process: &Process, ticket: &Ticket) -> bool {
    let turn = process.turns().wait_for_turn(ticket);
    tokio::time::timeout(Duration::from_millis(30), turn).await.is_err()
}

async fn comes(process: &Process, ticket: &Ticket) {
    let turn = process.turns().wait_for_turn(ticket);
    tokio::time::timeout(Duration::from_secs(20), turn).await.expect("the turn comes").unwrap();
}

pub(crate) async fn turns_come_in_one_order(fabric: &dyn Fabric) {
    let all: [_; 3] = processes(fabric).await;
    let mut line = Vec::new();
    for place in 0..9 {
        let process = &all[place % 3];
        let ticket = queue(process, "s").await;
        assert_eq!(ticket.is_first, place == 0);
        line.push((process, ticket));
    }
    assert!(line.is_sorted_by_key(|(_, ticket)| ticket.number));
    assert!(queue(&all[1], "t").await.is_first, "each session has its line");

    // One that gives up before it is its turn delays no one.
    let (process, ticket) = line.remove(4);
    process.turns().leave_turn(ticket).await.unwrap();
    while !line.is_empty() {
        if let Some((process, next)) = line.get(1) {
            assert!(has_to_wait(process, next).await, "{} places before", line.len());
        }
        let (process, ticket) = line.remove(0);
        comes(process, &ticket).await;
        process.turns().leave_turn(ticket).await.unwrap();
    }
    assert!(queue(&all[2], "s").await.is_first);
}

pub(crate) async fn places_of_fenced_processes_are_skipped(fabric: &dyn Fabric) {
    let [one, fenced, leaving, last] = old_processes(fabric).await;
    let first = queue(&one, "s").await;
    let lost = queue(&fenced, "s").await;
    let left = queue(&leaving, "s").await;
    let ticket = queue(&last, "s").await;
    let waiting = last.turns().wait_for_turn(&ticket);
    one.turns().leave_turn(first).await.unwrap();
    leaving.store.close().await.unwrap();
    assert!(has_to_wait(&last, &ticket).await, "one is not fenced yet");

    fenced.fate.pause();
    fabric.pass(fabric.lease()).await;
    let asks = async {
        loop {
            assert_eq!(one.recover().await.unwrap(), []);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        came = tokio::time::timeout(Duration::from_secs(20), waiting) => came.expect("the turn comes").unwrap(),
        () = asks => {}
    }

    fenced.fate.resume();
    let turn = fenced.turns().wait_for_turn(&lost).await;
    assert!(matches!(turn, Err(StoreError::Fenced)), "{turn:?}");
    let _ = fenced.turns().leave_turn(lost).await;
    let again = queue(&fenced, "s").await;
    assert!(!again.is_first && again.number > left.number, "it is behind the one whose turn it is");
    last.turns().leave_turn(ticket).await.unwrap();
    comes(&fenced, &again).await;
}

pub(crate) async fn a_line_has_a_limit(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    let first = one.turns().queue_turn("s", None, 0).await.unwrap().expect("the line is empty");
    assert!(other.turns().queue_turn("s", None, 0).await.unwrap().is_none());

    let mut line = Vec::new();
    for place in 0..3 {
        let process = if place % 2 == 0 { &other } else { &one };
        line.push(process.turns().queue_turn("s", None, 3).await.unwrap().expect("there is room"));
    }
    for process in [&one, &other] {
        assert!(process.turns().queue_turn("s", None, 3).await.unwrap().is_none());
    }
    one.turns().leave_turn(first).await.unwrap();
    assert!(one.turns().queue_turn("s", None, 3).await.unwrap().is_some_and(|ticket| !ticket.is_first));
    assert!(other.turns().queue_turn("s", None, 3).await.unwrap().is_none());
    assert!(other.turns().queue_turn("t", None, 0).await.unwrap().is_some());
    assert!(line.is_sorted_by_key(|ticket| ticket.number));
}

pub(crate) async fn the_next_turn_sees_what_was_written_before(fabric: &dyn Fabric) {
    let all: [_; 2] = processes(fabric).await;
    for round in 0..30 {
        let (one, other) = (&all[round % 2], &all[(round + 1) % 2]);
        let (first, next) = (queue(one, "s").await, queue(other, "s").await);
        comes(one, &first).await;
        let value = Bytes::from(round.to_string());
        // It waits for neither.
        drop(one.put("c", "s", value.clone(), Expect::Any, 0));
        drop(one.turns().leave_turn(first));

        comes(other, &next).await;
        assert_eq!(other.get("c", "s").await.unwrap().map(|document| document.value), Some(value));
        other.turns().leave_turn(next).await.unwrap();
    }
}

pub(crate) async fn a_run_whose_turn_is_queued_is_continued(fabric: &dyn Fabric) {
    let [one, other] = processes(fabric).await;
    assert!(!one.turns().is_continued(id(1)).await.unwrap());
    let first = queue(&one, "s").await;
    let next = other.turns().queue_turn("s", Some(id(1)), 64).await.unwrap().unwrap();
    for process in [&one, &other] {
        assert!(process.turns().is_continued(id(1)).await.unwrap());
        assert!(!process.turns().is_continued(id(2)).await.unwrap());
    }
    one.turns().leave_turn(first).await.unwrap();
    comes(&other, &next).await;
    assert!(!one.turns().is_continued(id(1)).await.unwrap(), "that turn is under way now");
    other.turns().leave_turn(next).await.unwrap();
    assert!(!one.turns().is_continued(id(1)).await.unwrap());
}
