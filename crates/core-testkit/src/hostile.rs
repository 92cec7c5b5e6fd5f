//! Invalid answers of agents, the same for every connector: pages, errors inside of a 200, answers that break off,
//! events twice, out of order or unknown, bytes that are no text, huge arguments, refusals.
//!
//! Not here: errors that only one protocol can contain (its own tests), and the allowed hosts (the gateway's tests).

use super::{Answer, DrivenTurn, drive, grammar};
use interlingua_core::connector::{AgentTurn, Refusal};
use interlingua_core::fault::{Blame, Fault, FaultKind};
use interlingua_core::{End, Record};

/// A word that no client may read where a status is the matter of operator and agent.
const SECRET: &str = "hunter2";
const PAGE: &str = "<html>\n<body>502 Bad Gateway</body>\n\n</html>\n\n";
/// More than any turn may ask for.
const FURTHER: usize = 200;

/// A connector, and what a right answer looks like.
pub struct Hostile<'a> {
    /// Opens a turn with a word of the user.
    pub open: &'a dyn Fn() -> Box<dyn AgentTurn>,
    /// Answers to what it asks before it asks for the answer.
    pub before: Vec<Answer>,
    /// A whole answer that says something: an event stream, or a body.
    pub whole: Answer,
    /// The data of an event that no version of the protocol has. None: answers have no events.
    pub unknown: Option<&'a str>,
    /// An answer with a call that has these arguments. They are JSON without characters that need an escape twice.
    pub huge: &'a dyn Fn(&str) -> Answer,
}

impl Hostile<'_> {
    /// Plays everything.
    ///
    /// # Panics
    /// With the name of what the connector cannot cope with.
    pub fn check(&self) {
        self.refusals();
        self.wrong_answers();
        self.huge_arguments();
        match &self.whole {
            Answer::Stream(pieces) => self.streams(&pieces.concat()),
            Answer::Body(body) => self.cuts(body, &|bytes| Answer::Body(bytes.to_vec())),
            other => panic!("{other:?} is no answer"),
        }
    }

    /// The turn with an answer. Every further request of the turn fails.
    fn driven(&self, answer: Answer) -> DrivenTurn {
        let gone = || Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "the agent could not be reached"));
        let further = std::iter::repeat_with(gone).take(FURTHER);
        let driven = drive((self.open)().as_mut(), self.before.iter().cloned().chain([answer]).chain(further));
        assert_eq!(grammar(&driven.record), Ok(()));
        driven
    }

    fn fails(&self, name: &str, answer: Answer) {
        let record = self.driven(answer).record;
        assert_eq!(record.run().end, Some(End::Failed), "{name}: {}", super::render(&record));
        assert!(record.run().pending().is_empty(), "{name}");
        assert!(!run_texts(&record).contains("<html>"), "{name}");
    }

    fn refusals(&self) {
        for status in [301, 307, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 501, 502, 503, 504] {
            for body in [
                PAGE.replace("502", SECRET),
                format!(r#"{{"detail":"{SECRET}"}}"#),
                format!(r#"{{"error":{{"message":"{SECRET}","type":"strange"}}}}"#),
                String::new(),
                "x".repeat(1 << 20),
            ] {
                let refusal = Refusal { status, body: body.as_bytes(), retry_after: None };
                let fault = (self.open)().map_refusal(&refusal);
                let beginning: String = body.chars().take(60).collect();
                let name = format!("{status} {beginning}: {fault:?}");
                use FaultKind as K;
                let kinds: &[FaultKind] = match status {
                    301 | 307 | 404 | 405 | 501 => &[K::UpstreamMisconfigured],
                    401 | 403 => &[K::UpstreamCredentials],
                    408 | 504 => &[K::UpstreamTimeout],
                    409 => &[K::UpstreamRefused, K::Busy],
                    413 => &[K::UpstreamInputTooLarge],
                    415 => &[K::UpstreamUnsupportedMedia],
                    429 => &[K::UpstreamRateLimited],
                    503 => &[K::UpstreamOverloaded],
                    500 | 502 => &[K::AgentFailed],
                    _ => &[K::UpstreamRefused],
                };
                assert!(kinds.contains(&fault.kind), "{name}");
                assert_eq!(fault.upstream_status, Some(status), "{name}");
                // The client can do something about a session that is busy, and about nothing else.
                assert_eq!(fault.kind.blame() == Blame::Client, fault.kind == K::Busy, "{name}");
                let is_for_clients = refusal.is_about_the_request();
                assert!(is_for_clients || !fault.message.contains(SECRET), "{name}");
                assert!(fault.message.len() < 4096, "{name}");
                self.fails(&name, Answer::Fault(fault));
            }
        }
    }

    fn wrong_answers(&self) {
        for (name, text) in [
            ("a page", PAGE),
            ("an error", r#"{"error":{"message":"no luck","code":"bad"}}"#),
            ("an error of FastAPI", r#"{"detail":"no luck"}"#),
            ("nothing", ""),
            ("an object of nothing", "{}"),
            ("an object of something else", r#"{"status":"ok"}"#),
            ("a list", "[1,2]"),
            ("a number", "7"),
            ("a text", "\"x\""),
            ("no value", "null"),
            ("no end", "{\"a\":"),
        ] {
            self.fails(&format!("{name} as a body"), Answer::body(text));
            self.fails(&format!("{name} as a frame"), Answer::stream(&format!("data: {}\n\n", text.replace('\n', ""))));
            self.fails(&format!("{name} as a stream"), Answer::stream(text));
            self.fails(&format!("{name} that is cut"), Answer::Cut(vec![text.as_bytes().to_vec()]));
        }
        self.fails("bytes that are no text, as a body", Answer::Body(b"{\"text\":\"\xff\"}".to_vec()));
        self.fails("bytes that are no text, as a frame", Answer::Stream(vec![b"data: {\"\xff\":1}\n\n".to_vec()]));
    }

    fn huge_arguments(&self) {
        let arguments = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
        let record = self.driven((self.huge)(&arguments)).record;
        let found = record.run().messages.iter().any(|message| {
            let message = message.to_model();
            let asked = message.content.iter().filter_map(interlingua_core::model::Content::as_data);
            message.calls().any(|call| call.arguments == arguments)
                || asked.into_iter().any(|data| data.text().len() > arguments.len())
        });
        assert!(found, "huge arguments: {:?}", record.run().turns);
    }

    /// An answer that ends early has not ended well.
    fn cuts(&self, whole: &[u8], answer: &dyn Fn(&[u8]) -> Answer) {
        let expected = self.driven(self.whole.clone()).record;
        assert_eq!(expected.run().end, Some(End::Completed), "{}", super::render(&expected));
        let step = (whole.len() / 100).max(1);
        for at in (0..whole.len()).step_by(step) {
            let record = self.driven(answer(&whole[..at])).record;
            let end = record.run().end;
            assert!(end == Some(End::Failed) || run_texts(&record) == run_texts(&expected), "cut at {at}: {end:?}");
        }
    }

    fn streams(&self, whole: &[u8]) {
        self.cuts(whole, &|bytes| Answer::Cut(vec![bytes.to_vec()]));
        self.cuts(whole, &|bytes| Answer::Stream(vec![bytes.to_vec()]));
        let expected = run_texts(&self.driven(self.whole.clone()).record);
        let same = |name: &str, answer: Answer| {
            let record = self.driven(answer).record;
            assert_eq!((record.run().end, run_texts(&record)), (Some(End::Completed), expected.clone()), "{name}");
        };

        let text = std::str::from_utf8(whole).expect("text");
        same("the whole answer twice", Answer::stream(&text.repeat(2)));
        let frames: Vec<&str> = text.split_inclusive("\n\n").collect();
        if let Some(unknown) = self.unknown {
            let frame = format!("data: {unknown}\n\n");
            let mixed: String = frames
                .iter()
                .enumerate()
                .map(|(place, known)| match place {
                    0 => (*known).to_owned(),
                    _ => format!("{frame}{known}"),
                })
                .collect();
            same("unknown events", Answer::stream(&mixed));
        }
        let commented: String =
            frames.iter().map(|frame| format!(": beat\nid: 7\nretry: 1\nlater: x\n{frame}")).collect();
        same("comments and other fields", Answer::stream(&commented));

        // In any order: the grammar holds, which `driven` looks at.
        let reversed: String = frames.iter().rev().copied().collect();
        for frames in [reversed, frames.iter().skip(1).copied().collect(), frames.iter().step_by(2).copied().collect()]
        {
            let record = self.driven(Answer::stream(&frames)).record;
            assert!(record.run().end.is_some());
        }
        // Every frame twice: a text that comes again is a text, a message with a known id is no second one.
        let doubled: String = frames.iter().map(|frame| frame.repeat(2)).collect();
        let record = self.driven(Answer::stream(&doubled)).record;
        let mut ids: Vec<&str> = record.run().messages.iter().map(|message| message.id.as_str()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "ids twice");
    }
}

/// All texts of a run.
fn run_texts(record: &Record) -> String {
    record.run().messages.iter().map(|message| format!("{} {}\n", message.kind.as_str(), message.text())).collect()
}
