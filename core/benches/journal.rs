//! The cost of a delta in the journal: writing, which a store does for every delta, and reading, which happens at most
//! once per run. Not here: what the store does with the lines.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use interlingua_core::journal;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{MessageStart, Record, Run};
use interlingua_core::{End, RunId};
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const DELTAS: usize = 1000;

/// A run with many deltas of a few tokens each.
fn record() -> Record {
    let mut record = Record::new(Run::new(RunId(Uuid::from_u128(7)), "friday", "session-1", 1_700_000_000_000));
    record.start_turn(Vec::new());
    let message = record.start_message(MessageStart::new("msg_1", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);

    for _ in 0..DELTAS {
        record.set_time(record.now() + 20);
        record.push(message, content, " and \"so\" on,\n");
    }
    record.close(End::Completed, None);
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
