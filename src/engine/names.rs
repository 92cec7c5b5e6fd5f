//! What an agent is told as session and user: never such that two owners meet in its memory because they chose the same
//! names.
//!
//! Callers that nobody tells apart, on routes that share sessions, are one owner: their names reach the agent as they
//! are. Every other owner's become UUIDs of version 8 made of the owner and the name. They hold no secret, so whoever
//! knows both could make one and say it as a plain name: a plain name of that form is made into another one, too.
//!
//! Not here: what sessions are called in the store ([`super::session`]).

use interlingua_core::Owner;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// The id by which the agent knows a session. `apart`: the user, if others have a session of the same name.
pub(super) fn session(owner: &Owner, name: &str, apart: Option<&str>) -> String {
    if is_plain(owner, name) {
        return name.to_owned();
    }
    let parts = ["session", owner.key(), name];
    derived(parts.iter().copied().chain(apart))
}

/// The id by which the agent knows a user.
pub(super) fn user(owner: &Owner, name: &str) -> String {
    if is_plain(owner, name) { name.to_owned() } else { derived(["user", owner.key(), name]) }
}

fn is_plain(owner: &Owner, name: &str) -> bool {
    let looks_derived = Uuid::try_parse(name).is_ok_and(|id| id.get_version_num() == 8);
    owner.is_shared() && !looks_derived
}

fn derived<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length: no two rows of parts are the same bytes.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_plain_only_where_everybody_shares_them() {
        let everybody = Owner::anonymous();
        assert_eq!((session(&everybody, "s1", None), user(&everybody, "ada")), ("s1".into(), "ada".into()));
        let owners = [
            everybody.clone().on_route("/one"),
            everybody.clone().on_route("/two"),
            everybody.clone().of_tenant("one"),
            everybody.clone().on_route("/one").of_tenant("one"),
            Owner::new("alice"),
            Owner::new("anonymous/route:/one"),
        ];
        let told: HashSet<String> =
            owners.iter().flat_map(|owner| [session(owner, "s1", None), user(owner, "s1")]).collect();
        assert_eq!(told.len(), 2 * owners.len(), "{told:?}");
        assert_eq!(session(&owners[0], "s1", None), session(&owners[0], "s1", None));
        assert_ne!(session(&owners[0], "s1", None), session(&owners[0], "s1", Some("bob")));
    }

    #[test]
    fn nobody_can_say_the_name_that_was_made_for_another_owner() {
        let hidden = session(&Owner::anonymous().on_route("/one"), "s1", None);
        let everybody = Owner::anonymous();
        for spelled in [hidden.clone(), hidden.to_uppercase(), hidden.replace('-', ""), format!("urn:uuid:{hidden}")] {
            assert_ne!(session(&everybody, &spelled, None), spelled);
            assert_ne!(session(&everybody, &spelled, None), hidden);
            assert_ne!(user(&everybody, &spelled), spelled);
        }
        let fresh = "0198c1d2-aaaa-7bbb-8ccc-0123456789ab";
        assert_eq!(session(&everybody, fresh, None), fresh, "other UUIDs are names like any other");
    }
}
