//! The demo agent's commands: the words at the beginning of a message, and their effects.
//!
//! Commands are one or several words at the beginning of the user's last message, in any order: they are read one after
//! the other up to the first other word. A message without a command gets an ordinary answer.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use interlingua_core::connector::TurnRequest;
use interlingua_core::event::End;
use interlingua_core::model::{Body, Content, ContentType, File, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::{Decision, PendingKind};
use serde_json::json;
use uuid::Uuid;

use super::memory::{History, is_user_message};
use super::replies;
use super::stage::{Act, Ending, Plan};
use super::thoughts;

/// One word, and what it shows.
struct DemoCommand {
    word: &'static str,
    shows: &'static str,
    does: fn(&mut Scenario<'_>),
}

const fn word(word: &'static str, shows: &'static str, does: fn(&mut Scenario<'_>)) -> DemoCommand {
    DemoCommand { word, shows, does }
}

const WORDS: &[DemoCommand] = &[
    word("help", "this list", help),
    word("echo TEXT", "the text, and nothing else", echo),
    word("long N MS", "N words, MS milliseconds apart", long),
    word("sleep MS", "silence for this number of milliseconds", sleep),
    word("reasoning", "thoughts before the answer", reasoning),
    word("overlap", "thoughts beside the answer", overlap),
    word("summary", "a summary of thoughts, in two parts", |scenario| scenario.acts.push_back(thoughts::summary())),
    word("signed", "thoughts with a signature", |scenario| scenario.acts.push_back(thoughts::signed())),
    word("redacted", "thoughts that only I can read", |scenario| scenario.acts.push_back(thoughts::redacted())),
    word("interleaved", "thoughts, a call, and thoughts again", interleaved),
    word("tool", "a call of a tool of my own, and its output", tool),
    word("parallel", "two such calls at once", parallel),
    word("mcp", "the tools of an MCP server, a call and its output", mcp),
    word("component", "a call of a component, and its output", component),
    word("client tool", "a call of your first tool; answer with its output", client_tool),
    word("approval", "a request to approve a call; accept, edit, respond or reject", approval),
    word("approvals", "two such requests at once; each is decided, and all are sent together", approvals),
    word("question", "a question with a schema for your answer", question),
    word("login", "a request to log in somewhere", login),
    word("image", "a picture", image),
    word("audio", "a short audio clip", audio),
    word("video", "a video", video),
    word("file", "a file", file),
    word("data", "a JSON object", data),
    word("state", "the state of the front end, and two changes of it", state),
    word("progress", "steps and an activity beside the answer", progress),
    word("refusal", "an answer that declines", refusal),
    word("warning", "an error message in the middle of an answer", warning),
    word("unicode", "characters from all over the world", unicode),
    word("history", "what I remember of this session", history),
    word("usage", "what the answer cost", usage),
    word("heartbeat", "a keep-alive without content", heartbeat),
    word("empty", "an answer without content", empty),
    word("error", "a failure before the first word", error),
    word("fail", "a failure after some words", fail),
    word("incomplete", "an answer cut off by a limit", incomplete),
    word("reject", "an answer that is turned away", reject),
    word("cancel", "an answer that cancels itself", cancel),
    word("break", "an answer that breaks off without an end", breaks),
];

/// The longest answer on request, in words.
const MAX_WORDS: usize = 100_000;
/// The longest pause on request.
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// The longest text repeated in an ordinary answer, in characters.
const REPEATED: usize = 2000;

/// The plan for a question.
pub(super) fn plan(asked: &TurnRequest<'_>, history: &History) -> Plan {
    let input = &asked.request.input;
    let last = input.iter().rposition(is_user_message);
    let message = last.map(|last| &input[last]);
    let text = message.map(Message::text).unwrap_or_default();
    let mut scenario = Scenario {
        asked,
        history,
        rest: text.trim(),
        acts: VecDeque::new(),
        ending: Ending::As(End::Completed),
        usage: None,
        silent: false,
    };
    // Only what was answered after the last thing said is new.
    let answered = replies::react(asked, &input[last.map_or(0, |last| last + 1)..]);
    if answered.is_empty() {
        scenario.follow(message);
    } else {
        scenario.acts.extend(answered);
    }
    Plan { acts: scenario.acts, ending: scenario.ending, usage: scenario.usage }
}

struct Scenario<'a> {
    asked: &'a TurnRequest<'a>,
    history: &'a History,
    /// The text after the commands read so far.
    rest: &'a str,
    acts: VecDeque<Act>,
    ending: Ending,
    usage: Option<usize>,
    /// Suppresses all other output.
    silent: bool,
}

impl Scenario<'_> {
    fn follow(&mut self, message: Option<&Message>) {
        let mut has_command = false;
        while let Some(word) = self.next_word() {
            has_command = true;
            (word.does)(self);
        }
        let unsaid = |act: &Act| {
            matches!(act, Act::Pause(_) | Act::Heartbeat | Act::Say(MessageType::Reasoning, _) | Act::Think(..))
        };
        if self.silent || (self.rest.is_empty() && !self.acts.iter().all(unsaid)) {
            return;
        }
        let answer = if has_command && self.rest.is_empty() {
            "There you are.".to_owned()
        } else {
            ordinary(self.rest, message)
        };
        self.say(answer);
    }

    /// Takes the next word, if it is one of ours.
    fn next_word(&mut self) -> Option<&'static DemoCommand> {
        let known = WORDS.iter().find_map(|known| {
            let names = known.word.split(' ').take_while(|name| name.chars().all(char::is_lowercase));
            let mut rest = self.rest;
            for name in names {
                rest = strip_word(rest, name)?;
            }
            Some((known, rest))
        });
        let (known, rest) = known?;
        self.rest = rest;
        Some(known)
    }

    /// Takes the next number, if there is one.
    fn number(&mut self) -> Option<u64> {
        let (digits, rest) = split(self.rest);
        let number = digits.trim_end_matches("ms").parse().ok()?;
        self.rest = rest;
        Some(number)
    }

    fn say(&mut self, text: impl Into<String>) {
        self.acts.push_back(Act::Say(MessageType::Message, text.into()));
    }

    /// Says something, and never comes to its end.
    fn begin(&mut self, text: &str) {
        self.acts.push_back(Act::Begin(text.to_owned()));
    }

    fn show(&mut self, text: &str, content: Content) {
        self.acts.push_back(Act::Show(MessageType::Message, Role::Assistant, vec![Content::text(text), content]));
    }

    fn ask(&mut self, item: replies::Item) {
        self.acts.push_back(Act::Show(MessageType::McpApprovalRequest, Role::Assistant, vec![item.into_content()]));
    }
}

/// The first word and the text after it.
fn split(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim_start())
}

/// The text after a word, if the text begins with the word. Case and a comma after it are ignored.
fn strip_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    // A text of megabytes without a space is compared with every word: its end is searched only once.
    if !text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) {
        return None;
    }
    let (first, rest) = split(text);
    first.trim_end_matches([',', '.', '!', ':', ';']).eq_ignore_ascii_case(word).then_some(rest)
}

fn ordinary(text: &str, message: Option<&Message>) -> String {
    let others = message
        .map_or(0, |message| message.content.iter().filter(|content| content.body.kind() != ContentType::Text).count());
    let mut answer = match text {
        "" => "I am here, but you said nothing.".to_owned(),
        text => format!("You said: {}", text.chars().take(REPEATED).collect::<String>()),
    };
    if let Some(message) = message.filter(|_| others > 0) {
        let kinds: Vec<String> = message
            .content
            .iter()
            .filter(|content| content.body.kind() != ContentType::Text)
            .map(|content| content.body.kind().to_string())
            .collect();
        let _ = write!(answer, "\nI also got: {}.", kinds.join(", "));
    }
    answer.push_str("\nSay help to see what else I can do.");
    answer
}

fn help(scenario: &mut Scenario<'_>) {
    let mut text = "I am the demo agent: I need no model, and answer whatever you say. \
                    Begin a message with one or more of these words to see something else:\n\n"
        .to_owned();
    for word in WORDS {
        let _ = writeln!(text, "- {}: {}", word.word, word.shows);
    }
    scenario.say(text);
}

fn echo(scenario: &mut Scenario<'_>) {
    let text = std::mem::take(&mut scenario.rest);
    scenario.silent = true;
    if !text.is_empty() {
        scenario.say(text);
    }
}

fn long(scenario: &mut Scenario<'_>) {
    let words = scenario.number().unwrap_or(100);
    let every = scenario.number().unwrap_or(20);
    let words = usize::try_from(words).unwrap_or(MAX_WORDS).min(MAX_WORDS);
    scenario.acts.push_back(Act::Count(words, Duration::from_millis(every).min(MAX_PAUSE)));
}

fn sleep(scenario: &mut Scenario<'_>) {
    let pause = Duration::from_millis(scenario.number().unwrap_or(1000)).min(MAX_PAUSE);
    scenario.acts.push_back(Act::Pause(pause));
}

fn reasoning(scenario: &mut Scenario<'_>) {
    scenario.acts.push_back(thoughts::plain(thoughts::THOUGHT));
}

fn overlap(scenario: &mut Scenario<'_>) {
    scenario.acts.push_back(Act::Overlap(
        thoughts::THOUGHT.to_owned(),
        "While I think, I answer already: yes, I can.".to_owned(),
    ));
}

fn interleaved(scenario: &mut Scenario<'_>) {
    scenario.acts.push_back(thoughts::plain("Whether a coat is needed depends on the weather. I look."));
    weather(scenario);
    scenario.acts.push_back(thoughts::plain("It is sunny, so it is not."));
    scenario.say("You need no coat in Paris.");
}

fn call(name: &str, arguments: &serde_json::Value, server_label: Option<&str>) -> ToolCall {
    ToolCall {
        call_id: format!("call_{}", Uuid::now_v7().simple()),
        name: name.to_owned(),
        arguments: arguments.to_string(),
        server_label: server_label.map(str::to_owned),
    }
}

fn output(kind: MessageType, call: &ToolCall, output: &str) -> Act {
    let output = ToolOutput { call_id: call.call_id.clone(), name: Some(call.name.clone()), output: output.to_owned() };
    Act::Show(kind, Role::Tool, vec![Content::data(&output)])
}

/// A call of a tool of the agent, and its output.
fn weather(scenario: &mut Scenario<'_>) {
    let weather = call("get_weather", &json!({ "city": "Paris" }), None);
    let result = output(MessageType::PluginCallOutput, &weather, "18 C, sunny");
    scenario.acts.extend([Act::Call(MessageType::PluginCall, weather), result]);
}

fn tool(scenario: &mut Scenario<'_>) {
    weather(scenario);
    scenario.say("It is 18 degrees and sunny in Paris.");
}

fn parallel(scenario: &mut Scenario<'_>) {
    let paris = call("get_weather", &json!({ "city": "Paris" }), None);
    let oslo = call("get_weather", &json!({ "city": "Oslo" }), None);
    let results = [
        output(MessageType::PluginCallOutput, &oslo, "4 C, rain"),
        output(MessageType::PluginCallOutput, &paris, "18 C, sunny"),
    ];
    scenario.acts.extend([Act::Call(MessageType::PluginCall, paris), Act::Call(MessageType::PluginCall, oslo)]);
    scenario.acts.extend(results);
    scenario.say("Paris has 18 degrees and sun, Oslo has 4 degrees and rain.");
}

fn mcp(scenario: &mut Scenario<'_>) {
    let tools = json!({
        "id": format!("mcpl_{}", Uuid::now_v7().simple()),
        "server_label": "calendar",
        "tools": [{
            "name": "next_event",
            "description": "The next event of a calendar",
            "input_schema": { "type": "object", "properties": { "calendar": { "type": "string" } } },
        }],
    });
    let event = call("next_event", &json!({ "calendar": "work" }), Some("calendar"));
    let result = output(MessageType::McpCallOutput, &event, "Stand-up at 10:00");
    scenario.acts.extend([
        Act::Show(MessageType::McpListTools, Role::Assistant, vec![Content::data(&tools)]),
        Act::Call(MessageType::McpCall, event),
        result,
    ]);
    scenario.say("Your next event is the stand-up at ten.");
}

fn component(scenario: &mut Scenario<'_>) {
    let chart = call("chart", &json!({ "values": [1, 2, 3] }), None);
    let result = output(MessageType::ComponentCallOutput, &chart, "drawn");
    scenario.acts.extend([Act::Call(MessageType::ComponentCall, chart), result]);
    scenario.say("The chart is drawn.");
}

fn client_tool(scenario: &mut Scenario<'_>) {
    let declared = scenario.asked.request.tools.iter().flatten().find_map(replies::declared);
    let (name, arguments) = declared.unwrap_or_else(|| ("get_location".to_owned(), json!({ "precision": "city" })));
    scenario.acts.push_back(Act::Call(MessageType::FunctionCall, call(&name, &arguments, None)));
    scenario.silent = true;
}

fn approval(scenario: &mut Scenario<'_>) {
    scenario.say("I would like to send a mail. May I?");
    scenario.ask(mail_to("ada@example.com"));
    scenario.silent = true;
}

fn approvals(scenario: &mut Scenario<'_>) {
    scenario.say("I would like to send two mails. May I?");
    scenario.ask(mail_to("ada@example.com"));
    scenario.ask(mail_to("bob@example.com"));
    scenario.silent = true;
}

fn mail_to(address: &str) -> replies::Item {
    replies::Item {
        kind: PendingKind::Approval,
        name: "send_mail",
        arguments: json!({ "to": address, "subject": "Hello from the demo agent" }),
        server_label: "mailer",
        reason: "tool_call",
        message: "Send this mail?",
        decisions: &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject],
        response_schema: None,
        payload: None,
    }
}

fn question(scenario: &mut Scenario<'_>) {
    scenario.ask(replies::Item {
        kind: PendingKind::Input,
        name: "input_required",
        arguments: json!({ "question": "Which colour should it be?" }),
        server_label: "demo",
        reason: "input_required",
        message: "Which colour should it be?",
        decisions: &[Decision::Respond, Decision::Reject],
        response_schema: Some(json!({
            "type": "object",
            "properties": { "colour": { "type": "string", "enum": ["red", "green", "blue"] } },
            "required": ["colour"],
        })),
        payload: Some(json!({ "question": "Which colour should it be?" })),
    });
    scenario.silent = true;
}

fn login(scenario: &mut Scenario<'_>) {
    scenario.ask(replies::Item {
        kind: PendingKind::Auth,
        name: "auth_required",
        arguments: json!({ "url": "https://example.com/login" }),
        server_label: "demo",
        reason: "auth_required",
        message: "Please log in at https://example.com/login and answer when you are done.",
        decisions: &[Decision::Accept, Decision::Reject],
        response_schema: None,
        payload: Some(json!({ "url": "https://example.com/login" })),
    });
    scenario.silent = true;
}

/// A blue square of 16 by 16.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mPQqDhBEmIY\
                       1TCqYfhqAADDSmgQB35GTAAAAABJRU5ErkJggg==";
/// A hundredth of a second of a rattle.
const SOUND: &str = "UklGRnQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YVAAAABYWFhYWFhYWFhYqKioqKioqKioqFhYWFhYWFhY\
                     WFioqKioqKioqKioWFhYWFhYWFhYWKioqKioqKioqKhYWFhYWFhYWFhYqKioqKioqKioqA==";
/// A greeting.
const TEXT_FILE: &str = "data:text/plain;base64,SGVsbG8gZnJvbSB0aGUgZGVtbyBhZ2VudC4K";

fn image(scenario: &mut Scenario<'_>) {
    scenario.show("Here is a picture:", Content::new(Body::Image(Some(PICTURE.to_owned()))));
}

fn audio(scenario: &mut Scenario<'_>) {
    let sound = Body::Audio { data: Some(SOUND.to_owned()), format: Some("wav".to_owned()) };
    scenario.show("Here is a sound:", Content::new(sound));
}

fn video(scenario: &mut Scenario<'_>) {
    let video = Body::Video(Some("https://example.com/video.mp4".to_owned()));
    scenario.show("Here is a video:", Content::new(video));
}

fn file(scenario: &mut Scenario<'_>) {
    let greeting = File { url: None, id: None, name: Some("hello.txt".to_owned()), data: Some(TEXT_FILE.to_owned()) };
    scenario.show("Here is a file:", Content::new(Body::File(greeting)));
}

fn data(scenario: &mut Scenario<'_>) {
    scenario.show("Here are the numbers:", Content::data(&json!({ "city": "Paris", "degrees": 18, "sunny": true })));
}

/// The protocol of the events that only front ends read.
pub(super) const EVENT_PROTOCOL: &str = "ag-ui";

/// Events for front ends, if one of them reads them.
fn show_events(scenario: &mut Scenario<'_>, events: &[serde_json::Value]) {
    if !scenario.asked.protocol_events {
        return;
    }
    scenario.acts.extend(events.iter().map(|event| {
        let data = Content::data(&json!({ "protocol": EVENT_PROTOCOL, "event": event }));
        Act::Show(MessageType::ProtocolEvent, Role::Assistant, vec![data])
    }));
}

/// Goes on from the state that the client sent.
fn state(scenario: &mut Scenario<'_>) {
    let sent = scenario.asked.request.extra.get("state").and_then(|state| state.decode::<serde_json::Value>());
    let before = sent.and_then(|state| state["count"].as_u64()).unwrap_or(0);
    let count = before.saturating_add(1);
    show_events(
        scenario,
        &[
            json!({ "type": "STATE_SNAPSHOT", "snapshot": { "count": before, "colours": ["red"] } }),
            json!({ "type": "STATE_DELTA", "delta": [{ "op": "add", "path": "/colours/-", "value": "blue" }] }),
            json!({ "type": "STATE_DELTA", "delta": [{ "op": "replace", "path": "/count", "value": count }] }),
        ],
    );
    scenario.say(format!("You have asked for the state {count} times."));
}

fn progress(scenario: &mut Scenario<'_>) {
    let activity = format!("activity_{}", Uuid::now_v7().simple());
    let step = |kind: &str| json!({ "type": kind, "stepName": "look" });
    show_events(
        scenario,
        &[
            step("STEP_STARTED"),
            json!({
                "type": "ACTIVITY_SNAPSHOT", "messageId": activity, "activityType": "PLAN",
                "content": { "steps": ["look", "answer"], "done": 0 },
            }),
            step("STEP_FINISHED"),
            json!({
                "type": "ACTIVITY_DELTA", "messageId": activity, "activityType": "PLAN",
                "patch": [{ "op": "replace", "path": "/done", "value": 1 }],
            }),
            json!({ "type": "CUSTOM", "name": "demo", "value": { "mood": "good" } }),
        ],
    );
    scenario.say("I looked, and this is the answer.");
}

fn refusal(scenario: &mut Scenario<'_>) {
    let declined = Content::new(Body::Refusal("I am sorry, but I would rather not do that.".to_owned()));
    scenario.acts.push_back(Act::Show(MessageType::Message, Role::Assistant, vec![declined]));
}

fn warning(scenario: &mut Scenario<'_>) {
    scenario.acts.push_back(Act::Complain("TOOL_EXECUTION_FAILED", "one of two sources did not answer"));
    scenario.say("One of two sources did not answer; the other one says yes.");
}

fn unicode(scenario: &mut Scenario<'_>) {
    scenario.say(
        "Grüße, 世界! Привет мир, שלום עולם, مرحبا, नमस्ते. 👩‍👩‍👧‍👦 🇪🇺 e\u{301} 𝄞 \u{2028}\u{2029} \u{feff} \"quoted\" \\ back \
         \u{1f600}",
    );
}

fn history(scenario: &mut Scenario<'_>) {
    let history = scenario.history;
    let mut text = format!("This is message {} of yours in this session.", history.messages);
    if let Some(previous) = &history.previous {
        let _ = write!(text, " The first was: {} The one before this was: {}", history.first, previous);
    }
    scenario.say(text);
}

fn usage(scenario: &mut Scenario<'_>) {
    let said = scenario.asked.request.input.iter().map(|message| message.text().split_whitespace().count());
    scenario.usage = Some(said.sum());
}

fn heartbeat(scenario: &mut Scenario<'_>) {
    scenario.acts.push_back(Act::Heartbeat);
}

fn empty(scenario: &mut Scenario<'_>) {
    scenario.silent = true;
}

fn error(scenario: &mut Scenario<'_>) {
    scenario.silent = true;
    // As real servers report it, with internals: the gateway filters them.
    scenario.ending =
        Ending::Failing("AGENT_UNKNOWN_ERROR", "Unknown agent error: RuntimeError: you asked for an error");
}

fn fail(scenario: &mut Scenario<'_>) {
    scenario.begin("So far everything went well, but");
    scenario.ending = Ending::Failing("MODEL_EXECUTION_FAILED", "the model stopped working");
}

fn incomplete(scenario: &mut Scenario<'_>) {
    scenario.begin("There is more to be said, but the limit on");
    scenario.ending = Ending::As(End::Incomplete);
}

fn reject(scenario: &mut Scenario<'_>) {
    scenario.silent = true;
    scenario.ending = Ending::As(End::Rejected);
}

fn cancel(scenario: &mut Scenario<'_>) {
    scenario.begin("On second thought");
    scenario.ending = Ending::As(End::Canceled);
}

fn breaks(scenario: &mut Scenario<'_>) {
    scenario.begin("What no one expects is");
    scenario.ending = Ending::Breaking;
}
