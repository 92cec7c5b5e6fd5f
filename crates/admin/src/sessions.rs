//! Sign-ins to the console: a key is exchanged for a bearer. Bearers are in memory, so that a restart ends all
//! sign-ins.
//!
//! No cookies: browsers send those to every port of a host, and with forged requests. Not here: checking keys
//! ([`super::sign_in`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlingua_core::event::Millis;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use interlingua_base::clock;
use interlingua_base::tls::ClientCertificate;
use interlingua_callers::Caller;
use interlingua_config::ConsoleRole;

/// The prefix of bearers. It differs from the prefix of keys.
const PREFIX: &str = "il_console_";
/// Maximum lifetime of a bearer.
const MAX_AGE: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum time between two uses of a bearer.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);
/// Maximum number of sign-ins. Beyond it, the person with the most sign-ins loses their least recently used one.
const MAX_SESSIONS: usize = 1000;
/// Maximum number of sign-ins of one person. Beyond it, the person loses their least recently used one.
const MAX_PER_PERSON: usize = 100;

/// The credentials of a session.
#[derive(Clone)]
pub(super) enum Proof {
    /// The admin key or the start key, with this SHA-256.
    Operator([u8; 32]),
    /// This client certificate of the admin listener. Every request must present it, too.
    Certificate(Arc<ClientCertificate>),
    /// The key of this caller, which may use the console.
    Caller(Arc<Caller>),
}

/// A sign-in.
#[derive(Clone)]
pub(super) struct SignedIn {
    /// The caller's name, or `operator`.
    pub(super) name: Arc<str>,
    pub(super) proof: Proof,
    /// The latest end of the bearer.
    pub(super) until: Millis,
    /// The SHA-256 of the bearer.
    bearer: [u8; 32],
}

struct ConsoleSession {
    who: SignedIn,
    began: Instant,
    used: Instant,
}

impl ConsoleSession {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= MAX_AGE || now.duration_since(self.used) >= MAX_IDLE
    }
}

/// All sign-ins, by the SHA-256 of their bearer.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<[u8; 32], ConsoleSession>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], ConsoleSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signs a person in. Returns the bearer, which is not stored. `None`: the system has no random numbers.
    pub(super) fn begin(&self, name: &str, proof: Proof, now: Instant) -> Option<(String, SignedIn)> {
        let mut bytes = [0_u8; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let bearer = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let until = clock::now() + u64::try_from(MAX_AGE.as_millis()).unwrap_or(u64::MAX);
        let who = SignedIn { name: name.into(), proof, until, bearer: hash(&bearer) };

        let mut sessions = self.lock();
        sessions.retain(|_, session| !session.is_over(now));
        let person = who.person();
        if count_of(&sessions, &person) >= MAX_PER_PERSON {
            end_oldest(&mut sessions, &person);
        } else if sessions.len() >= MAX_SESSIONS {
            let people: HashSet<Arc<str>> = sessions.values().map(|session| session.who.person()).collect();
            let most = people.into_iter().max_by_key(|person| count_of(&sessions, person));
            end_oldest(&mut sessions, &most.unwrap_or(person));
        }
        sessions.insert(hash(&bearer), ConsoleSession { who: who.clone(), began: now, used: now });
        Some((bearer, who))
    }

    /// The sign-in of a bearer. `None`: the bearer is unknown or expired. Counts as a use.
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

    /// True if the sign-in has neither expired nor been ended. Counts as a use.
    pub(super) fn is_in_use(&self, who: &SignedIn, now: Instant) -> bool {
        let mut sessions = self.lock();
        let session = sessions.get_mut(&who.bearer).filter(|session| !session.is_over(now));
        session.map(|session| session.used = now).is_some()
    }

    pub(super) fn end(&self, bearer: &str) {
        self.lock().remove(&hash(bearer));
    }
}

fn count_of(sessions: &HashMap<[u8; 32], ConsoleSession>, person: &Arc<str>) -> usize {
    sessions.values().filter(|session| session.who.person() == *person).count()
}

/// Ends the least recently used sign-in of a person.
fn end_oldest(sessions: &mut HashMap<[u8; 32], ConsoleSession>, person: &Arc<str>) {
    let own = sessions.iter().filter(|(_, session)| session.who.person() == *person);
    if let Some(oldest) = own.min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash) {
        sessions.remove(&oldest);
    }
}

/// True if a token has the form of a bearer, valid or not, rather than of a key.
pub(super) fn is_bearer(token: &str) -> bool {
    let bytes = token.strip_prefix(PREFIX).and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok());
    bytes.is_some_and(|bytes| bytes.len() == 32)
}

fn hash(bearer: &str) -> [u8; 32] {
    Sha256::digest(bearer).into()
}

impl SignedIn {
    /// A name for this sign-in, derived from the hash of its bearer.
    pub(super) fn fingerprint(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.bearer)
    }

    /// The current role. `None`: the key was revoked or replaced, or the certificate or its authority is no longer
    /// valid. `key`: the active operator's key.
    pub(super) fn role(&self, key: Option<&[u8; 32]>) -> Option<ConsoleRole> {
        match &self.proof {
            Proof::Operator(shown) => (key == Some(shown)).then_some(ConsoleRole::Act),
            Proof::Certificate(certificate) => certificate.is_valid().then_some(ConsoleRole::Act),
            Proof::Caller(caller) => caller.console_role(),
        }
    }

    /// True if a request over a connection with this certificate may use the bearer.
    pub(super) fn is_shown_with(&self, certificate: Option<&Arc<ClientCertificate>>) -> bool {
        match &self.proof {
            Proof::Certificate(proof) => certificate.is_some_and(|shown| shown.is_same(proof)),
            Proof::Operator(_) | Proof::Caller(_) => true,
        }
    }

    /// Identifies the person in all their sign-ins: the base key of the caller's owner, or the name of operators.
    pub(super) fn person(&self) -> Arc<str> {
        match &self.proof {
            Proof::Caller(caller) => caller.owner.base_key().into(),
            Proof::Operator(_) | Proof::Certificate(_) => Arc::clone(&self.name),
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
    fn a_person_with_many_sign_ins_ends_only_their_own() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let other = sessions.begin("other", Proof::Operator([1; 32]), start).expect("random numbers").0;
        let first = begin(&sessions, start);
        for number in 1..=MAX_SESSIONS {
            begin(&sessions, start + Duration::from_millis(number as u64));
        }
        let later = start + Duration::from_secs(2);
        assert!(sessions.find(&first, later).is_none() && sessions.find(&other, later).is_some());
        assert_eq!(sessions.lock().len(), MAX_PER_PERSON + 1);
    }

    #[test]
    fn beyond_the_limit_of_all_the_person_with_the_most_sign_ins_loses_one() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let mut first = Vec::new();
        for number in 0..MAX_SESSIONS {
            let name = if number < MAX_PER_PERSON { "many".to_owned() } else { format!("person {number}") };
            first.push(sessions.begin(&name, Proof::Operator([1; 32]), start).expect("random numbers").0);
        }
        let newcomer = sessions.begin("newcomer", Proof::Operator([1; 32]), start).expect("random numbers").0;
        let valid = |bearers: &[String]| bearers.iter().filter(|bearer| sessions.find(bearer, start).is_some()).count();
        assert_eq!(valid(&first[..MAX_PER_PERSON]), MAX_PER_PERSON - 1);
        assert_eq!((valid(&first[MAX_PER_PERSON..]), valid(&[newcomer])), (MAX_SESSIONS - MAX_PER_PERSON, 1));
    }

    #[test]
    fn a_replaced_key_ends_its_sessions() {
        let sessions = Sessions::default();
        let (_, who) = sessions.begin("operator", Proof::Operator([1; 32]), Instant::now()).expect("random numbers");
        assert_eq!(who.role(Some(&[1; 32])), Some(ConsoleRole::Act));
        assert_eq!((who.role(Some(&[2; 32])), who.role(None)), (None, None));
    }
}
