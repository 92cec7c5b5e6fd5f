//! The state of a test's plays: the scenario of each request, the content that the agent received, and the cuts of
//! answers.
//!
//! Not here: the form of a protocol.

use std::collections::HashMap;
use std::sync::Mutex;

use interlingua_core_testkit::scenario::{Item, Mark, Scenario, Turn};
use serde_json::Value;

use crate::server::{ReceivedRequest, Reply};

/// Larger requests are not kept, in bytes.
const MAX_KEPT: usize = 64 << 10;

/// Where an agent's answer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerCut {
    /// So many chunks are sent.
    pub after: usize,
    /// Then the connection is reset. Otherwise it is closed.
    pub is_reset: bool,
}

/// All scenarios that are being played.
#[derive(Default)]
pub struct Stage {
    plays: Mutex<HashMap<u32, Playing>>,
}

struct Playing {
    scenario: Scenario,
    received: HashMap<u32, Vec<Item>>,
    /// Bodies of requests that are no larger than [`MAX_KEPT`].
    requests: Vec<Value>,
    /// Values that an agent stored, by name: the sessions of its protocol.
    notes: HashMap<String, String>,
    /// Cuts the next answer.
    cut: Option<AnswerCut>,
    /// Chunks of the longest answer so far.
    chunks: usize,
    /// The mark whose answer is being made.
    is_current: bool,
}

impl Stage {
    /// Opens a play of a scenario. Returns its number.
    pub fn open(&self, scenario: Scenario, cut: Option<AnswerCut>) -> u32 {
        let mut plays = self.plays.lock().expect("no player panics");
        let number = u32::try_from(plays.len()).expect("few plays");
        let playing = Playing {
            scenario,
            received: HashMap::new(),
            requests: Vec::new(),
            notes: HashMap::new(),
            cut,
            chunks: 0,
            is_current: false,
        };
        plays.insert(number, playing);
        number
    }

    /// The gate of the server at which an agent waits in a play.
    #[must_use]
    pub fn gate(play: u32) -> String {
        format!("gate of play {play}")
    }

    /// The content that the agent received in a turn of a play. `None`: no request reached it.
    pub fn received(&self, mark: Mark) -> Option<Vec<Item>> {
        self.playing(mark.play, |playing| playing.received.get(&mark.turn).cloned()).flatten()
    }

    /// The bodies of all requests of a play but the first one, in order.
    pub fn requests(&self, play: u32) -> Vec<Value> {
        self.playing(play, |playing| playing.requests.iter().skip(1).cloned().collect()).unwrap_or_default()
    }

    /// Keeps a request that has a mark in its body.
    pub(crate) fn keep_request(&self, request: &ReceivedRequest) {
        if request.body.len() > MAX_KEPT {
            return;
        }
        if let Some(mark) = Mark::last_in(&request.body)
            && let Ok(body) = serde_json::from_slice(&request.body)
        {
            self.keep(mark, body);
        }
    }

    /// Keeps a request without a mark, whose turn its agent knows.
    pub(crate) fn keep_unmarked(&self, request: &ReceivedRequest, mark: Mark) {
        if Mark::last_in(&request.body).is_none()
            && let Ok(body) = serde_json::from_slice(&request.body)
        {
            self.keep(mark, body);
        }
    }

    fn keep(&self, mark: Mark, body: Value) {
        self.playing(mark.play, |playing| playing.requests.push(body));
    }

    /// The first turn of the play in which an agent noted this session.
    pub(crate) fn of_session(&self, session: &str) -> Option<Mark> {
        let plays = self.plays.lock().expect("no player panics");
        let found = plays.iter().find(|(_, playing)| playing.notes.get("session").is_some_and(|own| own == session));
        found.map(|(play, _)| Mark { play: *play, turn: 0 })
    }

    /// The number of chunks of a play's longest answer, without cuts.
    pub fn chunks(&self, play: u32) -> usize {
        self.playing(play, |playing| playing.chunks).unwrap_or(0)
    }

    /// The turn that a request belongs to, by the last mark in its body, or else in its path.
    pub fn play(&self, request: &ReceivedRequest) -> Option<Play<'_>> {
        let mark = Mark::last_in(&request.body).or_else(|| Mark::last_in(request.path.as_bytes()))?;
        self.at(mark)
    }

    /// A turn by its mark, for agents that know it from elsewhere.
    pub fn at(&self, mark: Mark) -> Option<Play<'_>> {
        let turn = self.playing(mark.play, |playing| {
            playing.is_current = true;
            playing.scenario.turns.get(mark.turn as usize).cloned()
        });
        Some(Play { stage: self, mark, turn: turn.flatten()? })
    }

    /// A turn by its mark, of a request whose reply is not the agent's answer: no cut is meant for it.
    pub fn peek(&self, mark: Mark) -> Option<Play<'_>> {
        let turn = self.playing(mark.play, |playing| playing.scenario.turns.get(mark.turn as usize).cloned());
        Some(Play { stage: self, mark, turn: turn.flatten()? })
    }

    /// The reply, cut according to its play.
    pub(crate) fn cut(&self, reply: Reply) -> Reply {
        let mut plays = self.plays.lock().expect("no player panics");
        let Some(playing) = plays.values_mut().find(|playing| playing.is_current) else { return reply };
        playing.is_current = false;
        playing.chunks = playing.chunks.max(reply.chunks());
        match playing.cut.take() {
            Some(cut) if cut.after < reply.chunks() => reply.cut_after(cut.after, cut.is_reset),
            _ => reply,
        }
    }

    fn playing<T>(&self, play: u32, read: impl FnOnce(&mut Playing) -> T) -> Option<T> {
        self.plays.lock().expect("no player panics").get_mut(&play).map(read)
    }
}

/// One turn that is being played.
pub struct Play<'a> {
    stage: &'a Stage,
    /// Its place.
    pub mark: Mark,
    /// The turn's acts.
    pub turn: Turn,
}

impl Play<'_> {
    /// Says what the request has for the agent. Several requests of one turn add up; the same item twice counts once.
    pub fn received(&self, items: impl IntoIterator<Item = Item>) {
        self.stage.playing(self.mark.play, |playing| {
            let received = playing.received.entry(self.mark.turn).or_default();
            for item in items {
                if !received.contains(&item) {
                    received.push(item);
                }
            }
        });
    }

    /// The user's words without the mark, if they belong to this turn.
    #[must_use]
    pub fn words<'t>(&self, text: &'t str) -> Option<&'t str> {
        let is_mine = Mark::last_in(text.as_bytes()) == Some(self.mark);
        Mark::without(text).filter(|_| is_mine)
    }

    /// An id for a call or a question with this name.
    #[must_use]
    pub fn id(&self, name: &str) -> String {
        self.mark.id(name)
    }

    /// The gate of the server at which an agent waits in this play.
    #[must_use]
    pub fn gate(&self) -> String {
        Stage::gate(self.mark.play)
    }

    /// True if a request names the session that was [noted](Self::note) in an earlier turn, or its body has what was
    /// said then. Only of turns that need it: all but the first.
    #[must_use]
    pub fn remembers(&self, request: &ReceivedRequest, session: &str) -> bool {
        self.mark.turn > 0
            && (self.mark.earlier_in(&request.body)
                || (!session.is_empty() && self.noted("session").as_deref() == Some(session)))
    }

    /// Notes something for later requests of the same play, such as its session.
    pub fn note(&self, name: &str, value: &str) {
        self.stage.playing(self.mark.play, |playing| playing.notes.insert(name.to_owned(), value.to_owned()));
    }

    /// A stored value.
    #[must_use]
    pub fn noted(&self, name: &str) -> Option<String> {
        self.stage.playing(self.mark.play, |playing| playing.notes.get(name).cloned()).flatten()
    }
}
