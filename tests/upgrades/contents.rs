//! The list of everything that a written store contains, as the tests need it to find and answer it again.

use interlingua_testing_agents::ReceivedRequest;
use interlingua_testing_clients::{Open, Talk};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::pairs::{ALL_PROTOCOLS, Interrupt, Protocol};

/// The contents of one store.
#[derive(Serialize, Deserialize)]
pub(crate) struct Contents {
    /// Runs of the demo agent with open items.
    pub(crate) waiting: Vec<Waiting>,
    /// Runs of the demo agent that have ended.
    pub(crate) ended: Vec<EndedRun>,
    /// Conversations of clients that send their whole history.
    pub(crate) resent: Vec<Resent>,
    /// Conversations with scripted agents, one turn long.
    pub(crate) played: Vec<PlayedTurn>,
    /// All requests that the scripted agents received, so that they know their tasks and sessions again.
    pub(crate) received: Vec<ScriptedRequest>,
    pub(crate) push: Push,
    pub(crate) documents: Documents,
    /// The day on which the tokens were counted, in days since 1970.
    pub(crate) day: u64,
}

/// A run that waits for answers.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// The client protocol that began the run.
    pub(crate) protocol: String,
    /// The words of the user, which are a command of the demo agent.
    pub(crate) command: String,
    pub(crate) session: String,
    /// With the prefix of the Agent API.
    pub(crate) run: String,
    /// The ids of the open items, in the order in which the agent asked.
    pub(crate) items: Vec<String>,
}

impl Waiting {
    pub(crate) fn asker(&self) -> Protocol {
        protocol(&self.protocol)
    }

    /// One of the items, as the drivers of client protocols take it.
    pub(crate) fn interrupt(&self, item: usize) -> Interrupt {
        Interrupt { session: self.session.clone(), run: self.run.clone(), item: self.items[item].clone() }
    }
}

/// The client protocol of this name.
pub(crate) fn protocol(name: &str) -> Protocol {
    ALL_PROTOCOLS.into_iter().find(|protocol| protocol.name() == name).expect("a known protocol")
}

/// A run that has ended.
#[derive(Serialize, Deserialize)]
pub(crate) struct EndedRun {
    pub(crate) protocol: String,
    pub(crate) command: String,
    pub(crate) session: String,
    pub(crate) run: String,
    /// Such as `failed`.
    pub(crate) status: String,
    /// All texts of the run, as the Agent API shows it.
    pub(crate) texts: String,
    /// The code of the error. Empty: the run has none.
    pub(crate) code: String,
}

/// A conversation that its client sends as a whole with each request.
#[derive(Serialize, Deserialize)]
pub(crate) struct Resent {
    pub(crate) protocol: String,
    /// The session name of the client.
    pub(crate) name: String,
    /// The session of the gateway.
    pub(crate) session: String,
    /// The messages so far, in the form of the protocol.
    pub(crate) messages: Vec<Value>,
    /// The number of runs in the session.
    pub(crate) runs: usize,
}

/// The first turn of a scenario with a scripted agent.
#[derive(Serialize, Deserialize)]
pub(crate) struct PlayedTurn {
    /// The protocol of the agent.
    pub(crate) agent: String,
    pub(crate) scenario: String,
    pub(crate) client: String,
    /// The ids of the open items, as the Agent API shows them.
    pub(crate) items: Vec<String>,
    pub(crate) run: String,
    /// The session of the gateway.
    pub(crate) session: String,
    pub(crate) talk: StoredTalk,
}

/// The state of a scripted client.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTalk {
    agent: String,
    session: String,
    play: u32,
    last: String,
    open: Vec<(String, String)>,
    seen: usize,
    said: Vec<Value>,
    state: Value,
    declared: Vec<Value>,
}

impl StoredTalk {
    pub(crate) fn new(talk: &Talk) -> Self {
        Self {
            agent: talk.agent.clone(),
            session: talk.session.clone(),
            play: talk.mark.play,
            last: talk.last.clone(),
            open: talk.open.iter().map(|open| (open.id.clone(), open.what.clone())).collect(),
            seen: talk.seen,
            said: talk.said.clone(),
            state: talk.state.clone(),
            declared: talk.declared.clone(),
        }
    }

    /// The client, about to send its second turn.
    pub(crate) fn restore(&self) -> Talk {
        let mut talk = Talk::new(&self.agent, &self.session, self.play);
        talk.mark.turn = 1;
        talk.last.clone_from(&self.last);
        talk.open = self.open.iter().map(|(id, what)| Open { id: id.clone(), what: what.clone() }).collect();
        talk.seen = self.seen;
        talk.said.clone_from(&self.said);
        talk.state = self.state.clone();
        talk.declared.clone_from(&self.declared);
        talk
    }
}

/// A request that a scripted agent received.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ScriptedRequest {
    pub(crate) agent: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl ScriptedRequest {
    pub(crate) fn new(agent: &str, request: &ReceivedRequest) -> Self {
        // The agents read no other headers.
        let kept = ["host", "content-type", "a2a-version", "last-event-id"];
        let mut headers: Vec<_> = request
            .headers
            .iter()
            .filter(|(name, _)| kept.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        headers.sort_unstable();
        Self {
            agent: agent.to_owned(),
            method: request.method.clone(),
            path: request.path.clone(),
            headers,
            body: String::from_utf8(request.body.clone()).expect("the gateway sends text"),
        }
    }

    pub(crate) fn restore(&self) -> ReceivedRequest {
        ReceivedRequest {
            connection: 0,
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.iter().cloned().collect(),
            body: self.body.clone().into_bytes(),
        }
    }
}

/// Tasks with a push receiver.
#[derive(Serialize, Deserialize)]
pub(crate) struct Push {
    /// The address of the receiver while the store was written. Nothing listens there any more.
    pub(crate) receiver: String,
    /// A task that waits, and whose receiver was sent nothing yet.
    pub(crate) waiting: Waiting,
    /// The id of its push config.
    pub(crate) config: String,
}

/// Everything that clients keep at the gateway beside runs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Documents {
    /// A conversation of the Responses API.
    pub(crate) conversation: String,
    /// Its texts.
    pub(crate) items: Vec<String>,
    /// A stored response, which a client continues by its id.
    pub(crate) response: String,
    /// A stored completion of Chat Completions, with metadata.
    pub(crate) completion: String,
    /// A session of an agent whose history the gateway keeps: two messages of the user.
    pub(crate) kept_session: String,
    /// The tokens that caller `eve` has used.
    pub(crate) tokens: u64,
    /// The number of runs of caller `ann` with the demo agent, in all sessions.
    pub(crate) runs: u64,
    /// A run of caller `bob`.
    pub(crate) foreign: String,
}
