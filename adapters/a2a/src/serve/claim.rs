//! Claims of messages: of requests that send one message at the same moment, only one starts a task, or a turn of one.
//!
//! A search finds nothing that another request is about to start. So each request claims its message before it starts
//! a turn, searches again, and then starts it or waits. The engine deletes the claim once the turn can be found
//! ([`RunCall::claim`]). A claim that stands too long was left by a request that is lost, and is taken over.
//!
//! Not here: the search, and what is sent for a duplicate (`super::send`).

use std::time::Duration;

use interlingua_core::call::{CLAIMS, DocumentCall, Replaces, RunCall, RunClaim};
use interlingua_core::{Call, Fault, FaultKind, Json, RunId};

use crate::wire::Message;

/// The first wait for the request that has claimed the message. Each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(25);
/// The longest one.
const MAX_WAIT: Duration = Duration::from_millis(400);
/// A claim that stands this long is taken over. Measured here, because clocks of gateways differ.
const TAKEOVER_AFTER: Duration = Duration::from_secs(10);
/// Maximum waiting time of a request.
const MAX_TOTAL_WAIT: Duration = Duration::from_secs(25);

/// The state of a request that claims its message.
pub(super) enum ClaimStage {
    /// Claiming it.
    Putting(MessageClaim),
    /// Searching once more for a duplicate. True: the message is claimed.
    Verifying(MessageClaim, bool),
    /// Waiting for the request that has claimed the message.
    Waiting(MessageClaim),
    /// Withdrawing the claim, because the task takes no turn any more. This is the error of the request.
    Refusing(Fault),
    /// Withdrawing the claim, because this task has the message, in this turn.
    Withdrawing(RunId, u32),
    /// Loading that task.
    LoadingDuplicate(u32),
}

/// A request's claim of its message, or its attempts at one.
pub(super) struct MessageClaim {
    own: RunClaim,
    /// The claim that is in the way, and for how long it has been.
    other: Option<(Json, Duration)>,
    next_wait: Duration,
    waited: Duration,
    /// Starts the turn.
    pub(super) run: Box<RunCall>,
}

impl MessageClaim {
    /// A claim with the request's id.
    ///
    /// # Errors
    /// The message has no context, so no other one is its duplicate: the run, to start it without a claim.
    pub(super) fn new(message: &Message<'_>, id: RunId, run: Box<RunCall>) -> Result<Self, Box<RunCall>> {
        let Some(context) = message.context.as_deref() else { return Err(run) };
        let key = key(&run.agent, context, &message.id);
        let own = RunClaim { key, value: Json::from_serialize(&id.to_string()) };
        Ok(Self { own, other: None, next_wait: FIRST_WAIT, waited: Duration::ZERO, run })
    }

    /// Claims the message. Answered with nothing, or with the claim of another request.
    pub(super) fn put(&self) -> Call {
        let replaces = match &self.other {
            Some((other, stood)) if *stood >= TAKEOVER_AFTER => Replaces::Value(other.clone()),
            _ => Replaces::Nothing,
        };
        Call::Document(DocumentCall::Put {
            collection: CLAIMS.to_owned(),
            key: self.own.key.clone(),
            value: self.own.value.clone(),
            replaces,
        })
    }

    /// Withdraws the claim.
    pub(super) fn delete(&self) -> Call {
        Call::Document(DocumentCall::Delete { collection: CLAIMS.to_owned(), key: self.own.key.clone() })
    }

    /// Notes the claim that is in the way. None: it is gone again.
    pub(super) fn see(&mut self, found: &[(String, Json)]) {
        let known = self.other.take();
        self.other = found.first().map(|(_, other)| {
            let stood = known.filter(|(known, _)| known == other).map_or(Duration::ZERO, |(_, stood)| stood);
            (other.clone(), stood)
        });
    }

    /// Waits for the request that has the claim.
    ///
    /// # Errors
    /// It has waited for long enough.
    pub(super) fn wait(&mut self) -> Result<Call, Fault> {
        if self.waited >= MAX_TOTAL_WAIT {
            let message = "other requests send the same message and have not started a task yet: send it again later";
            return Err(Fault::new(FaultKind::Overloaded, message));
        }

        let wait = self.next_wait;
        self.next_wait = (wait * 2).min(MAX_WAIT);
        self.waited += wait;
        if let Some((_, stood)) = &mut self.other {
            *stood += wait;
        }
        Ok(Call::Wait(wait))
    }

    /// Starts the turn that was claimed. `newer`: as prepared since then.
    pub(super) fn start(self, newer: Option<Box<RunCall>>) -> Call {
        let mut run = newer.unwrap_or(self.run);
        run.claim = Some(self.own);
        Call::Run(run)
    }
}

/// A short key: the texts may be long, and hold anything. Two messages with one key only wait for each other.
fn key(agent: &str, context: &str, message: &str) -> String {
    let texts = [agent, context, message];
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
    // FNV-1a: the same in every version of the gateway. 0xff is in no text, and separates them.
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("a2a/{hash:016x}")
}

#[cfg(test)]
mod tests {
    use interlingua_core::model::AgentRequest;

    use super::*;

    const CONTEXT: &str = "c";

    fn claim() -> MessageClaim {
        let run = RunCall::new("demo", AgentRequest::default());
        let id = RunId::parse("01930000-0000-7000-8000-000000000001").expect("an id");
        let message = Message { context: Some(CONTEXT.into()), ..Message::agent("m", Vec::new()) };
        MessageClaim::new(&message, id, Box::new(run)).unwrap_or_else(|_| panic!("it has a context"))
    }

    fn replaces(claim: &MessageClaim) -> Replaces {
        match claim.put() {
            Call::Document(DocumentCall::Put { replaces, .. }) => replaces,
            other => panic!("{other:?}"),
        }
    }

    fn other(name: &str) -> Vec<(String, Json)> {
        vec![("key".to_owned(), Json::from_serialize(&name))]
    }

    #[test]
    fn an_unchanged_claim_is_taken_over_and_a_changing_one_is_not() {
        let mut claim = claim();
        assert_eq!(replaces(&claim), Replaces::Nothing);
        for attempt in 0..40 {
            claim.see(&other(if attempt % 20 == 0 { "first" } else { "second" }));
            assert_eq!(replaces(&claim), Replaces::Nothing, "attempt {attempt}");
            claim.wait().expect("a wait");
        }

        let mut claim = self::claim();
        while replaces(&claim) == Replaces::Nothing {
            claim.see(&other("lost"));
            claim.wait().expect("a wait");
        }
        assert_eq!(replaces(&claim), Replaces::Value(Json::from_serialize(&"lost")));
        assert!(claim.waited >= TAKEOVER_AFTER && claim.waited < TAKEOVER_AFTER + MAX_WAIT);
    }

    #[test]
    fn a_request_has_a_limit_for_waiting() {
        let mut claim = claim();
        let refused = loop {
            claim.see(&other(&format!("{:?}", claim.waited)));
            match claim.wait() {
                Ok(Call::Wait(wait)) => assert!(wait <= MAX_WAIT),
                Ok(call) => panic!("{call:?}"),
                Err(fault) => break fault,
            }
        };
        assert_eq!(refused.kind, FaultKind::Overloaded);
        assert!(claim.waited < MAX_TOTAL_WAIT + MAX_WAIT);
    }

    #[test]
    fn different_messages_have_different_keys() {
        assert_eq!(key("a", "c", "m"), key("a", "c", "m"));
        for other in [key("b", "c", "m"), key("a", "cm", ""), key("a", "", "cm"), key("ac", "", "m")] {
            assert_ne!(key("a", "c", "m"), other);
        }
    }
}
