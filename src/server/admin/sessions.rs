//! Who is signed in to the console: bearers, exchanged for a key, kept in memory and lost with the process.
//!
//! No cookies: browsers send those to every port of a host, and with forged requests. Not here: checking keys
//! ([`super::sign_in`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlingua_core::event::Millis;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::callers::Caller;
use crate::clock;
use crate::config::ConsoleRole;

/// What bearers begin with, unlike keys.
const PREFIX: &str = "il_console_";
/// How long a bearer is valid at most.
const MAX_AGE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long it is valid without being used.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);
/// How many there are at most. Beyond that, the one that was used longest ago ends.
const MAX_SESSIONS: usize = 1000;

/// How someone proved who they are.
#[derive(Clone)]
pub(super) enum Proof {
    /// By the admin key with this SHA-256, or the key of this start.
    Operator([u8; 32]),
    /// By a client certificate of the admin listener.
    Certificate,
    /// By the key of a caller that may use the console.
    Caller(Arc<Caller>),
}

/// Someone who is signed in.
#[derive(Clone)]
pub(super) struct SignedIn {
    /// The caller's name, or `operator`.
    pub(super) name: Arc<str>,
    pub(super) proof: Proof,
    /// When the bearer ends at the latest.
    pub(super) until: Millis,
    /// The SHA-256 of the bearer.
    bearer: [u8; 32],
}

struct Session {
    who: SignedIn,
    began: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= MAX_AGE || now.duration_since(self.used) >= MAX_IDLE
    }
}

/// Everyone who is signed in, by the SHA-256 of their bearer.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signs someone in. Returns the bearer, which is shown once. `None`: the system has no random numbers.
    pub(super) fn begin(&self, name: &str, proof: Proof, now: Instant) -> Option<(String, SignedIn)> {
        let mut bytes = [0_u8; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let bearer = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let until = clock::now() + u64::try_from(MAX_AGE.as_millis()).unwrap_or(u64::MAX);
        let who = SignedIn { name: name.into(), proof, until, bearer: hash(&bearer) };

        let mut sessions = self.lock();
        sessions.retain(|_, session| !session.is_over(now));
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(hash(&bearer), Session { who: who.clone(), began: now, used: now });
        Some((bearer, who))
    }

    /// Whose bearer this is. `None`: it is unknown, or over.
    pub(super) fn find(&self, bearer: &str, now: Instant) -> Option<SignedIn> {
        let (mut sessions, hash) = (self.lock(), hash(bearer));
        let session = sessions.get_mut(&hash)?;
        if session.is_over(now) {
            sessions.remove(&hash);
            return None;
        }
        session.used = now;
        Some(session.who.clone())
    }

    /// True while nothing has ended it, neither its time nor a sign-out. Counts as a use.
    pub(super) fn is_in_use(&self, who: &SignedIn, now: Instant) -> bool {
        let mut sessions = self.lock();
        let session = sessions.get_mut(&who.bearer).filter(|session| !session.is_over(now));
        session.map(|session| session.used = now).is_some()
    }

    /// Ends a bearer.
    pub(super) fn end(&self, bearer: &str) {
        self.lock().remove(&hash(bearer));
    }
}

/// True if a token is the bearer of a session, perhaps of one that is over, rather than a key.
pub(super) fn is_bearer(token: &str) -> bool {
    let bytes = token.strip_prefix(PREFIX).and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok());
    bytes.is_some_and(|bytes| bytes.len() == 32)
}

fn hash(bearer: &str) -> [u8; 32] {
    Sha256::digest(bearer).into()
}

impl SignedIn {
    /// A name of this sign-in, from the hash of its bearer.
    pub(super) fn fingerprint(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.bearer)
    }

    /// What they may do at the moment. `None`: nothing any more, because their key was revoked or replaced.
    pub(super) fn role(&self, admin_key: Option<&[u8; 32]>, start_key: Option<&[u8; 32]>) -> Option<ConsoleRole> {
        match &self.proof {
            Proof::Operator(key) => {
                [admin_key, start_key].into_iter().flatten().any(|known| known == key).then_some(ConsoleRole::Act)
            }
            Proof::Certificate => Some(ConsoleRole::Act),
            Proof::Caller(caller) => caller.console_role(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(sessions: &Sessions, now: Instant) -> String {
        sessions.begin("operator", Proof::Operator([1; 32]), now).expect("random numbers").0
    }

    #[test]
    fn a_bearer_ends_by_age_by_idleness_and_by_signing_out() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let bearer = begin(&sessions, start);
        assert!(sessions.find("another", start).is_none());
        let mut now = start;
        while now.duration_since(start) < MAX_AGE {
            assert!(sessions.find(&bearer, now).is_some(), "it is used");
            now += MAX_IDLE / 2;
        }
        assert!(sessions.find(&bearer, now).is_none(), "too old");

        let idle = begin(&sessions, start);
        assert!(sessions.find(&idle, start + MAX_IDLE).is_none());
        let left = begin(&sessions, start);
        let who = sessions.find(&left, start).expect("signed in");
        assert!(sessions.is_in_use(&who, start + MAX_IDLE / 2));
        assert!(sessions.is_in_use(&who, start + MAX_IDLE), "following a stream is a use");
        sessions.end(&left);
        assert!(!sessions.is_in_use(&who, start + MAX_IDLE));
        assert!(sessions.find(&left, start).is_none());
        assert!(is_bearer(&left) && !is_bearer("il_console_x") && !is_bearer(&left["il_console_".len()..]));
    }

    #[test]
    fn beyond_the_limit_the_one_used_longest_ago_ends() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let first = begin(&sessions, start);
        for number in 1..=MAX_SESSIONS {
            begin(&sessions, start + Duration::from_millis(number as u64));
        }
        assert!(sessions.find(&first, start + Duration::from_secs(2)).is_none());
        assert_eq!(sessions.lock().len(), MAX_SESSIONS);
    }

    #[test]
    fn a_replaced_key_ends_what_began_with_it() {
        let sessions = Sessions::default();
        let (_, who) = sessions.begin("operator", Proof::Operator([1; 32]), Instant::now()).expect("random numbers");
        assert_eq!(who.role(Some(&[1; 32]), None), Some(ConsoleRole::Act));
        assert_eq!(who.role(None, Some(&[1; 32])), Some(ConsoleRole::Act));
        assert_eq!(who.role(Some(&[2; 32]), None), None);
    }
}
