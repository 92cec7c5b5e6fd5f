//! Plays a scenario: sends what the client does, turn by turn, and collects what both ends got.

use std::collections::BTreeSet;

use interlingua_core_testkit::scenario::{ClientAct, Item, Mark, Scenario, Turn};
use interlingua_testing_agents::AnswerCut;
use interlingua_testing_clients::{Request, ScriptedClient, ShownTurn, Talk};

use crate::losses::ReportedLoss;
use crate::stand::{AGENT, Stand};
use crate::support::http::Exchange;

/// The outcome of a scenario.
pub(crate) struct PlayedScenario {
    pub(crate) turns: Vec<PlayedTurn>,
    /// So many chunks the agent's longest answer had.
    pub(crate) chunks: usize,
}

/// The outcome of one turn.
#[derive(Debug)]
pub(crate) struct PlayedTurn {
    /// The items that the client received.
    pub(crate) shown: ShownTurn,
    /// The items that the agent received. `None`: no request reached it.
    pub(crate) received: Option<Vec<Item>>,
    /// The losses that the gateway reported.
    pub(crate) reported: BTreeSet<ReportedLoss>,
    /// The answers as they came.
    pub(crate) answers: Vec<String>,
}

impl Stand {
    /// Plays a scenario. It stops early if the client has no item to answer, because the question was lost.
    pub(crate) async fn play(
        &self,
        client: &dyn ScriptedClient,
        scenario: &Scenario,
        cut: Option<AnswerCut>,
    ) -> PlayedScenario {
        let play = self.stage.open(scenario.clone(), cut);
        let mut talk = Talk::new(AGENT, &format!("{}-{}-{play}", client.protocol(), scenario.name), play);
        let mut turns: Vec<PlayedTurn> = Vec::new();
        for (number, turn) in scenario.turns.iter().enumerate() {
            talk.mark = Mark { play, turn: u32::try_from(number).expect("few turns") };
            if turn.client.iter().any(|act| act.answers().is_some()) && talk.open.is_empty() {
                break;
            }
            let played = self.play_turn(client, turn, &mut talk, turns.last_mut()).await;
            turns.push(played);
        }
        PlayedScenario { turns, chunks: self.stage.chunks(play) }
    }

    /// Plays one turn. A client that receives questions one by one answers those of the previous turn during it.
    async fn play_turn(
        &self,
        client: &dyn ScriptedClient,
        turn: &Turn,
        talk: &mut Talk,
        mut before: Option<&mut PlayedTurn>,
    ) -> PlayedTurn {
        let mut requests = requests(client, &turn.client);
        let last = requests.pop().expect("a turn has a request");
        for acts in requests {
            let one = self.exchange(client, &acts, talk).await;
            let before = before.as_mut().expect("an answer follows a question");
            before.shown.items.extend(one.shown.items);
            before.reported.extend(one.reported);
            before.answers.extend(one.answers);
        }
        let mut played = self.exchange(client, &last, talk).await;
        played.received = self.stage.received(talk.mark);
        played
    }

    pub(crate) async fn send(&self, request: &Request) -> Exchange {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(request.headers.iter().map(|(name, value)| (*name, value.as_str())));
        self.gateway.open(request.method, &request.path, &headers, request.body.as_bytes()).await
    }

    /// One request and its answer.
    async fn exchange(&self, client: &dyn ScriptedClient, acts: &[ClientAct], talk: &mut Talk) -> PlayedTurn {
        let request = client.request(acts, talk);
        let mut open = self.send(&request).await;
        let (status, answer) = read(&mut open, client.leaves_at()).await;
        let id = open.header("x-request-id").await.expect("every answer has an id");
        drop(open);
        let reported = self.log.lost_in(&id).await;
        PlayedTurn {
            shown: client.read(status, &answer, talk),
            received: None,
            reported: reported.into_iter().collect(),
            answers: vec![format!("{} {}\n{status} {answer}", request.path, request.body)],
        }
    }
}

/// Reads an answer to its end, or to the event at which the client leaves.
pub(crate) async fn read(open: &mut Exchange, leaves_at: Option<&str>) -> (u16, String) {
    let status = open.status().await;
    let is_stream = open.header("content-type").await.is_some_and(|kind| kind.starts_with("text/event-stream"));
    if !is_stream || open.header("content-length").await.is_some() {
        return (status, open.read_response().await.text().to_owned());
    }
    (status, read_events(open, |event| leaves_at.is_some_and(|word| event.contains(word))).await)
}

/// Reads a stream to its end, or until the reader has all it wants.
pub(crate) async fn read_events(open: &mut Exchange, has_all: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while let Some(event) = open.event().await {
        text.push_str(&event);
        text.push_str("\n\n");
        if has_all(&event) {
            break;
        }
    }
    text
}

/// The requests: all acts at once, or each answer alone.
fn requests(client: &dyn ScriptedClient, acts: &[ClientAct]) -> Vec<Vec<ClientAct>> {
    let is_alone = acts.iter().filter(|act| act.answers().is_some()).count() > 1
        && acts.iter().any(|act| client.answers_alone(act));
    if !is_alone {
        return vec![acts.to_vec()];
    }
    acts.iter().map(|act| vec![act.to(0)]).collect()
}
