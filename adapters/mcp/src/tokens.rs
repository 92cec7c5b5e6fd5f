//! Sealed tokens that clients keep and send back: ids of sessions, ids of questions, and `requestState`
//! (docs/protocols/mcp.md#tokens).
//!
//! A token belongs to its caller and its kind: the seal covers both. So nothing is stored, and every replica opens the
//! tokens of the others. Not here: whether a session was ended, and whether an item is still open.

use std::time::Duration;

use interlingua_core::call::RunView;
use interlingua_core::event::Millis;
use interlingua_core::owner::Owner;
use interlingua_core::seal::Sealer;
use interlingua_core::{Fault, Request, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::forms::{self, Modes};
use crate::revision::Revision;

/// Maximum length of the id of a session or a question, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Maximum length of `requestState` in bytes.
const MAX_STATE_BYTES: usize = 4 * 1024;

/// Seals tokens for one caller: an exchange keeps it, because streams write questions after the request was read.
#[derive(Clone, Debug)]
pub(crate) struct Seals {
    sealer: Sealer,
    owner: Owner,
}

impl From<&Request<'_>> for Seals {
    fn from(request: &Request<'_>) -> Self {
        Self { sealer: request.sealer.clone(), owner: request.caller.owner.clone() }
    }
}

/// The reason why a token does not open.
#[derive(Debug)]
pub(crate) enum TokenError {
    /// It was changed, belongs to another caller, or is of another kind.
    Invalid,
    /// It is too old.
    Expired,
    /// The gateway cannot open tokens now.
    Unavailable(Fault),
}

impl Seals {
    #[cfg(test)]
    pub(crate) const fn new(sealer: Sealer, owner: Owner) -> Self {
        Self { sealer, owner }
    }

    fn seal<T: Serialize>(&self, purpose: &str, data: &T) -> Result<String, Fault> {
        let data = serde_json::to_vec(data).map_err(|error| Fault::internal().with_source(error))?;
        self.sealer.seal(purpose, &self.owner, &data)
    }

    fn open<T: DeserializeOwned>(&self, purpose: &str, text: &str, max: usize) -> Result<T, TokenError> {
        if text.len() > max {
            return Err(TokenError::Invalid);
        }
        let data = self.sealer.open(purpose, &self.owner, text).map_err(TokenError::Unavailable)?;
        data.and_then(|data| serde_json::from_slice(&data).ok()).ok_or(TokenError::Invalid)
    }
}

/// The id of a session, `Mcp-Session-Id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionToken {
    /// The revision that the handshake agreed on.
    pub(crate) revision: Revision,
    /// The forms of questions that the client has declared.
    pub(crate) modes: Modes,
    /// The time of the handshake.
    pub(crate) created_at: Millis,
    /// Distinguishes the sessions of a caller.
    pub(crate) id: String,
}

#[derive(Serialize, Deserialize)]
struct SealedSession {
    v: String,
    f: bool,
    u: bool,
    t: Millis,
    i: String,
}

impl SessionToken {
    const PURPOSE: &str = "mcp/session";

    /// Seals the token.
    ///
    /// # Errors
    /// The store has not been reached since the gateway was started.
    pub(crate) fn seal(&self, seals: &Seals) -> Result<String, Fault> {
        let revision = self.revision.as_str().to_owned();
        let Modes { form, url } = self.modes;
        let sealed = SealedSession { v: revision, f: form, u: url, t: self.created_at, i: self.id.clone() };
        seals.seal(Self::PURPOSE, &sealed)
    }

    /// Opens a token that is at most `ttl` old.
    ///
    /// # Errors
    /// The reason why it does not open.
    pub(crate) fn open(seals: &Seals, text: &str, now: Millis, ttl: Duration) -> Result<Self, TokenError> {
        let sealed: SealedSession = seals.open(Self::PURPOSE, text, MAX_ID_BYTES)?;
        let revision = Revision::parse(&sealed.v).ok_or(TokenError::Invalid)?;
        if later(sealed.t, ttl) <= now {
            return Err(TokenError::Expired);
        }
        let modes = Modes { form: sealed.f, url: sealed.u };
        Ok(Self { revision, modes, created_at: sealed.t, id: sealed.i })
    }
}

/// The state of a call that was answered with questions, `requestState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateToken {
    /// The first run of the call.
    #[serde(rename = "r")]
    pub(crate) run: RunId,
    /// The run that asks: another one if the first run was answered over another protocol.
    #[serde(rename = "b")]
    pub(crate) asked_by: RunId,
    /// The turn that asks ([`forms::asking_turn`]).
    #[serde(rename = "t")]
    pub(crate) turn: usize,
    /// The digest of the tool and its arguments.
    #[serde(rename = "d")]
    pub(crate) digest: String,
    /// When the state expires.
    #[serde(rename = "e")]
    pub(crate) expires_at: Millis,
    /// Number of times that these questions were asked before.
    #[serde(rename = "n")]
    pub(crate) round: u32,
}

impl StateToken {
    const PURPOSE: &str = "mcp/state";

    /// The state of a call whose questions are asked for the first time. `asked`: the run that asks.
    pub(crate) fn new(run: RunId, asked: RunView<'_>, digest: String, now: Millis, ttl: Duration) -> Self {
        let (asked_by, turn) = (asked.run().id, forms::asking_turn(asked));
        Self { run, asked_by, turn, digest, expires_at: later(now, ttl), round: 0 }
    }

    /// The state of a call whose questions are asked again.
    pub(crate) fn again(&self, now: Millis, ttl: Duration) -> Self {
        Self { round: self.round + 1, expires_at: later(now, ttl), ..self.clone() }
    }

    /// True if a run still waits for the answers to these questions.
    pub(crate) fn is_current(&self, asked: RunView<'_>) -> bool {
        self.asked_by == asked.run().id && self.turn == forms::asking_turn(asked) && !asked.pending.is_empty()
    }

    /// Seals the token.
    ///
    /// # Errors
    /// The store has not been reached since the gateway was started.
    pub(crate) fn seal(&self, seals: &Seals) -> Result<String, Fault> {
        seals.seal(Self::PURPOSE, self)
    }

    /// Opens the state of a call with this digest.
    ///
    /// # Errors
    /// The reason why it does not open.
    pub(crate) fn open(seals: &Seals, text: &str, digest: &str, now: Millis) -> Result<Self, TokenError> {
        let state: Self = seals.open(Self::PURPOSE, text, MAX_STATE_BYTES)?;
        if state.digest != digest {
            return Err(TokenError::Invalid);
        }
        if state.expires_at <= now { Err(TokenError::Expired) } else { Ok(state) }
    }
}

/// The id of a question that the gateway asks on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionToken {
    /// The run that asks.
    #[serde(rename = "r")]
    pub(crate) run: RunId,
    /// The turn that asks ([`forms::asking_turn`]): agents may use an id for several questions.
    #[serde(rename = "t")]
    pub(crate) turn: usize,
    /// The item.
    #[serde(rename = "i")]
    pub(crate) item: String,
    /// True if the request opens the page of a login.
    #[serde(rename = "o", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) opens: bool,
    /// The session of the asked client ([`SessionToken::id`]).
    #[serde(rename = "s")]
    pub(crate) session: String,
    /// Distinguishes the calls of a session that ask the same question: the JSON-RPC id of the call.
    #[serde(rename = "c")]
    pub(crate) call: String,
    /// Number of earlier requests for the item.
    #[serde(rename = "n")]
    pub(crate) round: u32,
}

impl QuestionToken {
    const PURPOSE: &str = "mcp/question";

    /// Seals the token. Ids of items that are too long for a token are not sealed: `None`.
    ///
    /// # Errors
    /// The store has not been reached since the gateway was started.
    pub(crate) fn seal(&self, seals: &Seals) -> Result<Option<String>, Fault> {
        Ok(Some(seals.seal(Self::PURPOSE, self)?).filter(|text| text.len() <= MAX_ID_BYTES))
    }

    /// Opens the id of a question of this session.
    ///
    /// # Errors
    /// The reason why it does not open.
    pub(crate) fn open(seals: &Seals, text: &str, session: &str) -> Result<Self, TokenError> {
        let question: Self = seals.open(Self::PURPOSE, text, MAX_ID_BYTES)?;
        if question.session == session { Ok(question) } else { Err(TokenError::Invalid) }
    }
}

fn later(time: Millis, by: Duration) -> Millis {
    time.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const NOW: Millis = 1_790_000_000_000;

    fn seals(owner: &str) -> Seals {
        Seals::new(Sealer::new([7; 32]), Owner::new(owner))
    }

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn session() -> SessionToken {
        let modes = Modes { form: true, url: false };
        SessionToken { revision: Revision::November2025, modes, created_at: NOW, id: run(3).to_string() }
    }

    fn state() -> StateToken {
        let digest = "0123456789abcdef".repeat(4);
        StateToken { run: run(1), asked_by: run(2), turn: 1, digest, expires_at: NOW + 1000, round: 0 }
    }

    fn question() -> QuestionToken {
        let (item, session, call) = ("appr_01".to_owned(), run(3).to_string(), "7".to_owned());
        QuestionToken { run: run(1), turn: 0, item, opens: false, session, call, round: 2 }
    }

    fn open_session(seals: &Seals, text: &str) -> Result<SessionToken, TokenError> {
        SessionToken::open(seals, text, NOW, DAY)
    }

    fn open_state(seals: &Seals, text: &str) -> Result<StateToken, TokenError> {
        StateToken::open(seals, text, &state().digest, NOW)
    }

    fn open_question(seals: &Seals, text: &str) -> Result<QuestionToken, TokenError> {
        QuestionToken::open(seals, text, &question().session)
    }

    fn sealed() -> [String; 3] {
        let ada = seals("ada");
        let question = question().seal(&ada).expect("a key").expect("short enough");
        [session().seal(&ada).expect("a key"), state().seal(&ada).expect("a key"), question]
    }

    /// True for each kind as which a text opens.
    fn opens_as(seals: &Seals, text: &str) -> [bool; 3] {
        [open_session(seals, text).is_ok(), open_state(seals, text).is_ok(), open_question(seals, text).is_ok()]
    }

    #[test]
    fn tokens_open_as_they_were_sealed() {
        let [session_text, state_text, question_text] = sealed();
        let ada = seals("ada");
        assert_eq!(open_session(&ada, &session_text).ok(), Some(session()));
        assert_eq!(open_state(&ada, &state_text).ok(), Some(state()));
        assert_eq!(open_question(&ada, &question_text).ok(), Some(question()));
        assert!(session_text.len() < 230, "{}", session_text.len());
        assert!(question_text.len() < 350, "{}", question_text.len());
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let ada = seals("ada");
        for text in sealed() {
            for (place, letter) in text.char_indices() {
                for other in ['A', 'B', '.', '='].into_iter().filter(|other| *other != letter) {
                    let changed = format!("{}{other}{}", &text[..place], &text[place + 1..]);
                    assert_eq!(opens_as(&ada, &changed), [false; 3], "{place} {other}");
                }
                assert_eq!(opens_as(&ada, &text[..place]), [false; 3], "{place}");
            }
            assert_eq!(opens_as(&ada, &format!("{text}A")), [false; 3]);
        }
        for text in ["", ".", "A", "ä", "e30.e30"] {
            assert_eq!(opens_as(&ada, text), [false; 3], "{text}");
        }
    }

    #[test]
    fn a_token_opens_only_as_its_own_kind_and_for_its_own_caller() {
        for (index, text) in sealed().into_iter().enumerate() {
            let mut own = [false; 3];
            own[index] = true;
            assert_eq!(opens_as(&seals("ada"), &text), own);
            assert_eq!(opens_as(&seals("bob"), &text), [false; 3]);
            let other_store = Seals::new(Sealer::new([8; 32]), Owner::new("ada"));
            assert_eq!(opens_as(&other_store, &text), [false; 3]);
        }
    }

    #[test]
    fn tokens_expire() {
        let ada = seals("ada");
        let [session_text, state_text, _] = sealed();
        let day = u64::try_from(DAY.as_millis()).expect("small");
        let open = |now| SessionToken::open(&ada, &session_text, now, DAY);
        assert!(open(NOW + day - 1).is_ok());
        assert!(matches!(open(NOW + day), Err(TokenError::Expired)));
        let open = |now| StateToken::open(&ada, &state_text, &state().digest, now);
        assert!(open(NOW + 999).is_ok());
        assert!(matches!(open(NOW + 1000), Err(TokenError::Expired)));
        let again = state().again(NOW + 500, Duration::from_millis(1000));
        assert_eq!((again.round, again.expires_at), (1, NOW + 1500));
    }

    #[test]
    fn a_state_is_refused_for_another_call_and_a_question_for_another_session() {
        let ada = seals("ada");
        let [_, state_text, question_text] = sealed();
        assert!(matches!(StateToken::open(&ada, &state_text, "other", NOW), Err(TokenError::Invalid)));
        assert!(matches!(QuestionToken::open(&ada, &question_text, "other"), Err(TokenError::Invalid)));
    }

    #[test]
    fn nothing_is_opened_before_the_store_was_reached() {
        let none = Seals::new(Sealer::default(), Owner::new("ada"));
        assert!(session().seal(&none).is_err());
        assert!(matches!(open_session(&none, &sealed()[0]), Err(TokenError::Unavailable(_))));
    }

    #[test]
    fn long_texts_are_refused_unread_and_long_items_are_not_asked_on_a_stream() {
        let ada = seals("ada");
        let long = QuestionToken { item: "x".repeat(2000), ..question() };
        assert_eq!(long.seal(&ada).expect("a key"), None);
        assert_eq!(opens_as(&ada, &"A".repeat(MAX_STATE_BYTES + 1)), [false; 3]);
    }
}
