//! Merges two versions of a session: this replica changed it, and another replica stored a change first. The changes of
//! this replica are applied to the stored version.
//!
//! Most fields change only with the session's turn, which one replica has at a time. Without the turn, a replica adds
//! messages, sets labels, removes items, withdraws the open items of an ended run and queues runs. Therefore few fields
//! can differ on both sides. Not here: reading and writing sessions ([`super::table`]).

use interlingua_core::RunId;
use interlingua_core::answer::Waiting;

use super::document::SessionDoc;

/// Applies the changes from `base` to `mine` to `theirs`. Entries that are not written yet follow the entries of
/// `theirs`. The function names every field, so that a field without a rule does not compile.
pub(super) fn rebase(base: &SessionDoc, mine: &SessionDoc, theirs: SessionDoc) -> SessionDoc {
    // The others write no entries that are not theirs, so only a removal makes the messages fewer.
    let has_removed = theirs.removed != base.removed || theirs.bytes < base.bytes;
    let mut merged = SessionDoc {
        updated_at: mine.updated_at.max(theirs.updated_at),
        is_conversation: mine.is_conversation || theirs.is_conversation,
        is_cut: pick(&base.is_cut, &mine.is_cut, &theirs.is_cut),
        upstream_id: pick(&base.upstream_id, &mine.upstream_id, &theirs.upstream_id),
        home: pick(&base.home, &mine.home, &theirs.home),
        // The first user that was stored keeps the session; a turn of another user is refused when it begins.
        user_id: theirs.user_id.clone().or_else(|| mine.user_id.clone()),
        stale: mine.stale || (theirs.stale && base.stale == mine.stale),
        connector_state: pick(&base.connector_state, &mine.connector_state, &theirs.connector_state),
        connector_user: pick(&base.connector_user, &mine.connector_user, &theirs.connector_user),
        latest: merge_latest(base.latest, mine.latest, theirs.latest),
        waiting: merge_waiting(&base.waiting, &mine.waiting, &theirs.waiting),
        // Only the replica with the session's turn changes this field.
        handed_over: pick(&base.handed_over, &mine.handed_over, &theirs.handed_over),
        is_listed: theirs.is_listed,
        labels: pick(&base.labels, &mine.labels, &theirs.labels),
        // Fixed when the session was created.
        id: theirs.id.clone(),
        agent: theirs.agent.clone(),
        created_at: theirs.created_at,
        // The entries of this side are added below.
        first: theirs.first,
        next: theirs.next,
        last: theirs.last,
        bytes: theirs.bytes,
        begun: theirs.begun,
        unsaved: theirs.unsaved.clone(),
        replaced: theirs.replaced.clone(),
        inline_entries: theirs.inline_entries.clone(),
        removed: theirs.removed.clone(),
        seen: theirs.seen,
        // Facts of this process.
        removals: mine.removals + u64::from(has_removed),
        late: mine.late.clone(),
        // The next write adds its own id.
        writes: theirs.writes.clone(),
        // This version never changes them.
        unknown: theirs.unknown.clone(),
    };

    if let Some(late) = &mut merged.late {
        late.is_outdated |= theirs.next != base.next || theirs.bytes < base.bytes;
    }

    let is_replaced = mine.first != base.first;
    if is_replaced && mine.begun == base.begun {
        replace_known(base, mine, &mut merged);
        merged.stale |= has_removed;
    } else if is_replaced {
        // The session began again, which replaces their entries, too.
        merged.replace(mine.unsaved.values().cloned().collect());
        merged.removed.clone_from(&mine.removed);
        (merged.begun, merged.seen) = (shifted(mine.begun, mine, &merged), shifted(mine.seen, mine, &merged));
    } else {
        mine.unsaved.values().cloned().for_each(|entry| merged.push(entry));
        merged.removed.extend(mine.removed.iter().cloned());
        let removed_here = (base.bytes + unsaved_bytes(mine)).saturating_sub(mine.bytes);
        merged.bytes = merged.bytes.saturating_sub(removed_here);
        if mine.seen != base.seen {
            // Another client has added entries that the agent has not received, or removed some that it has.
            let has_added = theirs.next != base.next;
            merged.seen = if has_added { mine.seen.min(base.next) } else { mine.seen };
            merged.stale |= has_added || has_removed;
        } else if theirs.seen != base.seen {
            merged.stale |= removed_here > 0;
        }
    }

    merged
}

/// Replaces the entries that both sides had by those of `mine`. `merged` holds the entries of the other side. Its new
/// ones stay, in front of those of `mine`.
fn replace_known(base: &SessionDoc, mine: &SessionDoc, merged: &mut SessionDoc) {
    let kept = base.next.max(merged.first).min(merged.next)..merged.next;
    merged.replaced = merged.first..kept.start;
    merged.first = kept.start;
    merged.unsaved = merged.unsaved.split_off(&kept.start);
    merged.bytes = merged.bytes.saturating_sub(base.bytes);
    if kept.is_empty() {
        merged.last = None;
    }

    mine.unsaved.values().cloned().for_each(|entry| merged.push(entry));
    merged.removed.extend(mine.removed.iter().cloned());
    // The agent has not received the entries of the other side.
    merged.seen = if kept.is_empty() { shifted(mine.seen, mine, merged) } else { kept.start };
    merged.stale |= !kept.is_empty();
}

/// `mine` if it differs from `base`, `theirs` otherwise.
fn pick<T: Clone + PartialEq>(base: &T, mine: &T, theirs: &T) -> T {
    if mine == base { theirs.clone() } else { mine.clone() }
}

/// Merges the latest runs. A replica changes its latest run without the session's turn when it queues a run, and stores
/// nothing if that run is canceled in the queue. So the newer run is the latest one if both sides changed it.
fn merge_latest(base: Option<RunId>, mine: Option<RunId>, theirs: Option<RunId>) -> Option<RunId> {
    if mine != base && theirs != base { mine.max(theirs) } else { pick(&base, &mine, &theirs) }
}

/// The index in `merged` of an entry of `mine`, for entries that replaced all others.
const fn shifted(index: u64, mine: &SessionDoc, merged: &SessionDoc) -> u64 {
    merged.first + index.saturating_sub(mine.first)
}

fn unsaved_bytes(doc: &SessionDoc) -> u64 {
    doc.unsaved.values().map(|entry| entry.bytes()).sum()
}

/// Merges the open items. Only the replica with the session's turn adds and decides items; the other side can only have
/// withdrawn the items of ended runs.
fn merge_waiting(base: &Waiting, mine: &Waiting, theirs: &Waiting) -> Waiting {
    if mine == base || mine == theirs {
        return theirs.clone();
    }
    if theirs == base {
        return mine.clone();
    }

    let gone = |from: &Waiting| -> Vec<RunId> {
        let is_there = |run: RunId| from.open().any(|open| open.run == run);
        base.open().map(|open| open.run).filter(|run| !is_there(*run)).collect()
    };
    let only_withdrew = |side: &Waiting| side.open().all(|open| base.open().any(|known| known == open));
    let (mut merged, withdrawn) =
        if only_withdrew(mine) { (theirs.clone(), gone(mine)) } else { (mine.clone(), gone(theirs)) };
    for run in withdrawn {
        merged.withdraw(run);
    }
    merged
}

#[cfg(test)]
mod tests {
    use interlingua_core::model::Message;
    use interlingua_core::{Json, Owner};

    use super::*;
    use crate::sessions::Entry;

    fn doc() -> SessionDoc {
        SessionDoc::new("s", "friday", &Owner::from_key("ann"), None)
    }

    fn turn() -> Entry {
        Entry::Turn { run: RunId(uuid::Uuid::from_u128(7)), turn: 0 }
    }

    fn said(id: &str) -> Message {
        let json = format!(r#"{{"id":"{id}","role":"user","content":[{{"type":"text","text":"hi"}}]}}"#);
        Message::parse(&interlingua_core::tree::Node::parse(json.as_bytes()).expect("JSON")).expect("a message")
    }

    fn written(mut doc: SessionDoc) -> SessionDoc {
        doc.unsaved.clear();
        doc
    }

    fn ids(doc: &SessionDoc) -> Vec<&str> {
        doc.unsaved.values().map(Entry::message_id).collect()
    }

    #[test]
    fn entries_of_both_sides_stay_in_their_order() {
        let base = doc();
        let (mut mine, mut theirs) = (base.clone(), base.clone());
        theirs.append(&[said("one"), said("two")]).expect("room");
        let run = RunId(uuid::Uuid::from_u128(7));
        mine.push(Entry::Turn { run, turn: 0 });
        (mine.seen, mine.latest) = (mine.next, Some(run));

        let merged = rebase(&base, &mine, written(theirs.clone()));
        assert_eq!((merged.first, merged.next, merged.bytes), (0, 3, theirs.bytes));
        assert_eq!(merged.unsaved.keys().copied().collect::<Vec<_>>(), [2], "the other two are written");
        assert_eq!((merged.last, merged.latest), (Some(run), Some(run)));
        assert!(merged.stale, "the agent did not receive the entries that the other side added");
    }

    #[test]
    fn an_item_that_was_removed_during_a_turn_of_the_other_side_makes_the_agent_outdated() {
        let mut base = doc();
        base.append(&[said("one")]).expect("room");
        let base = written(base);
        let (mut with_turn, mut removal) = (base.clone(), base.clone());
        with_turn.push(turn());
        with_turn.seen = with_turn.next;
        // The agent has not received the item yet, as far as that side knows.
        removal.bytes = 0;

        assert!(!rebase(&base, &with_turn, base.clone()).stale);
        assert!(rebase(&base, &with_turn, removal.clone()).stale);
        assert!(rebase(&base, &removal, written(with_turn.clone())).stale);

        let merged = rebase(&base, &base, removal);
        assert_eq!((merged.stale, merged.removals), (false, 1), "the end of a turn under way notes it");
    }

    #[test]
    fn the_agent_has_not_received_messages_that_the_other_side_added_during_a_turn() {
        let base = doc();
        let (mut mine, mut theirs) = (base.clone(), base.clone());
        theirs.append(&[said("theirs")]).expect("room");
        mine.push(turn());
        mine.seen = mine.next;
        let merged = rebase(&base, &mine, written(theirs));
        assert_eq!((merged.seen, merged.next, merged.stale), (0, 2, true));
    }

    #[test]
    fn changes_of_one_side_are_kept() {
        let base = doc();
        let (mut mine, mut theirs) = (base.clone(), base.clone());
        mine.connector_state = Json::parse("{\"context\":1}").expect("JSON");
        mine.append(&[said("mine")]).expect("room");
        theirs.labels.set("title", Json::parse("\"trip\"").expect("JSON"));
        theirs.is_conversation = true;

        let merged = rebase(&base, &mine, theirs.clone());
        assert_eq!((merged.connector_state, merged.labels), (mine.connector_state.clone(), theirs.labels));
        assert!(merged.is_conversation && !merged.stale);
        assert_eq!(merged.bytes, mine.bytes);
    }

    #[test]
    fn of_two_runs_that_both_sides_started_the_newer_one_is_the_latest() {
        let [first, second, third] = [1, 2, 3].map(|number| Some(RunId(uuid::Uuid::from_u128(number))));
        assert_eq!(merge_latest(first, second, third), third, "the run here was canceled in the queue");
        assert_eq!(merge_latest(first, third, second), third, "the run here is still queued");
        assert_eq!(merge_latest(first, second, first), second);
        assert_eq!(merge_latest(second, first, second), first, "the second run was discarded here");
    }

    #[test]
    fn of_two_users_who_begin_a_session_the_first_stored_one_keeps_it() {
        let base = doc();
        let user = |name: &str| SessionDoc { user_id: Some(name.to_owned()), ..base.clone() };
        assert_eq!(rebase(&base, &user("bob"), user("alice")).user_id.as_deref(), Some("alice"));
        assert_eq!(rebase(&base, &user("bob"), base.clone()).user_id.as_deref(), Some("bob"));
    }

    #[test]
    fn a_session_that_began_again_here_replaces_the_stored_entries() {
        let mut base = doc();
        base.append(&[said("old")]).expect("room");
        let base = written(base);
        let mut mine = base.clone();
        mine.begin(vec![Entry::from_message(&said("a")), Entry::from_message(&said("b"))]);
        let mut theirs = base.clone();
        theirs.append(&[said("late")]).expect("room");

        let merged = rebase(&base, &mine, written(theirs));
        assert_eq!((merged.first, merged.next, merged.begun, merged.seen), (2, 4, 4, 2));
        assert_eq!((ids(&merged), merged.replaced.clone()), (vec!["a", "b"], 0..2));
    }

    #[test]
    fn entries_that_the_other_side_adds_stay_if_a_branch_replaces_the_others() {
        let mut base = doc();
        base.append(&[said("early")]).expect("room");
        let base = written(base);
        let mut mine = base.clone();
        mine.replace(vec![Entry::from_message(&said("chain")), Entry::from_message(&said("early"))]);
        mine.push(turn());
        mine.seen = mine.first + 1;

        let merged = rebase(&base, &mine, base.clone());
        assert_eq!((merged.first, merged.next, merged.seen, merged.stale), (1, 4, 2, false));
        assert_eq!((merged.replaced.clone(), merged.bytes), (0..1, mine.bytes));

        let mut theirs = base.clone();
        theirs.append(&[said("late")]).expect("room");
        let merged = rebase(&base, &mine, written(theirs.clone()));
        assert_eq!((merged.first, merged.next, merged.seen, merged.stale), (1, 5, 1, true));
        assert_eq!((merged.replaced.clone(), merged.bytes), (0..1, mine.bytes + theirs.bytes - base.bytes));
        assert_eq!(merged.unsaved.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn an_item_that_one_side_withdrew_is_open_on_neither() {
        let runs = [1, 2, 3].map(|number| RunId(uuid::Uuid::from_u128(number)));
        let waiting = |asking: &[usize]| {
            let item = |run: &usize| {
                let pending = serde_json::json!({
                    "id": format!("call_{run}"), "kind": "approval", "name": "rm", "arguments": "{}"
                });
                serde_json::json!({ "item": pending, "run": runs[*run].to_string() })
            };
            let open: Vec<_> = asking.iter().map(item).collect();
            serde_json::from_value::<Waiting>(serde_json::json!({ "open": open })).expect("items")
        };

        let base = waiting(&[0, 1]);
        let (mine, theirs) = (waiting(&[1]), waiting(&[0, 1, 2]));
        let open = |waiting: &Waiting| waiting.open().map(|open| open.run).collect::<Vec<_>>();
        assert_eq!(open(&merge_waiting(&base, &mine, &theirs)), [runs[1], runs[2]]);
        assert_eq!(open(&merge_waiting(&base, &theirs, &mine)), [runs[1], runs[2]]);
        assert_eq!(open(&merge_waiting(&base, &mine, &base)), [runs[1]]);
    }
}
