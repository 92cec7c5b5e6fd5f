//! The scenarios.

use std::iter;
use std::sync::LazyLock;

use super::{AgentAct as A, Ask, Call, ClientAct as C, Ending, Media, Scenario, Tool, Turn};
use interlingua_core::pending::Decision;

const HELLO: C = C::Say("hello");
const DONE: A = A::Text(&["It is ", "done."]);
const WEATHER: Tool = Tool {
    name: "weather",
    description: "The weather of a city.",
    parameters: r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#,
};
const PARIS: Call = Call { name: "a", tool: "weather", arguments: &[r#"{"city":"#, r#""Paris"}"#] };
const ROME: Call = Call { name: "b", tool: "weather", arguments: &[r#"{"city":"Rome"}"#] };
const MAIL: Call = Call { name: "a", tool: "send_mail", arguments: &[r#"{"to":"ada@example.com"}"#] };
const WIPE: Call = Call { name: "b", tool: "wipe_disk", arguments: &[r#"{"disk":"sda"}"#] };
const COLOUR: &str = r#"{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}"#;

const PICTURE: Media = Media::Image("https://example.com/picture.png");
/// The head of an empty WAV file.
const SOUND: Media = Media::Audio("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=");
const VIDEO: Media = Media::Video("https://example.com/video.mp4");
const PAPER: Media = Media::File("https://example.com/paper.pdf", "paper.pdf");
const DATA: Media = Media::Data(r#"{"points":[1,2,3]}"#);

/// Arguments of 1 MiB, in pieces of 64 KiB.
static LARGE_PIECES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let piece: &str = "0123456789abcdef".repeat(4096).leak();
    iter::once(r#"{"text":""#).chain(iter::repeat_n(piece, 16)).chain([r#""}"#]).collect()
});

/// Others of the same size.
static LARGE: LazyLock<&'static str> = LazyLock::new(|| LARGE_PIECES.concat().replace('f', "g").leak());

/// A turn that ends well.
fn turn(client: &[C], agent: &[A]) -> Turn {
    ended(client, agent, Ending::Completed)
}

fn ended(client: &[C], agent: &[A], ending: Ending) -> Turn {
    Turn { client: client.to_vec(), agent: agent.to_vec(), ending }
}

fn scenario(name: &'static str, turns: Vec<Turn>) -> Scenario {
    Scenario { name, turns }
}

/// The scenario of this name.
///
/// # Panics
/// No scenario has this name.
#[must_use]
pub fn find(name: &str) -> Scenario {
    scenarios().into_iter().find(|scenario| scenario.name == name).unwrap_or_else(|| panic!("no scenario {name:?}"))
}

/// Every scenario.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    [words(), tools(), questions(), media(), ends(), requests(), large()].concat()
}

/// Text and the content beside it.
fn words() -> Vec<Scenario> {
    vec![
        scenario("text", vec![turn(&[HELLO], &[A::Text(&["Hel", "lo ", "there."])])]),
        scenario("two-messages", vec![turn(&[HELLO], &[A::Text(&["One."]), A::Text(&["Two", "."])])]),
        scenario(
            "unicode",
            vec![turn(
                &[C::Say("Grüße\n\u{1F44B}")],
                &[A::Text(&["Zwei\r\n", "Zeilen\n\n", "\u{1F30D} \"und\" \\ \t\u{2028}!"])],
            )],
        ),
        scenario("reasoning", vec![turn(&[HELLO], &[A::Reasoning(&["Let me ", "think."]), DONE])]),
        scenario("refusal", vec![turn(&[HELLO], &[A::Refusal(&["I will ", "not."])])]),
        scenario("citation", vec![turn(&[HELLO], &[DONE, A::Cite("https://example.com/source", "A source")])]),
        scenario("usage", vec![turn(&[HELLO], &[DONE, A::Usage(7, 3)])]),
        scenario("state", vec![turn(&[HELLO], &[A::State(r#"{"step":1}"#), DONE])]),
        scenario("unknown-events", vec![turn(&[HELLO], &[A::Unknown, DONE, A::Unknown])]),
        scenario("empty", vec![turn(&[HELLO], &[])]),
    ]
}

/// Tools of the agent and of the client.
fn tools() -> Vec<Scenario> {
    let ask = [C::Say("What is the weather?"), C::Declare(WEATHER)];
    vec![
        scenario("agent-tool", vec![turn(&[HELLO], &[A::Call(PARIS), A::Result("a", "18 C", false), DONE])]),
        scenario(
            "text-around-a-tool",
            vec![turn(
                &[HELLO],
                &[
                    A::Text(&["Let me ", "see."]),
                    A::Call(PARIS),
                    A::Result("a", "18 C", false),
                    A::Text(&["Warm", "."]),
                ],
            )],
        ),
        scenario(
            "three-messages-and-thoughts",
            vec![turn(
                &[HELLO],
                &[
                    A::Text(&["One."]),
                    A::Reasoning(&["And ", "then?"]),
                    A::Text(&["Two."]),
                    A::Call(PARIS),
                    A::Result("a", "18 C", false),
                    A::Text(&["Three."]),
                ],
            )],
        ),
        scenario(
            "failing-agent-tool",
            vec![turn(&[HELLO], &[A::Call(PARIS), A::Result("a", "no such city", true), DONE])],
        ),
        scenario(
            "parallel-agent-tools",
            vec![turn(
                &[HELLO],
                &[A::Call(PARIS), A::Call(ROME), A::Result("b", "21 C", false), A::Result("a", "18 C", false), DONE],
            )],
        ),
        scenario("client-tool", vec![turn(&ask, &[A::ClientCall(PARIS)]), turn(&[C::Output(0, "18 C")], &[DONE])]),
        scenario(
            "client-tool-with-picture",
            vec![
                turn(&ask, &[A::ClientCall(PARIS)]),
                turn(&[C::Picture(0, "A map.", "https://example.com/picture.png")], &[DONE]),
            ],
        ),
        scenario(
            "failing-client-tool",
            vec![turn(&ask, &[A::ClientCall(PARIS)]), turn(&[C::Fail(0, "no such city")], &[DONE])],
        ),
        scenario(
            "one-of-two-client-tools-fails",
            vec![
                turn(&ask, &[A::ClientCall(PARIS), A::ClientCall(ROME)]),
                turn(&[C::Output(0, "18 C"), C::Fail(1, "no such city")], &[DONE]),
            ],
        ),
        scenario(
            "parallel-client-tools",
            vec![
                turn(&ask, &[A::ClientCall(PARIS), A::ClientCall(ROME)]),
                turn(&[C::Output(0, "18 C"), C::Output(1, "21 C")], &[DONE]),
            ],
        ),
        scenario(
            "client-tool-after-thoughts",
            vec![
                turn(&ask, &[A::Reasoning(&["Let me ", "look."]), A::ClientCall(PARIS)]),
                turn(&[C::Output(0, "18 C")], &[DONE]),
            ],
        ),
        scenario(
            "client-tool-after-text",
            vec![turn(&ask, &[A::Text(&["Let me see."]), A::ClientCall(ROME)]), turn(&[C::Output(0, "21 C")], &[DONE])],
        ),
    ]
}

/// Decisions and answers of a person.
fn questions() -> Vec<Scenario> {
    let approval =
        |name, answer| scenario(name, vec![turn(&[HELLO], &[A::Ask(Ask::Approval(MAIL))]), turn(&[answer], &[DONE])]);
    let question = |name, schema, answer| {
        let ask = A::Ask(Ask::Question("a", "Which colour?", schema));
        scenario(name, vec![turn(&[HELLO], &[ask]), turn(&[answer], &[DONE])])
    };
    vec![
        approval("approval-accept", C::Decide(0, Decision::Accept)),
        approval("approval-reject", C::Decide(0, Decision::Reject)),
        approval("approval-cancel", C::Decide(0, Decision::Cancel)),
        approval("approval-edit", C::Edit(0, r#"{"to":"grace@example.com"}"#)),
        approval("approval-respond", C::Respond(0, "Ask her by phone.")),
        scenario(
            "two-approvals",
            vec![
                turn(&[HELLO], &[A::Ask(Ask::Approval(MAIL)), A::Ask(Ask::Approval(WIPE))]),
                turn(&[C::Decide(0, Decision::Accept), C::Decide(1, Decision::Reject)], &[DONE]),
            ],
        ),
        question("question-with-schema", Some(COLOUR), C::Answer(0, r#"{"colour":"blue"}"#)),
        question("question", None, C::Answer(0, "blue")),
        scenario(
            "login",
            vec![
                turn(&[HELLO], &[A::Ask(Ask::Login("a", "https://example.com/login"))]),
                turn(&[C::LoggedIn(0)], &[DONE]),
            ],
        ),
    ]
}

/// Media in both directions.
fn media() -> Vec<Scenario> {
    let sent = |name, media| scenario(name, vec![turn(&[C::Say("Look."), C::Attach(media)], &[DONE])]);
    let shown = |name, media| scenario(name, vec![turn(&[HELLO], &[A::Show(media)])]);
    vec![
        sent("image-in", PICTURE),
        sent("audio-in", SOUND),
        sent("video-in", VIDEO),
        sent("file-in", PAPER),
        sent("data-in", DATA),
        shown("image-out", PICTURE),
        shown("audio-out", SOUND),
        shown("video-out", VIDEO),
        shown("file-out", PAPER),
        shown("data-out", DATA),
    ]
}

/// Answers that do not end well.
fn ends() -> Vec<Scenario> {
    let refused = |name, status| scenario(name, vec![ended(&[HELLO], &[], Ending::Refused(status))]);
    let words = A::Text(&["So far."]);
    vec![
        scenario("incomplete", vec![ended(&[HELLO], &[words], Ending::Incomplete("max_output_tokens"))]),
        refused("refused-400", 400),
        refused("refused-401", 401),
        refused("refused-403", 403),
        refused("refused-404", 404),
        refused("refused-408", 408),
        refused("refused-409", 409),
        refused("refused-413", 413),
        refused("refused-422", 422),
        refused("refused-429", 429),
        refused("refused-500", 500),
        refused("refused-502", 502),
        refused("refused-503", 503),
        refused("refused-504", 504),
        refused("refused-529", 529),
        scenario("failure-at-once", vec![ended(&[HELLO], &[], Ending::Failed("it broke"))]),
        scenario("failure-after-words", vec![ended(&[HELLO], &[words], Ending::Failed("it broke"))]),
        scenario("failure-within-a-call", vec![ended(&[HELLO], &[A::Call(PARIS)], Ending::Failed("it broke"))]),
        scenario("broken-off", vec![ended(&[HELLO], &[words], Ending::BrokenOff)]),
        scenario(
            "after-a-failure",
            vec![ended(&[HELLO], &[words], Ending::Failed("it broke")), turn(&[C::Say("Again.")], &[DONE])],
        ),
    ]
}

/// Parts of requests beside text.
fn requests() -> Vec<Scenario> {
    vec![
        scenario(
            "memory",
            vec![turn(&[HELLO], &[DONE]), turn(&[C::Say("And now?"), C::Remember], &[A::Text(&["Still here."])])],
        ),
        scenario("instructions", vec![turn(&[C::Instruct("Be brief."), HELLO], &[DONE])]),
        scenario("sampling", vec![turn(&[C::Temperature, HELLO], &[DONE])]),
    ]
}

/// Arguments and outputs of 1 MiB, in both directions.
fn large() -> Vec<Scenario> {
    let call = Call { name: "a", tool: "write_file", arguments: &LARGE_PIECES };
    let write = Tool {
        name: "write_file",
        description: "Writes a file.",
        parameters: r#"{"type":"object","properties":{"text":{"type":"string"}}}"#,
    };
    vec![
        scenario("large-agent-tool", vec![turn(&[HELLO], &[A::Call(call), A::Result("a", &LARGE, false), DONE])]),
        scenario(
            "large-client-tool",
            vec![
                turn(&[C::Say("Write."), C::Declare(write)], &[A::ClientCall(call)]),
                turn(&[C::Output(0, &LARGE)], &[DONE]),
            ],
        ),
        scenario(
            "large-approval",
            vec![turn(&[HELLO], &[A::Ask(Ask::Approval(call))]), turn(&[C::Edit(0, &LARGE)], &[DONE])],
        ),
    ]
}
