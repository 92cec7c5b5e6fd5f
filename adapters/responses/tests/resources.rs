//! Stored objects: responses, their input, conversations and their items, models, counts
//! (docs/protocols/responses.md#endpoints).

mod support;

use interlingua_core::call::{Reply, RunState, SessionCall, SessionItem, SessionView, Target};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Content, Message, MessageType, Role};
use interlingua_core::pending::Pending;
use interlingua_core::{Call, End, Record, RunId};
use interlingua_core_testkit::RunBuilder;
use serde_json::{Value, json};
use support::{HttpReply, SentRequest, about, mounted, response_id, route, run_id};

fn hello() -> Record {
    let mut run = RunBuilder::begin_later();
    run.say(MessageType::Message, &["Hello"]);
    run.finish(End::Completed)
}

/// Labels of a background response.
const BACKGROUND: &str = r#"{"model":"demo","background":true,"store":true}"#;

/// Answers the first lookup with a record.
fn looked_up(sent: SentRequest, record: &Record, labels: &str, stored: bool) -> Result<HttpReply, SentRequest> {
    let mut about = about(record, Json::parse(labels).expect("JSON"));
    about.stored = stored;
    sent.reply_with(Reply::Run(interlingua_core::call::RunView { record, info: &about, pending: &[] }))
}

fn get(target: &str) -> SentRequest {
    route("{}").send("GET", target, "")
}

#[test]
fn an_unstored_response_does_not_exist() {
    let record = hello();
    for (method, target) in [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")] {
        let sent = route("{}").send(method, &format!("/responses/{}{target}", response_id(1)), "");
        let reply = looked_up(sent, &record, BACKGROUND, false).expect_err("refused").error_reply();
        assert_eq!(reply.status, 404, "{method} {target}: {}", reply.body);
        assert!(reply.body.contains("Response with id 'resp_"), "{}", reply.body);
    }
}

#[test]
fn a_response_is_deleted() {
    let sent = route("{}").send("DELETE", &format!("/responses/{}", response_id(1)), "");
    let sent = looked_up(sent, &hello(), BACKGROUND, true).expect_err("the engine deletes");
    assert!(matches!(&sent.outcome, Ok(Call::Delete(Target::Run(run))) if *run == run_id(1)));
    let answer = sent.reply_with(Reply::Done).expect("an answer");
    assert_eq!(answer.json(), json!({"id": response_id(1), "object": "response", "deleted": true}));
    assert!(answer.head.get("x-request-id").is_some());
}

#[test]
fn only_running_background_responses_can_be_cancelled() {
    let cancel = || route("{}").send("POST", &format!("/responses/{}/cancel", response_id(1)), "");
    let under_way = RunBuilder::begin_later().record;
    let sent = looked_up(cancel(), &under_way, BACKGROUND, true).expect_err("the engine stops it");
    assert!(matches!(&sent.outcome, Ok(Call::Cancel(Target::Run(run))) if *run == run_id(1)));
    let stopped = RunBuilder::begin_later().finish(End::Canceled);
    let answer = looked_up(sent, &stopped, BACKGROUND, true).expect("an answer");
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("cancelled")));

    let again = looked_up(cancel(), &stopped, BACKGROUND, true).expect("an answer");
    assert_eq!(again.json(), answer.json(), "a second cancel changes nothing");
    let refused = looked_up(cancel(), &hello(), BACKGROUND, true).expect_err("refused").error_reply();
    assert!(refused.status == 400 && refused.body.contains("completed"), "{}", refused.line());
    let foreground = looked_up(cancel(), &under_way, r#"{"model":"demo","store":true}"#, true).expect_err("refused");
    assert_eq!(foreground.error_reply().status, 400);
}

#[test]
fn a_cancel_withdraws_the_question_of_a_response_once() {
    let cancel = || route("{}").send("POST", &format!("/responses/{}/cancel", response_id(1)), "");
    let foreground = r#"{"model":"demo","store":true}"#;
    let record = hello();
    let item = Json::parse(r#"{"id":"item","interrupt":{"kind":"approval"}}"#).as_ref().and_then(Pending::parse);
    let item = item.expect("an item");
    let about = about(&record, Json::parse(foreground).expect("JSON"));
    let asking = interlingua_core::call::RunView { record: &record, info: &about, pending: &[item] };

    let sent = cancel().reply_with(Reply::Run(asking)).expect_err("the engine withdraws the question");
    assert!(matches!(&sent.outcome, Ok(Call::Cancel(Target::Run(run))) if *run == run_id(1)));
    let answer = looked_up(sent, &record, foreground, true).expect("an answer");
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("completed")));
    let again = looked_up(cancel(), &record, foreground, true).expect_err("refused").error_reply();
    assert_eq!(again.status, 400, "nothing is open: the question may also have been answered");
}

#[test]
fn a_background_response_is_queued_first() {
    let sent = route("{}").send("POST", "/responses", r#"{"model":"demo","input":"x","background":true}"#);
    let labels = sent.run_call().labels.text().to_owned();
    let run = interlingua_core::Run::new(run_id(0x100), "demo", "s", support::NOW);
    let record = Record::new(run);
    let mut about = about(&record, Json::parse(&labels).expect("JSON"));
    about.state = RunState::Queued;
    let view = interlingua_core::call::RunView { record: &record, info: &about, pending: &[] };
    let answer = sent.reply_with(Reply::Run(view)).expect("an answer").json();
    assert_eq!(
        (&answer["status"], &answer["output"], &answer["id"]),
        (&json!("queued"), &json!([]), &json!(response_id(0x100)))
    );
}

#[test]
fn the_input_of_a_response_is_shown_as_items() {
    let body = json!({"model": "demo", "tools": [{"type": "custom", "name": "code"}], "input": [
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": [
            {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "https://a/b.png"},
            {"type": "input_file", "file_url": "https://a/b.pdf"}, {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}},
        ]},
        {"type": "message", "id": "msg_mine", "role": "assistant", "phase": "commentary", "content": [
            {"type": "output_text", "text": "I see", "annotations": [{"type": "file_path", "file_id": "f", "index": 0}]},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "xyz"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{ }"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "code", "input": "print(1)"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "1"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": "18 C"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "mcp_list_tools", "id": "l_1", "server_label": "s", "tools": []},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let mut record = Record::new(interlingua_core::Run::new(run_id(1), "demo", "s", support::NOW));
    record.start_turn(sent.run_call().request.input.clone());
    record.close(End::Completed, None);
    let sent = get(&format!("/responses/{}/input_items?order=asc", response_id(1)));
    let page = looked_up(sent, &record, "null", true).expect("a page").json();
    insta::assert_json_snapshot!(page);
}

#[test]
fn pages_start_after_an_item_and_end_at_their_limit() {
    let mut record = Record::new(interlingua_core::Run::new(run_id(1), "demo", "s", support::NOW));
    record.start_turn((0..5).map(|number| Message::user(number.to_string())).collect::<Vec<_>>());
    record.close(End::Completed, None);
    let page = |query: &str| {
        let sent = get(&format!("/responses/{}/input_items{query}", response_id(1)));
        looked_up(sent, &record, "null", true).expect("a page").json()
    };
    let texts = |page: &Value| -> Vec<String> {
        let items = page["data"].as_array().expect("a list");
        items.iter().map(|item| item["content"][0]["text"].as_str().expect("a text").to_owned()).collect()
    };

    let newest = page("?limit=2");
    assert_eq!((texts(&newest), &newest["has_more"]), (vec!["4".to_owned(), "3".to_owned()], &json!(true)));

    let next = page(&format!("?limit=3&after={}", newest["last_id"].as_str().expect("an id")));
    assert_eq!(
        (texts(&next), &next["has_more"]),
        (vec!["2".to_owned(), "1".to_owned(), "0".to_owned()], &json!(false))
    );

    let end = page(&format!("?after={}", next["last_id"].as_str().expect("an id")));
    assert_eq!(end, json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false}));
    let sent = get(&format!("/responses/{}/input_items?after=msg_nope", response_id(1)));
    assert_eq!(
        looked_up(sent, &record, "null", true).expect_err("refused").error_reply().json()["error"]["param"],
        "after"
    );
}

fn session(items: Vec<(&str, Option<RunId>, Message)>) -> SessionView {
    let mut labels = Extra::new();
    labels.set("responses", Json::parse(r#"{"metadata":{"topic":"x"}}"#).expect("JSON"));
    SessionView {
        user: None,
        id: conversation_id(),
        agent: "demo".to_owned(),
        created_at: support::NOW,
        updated_at: support::NOW,
        items: items.into_iter().map(|(id, run, message)| SessionItem { id: id.to_owned(), run, message }).collect(),
        pending: Vec::new(),
        latest: None,
        state: None,
        labels,
    }
}

fn conversation_id() -> String {
    run_id(0x100).to_prefixed("conv_")
}

fn session_call(sent: &SentRequest) -> &SessionCall {
    match &sent.outcome {
        Ok(Call::Session(call)) => call,
        other => panic!("not a session call: {other:?}"),
    }
}

#[test]
fn a_conversation_is_created_with_its_items() {
    let body = r#"{"metadata":{"topic":"x"},"items":[{"role":"user","content":"before"}]}"#;
    let sent = route("{}").send("POST", "/conversations", body);
    let SessionCall::Create { agent, session: id, items, labels } = session_call(&sent) else { panic!("{sent:?}") };
    assert_eq!((agent.as_str(), id.as_str(), items.len()), ("demo", conversation_id().as_str(), 1));
    assert!(items[0].id.as_deref().is_some_and(|id| id.starts_with("msg_")));
    assert_eq!(labels.get("responses").map(Json::text), Some(r#"{"metadata":{"topic":"x"}}"#));
    let answer = sent.reply_with(Reply::Session(&[session(Vec::new())])).expect("an answer");
    let expected = json!({"id": conversation_id(), "object": "conversation", "created_at": 1_795_168_800, "metadata": {"topic": "x"}});
    assert_eq!(answer.json(), expected);

    assert!(matches!(session_call(&route("{}").send("POST", "/conversations", "")), SessionCall::Create { .. }));
    let many: Vec<Value> = (0..21).map(|_| json!({"role": "user", "content": "x"})).collect();
    let reply = route("{}").send("POST", "/conversations", &json!({"items": many}).to_string()).error_reply();
    assert_eq!(reply.json()["error"]["param"], "items");
}

#[test]
fn a_conversation_is_read_updated_and_deleted() {
    let path = format!("/conversations/{}", conversation_id());
    let found = session(Vec::new());
    let read = get(&path).reply_with(Reply::Session(std::slice::from_ref(&found))).expect("an answer");
    assert_eq!(read.json()["metadata"], json!({"topic": "x"}));

    let sent = route("{}").send("POST", &path, r#"{"metadata":{"topic":"y"}}"#);
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&found))).expect_err("it is changed");
    assert!(matches!(session_call(&sent), SessionCall::Label { .. }));
    let answer = sent.reply_with(Reply::Session(std::slice::from_ref(&found))).expect("an answer");
    assert_eq!(answer.json()["metadata"], json!({"topic": "y"}));

    let sent = route("{}").send("DELETE", &path, "");
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&found))).expect_err("it is forgotten");
    assert!(matches!(session_call(&sent), SessionCall::Delete { .. }));
    let answer = sent.reply_with(Reply::Done).expect("an answer");
    assert_eq!(answer.json(), json!({"id": conversation_id(), "object": "conversation.deleted", "deleted": true}));

    // A session of another protocol is not a conversation.
    let foreign = SessionView { labels: Extra::new(), ..found };
    assert_eq!(get(&path).reply_with(Reply::Session(&[foreign])).expect_err("refused").error_reply().status, 404);
    assert_eq!(get("/conversations/s-7").error_reply().status, 404);
}

#[test]
fn items_of_a_conversation_have_the_ids_of_their_responses() {
    let run = run_id(1);
    let call = json!({"call_id": "c", "name": "t", "arguments": "{}"});
    let output = json!({"call_id": "c", "output": "18 C"});
    let message = |kind, role, data: &Value| Message::new(kind, Some(role), vec![Content::data(data)]);
    let digits = run.to_prefixed("");
    let (message_id, call_id, output_id) =
        (format!("msg_{digits}_in0_0"), format!("msg_{digits}_0"), format!("msg_{digits}_1"));
    let view = session(vec![
        ("msg_put", None, Message::user("put there")),
        (&message_id, Some(run), Message::user("asked")),
        (&call_id, Some(run), message(MessageType::PluginCall, Role::Assistant, &call)),
        (&output_id, Some(run), message(MessageType::PluginCallOutput, Role::Tool, &output)),
    ]);
    let path = format!("/conversations/{}/items", conversation_id());
    let page =
        get(&format!("{path}?order=asc")).reply_with(Reply::Session(std::slice::from_ref(&view))).expect("a page");
    let ids: Vec<String> = page.json()["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(ids, ["msg_put".to_owned(), message_id.clone(), format!("mcp_{digits}_0")]);
    assert_eq!(page.json()["data"][2]["output"], "18 C");

    let one = get(&format!("{path}/mcp_{digits}_0"))
        .reply_with(Reply::Session(std::slice::from_ref(&view)))
        .expect("an item");
    assert_eq!(one.json()["type"], "mcp_call");
    let none =
        get(&format!("{path}/msg_nope")).reply_with(Reply::Session(std::slice::from_ref(&view))).expect_err("refused");
    assert!(none.error_reply().body.contains("Item with id 'msg_nope' not found."));

    // A call and its output are removed together.
    let sent = route("{}").send("DELETE", &format!("{path}/mcp_{digits}_0"), "");
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&view))).expect_err("it is taken out");
    assert!(matches!(session_call(&sent), SessionCall::Remove { item, .. } if *item == call_id));
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&view))).expect_err("so is its output");
    assert!(matches!(session_call(&sent), SessionCall::Remove { item, .. } if *item == output_id));
    let answer = sent.reply_with(Reply::Session(std::slice::from_ref(&view))).expect("an answer");
    assert_eq!(answer.json()["object"], "conversation");

    let sent = route("{}").send("POST", &path, r#"{"items":[{"role":"user","content":"more"}]}"#);
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&view))).expect_err("it is added");
    assert!(matches!(session_call(&sent), SessionCall::Append { items, .. } if items.len() == 1));
    let mut grown = view.clone();
    grown.items.push(SessionItem { id: "msg_more".into(), run: None, message: Message::user("more") });
    let page = sent.reply_with(Reply::Session(&[grown])).expect("a page").json();
    assert_eq!((&page["data"][0]["id"], page["data"].as_array().map(Vec::len)), (&json!("msg_more"), Some(1)));
}

#[test]
fn a_reference_is_resolved_in_the_conversation_first() {
    let view = session(vec![("odd-id", None, Message::user("put there"))]);
    let body = json!({"model": "demo", "conversation": conversation_id(), "input": [{"type": "item_reference", "id": "odd-id"}]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let sent = sent.reply_with(Reply::Session(&[view])).expect_err("a run call");
    assert_eq!(sent.run_call().request.input[0].text(), "put there");
    let body = json!({"model": "demo", "conversation": conversation_id(), "input": [{"type": "item_reference", "id": "nope"}]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    assert_eq!(sent.reply_with(Reply::Session(&[session(Vec::new())])).expect_err("refused").error_reply().status, 404);
}

#[test]
fn every_agent_is_a_model_under_each_of_its_names() {
    let route = mounted(&["weather", "news"], r#"{"models":{"org/gpt-4o":"weather"}}"#);
    let agents = [support::card("weather"), support::card("news")];
    let all = route.send("GET", "/models", "").reply_with(Reply::Agents(&agents)).expect("a list").json();
    let ids: Vec<&str> =
        all["data"].as_array().expect("a list").iter().map(|model| model["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["weather", "news", "org/gpt-4o"]);
    let one = route.send("GET", "/models/news", "").reply_with(Reply::Agents(&agents)).expect("one").json();
    for (name, value) in [("id", "news"), ("object", "model"), ("owned_by", "interlingua"), ("display_name", "news")] {
        assert_eq!(one[name], value, "{one}");
    }
    assert_eq!(one["created"], 1_795_168_800, "{one}");
    let none =
        route.send("GET", "/models/who", "").reply_with(Reply::Agents(&agents)).expect_err("refused").error_reply();
    assert_eq!((none.status, &none.json()["error"]["code"]), (404, &json!("model_not_found")));
    // Agents that the caller may not see are not listed.
    let few = route.send("GET", "/models", "").reply_with(Reply::Agents(&agents[1..])).expect("a list").json();
    assert_eq!(few["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_context_is_counted_compacted_and_restored() {
    let body = r#"{"model":"demo","input":"some words to count"}"#;
    let sent = route("{}").send("POST", "/responses/input_tokens", body);
    assert!(matches!(&sent.outcome, Ok(Call::CheckAgent(_))));
    let count = sent.reply_with(Reply::Done).expect("a count").json();
    assert_eq!(count, json!({"object": "response.input_tokens", "input_tokens": 9}));

    // The complete chain, not only its last response.
    let record = hello();
    let body = json!({"model": "demo", "previous_response_id": response_id(1)}).to_string();
    let sent =
        looked_up(route("{}").send("POST", "/responses/compact", &body), &record, "null", true).expect_err("more");
    assert!(matches!(session_call(&sent), SessionCall::Get { session } if session == "session-1"));
    let mut view = session(vec![
        ("a", Some(run_id(9)), Message::user("long ago")),
        ("b", Some(run_id(1)), Message::user("lately")),
        ("c", Some(run_id(2)), Message::user("later")),
    ]);
    view.id = "session-1".into();
    let sent = sent.reply_with(Reply::Session(&[view])).expect_err("that is all");
    let compaction = sent.reply_with(Reply::Done).expect("a compaction").json();
    assert_eq!(compaction["object"], "response.compaction");
    let item = compaction["output"][0].clone();
    assert_eq!(item["type"], "compaction");
    let again = json!({"model": "demo", "input": [item, {"role": "user", "content": "go on"}]});
    let sent = route("{}").send("POST", "/responses", &again.to_string());
    let texts: Vec<String> = sent.run_call().request.input.iter().map(Message::text).collect();
    assert_eq!(texts, ["long ago", "lately", "go on"]);

    let reply = route("{}").send("POST", "/responses/compact", r#"{"input":"x"}"#).error_reply();
    assert_eq!(reply.json()["error"]["code"], "missing_required_parameter");
    for (options, path) in
        [(r#"{"compact":"off"}"#, "/responses/compact"), (r#"{"input_tokens":"off"}"#, "/responses/input_tokens")]
    {
        assert_eq!(route(options).send("POST", path, body.as_str()).error_reply().status, 404);
    }
}

#[test]
fn a_stream_that_is_interrupted_ends_in_an_error_event() {
    let record = hello();
    let mut sent = route("{}").send("POST", "/responses", support::HELLO);
    let about = about(&record, Json::null());
    let mut out = interlingua_core::Out::new();
    sent.exchange.begin(interlingua_core::call::RunView { record: &record, info: &about, pending: &[] }, &mut out);
    for step in record.steps(0).take(4) {
        sent.encode(step, &mut out);
    }
    let sent_events = support::events(std::str::from_utf8(&out.body).expect("UTF-8")).len();
    out.body.clear();
    let fault = interlingua_core::Fault::new(interlingua_core::FaultKind::ShuttingDown, "the gateway is shutting down");
    sent.exchange.interrupt(&fault, &mut out);
    let events = support::events(std::str::from_utf8(&out.body).expect("UTF-8"));
    let (name, event) = &events[0];
    assert_eq!((name.as_str(), &event["sequence_number"], events.len()), ("error", &json!(sent_events), 1));
    assert_eq!(
        (&event["message"], &event["error"]["message"]),
        (&json!("the gateway is shutting down"), &json!("the gateway is shutting down"))
    );
    out.body.clear();
    sent.exchange.heartbeat(&mut out);
    assert_eq!(&out.body[..], b": ping\n\n");
}
