//! The ids of sessions and users that agents receive. Two owners that choose the same name get different ids, so that
//! an agent keeps their memories apart.
//!
//! All unauthenticated callers of routes that share sessions are one owner, whose names the agent receives unchanged.
//! The names of all other owners become UUIDs of version 8, derived from owner and name. The derivation uses no secret:
//! a caller who knows owner and name can compute the UUID. Therefore a name that is itself a UUID of version 8 is
//! always replaced, too.
//!
//! Not here: the keys of sessions in the store ([`super::session`]).

use interlingua_core::Owner;
use uuid::Uuid;

use interlingua_base::identity::derived_id;

/// The id of a session for the agent. `user` is set if another user has a session of the same name.
pub(crate) fn session(owner: &Owner, name: &str, user: Option<&str>) -> String {
    if is_plain(owner, name) {
        return name.to_owned();
    }
    let parts = ["session", owner.key(), name];
    derived_id(parts.iter().copied().chain(user))
}

/// The id of a user for the agent.
pub(super) fn user(owner: &Owner, name: &str) -> String {
    if is_plain(owner, name) { name.to_owned() } else { derived_id(["user", owner.key(), name]) }
}

fn is_plain(owner: &Owner, name: &str) -> bool {
    let looks_derived = Uuid::try_parse(name).is_ok_and(|id| id.get_version_num() == 8);
    owner.is_shared() && !looks_derived
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_plain_only_where_they_are_shared() {
        let shared = Owner::anonymous();
        assert_eq!((session(&shared, "s1", None), user(&shared, "ada")), ("s1".into(), "ada".into()));
        let owners = [
            shared.clone().on_route("/one"),
            shared.clone().on_route("/two"),
            shared.clone().of_tenant("one"),
            shared.clone().on_route("/one").of_tenant("one"),
            Owner::new("alice"),
            Owner::new("anonymous/route:/one"),
        ];
        let ids: HashSet<String> =
            owners.iter().flat_map(|owner| [session(owner, "s1", None), user(owner, "s1")]).collect();
        assert_eq!(ids.len(), 2 * owners.len(), "{ids:?}");
        assert_eq!(session(&owners[0], "s1", None), session(&owners[0], "s1", None));
        assert_ne!(session(&owners[0], "s1", None), session(&owners[0], "s1", Some("bob")));
    }

    #[test]
    fn no_one_can_use_the_name_that_was_made_for_another_owner() {
        let hidden = session(&Owner::anonymous().on_route("/one"), "s1", None);
        let shared = Owner::anonymous();
        for variant in [hidden.clone(), hidden.to_uppercase(), hidden.replace('-', ""), format!("urn:uuid:{hidden}")] {
            assert_ne!(session(&shared, &variant, None), variant);
            assert_ne!(session(&shared, &variant, None), hidden);
            assert_ne!(user(&shared, &variant), variant);
        }
        let fresh = "0198c1d2-aaaa-7bbb-8ccc-0123456789ab";
        assert_eq!(session(&shared, fresh, None), fresh, "other UUIDs are names like any other");
    }
}
