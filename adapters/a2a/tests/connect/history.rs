//! Polls of a task with a long history: each brings a part of it, and nothing is lost.

use interlingua_core_testkit::{Answer, DrivenTurn};
use serde_json::{Value, json};

use super::agent::{ALL, Dialect, Session, V1, V1_REST, end, fixed, message, submitted, task, texts};

fn polled(dialect: Dialect) -> Session {
    let mut options = fixed(dialect);
    options["streaming"] = json!(false);
    Session::new(&options)
}

/// A task with the last messages of a history.
fn window(state: &str, history: &[Value], width: usize) -> Value {
    let mut task = task(state, &json!([]));
    task["history"] = json!(history[history.len().saturating_sub(width)..]);
    task
}

/// The sent message, and this number of later messages of the agent.
fn history(said: usize) -> Vec<Value> {
    let sent = json!({ "messageId": "run-1-0", "role": "ROLE_USER", "parts": [{ "text": "Paris?" }] });
    let thought = |number: usize| {
        message(&format!("m-{number}"), &json!([{ "text": format!("{number} "), "metadata": { "thought": true } }]))
    };
    std::iter::once(sent).chain((0..said).map(thought)).collect()
}

/// The `historyLength` of each poll. 0: none.
fn widths(driven: &DrivenTurn) -> Vec<u64> {
    let polls = driven.requests[1..].iter();
    let width = |body: &[u8]| serde_json::from_slice::<Value>(body).ok()?["params"]["historyLength"].as_u64();
    polls.map(|request| width(&request.body).unwrap_or_default()).collect()
}

fn thoughts(driven: &DrivenTurn) -> String {
    texts(driven).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_poll_asks_for_the_last_messages_alone() {
    for dialect in ALL {
        let answers = [dialect.body(1, &submitted()), dialect.task(2, &task("COMPLETED", &json!([])))];
        let driven = polled(dialect).send_text("Paris?", answers);
        let poll = &driven.requests[1];
        if dialect.binding == "JSONRPC" {
            assert_eq!(widths(&driven), [32], "{dialect:?}");
        } else {
            assert!(poll.url.ends_with("/tasks/T?historyLength=32"), "{}", poll.url);
        }
    }
}

#[test]
fn a_url_with_parameters_keeps_them() {
    use interlingua_a2a::A2aUpstream;
    use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
    let mut options = fixed(V1_REST);
    options["streaming"] = json!(false);
    let options = serde_json::from_value(options).expect("options");
    let connector = A2aUpstream::connect("https://agent.example/weather?key=1", options).expect("a connector");
    let request = super::agent::request(vec![interlingua_core::model::Message::user("Paris?")]);
    let mut turn = connector.turn(&TurnRequest::new(&request, &interlingua_core::Json::null(), &[])).expect("a turn");
    let answers = [V1_REST.body(1, &submitted()), V1_REST.task(2, &task("COMPLETED", &json!([])))];
    let driven = interlingua_core_testkit::drive(turn.as_mut(), answers);
    assert_eq!(driven.requests[1].url, "https://agent.example/weather/tasks/T?key=1&historyLength=32");
}

#[test]
fn missing_messages_are_requested_with_a_longer_history() {
    let whole = history(310);
    let driven = polled(V1).send_text(
        "Paris?",
        [
            V1.body(1, &submitted()),
            // 300 messages since the last look.
            V1.task(2, &window("WORKING", &whole[..301], 32)),
            V1.task(3, &window("WORKING", &whole[..301], 128)),
            V1.task(4, &window("WORKING", &whole[..301], 512)),
            // One message that was read before is enough to continue.
            V1.task(5, &window("COMPLETED", &whole, 12)),
        ],
    );
    assert_eq!(widths(&driven), [32, 128, 512, 512]);
    let expected: String = (0..310).map(|number| format!("{number} ")).collect();
    assert_eq!((end(&driven).as_str(), thoughts(&driven)), ("completed", expected));
}

#[test]
fn the_number_of_requests_for_an_incomplete_task_is_limited() {
    // Nothing says which messages are new, until one of them was read as the message of a status.
    let mut all = history(5000);
    all.remove(0);
    let mut answers = vec![V1.body(1, &submitted())];
    for (call, width) in [(2, 32), (3, 128), (4, 512), (5, 2048), (6, usize::MAX)] {
        let mut task = window("WORKING", &all[..4000], width);
        task["status"]["message"] = all[4000].clone();
        answers.push(V1.task(call, &task));
    }
    answers.push(V1.task(7, &window("COMPLETED", &all[..4003], usize::MAX)));
    let driven = polled(V1).send_text("Paris?", answers);
    assert_eq!(widths(&driven), [32, 128, 512, 2048, 0, 0]);
    assert_eq!((end(&driven).as_str(), thoughts(&driven)), ("completed", "4000 4001 4002 ".to_owned()));
}

#[test]
fn a_server_without_history_length_gets_one_request_per_read() {
    let whole = history(100);
    let answers = [
        V1.body(1, &submitted()),
        V1.task(2, &window("COMPLETED", &whole, usize::MAX)),
        Answer::body("never asked for"),
    ];
    let driven = polled(V1).send_text("Paris?", answers);
    assert_eq!((widths(&driven), texts(&driven).len()), (vec![32], 100));
}
