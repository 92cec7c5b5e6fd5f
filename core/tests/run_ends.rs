//! Ends of records: after any sequence of changes, [`Record::close`] leaves one end for each turn, and one end of the run
//! as the last event. Not here: the engine, which chooses the changes (`tests/behaviour/run_ends.rs`).

use interlingua_core::event::End;
use interlingua_core::journal;
use interlingua_core::model::{ContentType, Input, MessageType, Role};
use interlingua_core::run::{FailureCause, MessageEnd, MessageStart, Record, RunError};
use interlingua_core::{Extra, Fault, FaultKind};
use interlingua_core_testkit::{RUN, ended, grammar, started};
use proptest::prelude::*;

/// A change of a record, made if the grammar allows it.
#[derive(Clone, Debug)]
enum Change {
    StartTurn,
    StartLinkedTurn,
    StartAnswer,
    /// A message with a text, complete or open.
    Message {
        complete: bool,
    },
    FinishTurn(End),
    WithdrawTurn {
        failed: bool,
    },
    /// Takes back this number of events.
    Rewind(u64),
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Completed, End::Incomplete, End::Failed, End::Canceled, End::Rejected])
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => Just(Change::StartTurn),
        1 => Just(Change::StartLinkedTurn),
        2 => Just(Change::StartAnswer),
        3 => any::<bool>().prop_map(|complete| Change::Message { complete }),
        3 => end().prop_map(Change::FinishTurn),
        1 => any::<bool>().prop_map(|failed| Change::WithdrawTurn { failed }),
        1 => (1_u64..8).prop_map(Change::Rewind),
    ]
}

fn error() -> RunError {
    RunError { code: "AGENT_FAILED".to_owned(), message: "it failed".to_owned() }
}

fn apply(record: &mut Record, change: &Change) {
    let has_begun = record.run().turn().is_some_and(|turn| turn.answer_started || !turn_is_empty(record));
    match change {
        Change::StartTurn if !record.in_turn() => record.start_turn(Input::default()),
        Change::StartLinkedTurn if !record.in_turn() => record.start_linked_turn(RUN),
        Change::StartAnswer if record.in_turn() && !has_begun => record.start_answer(),
        Change::Message { complete } if record.in_turn() => {
            let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
            let content = record.start_content(message, ContentType::Text, None);
            record.push(message, content, "text");
            if *complete {
                record.finish_content(message, content, None, Extra::new());
                record.finish_message(message, MessageEnd::new(End::Completed));
            }
        }
        Change::FinishTurn(end) if record.in_turn() => {
            record.close_messages(End::Incomplete);
            record.finish_turn(*end, (*end == End::Failed).then(error));
        }
        Change::WithdrawTurn { failed } if record.in_turn() && !has_begun => {
            if *failed {
                record.set_cause(FailureCause::from_fault(&Fault::new(FaultKind::Internal, "it failed")));
            }
            record.withdraw_turn(failed.then(error));
        }
        Change::Rewind(events) => record.rewind(record.len().saturating_sub(*events).max(2)),
        _ => {}
    }
}

/// True if the last turn has no message.
fn turn_is_empty(record: &Record) -> bool {
    record.run().messages_of(record.run().turns.len().saturating_sub(1)).is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_record_ends_once(changes in prop::collection::vec(change(), 0..30), end in end(), fails in any::<bool>()) {
        let mut record = started();
        for change in &changes {
            apply(&mut record, change);
            prop_assert_eq!(grammar(&record), Ok(()));
        }

        record.close(end, fails.then(error));
        prop_assert_eq!(ended(&record), Ok(()));
        prop_assert_eq!(record.run().end, Some(end));
        // A second end has no effect.
        let whole = record.clone();
        record.close(End::Failed, Some(error()));
        prop_assert!(record == whole);
        let mut lines = Vec::new();
        journal::write(&record, 0, &mut lines);
        let stored = journal::read(&lines).expect("a journal");
        prop_assert_eq!(ended(&stored), Ok(()));
    }
}
