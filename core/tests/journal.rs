//! Invariants of the serialized form: reading restores what was written, at once or piece by piece; a truncated last
//! line is dropped; invalid lines are rejected. Not here: where lines are stored.

use interlingua_core::RunId;
use interlingua_core::agent_event::Awaits;
use interlingua_core::call::{Delivery, RetentionOwner, RunInfo, RunState};
use interlingua_core::event::{End, Event};
use interlingua_core::journal::{JournalError, SerializedValue, VERSION, extend, read, write};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{
    AgentRequest, Body, Content, ContentType, File, Message, MessageType, Role, Sampling, Status, Stop,
};
use interlingua_core::run::{CallHead, FailureCause, MessageEnd, MessageStart, Record, Run, RunError};
use proptest::prelude::*;
use uuid::Uuid;

fn json() -> impl Strategy<Value = Json> {
    let texts = [
        "null",
        "{}",
        "{\n  \"a\" : 1.50,\n \"a\":2}",
        "[1e400,\"\\ud83d\\ude00\\u0000\"]",
        "\"\"",
        "7",
        "{\"deep\":[[[[[{}]]]]]}",
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| Json::parse(text).expect("these are JSON"))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ -~]{0,8}", 1 => "\\PC{0,4}", 1 => Just("\"\\\n\r\t\u{0}\u{1f}\u{7f}\u{2028}é😀".to_owned())]
}

/// Includes repeated names, which are preserved.
fn extra() -> impl Strategy<Value = Extra> {
    prop::collection::vec((prop::sample::select(vec!["a", "b", "text", "type"]), json()), 0..4)
        .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn maybe<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(value)
}

fn kind() -> impl Strategy<Value = MessageType> {
    prop::sample::select(vec!["message", "reasoning", "function_call", "error", "of_tomorrow"])
        .prop_map(MessageType::from)
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec!["assistant", "user", "tool", "narrator"]).prop_map(Role::from)
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled])
}

fn content() -> impl Strategy<Value = Content> {
    let file = (maybe(text()), maybe(text()), maybe(text()), maybe(text()))
        .prop_map(|(url, id, name, data)| Body::File(File { url, id, name, data }));
    let body = prop_oneof![
        text().prop_map(Body::Text),
        text().prop_map(Body::Refusal),
        maybe(text()).prop_map(Body::Image),
        maybe(text()).prop_map(Body::Video),
        json().prop_map(Body::Data),
        (maybe(text()), maybe(text())).prop_map(|(data, format)| Body::Audio { data, format }),
        file,
        text().prop_map(|word| Body::Other(word.into())),
    ];
    (body, extra()).prop_map(|(body, extra)| Content { body, extra })
}

fn message() -> impl Strategy<Value = Message> {
    let words = (maybe(text()), kind(), maybe(role()), maybe(Just(Status::Completed)));
    let rest = (maybe(text()), maybe(text()), maybe(json()), maybe(json()), extra());
    (words, prop::collection::vec(content(), 0..3), rest).prop_map(
        |((id, kind, role, status), content, (code, message, usage, metadata, extra))| Message {
            id,
            kind,
            role,
            status,
            content,
            code,
            message,
            usage,
            metadata,
            extra,
        },
    )
}

fn error() -> impl Strategy<Value = Option<RunError>> {
    maybe((text(), text()).prop_map(|(code, message)| RunError { code, message }))
}

fn cause() -> impl Strategy<Value = FailureCause> {
    (maybe(200_u16..600), maybe(text()), maybe(text())).prop_map(|(status, detail, agent_error)| FailureCause {
        status,
        detail,
        agent_error,
    })
}

fn awaits() -> impl Strategy<Value = Awaits> {
    prop::sample::select(vec![Awaits::Input, Awaits::Auth])
}

/// An operation on a record. One that the record's current state does not allow is skipped.
#[derive(Clone, Debug)]
enum Operation {
    SetTime(u64),
    StartTurn(Vec<Message>),
    StartMessage(MessageStart),
    StartContent(usize, ContentType, Option<CallHead>),
    Push(usize, String),
    Replace(usize, String),
    FinishContent(usize, Option<Content>, Extra),
    FinishMessage(usize, MessageEnd),
    UpdateTurn(Option<String>, Option<Json>, Extra),
    FinishTurn(End, Option<RunError>, FailureCause, Option<Awaits>),
    Close(End, Option<RunError>),
}

fn operation() -> impl Strategy<Value = Operation> {
    let start = (text(), kind(), role(), maybe(json()), maybe(json()), extra())
        .prop_map(|(id, kind, role, metadata, usage, extra)| MessageStart { id, kind, role, metadata, usage, extra });
    let message_end = (end(), maybe(kind()), maybe(text()), maybe(text()), maybe(json()), maybe(json()), extra())
        .prop_map(|(end, kind, code, message, usage, metadata, extra)| MessageEnd {
            end,
            kind,
            code,
            message,
            usage,
            metadata,
            extra,
        });

    let slot = prop::sample::select(vec!["text", "refusal", "data", "hologram"]).prop_map(ContentType::from);
    let call = maybe((text(), text(), maybe(text())))
        .prop_map(|call| call.map(|(call_id, name, server_label)| CallHead { call_id, name, server_label }));
    let which = || 0_usize..4;
    prop_oneof![
        // The last value exceeds the range of a step's time.
        4 => prop::sample::select(vec![0, 1, 250, 1 << 34]).prop_map(Operation::SetTime),
        2 => prop::collection::vec(message(), 0..2).prop_map(Operation::StartTurn),
        4 => start.prop_map(Operation::StartMessage),
        6 => (which(), slot, call).prop_map(|(at, kind, call)| Operation::StartContent(at, kind, call)),
        12 => (which(), text()).prop_map(|(at, text)| Operation::Push(at, text)),
        1 => (which(), text()).prop_map(|(at, text)| Operation::Replace(at, text)),
        5 => (which(), maybe(content()), extra())
            .prop_map(|(at, value, extra)| Operation::FinishContent(at, value, extra)),
        3 => (which(), message_end).prop_map(|(at, end)| Operation::FinishMessage(at, end)),
        1 => (maybe(text()), maybe(json()), extra())
            .prop_map(|(id, usage, extra)| Operation::UpdateTurn(id, usage, extra)),
        1 => (end(), error(), cause(), maybe(awaits()))
            .prop_map(|(end, error, cause, awaits)| Operation::FinishTurn(end, error, cause, awaits)),
        1 => (end(), error()).prop_map(|(end, error)| Operation::Close(end, error)),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    // Begin with a turn, because most operations need one.
    prop::collection::vec(operation(), 0..60).prop_map(|mut operations| {
        operations.insert(0, Operation::StartTurn(Vec::new()));
        operations
    })
}

fn new_record() -> Record {
    Record::new(Run::new(RunId(Uuid::from_u128(7)), "friday \"\n", "s-é", 1_700_000_000_000))
}

fn apply(record: &mut Record, operation: Operation) {
    let open = |record: &Record, which: usize| {
        let messages = record.run().messages.iter().enumerate().filter(|(_, message)| message.end.is_none());
        let open: Vec<_> = messages.map(|(index, message)| (index as u32, message.slots.clone())).collect();
        (!open.is_empty() && record.in_turn()).then(|| open[which % open.len()].clone())
    };
    let slot = |record: &Record, which| {
        let (message, slots) = open(record, which)?;
        let content = slots.len().checked_sub(1)?;
        (!slots[content].finished).then_some((message, content as u32))
    };

    match operation {
        Operation::SetTime(later) => record.set_time(record.now() + later),
        Operation::StartTurn(input) if !record.in_turn() && !record.is_finished() => record.start_turn(input),
        Operation::StartMessage(start) if record.in_turn() => drop(record.start_message(start)),
        Operation::StartContent(which, kind, call) => {
            if let Some((message, slots)) = open(record, which)
                && slots.last().is_none_or(|slot| slot.finished)
            {
                record.start_content(message, kind, call);
            }
        }
        Operation::Push(which, text) => {
            if let Some((message, content)) = slot(record, which) {
                record.push(message, content, &text);
            }
        }
        Operation::Replace(which, text) => {
            if let Some((message, content)) = slot(record, which) {
                record.replace(message, content, &text);
            }
        }
        Operation::FinishContent(which, value, extra) => {
            if let Some((message, content)) = slot(record, which) {
                record.finish_content(message, content, value, extra);
            }
        }
        Operation::FinishMessage(which, end) => {
            if let Some((message, slots)) = open(record, which)
                && slots.iter().all(|slot| slot.finished)
            {
                record.finish_message(message, end);
            }
        }
        Operation::UpdateTurn(id, usage, extra) if record.in_turn() => record.update_turn(id.as_deref(), usage, extra),
        Operation::FinishTurn(end, error, cause, awaits) if record.in_turn() => {
            record.close_messages(End::Incomplete);
            record.set_cause(cause);
            if let Some(awaits) = awaits {
                record.set_awaits(awaits);
            }
            record.finish_turn(end, error);
        }
        Operation::Close(end, error) => record.close(end, error),
        _ => {}
    }
}

fn assert_same(read: &Record, written: &Record) {
    assert_eq!(read.run(), written.run());
    assert!(read == written, "the events differ");
    assert_eq!(read.size(), written.size());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_round_trips(operations in operations()) {
        let mut record = new_record();
        for operation in operations {
            apply(&mut record, operation);
        }
        let mut lines = Vec::new();
        write(&record, 0, &mut lines);
        assert_same(&read(&lines).unwrap(), &record);
    }

    #[test]
    fn lines_written_in_pieces_restore_the_record(operations in operations(), every in 1_usize..6) {
        let mut record = new_record();
        let (mut lines, mut written) = (Vec::new(), 0);
        let mut followed: Option<Record> = None;
        for (index, operation) in operations.into_iter().enumerate() {
            apply(&mut record, operation);

            if index % every == 0 {
                let piece = lines.len();

                write(&record, written, &mut lines);
                written = record.len();
                let tail = &lines[piece..];
                followed = Some(followed.map_or_else(|| read(tail).unwrap(), |so_far| extend(so_far, tail).unwrap()));
                assert_same(followed.as_ref().unwrap(), &record);
            }
        }
        write(&record, written, &mut lines);
        assert_same(&read(&lines).unwrap(), &record);
    }

    #[test]
    fn rewinding_restores_an_earlier_state(operations in operations()) {
        /// The run without the values that have no event of their own.
        fn without_updates(record: &Record) -> Run {
            let mut run = record.run().clone();
            for message in &mut run.messages {
                (message.usage, message.extra) = (None, Extra::new());
            }
            for turn in &mut run.turns {
                (turn.usage, turn.upstream_id, turn.extra) = (None, None, Extra::new());
                // The error of a run that is closed between two turns is stored in the last turn.
                turn.error = None;
            }
            run
        }

        let mut record = new_record();
        let mut moments = vec![record.clone()];
        for operation in operations {
            apply(&mut record, operation);
            moments.push(record.clone());
        }

        for moment in moments {
            let mut back = record.clone();
            back.rewind(moment.len());
            prop_assert_eq!(without_updates(&back), without_updates(&moment));
            let events = |record: &Record| record.steps(0).map(|step| step.event).collect::<Vec<_>>();
            prop_assert_eq!(events(&back), events(&moment));

            // A rewound record can be closed and written.
            back.close(End::Failed, None);
            let mut lines = Vec::new();
            write(&back, 0, &mut lines);
            prop_assert_eq!(read(&lines).unwrap().len(), back.len());
        }
    }

    #[test]
    fn a_truncated_end_is_dropped(operations in operations(), cut in any::<prop::sample::Index>()) {
        let mut record = new_record();
        for operation in operations {
            apply(&mut record, operation);
        }
        let mut lines = Vec::new();
        write(&record, 0, &mut lines);
        let cut = cut.index(lines.len());
        match read(&lines[..cut]) {
            Err(JournalError::Empty) => prop_assert!(!lines[..cut].contains(&b']')),
            Err(other) => panic!("cut at {cut}: {other}"),
            Ok(part) => {
                prop_assert!(part.len() <= record.len());
                let events = |record: &Record| record.steps(0).map(|step| step.event).collect::<Vec<_>>();
                prop_assert_eq!(&events(&part)[..], &events(&record)[..events(&part).len()]);
            }
        }
    }

    #[test]
    fn damaged_lines_never_panic(
        operations in operations(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        skip in 0_usize..9,
    ) {
        let mut record = new_record();
        for operation in operations {
            apply(&mut record, operation);
        }
        let mut lines = Vec::new();
        write(&record, 0, &mut lines);
        let at = at.index(lines.len());
        lines[at] = byte;
        let _ = read(&lines);
        // Remove a line from the middle.
        let mut remaining: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        if skip < remaining.len() {
            remaining.remove(skip);
        }

        let _ = read(&remaining.concat());
    }

    #[test]
    fn metadata_of_a_run_survives_a_round_trip(
        input in prop::collection::vec(message(), 0..2),
        words in (maybe(text()), maybe(text()), maybe(text())),
        numbers in (
            maybe(any::<f64>().prop_filter("JSON has no others", |number| number.is_finite())),
            maybe(any::<i64>()),
        ),
        stop in maybe(prop_oneof![
            text().prop_map(Stop::One),
            prop::collection::vec(text(), 0..3).prop_map(Stop::Many),
        ]),
        tools in maybe(prop::collection::vec(json(), 0..2)),
        extra in extra(),
        labels in json(),
        tags in prop::collection::btree_map(text(), text(), 0..3),
        keeper in maybe((text(), any::<bool>())),
        state in prop_oneof![end().prop_map(RunState::Ended), Just(RunState::Waiting), Just(RunState::Queued)],
    ) {
        let (temperature, n) = numbers;
        let info = RunInfo {
            protocol: "a2a".into(),
            owner: "olga".into(),
            state,
            changed_at: 12,
            previous: Some(RunId(Uuid::from_u128(3))),
            delivery: Delivery::Background,
            stored: true,
            request: AgentRequest {
                input: input.into(), id: words.0, session_id: words.1, user_id: None, model: words.2,
                sampling: Sampling { temperature, n, stop, ..Sampling::default() },
                tools, extra,
            },
            labels,
            tags,
            retention: keeper.map(|(route, remembered)| RetentionOwner { route, remembered }),
        };
        let text = serde_json::to_vec(&SerializedValue(&info)).unwrap();
        let SerializedValue(read): SerializedValue<RunInfo> = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(read, info);
    }
}

#[test]
fn metadata_written_before_routes_had_retention_settings_is_read() {
    let written = r#"{"protocol":"a2a","owner":"olga","state":"waiting","changed_at":12,"previous":null,
        "delivery":"stream","stored":true,"request":{"input":[],"id":null,"session_id":null,"user_id":null,
        "model":null,"temperature":null,"top_p":null,"frequency_penalty":null,"presence_penalty":null,
        "max_tokens":null,"stop":null,"n":null,"seed":null,"tools":null,"extra":{}},"labels":null}"#;
    let SerializedValue(read): SerializedValue<RunInfo> = serde_json::from_str(written).unwrap();
    assert_eq!((read.state, read.retention), (RunState::Waiting, None));

    let stored = written.replace("null}", r#"null,"keeper":{"route":"/a2a/{agent}","later":1}}"#);
    let SerializedValue(read): SerializedValue<RunInfo> = serde_json::from_str(&stored).unwrap();
    assert_eq!(read.retention, Some(RetentionOwner { route: "/a2a/{agent}".into(), remembered: false }));
}

#[test]
fn the_line_of_a_delta_is_short() {
    let mut record = new_record();
    record.start_turn(Vec::new());
    let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    let from = record.len();
    record.set_time(record.now() + 12);
    record.push(message, content, "Hel\"lo");

    let mut line = Vec::new();
    write(&record, from, &mut line);
    assert_eq!(String::from_utf8(line).unwrap(), "[\"d\",12,0,0,\"Hel\\\"lo\"]\n");
}

#[test]
fn another_version_is_rejected_by_its_number() {
    let lines = format!("[\"interlingua\",{},\"of an unknown form\"]\n", VERSION + 1);
    assert!(matches!(read(lines.as_bytes()), Err(JournalError::Version(2))));
}

#[test]
fn invalid_lines_are_rejected() {
    let mut lines = Vec::new();
    write(&new_record(), 0, &mut lines);
    for line in [
        "[\"d\",1,0,0,\"x\"]",
        "[\"content\",1,4294967295,\"text\",null]",
        "[\"message_end\",1,0,\"completed\",\"message\",null,null,null,null,{}]",
        "[\"turn_end\",1,\"completed\",null,null,null,{}]",
        "[\"turn_end\",1,\"over\",null,null,null,{}]",
        "[\"turn\",18446744073709551615]",
        "[\"sing\"]",
        "{}",
        "7",
    ] {
        let bytes = [&lines[..], line.as_bytes(), b"\n"].concat();
        match read(&bytes) {
            Err(JournalError::Malformed { line: 1, .. }) => {}
            other => panic!("{line}: {other:?}"),
        }
    }
    // Later versions may add items to the end of a line.
    let more = [&lines[..], b"[\"turn\",18446744073709551615,[],{\"new\":1}]\n"].concat();
    assert_eq!(read(&more).unwrap().len(), 2);
}

#[test]
fn a_run_closed_while_it_waits_keeps_its_error() {
    let mut record = new_record();
    record.start_turn(vec![Message::user("hi")]);
    record.finish_turn(End::Completed, None);
    let (mut lines, written) = (Vec::new(), record.len());
    write(&record, 0, &mut lines);

    record.set_time(record.now() + 5);
    record.close(End::Canceled, Some(RunError { code: "EXPIRED".into(), message: "no one answered".into() }));
    write(&record, written, &mut lines);
    let read = read(&lines).unwrap();
    assert_same(&read, &record);
    assert!(matches!(read.step(read.len() - 1).unwrap().event, Event::RunFinished { end: End::Canceled }));
}
