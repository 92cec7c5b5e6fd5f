//! Clients that send their whole conversation with each request: the session that is continued, the messages that the
//! agent receives, and the stored ones.
//!
//! Not here: the comparison of messages in real protocols (their own tests).

use interlingua::store::{DocumentStore, Sqlite, SqliteOptions};
use serde_json::{Value, json};

use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{DEMO, Gateway, agent, user_turn_in};
use crate::support::http::Response;
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

const ROUTES: &str = "[[routes]]\nprotocol = \"resender\"\npath = \"/resent/{agent}\"\n\
                      [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n\
                      [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";

/// An agent of the tests' own protocol. `own` and `options` are lines of its table and of its options.
fn doll(upstream: &Upstream, own: &str, options: &str) -> String {
    let url = upstream.url("/p");
    format!(
        "[agents.doll]\n{own}\n[agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{url}\"\nretries = 0\n\
         options = {{ {options} }}\n"
    )
}

async fn start(agents: &str) -> Gateway {
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agents}{ROUTES}")).await
}

fn says(text: &str) -> Reply {
    Reply::frames([json!({ "text": text }).to_string(), json!({ "end": "completed" }).to_string()])
}

/// An agent that answers "re: " and what it got last.
fn echo() -> Upstream {
    Upstream::with_handler(|request| says(&format!("re: {}", texts(&request.json()).pop().unwrap_or_default())))
}

/// Says something, and calls a tool of the client.
fn calls(text: &str, id: &str) -> Reply {
    let frames = [json!({ "text": text }), json!({ "call": [id, "look"] }), json!({ "end": "completed" })];
    Reply::frames(frames.map(|frame| frame.to_string()))
}

/// An agent that calls the tool when the user says so, always with the same id.
fn looking() -> Upstream {
    Upstream::with_handler(|request| match texts(&request.json()).pop() {
        Some(text) if text.starts_with("look") => calls(&format!("I {text}"), "call_0"),
        text => says(&format!("re: {}", text.unwrap_or_default())),
    })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }] })
}

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] })
}

fn system(text: &str) -> Value {
    json!({ "role": "system", "content": [{ "type": "text", "text": text }] })
}

fn call(id: &str) -> Value {
    let data = json!({ "call_id": id, "name": "look", "arguments": "{ }" });
    json!({ "type": "function_call", "role": "assistant", "content": [{ "type": "data", "data": data }] })
}

fn output(id: &str, text: &str) -> Value {
    let data = json!({ "call_id": id, "output": text });
    json!({ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": data }] })
}

/// The texts of a turn that the agent received.
fn texts(turn: &Value) -> Vec<String> {
    let messages = turn["messages"].as_array().expect("messages");
    let text = |message: &Value| match message["output"][1].as_str() {
        Some(output) => Some(format!("output {output}")),
        None if message["type"] == "function_call" => Some("call".to_owned()),
        None => Some(message["text"].as_str()?.to_owned()),
    };
    messages.iter().filter_map(text).collect()
}

/// The last turn as the connector got it.
fn last(upstream: &Upstream) -> Value {
    upstream.requests().pop().expect("a request").json()
}

/// A conversation as a client has it.
#[derive(Clone, Default)]
struct Client {
    agent: &'static str,
    session: Option<&'static str>,
    history: Vec<Value>,
    /// The last answer in the form of its protocol.
    last: Option<String>,
    /// Further fields of its requests.
    with: Value,
}

impl Client {
    fn new(agent: &'static str, session: Option<&'static str>) -> Self {
        Self { agent, session, with: json!({}), ..Self::default() }
    }

    fn having(mut self, history: &[Value], last: &str) -> Self {
        self.history = history.to_vec();
        self.last = Some(last.to_owned());
        self
    }

    fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.with[field] = value.into();
        self
    }

    fn body(&self, input: &[Value]) -> Value {
        let mut body = json!({ "history": self.history, "input": input, "last": self.last, "session": self.session });
        let fields = self.with.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        body
    }

    async fn send(&self, gateway: &Gateway, input: &[Value]) -> Response {
        gateway.post(&format!("/resent/{}", self.agent), &self.body(input)).await
    }

    /// Sends what is new, and takes the answer into the history.
    async fn say(&mut self, gateway: &Gateway, input: &[Value]) -> Value {
        let response = self.send(gateway, input).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let answer = response.json();
        let shown = answer["shown"].as_str().expect("a text").to_owned();
        self.history.extend_from_slice(input);
        self.history.extend(shown.lines().map(|line| match line.split_once(":look(") {
            Some((id, _)) => call(id),
            None => assistant(line),
        }));
        self.last = Some(shown);
        answer
    }

    async fn text(&mut self, gateway: &Gateway, text: &str) -> Value {
        self.say(gateway, &[user(text)]).await
    }
}

#[tokio::test]
async fn a_client_without_a_session_starts_one_with_its_history() {
    let upstream = echo();
    let gateway = start(&doll(&upstream, "history = \"gateway\"", "message_ids = true")).await;
    let mut client = Client::new("doll", None)
        .having(&[user("one"), assistant("two")], "two")
        .with("instructions", json!([system("be brief")]));
    let answer = client.say(&gateway, &[system("it is late"), user("three")]).await;
    let turn = last(&upstream);
    assert_eq!(texts(&turn), ["be brief", "one", "two", "it is late", "three"]);
    assert_eq!((&turn["history"], &turn["new"]), (&json!([1, 3]), &json!([0, 3, 4])));
    let ids = turn["ids"].clone();

    // Any other client of the same owner can continue that session, without the instructions.
    let session = answer["session"].as_str().expect("a session").to_owned();
    gateway.run_turn("doll", &user_turn_in(&session, "four")).await.expect_completed();
    let turn = last(&upstream);
    assert_eq!(texts(&turn), ["one", "two", "it is late", "three", "re: three", "four"]);
    assert_eq!(turn["ids"][0], ids[1], "a message has one id");

    // This client continues its own history, in a session of its own.
    let other = client.text(&gateway, "five").await;
    assert_ne!(other["session"], session.as_str());
    assert_eq!(texts(&last(&upstream)), ["be brief", "one", "two", "it is late", "three", "re: three", "five"]);
}

#[tokio::test]
async fn an_agent_with_memory_gets_only_the_new_messages() {
    let upstream = echo();
    let gateway = start(&doll(&upstream, "", "")).await;
    let mut client = Client::new("doll", Some("s")).having(&[user("one"), assistant("two")], "two");
    let first = client.text(&gateway, "three").await;
    assert_eq!(
        (&first["session"], texts(&last(&upstream))),
        (&json!("s"), vec!["one".into(), "two".into(), "three".to_owned()])
    );
    assert_eq!(last(&upstream)["history"], json!([0, 2]));
    let session = last(&upstream)["session"].clone();

    let second = client.text(&gateway, "four").await;
    assert_eq!((&second["session"], texts(&last(&upstream))), (&json!("s"), vec!["four".to_owned()]));
    assert_eq!(last(&upstream)["session"], session);

    // The answer that the client got last was another one: a session of its own, with all of it.
    let mut edited = client.clone();
    edited.history.pop();
    edited.history.push(assistant("something else"));
    edited.last = Some("something else".to_owned());
    let third = edited.text(&gateway, "five").await;
    assert_ne!(third["session"], "s");
    assert_eq!(texts(&last(&upstream)).len(), 7);
    assert_ne!(last(&upstream)["session"], session);

    // Both continue, each in its session.
    assert_eq!(edited.text(&gateway, "six").await["session"], third["session"]);
    assert_eq!(texts(&last(&upstream)), ["six"]);
    assert_eq!(client.text(&gateway, "seven").await["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["seven"]);
    assert_eq!(edited.text(&gateway, "eight").await["session"], third["session"]);
}

#[tokio::test]
async fn a_restarted_session_has_the_history_of_its_client() {
    let upstream = echo();
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{}{ROUTES}", doll(&upstream, "", ""));
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut client = Client::new("doll", Some("s")).with("begins_again", true);
    client.text(&gateway, "one").await;
    client.text(&gateway, "two").await;
    assert_eq!(texts(&last(&upstream)), ["two"]);
    let session = last(&upstream)["session"].clone();

    for round in 0..3 {
        let mut edited = Client::new("doll", Some("s"))
            .having(&[user("one"), assistant("another answer")], "another answer")
            .with("begins_again", true);
        assert_eq!(edited.text(&gateway, "three").await["session"], "s", "{round}");
        assert_eq!(texts(&last(&upstream)), ["one", "another answer", "three"]);
        assert_ne!(last(&upstream)["session"], session, "the agent knows another conversation by that id");
        assert_eq!(edited.text(&gateway, "four").await["session"], "s");
        assert_eq!(texts(&last(&upstream)), ["four"]);
    }

    // A conversation of nothing is one, too.
    let mut emptied = Client::new("doll", Some("s")).with("begins_again", true);
    emptied.text(&gateway, "five").await;
    assert_eq!(texts(&last(&upstream)), ["five"]);
    gateway.stop().await;

    let store = Sqlite::open(&folder.path().join("runs.db"), &SqliteOptions::default()).expect("the store opens");
    let entries = store.list("entries", "", None, 100).await.expect("the store reads");
    assert_eq!(entries.len(), 1, "what was replaced is not kept");
}

#[tokio::test]
async fn outputs_of_tools_find_the_session_that_waits_for_them() {
    let upstream = looking();
    let gateway = start(&doll(&upstream, "", "")).await;
    let (mut ada, mut bob) = (Client::new("doll", None), Client::new("doll", None));
    let hers = ada.text(&gateway, "look north").await;
    let his = bob.text(&gateway, "look south").await;
    assert_eq!((&hers["pending"], &his["pending"]), (&json!(["call_0"]), &json!(["call_0"])));
    for (client, session) in [(&ada, &hers), (&bob, &his)] {
        let answered = client.clone().say(&gateway, &[output("call_0", "rain")]).await;
        assert_eq!(answered["session"], session["session"]);
        assert_eq!(texts(&last(&upstream)), ["output rain"]);
    }

    // Sent once more, it begins a conversation: nothing waits for it.
    let repeated = bob.say(&gateway, &[output("call_0", "snow")]).await;
    assert_ne!(repeated["session"], his["session"]);
    assert_eq!(texts(&last(&upstream)), ["look south", "I look south", "call", "output snow"]);
}

#[tokio::test]
async fn an_output_that_several_sessions_may_wait_for_goes_to_none_of_them() {
    let upstream = looking();
    let gateway = start(&doll(&upstream, "", "")).await;
    let (mut ada, mut bob) = (Client::new("doll", None), Client::new("doll", None));
    ada.text(&gateway, "I am Ada").await;
    let hers = ada.text(&gateway, "look").await;
    let his = bob.text(&gateway, "look").await;
    let answered = ada.say(&gateway, &[output("call_0", "rain")]).await;
    assert!(![&hers["session"], &his["session"]].contains(&&answered["session"]));
    let all = ["I am Ada", "re: I am Ada", "look", "I look", "call", "output rain"];
    assert_eq!(texts(&last(&upstream)), all);
}

#[tokio::test]
async fn conversations_that_begin_at_once_under_one_name_do_not_wait_for_each_other() {
    let upstream = Upstream::with_handler(|request| {
        let text = texts(&request.json()).pop().unwrap_or_default();
        let reply = Reply::events().frame(&json!({ "text": format!("re: {text}") }).to_string());
        let gate = if text.starts_with("wait") { "end" } else { "open" };
        reply.wait(gate).frame(&json!({ "end": "completed" }).to_string()).done()
    });
    upstream.open("open");
    let gateway = start(&doll(&upstream, "", "")).await;
    let mut main = Client::new("doll", Some("s"));
    main.text(&gateway, "hello").await;

    let waiting = gateway.start_post("/resent/doll", &main.body(&[user("wait")])).await;
    upstream.wait_for_requests(2).await;
    // The same conversation has one turn at a time.
    let refused = main.send(&gateway, &[user("hurry")]).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("SESSION_BUSY")));
    let again = main.clone().with("begins_again", true).having(&[assistant("else")], "else");
    assert_eq!(again.send(&gateway, &[user("hurry")]).await.status, 409);

    // Others of the same name are no conflict.
    let mut title = Client::new("doll", Some("s"));
    let titled = title.text(&gateway, "a title").await;
    assert_ne!(titled["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["a title"]);
    assert_eq!(title.text(&gateway, "a better one").await["session"], titled["session"]);

    let queued = main.clone().with("queues", true);
    let queued = gateway.start_post("/resent/doll", &queued.body(&[user("later")])).await;
    poll_until("its place in the queue", async || {
        let runs = gateway.get("/agents/doll/runs?session_id=s").await.json();
        (runs["data"].as_array()?.len() == 3).then_some(())
    })
    .await;
    upstream.open("end");
    assert_eq!(waiting.response().await.json()["session"], "s");
    let queued = queued.response().await;
    assert_eq!((queued.status, &queued.json()["session"]), (200, &json!("s")), "{}", queued.text());
}

#[tokio::test]
async fn first_requests_that_come_at_once_begin_two_sessions() {
    let upstream = Upstream::always(
        Reply::events().wait("go").frame(&json!({ "text": "hi" }).to_string()).frame(r#"{"end":"completed"}"#).done(),
    );
    let gateway = start(&doll(&upstream, "", "")).await;
    let client = Client::new("doll", Some("new"));
    let one = gateway.start_post("/resent/doll", &client.body(&[user("one")])).await;
    let two = gateway.start_post("/resent/doll", &client.body(&[user("two")])).await;
    upstream.wait_for_requests(2).await;
    upstream.open("go");
    let (one, two) = (one.response().await, two.response().await);
    assert_eq!((one.status, two.status), (200, 200), "{} {}", one.text(), two.text());
    let (one, two) = (one.json()["session"].clone(), two.json()["session"].clone());
    assert!((one == "new") != (two == "new"), "{one} {two}");
}

#[tokio::test]
async fn a_request_that_failed_is_sent_again_under_its_name() {
    let fails = || Reply::complete(500, &[], "out of order");
    let upstream = Upstream::in_order([fails(), fails(), says("well"), says("again")]);
    let gateway = start(&doll(&upstream, "", "")).await;
    let mut client = Client::new("doll", Some("s")).having(&[user("one"), assistant("two")], "two");
    for _ in 0..2 {
        assert_eq!(client.send(&gateway, &[user("three")]).await.status, 502);
    }
    assert_eq!(client.text(&gateway, "three").await["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["one", "two", "three"]);
    assert_eq!(client.text(&gateway, "four").await["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["four"]);
}

#[tokio::test]
async fn after_a_failure_the_agent_gets_the_history_again() {
    let fails = || Reply::complete(500, &[], "out of order");
    let upstream =
        Upstream::in_order([says("one"), Reply::events().frame(r#"{"text":"tw"}"#).close(), says("two"), fails()]);
    let gateway = start(&doll(&upstream, "", "")).await;
    let mut client = Client::new("doll", Some("s"));
    client.text(&gateway, "first").await;
    let session = last(&upstream)["session"].clone();
    let cut = client.send(&gateway, &[user("second")]).await;
    assert_eq!((cut.status, &cut.json()["status"]), (200, &json!("failed")), "{}", cut.text());

    // What the agent remembers of the turn that failed is not known.
    client.text(&gateway, "second").await;
    assert_eq!(texts(&last(&upstream)), ["first", "one", "second"]);
    assert_ne!(last(&upstream)["session"], session);
}

#[tokio::test]
async fn a_text_answers_the_open_item_or_is_input() {
    let gateway = start(DEMO).await;
    let mut client = Client::new("demo", None);
    let asked = client.text(&gateway, "approval").await;
    let id = asked["pending"][0].as_str().expect("an item").to_owned();

    // No decision: asked again, and nothing goes to the agent.
    let undecided = client.clone().with("in_words", json!([id, "hm"]));
    let again = undecided.send(&gateway, &[user("hm")]).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let again = again.json();
    assert_eq!((&again["asked_again"], &again["pending"], &again["run"]), (&json!(true), &json!([id]), &asked["run"]));
    let reason = "not understood as a decision: send one of accept, edit, respond, reject";
    assert_eq!(again["reason"], reason);

    let mut decided = client.clone().with("in_words", json!([id, "approve"]));
    let answer = decided.text(&gateway, "approve").await;
    assert_eq!((&answer["session"], &answer["status"]), (&asked["session"], &json!("completed")));
    let shown = answer["shown"].as_str().expect("a text");
    assert!(!shown.contains("You said"), "{shown}");

    // The item is closed: a text like any other, in a session of its own.
    let spoken = client.clone().with("in_words", json!([id, "approve"])).text(&gateway, "approve").await;
    assert_ne!(spoken["session"], asked["session"]);
    let unknown = client.clone().with("in_words", json!(["appr_unknown", "approve"])).text(&gateway, "approve").await;
    assert!(unknown["shown"].as_str().expect("a text").contains("approve"), "{unknown}");
}

#[tokio::test]
async fn words_answer_the_item_of_the_conversation_that_they_stand_in() {
    // An agent that numbers its calls from one in each conversation.
    let upstream = Upstream::with_handler(|request| {
        let body = request.json();
        let input = body["input"].as_array().expect("an input");
        let decided = input.last().filter(|last| last["type"] == "mcp_approval_response");
        match decided {
            Some(answer) if answer["content"][0]["data"]["approve"] == true => text_reply(&["removed"]),
            Some(_) => text_reply(&["not removed"]),
            None => approval_request("call_0"),
        }
    });
    let shop = agent("shop", &upstream.url("/process"), "", "retries = 0");
    let gateway = start(&shop).await;

    let begin = async |words: &str| {
        let mut client = Client::new("shop", None);
        let asked = client.text(&gateway, words).await;
        assert_eq!(asked["pending"], json!(["call_0"]), "{asked}");
        (client, asked["session"].clone())
    };
    let ((mut ada, hers), (mut bob, his)) = (begin("remove x, says Ada").await, begin("remove x, says Bob").await);
    for (client, session, word, outcome) in
        [(&mut bob, &his, "reject", "not removed"), (&mut ada, &hers, "approve", "removed")]
    {
        let mut client = client.clone().with("in_words", json!(["call_0", word]));
        let answered = client.text(&gateway, word).await;
        assert_eq!((&answered["session"], &answered["shown"]), (session, &json!(outcome)), "{answered}");
    }

    // Nothing tells these two apart: no answer counts, and the client learns why.
    let ((one, _), (_, _)) = (begin("remove x").await, begin("remove x").await);
    let before = upstream.requests().len();
    let again =
        one.clone().with("in_words", json!(["call_0", "approve"])).send(&gateway, &[user("approve")]).await.json();
    assert_eq!((&again["asked_again"], &again["pending"]), (&json!(true), &json!(["call_0"])), "{again}");
    assert!(again["reason"].as_str().expect("a reason").contains("several conversations"), "{again}");
    assert_eq!(upstream.requests().len(), before, "nothing reached the agent");
}

#[tokio::test]
async fn a_client_that_sends_all_of_it_is_not_cut_to_the_limit_of_the_gateway() {
    let upstream = echo();
    let own = "history = \"gateway\"\nhistory_limit = { turns = 1, bytes = \"1KiB\" }";
    let gateway = start(&doll(&upstream, own, "message_ids = true")).await;
    let said: Vec<Value> = (0..600).flat_map(|n| [user(&format!("u{n}")), assistant(&format!("a{n}"))]).collect();
    let mut client = Client::new("doll", Some("s")).having(&said, "a599");
    client.text(&gateway, "new").await;
    assert_eq!(texts(&last(&upstream)).len(), 1201);
    client.text(&gateway, "newer").await;
    let turn = last(&upstream);
    assert_eq!(texts(&turn).len(), 1203);
    assert_eq!((&texts(&turn)[0], &turn["history"]), (&"u0".to_owned(), &json!([0, 1202])));
    let ids: std::collections::HashSet<_> = turn["ids"].as_array().expect("ids").iter().map(Value::to_string).collect();
    assert_eq!(ids.len(), 1203);
}

#[tokio::test]
async fn a_branch_of_a_conversation_keeps_its_history() {
    let upstream = echo();
    let gateway = start(&doll(&upstream, "history = \"gateway\"", "")).await;
    let mut client = Client::new("doll", Some("s")).having(&[user("one"), assistant("two")], "two");
    let first = client.text(&gateway, "three").await;
    client.text(&gateway, "four").await;

    let run = first["run"].as_str().expect("a run").replace('-', "");
    let body = json!({ "model": "doll", "input": "five", "previous_response_id": format!("resp_{run}") });
    let answer = gateway.post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(texts(&last(&upstream)), ["one", "two", "three", "re: three", "five"]);

    // And so has what follows the branch.
    let body = json!({ "model": "doll", "input": "six", "previous_response_id": answer.json()["id"] });
    assert_eq!(gateway.post("/v1/responses", &body).await.status, 200);
    assert_eq!(texts(&last(&upstream)), ["one", "two", "three", "re: three", "five", "re: five", "six"]);
}

#[tokio::test]
async fn another_user_of_the_same_name_has_another_session() {
    let upstream = looking();
    let gateway = start(&doll(&upstream, "", "")).await;
    let mut ada = Client::new("doll", Some("s")).with("user", "ada");
    let mut bob = Client::new("doll", Some("s")).with("user", "bob");
    ada.text(&gateway, "hello").await;
    ada.text(&gateway, "look").await;

    // Word for word what she would send.
    bob.history.clone_from(&ada.history);
    bob.last.clone_from(&ada.last);
    bob.say(&gateway, &[output("call_0", "rain")]).await;
    assert_eq!(texts(&last(&upstream)).len(), 6, "all that he said was said");

    ada.say(&gateway, &[output("call_0", "rain")]).await;
    assert_eq!(texts(&last(&upstream)), ["output rain"]);
}

#[tokio::test]
async fn an_agent_without_history_gets_the_new_messages() {
    let upstream = echo();
    let gateway = start(&doll(&upstream, "", "history = \"only\"")).await;
    let mut client = Client::new("doll", Some("s")).having(&[user("one"), assistant("two")], "two");
    client.text(&gateway, "three").await;
    assert_eq!(texts(&last(&upstream)), ["three"]);
}

#[tokio::test]
async fn conversations_are_found_again_after_a_restart() {
    let upstream = looking();
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{}{ROUTES}", doll(&upstream, "", ""));
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut named = Client::new("doll", Some("s"));
    named.text(&gateway, "hello").await;
    let mut branch = Client::new("doll", Some("s"));
    let branched = branch.text(&gateway, "a title").await;
    let mut unnamed = Client::new("doll", None);
    let asked = unnamed.text(&gateway, "look").await;
    gateway.stop().await;

    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    assert_eq!(named.text(&gateway, "there").await["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["there"]);
    assert_eq!(branch.text(&gateway, "another").await["session"], branched["session"]);
    assert_eq!(unnamed.say(&gateway, &[output("call_0", "rain")]).await["session"], asked["session"]);
    assert_eq!(texts(&last(&upstream)), ["output rain"]);
}

#[tokio::test]
async fn a_session_whose_name_is_no_name_is_refused() {
    let upstream = echo();
    let gateway = start(&doll(&upstream, "", "")).await;
    for name in [String::new(), "x".repeat(513)] {
        let body = json!({ "session": name, "input": [user("hi")] });
        let refused = gateway.post("/resent/doll", &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn the_history_of_a_client_survives_a_crash() {
    let hangs = Reply::events().frame(&json!({ "text": "th" }).to_string()).hang();
    let upstream = Upstream::in_order([hangs, says("well"), says("again")]);
    let folder = tempfile::tempdir().expect("a folder");
    let agents = doll(&upstream, "history = \"gateway\"", "");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{agents}{ROUTES}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut client = Client::new("doll", Some("s")).having(&[user("one"), assistant("two")], "two");
    let body = client.clone().with("stream", true).body(&[user("three")]);
    let mut stream = gateway.start_post("/resent/doll", &body).await;
    assert_eq!(stream.frame().await, Some(json!("th")));

    // What a process that is killed now leaves behind. Nothing is written while the agent is silent.
    let left = tempfile::tempdir().expect("a folder");
    for name in ["runs.db", "runs.db-wal"] {
        std::fs::copy(folder.path().join(name), left.path().join(name)).expect("a copy");
    }
    let restarted = Gateway::in_folder(&config, left.path().to_owned()).await;
    restarted.run_turn("doll", &user_turn_in("s", "four")).await.expect_completed();
    assert_eq!(texts(&last(&upstream)), ["one", "two", "four"]);
    drop(stream);

    // The client itself does not know that turn.
    assert_ne!(client.text(&restarted, "three").await["session"], "s");
    assert_eq!(texts(&last(&upstream)), ["one", "two", "three"]);
}
