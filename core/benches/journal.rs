//! What a delta costs in its written form: writing it, which a store does for each, and reading it back, which happens
//! once a run and seldom. Not here: what the store does with the lines.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use interlingua_core::journal;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{Announced, Record, Run};
use interlingua_core::{End, RunId};
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const DELTAS: usize = 1000;

/// A run of many deltas of a few tokens each.
fn record() -> Record {
    let mut record = Record::new(Run::new(RunId(Uuid::from_u128(7)), "friday", "session-1", 1_700_000_000_000));
    record.start_turn(Vec::new());
    let message = record.start_message(Announced::new("msg_1", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for _ in 0..DELTAS {
        record.at(record.now() + 20);
        record.push(message, content, " and \"so\" on,\n");
    }
    record.cut(End::Completed, None);
    record
}

#[divan::bench]
fn write(bencher: Bencher<'_, '_>) {
    let (record, mut lines) = (record(), Vec::with_capacity(1 << 20));
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| {
        lines.clear();
        journal::write(black_box(&record), 0, &mut lines);
    });
}

#[divan::bench]
fn read(bencher: Bencher<'_, '_>) {
    let mut lines = Vec::new();
    journal::write(&record(), 0, &mut lines);
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| journal::read(black_box(&lines)));
}
