//! Turns that are worked on without a connection of their client, in the form each client protocol has for that: they
//! are asked for until they are over, and streamed where that is possible, also after a cut at any event. However a
//! client comes to an answer, it is the answer that a client which stayed gets.

use interlingua_core_testkit::scenario::{AgentAct, ClientAct, Ending, Item, Mark, Scenario, Turn, find};
use interlingua_testing_agents::Stage;
use interlingua_testing_clients::{Background, End, ScriptedClient, ShownTurn, Talk};

use crate::play::read_events;
use crate::stand::{AGENT, Stand};
use crate::support::poll_until;
use crate::{Choice, is_whole};

/// The scenarios: each kind of content that may be read later, and each end.
const SCENARIOS: [&str; 9] = [
    "text",
    "two-messages",
    "reasoning",
    "parallel-agent-tools",
    "client-tool",
    "approval-accept",
    "usage",
    "incomplete",
    "failure-after-words",
];

/// An agent that waits in the middle of its words.
fn paused() -> Scenario {
    let agent = vec![AgentAct::Text(&["So ", "far."]), AgentAct::Wait, AgentAct::Text(&[" And ", "on."])];
    Scenario {
        name: "paused",
        turns: vec![Turn { client: vec![ClientAct::Say("hello")], agent, ending: Ending::Completed }],
    }
}

/// Plays turns in the background with this agent and every client that can.
pub(crate) async fn play(protocol: &str) {
    let choice = Choice::of_environment();
    if !choice.agent(protocol) {
        return;
    }
    let stand = Stand::start(interlingua_testing_agents::find(protocol)).await;
    for client in interlingua_testing_clients::all().iter().filter(|client| choice.client(client.protocol())) {
        let Some(background) = client.background() else { continue };
        let trial = Trial { stand: &stand, client: &**client, background };
        trial.look_while_it_works().await;
        for name in SCENARIOS.into_iter().filter(|name| choice.scenario(name)) {
            let mut scenario = find(name);
            scenario.turns.truncate(1);
            if stand.can_play(&**client, &scenario) {
                trial.look_when_it_is_over(&scenario).await;
            }
        }
    }
}

/// One pair.
struct Trial<'a> {
    stand: &'a Stand,
    client: &'a dyn ScriptedClient,
    background: &'a dyn Background,
}

impl Trial<'_> {
    /// The names of the pair and the scenario.
    fn named(&self, scenario: &Scenario) -> String {
        format!("{} ← {}, {:?}", self.client.protocol(), self.stand.agent.protocol(), scenario.name)
    }

    /// Begins a turn, and leaves it.
    async fn begin(&self, scenario: &Scenario) -> Talk {
        let play = self.stand.stage.open(scenario.clone(), None);
        let session = format!("{}-background-{play}", self.client.protocol());
        let mut talk = Talk::new(AGENT, &session, play);
        let request = self.background.begin(&scenario.turns[0].client, &talk);
        let mut open = self.stand.send(&request).await;
        let mark = Mark { play, turn: 0 };
        if self.background.is_answered() {
            let answer = open.read_response().await;
            assert_eq!(answer.status, 200, "{}: {}", self.named(scenario), answer.text());
            self.background.began(answer.text(), &mut talk);
        }
        poll_until("the agent to be asked", async || self.stand.stage.received(mark)).await;
        talk
    }

    /// Asks what has become of a turn. `None`: the agent is still at work, or the protocol cannot ask.
    async fn poll(&self, talk: &mut Talk) -> Option<ShownTurn> {
        let request = self.background.poll(talk)?;
        let answer = self.stand.send(&request).await.response().await;
        assert_eq!(answer.status, 200, "{}: {}", self.client.protocol(), answer.text());
        self.background.polled(answer.text(), talk)
    }

    /// The outcome of an ended turn: polled, or streamed by clients that cannot poll.
    async fn outcome(&self, talk: &mut Talk) -> ShownTurn {
        if self.background.poll(talk).is_none() {
            return self.follow("", talk).await.expect("what cannot be asked for is streamed");
        }
        poll_until("the run to be over", async || self.poll(talk).await).await
    }

    /// Streams a turn from where another stream was cut, to its end.
    async fn follow(&self, read: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let request = self.background.follow(read, talk)?;
        let mut open = self.stand.send(&request).await;
        assert_eq!(open.status().await, 200, "{} {}", request.path, request.body);
        let rest = read_events(&mut open, |_| false).await;
        Some(self.client.read(200, &self.background.join(read, &rest), &mut talk.clone()))
    }

    /// A turn whose agent waits: it is polled, streamed, cut, and streamed again.
    async fn look_while_it_works(&self) {
        let scenario = paused();
        let named = self.named(&scenario);
        let mut talk = self.begin(&scenario).await;
        assert_eq!(self.poll(&mut talk).await, None, "{named}: it is at work");

        let mut read = String::new();
        if let Some(request) = self.background.follow("", &talk) {
            let mut open = self.stand.send(&request).await;
            assert_eq!(open.status().await, 200, "{named}");
            if self.stand.agent.streams() {
                read = read_events(&mut open, |event| event.contains("far.")).await;
                assert!(read.contains("far."), "{named}: {read}");
            }
            drop(open);
        }

        let gate = Stage::gate(talk.mark.play);
        if let Some(request) = self.background.follow(&read, &talk) {
            let mut open = self.stand.send(&request).await;
            assert_eq!(open.status().await, 200, "{named}");
            self.stand.server.open(&gate);
            let rest = read_events(&mut open, |_| false).await;
            let shown = self.client.read(200, &self.background.join(&read, &rest), &mut talk.clone());
            assert_words(&shown, &format!("{named}, streamed: {read}…{rest}"));
        }
        self.stand.server.open(&gate);
        let shown = self.outcome(&mut talk).await;
        assert_words(&shown, &named);
    }

    /// A turn that is polled after its end, and then streamed from any event on.
    async fn look_when_it_is_over(&self, scenario: &Scenario) {
        let named = self.named(scenario);
        let stayed = self.stand.play(self.client, scenario, None).await;
        let stayed = &stayed.turns[0].shown;
        let mut talk = self.begin(scenario).await;
        let shown = self.outcome(&mut talk.clone()).await;
        let only = self.background.streamed_only();
        let kept: Vec<Item> = stayed.items.iter().filter(|item| !only.contains(&item.kind)).cloned().collect();
        assert_eq!(sorted(&shown.items), sorted(&kept), "{named}, asked for");
        assert_eq!(has_failed(&shown), has_failed(stayed), "{named}, asked for: {shown:?}, and not {stayed:?}");

        if !self.background.follows_ended() {
            return;
        }
        let Some(request) = self.background.follow("", &talk) else { return };
        let mut open = self.stand.send(&request).await;
        let whole = read_events(&mut open, |_| false).await;
        let events: Vec<&str> = whole.split_inclusive("\n\n").collect();
        let places = if is_whole() { (0..events.len()).collect() } else { vec![0, 1, events.len() / 2] };
        for place in places {
            let read = events[..place].concat();
            let followed = self.follow(&read, &mut talk).await.expect("it was followed");
            assert_eq!(sorted(&followed.items), sorted(&stayed.items), "{named}, streamed after {place} events");
            assert_eq!(has_failed(&followed), has_failed(stayed), "{named}, streamed after {place} events");
        }
    }
}

/// Fails unless an answer has all words of the agent that waited.
fn assert_words(shown: &ShownTurn, named: &str) {
    let words: String = shown.items.iter().map(|item| item.value.as_str()).collect();
    assert_eq!(words.replace('\n', ""), "So far. And on.", "{named}");
    assert_eq!(shown.end, Some(End::Completed), "{named}");
}

/// A turn that failed before it had an answer is refused where a client waits for it, and is a failed run afterwards.
fn has_failed(shown: &ShownTurn) -> Option<bool> {
    shown.end.map(|end| matches!(end, End::Failed | End::Refused(_)))
}

/// A whole answer may have another order.
fn sorted(items: &[Item]) -> Vec<Item> {
    let mut items = items.to_vec();
    items.sort();
    items
}
