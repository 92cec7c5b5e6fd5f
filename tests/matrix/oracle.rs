//! Compares what one end said with what the other end got. What differs must have been reported; what arrived must not.

use std::collections::{BTreeMap, BTreeSet};

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{Ending, Item, Scenario, Turn};
use interlingua_testing_clients::End;

use crate::losses::ReportedLoss;
use crate::play::{PlayedScenario, PlayedTurn};

/// The most that is reported of the beginning of a line, and of its end, in characters. Some contents are large.
const MAX_REPORTED: usize = 4 << 10;

/// The change of a kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContentOutcome {
    Carried,
    Changed,
    Lost,
}

/// The changes of a scenario's contents.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// For each kind in the scenario, with the direction: sent, or shown.
    pub(crate) fates: BTreeMap<ContentKind, BTreeSet<(&'static str, ContentOutcome)>>,
    /// In what ways contents were changed or lost.
    pub(crate) how: BTreeMap<ContentKind, BTreeSet<ReportedLoss>>,
    /// The errors.
    pub(crate) wrong: Vec<String>,
    /// Calls that the agent has asked about.
    asked: BTreeSet<String>,
}

/// Judges a scenario.
pub(crate) fn judge(scenario: &Scenario, played: &PlayedScenario) -> Verdict {
    let mut verdict = Verdict::default();
    for (number, (turn, played)) in scenario.turns.iter().zip(&played.turns).enumerate() {
        let mut wrong = judge_end(turn, played);
        match &played.received {
            Some(received) => wrong.extend(verdict.compare("sent", &turn.sent(), received, &played.reported)),
            None => wrong.push("no request reached the agent".to_owned()),
        }
        wrong.extend(verdict.compare("shown", &turn.shown(), &played.shown.items, &played.reported));
        wrong.extend(lost_and_there(turn, played));
        if !wrong.is_empty() {
            let lines: Vec<String> = wrong.iter().chain(&played.answers).map(|line| brief(line)).collect();
            verdict.wrong.push(format!("turn {number}: {}", lines.join("\n")));
        }
    }
    verdict
}

/// A line without its middle.
fn brief(line: &str) -> String {
    let count = line.chars().count();
    if count <= 2 * MAX_REPORTED {
        return line.to_owned();
    }
    let begin: String = line.chars().take(MAX_REPORTED).collect();
    let end: String = line.chars().skip(count - MAX_REPORTED).collect();
    format!("{begin} […] {end}")
}

/// The end that the client was shown fits the agent's.
fn judge_end(turn: &Turn, played: &PlayedTurn) -> Vec<String> {
    let shown = played.shown.end;
    let fits = match turn.ending {
        Ending::Completed => shown == Some(End::Completed),
        // Some protocols have no word for it, and say so.
        Ending::Incomplete(_) => matches!(shown, Some(End::Incomplete | End::Completed)),
        Ending::Failed(_) | Ending::BrokenOff | Ending::Refused(_) => {
            matches!(shown, Some(End::Failed)) || matches!(shown, Some(End::Refused(status)) if status >= 400)
        }
    };
    if fits { Vec::new() } else { vec![format!("{:?} is shown as {shown:?}", turn.ending)] }
}

/// Kinds that were reported as lost and arrive in both directions.
fn lost_and_there(turn: &Turn, played: &PlayedTurn) -> Vec<String> {
    let nothing = Vec::new();
    let received = played.received.as_ref().unwrap_or(&nothing);
    let (sent, shown) = (turn.sent(), turn.shown());
    let ways = [(by_kind(&sent), by_kind(received)), (by_kind(&shown), by_kind(&played.shown.items))];
    let kinds: BTreeSet<ContentKind> = ways.iter().flat_map(|(expected, _)| expected.keys().copied()).collect();
    let arrives = |kind: &ContentKind| {
        ways.iter().all(|(expected, found)| {
            let found = found.get(kind).map_or(&[][..], Vec::as_slice);
            expected.get(kind).is_none_or(|expected| is_same(*kind, expected, found))
        })
    };
    let is_lost = |kind: &&ContentKind| played.reported.iter().any(|one| one.is_lost && one.is_about(**kind));
    let wrong = kinds.iter().filter(is_lost).filter(|kind| arrives(kind));
    wrong.map(|kind| format!("{kind:?} is reported as lost, and arrives")).collect()
}

impl Verdict {
    /// Records the change of a kind, in this or another turn.
    fn note(&mut self, kind: ContentKind, fate: (&'static str, ContentOutcome), how: BTreeSet<ReportedLoss>) {
        self.fates.entry(kind).or_default().insert(fate);
        self.how.entry(kind).or_default().extend(how);
    }

    /// Compares the items of one direction.
    fn compare(
        &mut self,
        way: &'static str,
        expected: &[Item],
        got: &[Item],
        reported: &BTreeSet<ReportedLoss>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let (expected, mut got) = (by_kind(expected), by_kind(got));
        self.asked.extend(expected.get(&ContentKind::Approval).into_iter().flatten().map(|call| (*call).to_owned()));
        leave_out_announced(&expected, &mut got, &self.asked);
        let mut is_any_changed = false;
        for (kind, values) in &expected {
            let nothing = Vec::new();
            let found = got.get(kind).unwrap_or(&nothing);
            let about: BTreeSet<ReportedLoss> = reported.iter().filter(|one| one.is_about(*kind)).cloned().collect();
            let is_lost = about.iter().any(|one| one.is_lost);
            let is_joined = *kind == ContentKind::Text && is_joined(values, found);
            let fate = if is_same(*kind, values, found) {
                if about.iter().all(|one| one.is_lost) { ContentOutcome::Carried } else { ContentOutcome::Changed }
            } else if is_joined && reported.iter().any(|one| one.is_about(ContentKind::Structure)) {
                // The words arrive, and the bounds between messages do not.
                let how = reported.iter().filter(|one| one.is_about(ContentKind::Structure)).cloned().collect();
                self.note(ContentKind::Structure, (way, ContentOutcome::Changed), how);
                ContentOutcome::Carried
            } else {
                if about.is_empty() {
                    wrong.push(format!("{kind:?} {way} as {values:?} arrives as {found:?}, and no loss is reported"));
                }
                if is_lost { ContentOutcome::Lost } else { ContentOutcome::Changed }
            };
            is_any_changed |= fate == ContentOutcome::Changed;
            self.note(*kind, (way, fate), about);
        }

        let is_extra = |kind: &ContentKind| match kind {
            // Content that is shown in words instead of its own form is part of the text.
            ContentKind::Text => !is_any_changed,
            // Only some turns ask for it, and tools may be sent again with each.
            ContentKind::History | ContentKind::ToolDeclaration => false,
            _ => true,
        };
        for (kind, values) in got.iter().filter(|(kind, _)| !expected.contains_key(kind) && is_extra(kind)) {
            wrong.push(format!("{kind:?} arrives as {values:?}, and no one {way} it"));
        }
        wrong
    }
}

fn by_kind(items: &[Item]) -> BTreeMap<ContentKind, Vec<&str>> {
    let mut found: BTreeMap<ContentKind, Vec<&str>> = BTreeMap::new();
    for item in items {
        found.entry(item.kind).or_default().push(&item.value);
    }
    found
}

/// An agent may show a call before it asks whether it may run it: it is the approval's, not another one. Clients that
/// read the whole conversation see it in the next turn.
fn leave_out_announced(
    expected: &BTreeMap<ContentKind, Vec<&str>>,
    got: &mut BTreeMap<ContentKind, Vec<&str>>,
    asked: &BTreeSet<String>,
) {
    let called = expected.get(&ContentKind::AgentCall).map_or(&[][..], Vec::as_slice);
    if let Some(shown) = got.get_mut(&ContentKind::AgentCall) {
        shown.retain(|call| called.contains(call) || !asked.contains(*call));
        if shown.is_empty() {
            got.remove(&ContentKind::AgentCall);
        }
    }
}

fn is_same(kind: ContentKind, expected: &[&str], found: &[&str]) -> bool {
    match kind {
        // Calls that run at once may be shown in any order.
        ContentKind::AgentCall | ContentKind::AgentOutput | ContentKind::ClientOutput => {
            let sorted = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
            sorted(expected) == sorted(found)
        }
        _ => expected == found,
    }
}

/// The same text, not in the same messages.
fn is_joined(expected: &[&str], found: &[&str]) -> bool {
    let letters = |values: &[&str]| values.concat().replace('\n', "");
    letters(expected) == letters(found)
}

#[cfg(test)]
mod tests {
    use interlingua_core_testkit::scenario::find;
    use interlingua_testing_clients::ShownTurn;

    use super::*;

    /// An answer in which a client is shown this, and the gateway reports that as lost.
    fn wrong(shown: &[Item], lost: &[&str]) -> Vec<String> {
        let scenario = find("usage");
        let reported =
            |kind: &&str| ReportedLoss { kind: (*kind).to_owned(), is_lost: true, how: "it is too late".into() };
        let turn = PlayedTurn {
            shown: ShownTurn { items: shown.to_vec(), end: Some(End::Completed), ..ShownTurn::default() },
            received: Some(scenario.turns[0].sent()),
            reported: lost.iter().map(reported).collect(),
            answers: Vec::new(),
        };
        judge(&scenario, &PlayedScenario { turns: vec![turn], chunks: 0 }).wrong
    }

    #[test]
    fn an_unreported_loss_and_a_false_report_fail() {
        let all = find("usage").turns[0].shown();
        let (words, usage) = (all[0].clone(), all[1].clone());
        assert_eq!(wrong(&all, &[]), Vec::<String>::new());
        assert_eq!(wrong(std::slice::from_ref(&words), &["usage"]), Vec::<String>::new());
        for (shown, lost) in [
            (vec![words.clone()], vec![]),
            (vec![words.clone()], vec!["text"]),
            (vec![usage.clone()], vec!["usage"]),
            (all.clone(), vec!["usage"]),
            (vec![words.clone(), usage.clone(), usage.clone()], vec![]),
            (vec![words, usage, Item::new(ContentKind::Reasoning, "hm")], vec![]),
        ] {
            assert_eq!(wrong(&shown, &lost).len(), 1, "{shown:?}, {lost:?}");
        }
    }
}
