//! Answers of agents that are cut: at every frame, or at some of them. Whatever is cut, the client is shown the
//! beginning of what the agent said, and an end; the end is a good one only if it was shown all.

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{Scenario, find};
use interlingua_testing_agents::AnswerCut;
use interlingua_testing_clients::{End, ScriptedClient};

use crate::play::PlayedScenario;
use crate::stand::Stand;
use crate::{Choice, is_whole};

/// The scenarios: each kind of frame that agents write.
const SCENARIOS: [&str; 6] = ["text", "reasoning", "parallel-agent-tools", "client-tool", "approval-accept", "usage"];

/// Cuts answers of this agent.
pub(crate) async fn play(protocol: &str) {
    let choice = Choice::of_environment();
    if !choice.agent(protocol) {
        return;
    }
    let stand = Stand::start(interlingua_testing_agents::find(protocol)).await;
    let mut wrong = Vec::new();
    for name in SCENARIOS.into_iter().filter(|name| choice.scenario(name)) {
        let mut scenario = find(name);
        scenario.turns.truncate(1);
        for client in interlingua_testing_clients::all().iter().filter(|client| choice.client(client.protocol())) {
            if stand.can_play(&**client, &scenario) {
                cut(&stand, &**client, &scenario, &mut wrong).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Cuts the answer of one scenario.
async fn cut(stand: &Stand, client: &dyn ScriptedClient, scenario: &Scenario, wrong: &mut Vec<String>) {
    let whole = stand.play(client, scenario, None).await;
    for after in places(whole.chunks) {
        let resets = if is_whole() { vec![false, true] } else { vec![after % 2 == 0] };
        for is_reset in resets {
            let played = stand.play(client, scenario, Some(AnswerCut { after, is_reset })).await;
            let verdict = judge(&whole, &played);
            let pair = format!("{} ← {}, {:?}", client.protocol(), stand.agent.protocol(), scenario.name);
            let answers = &played.turns[0].answers;
            wrong.extend(
                verdict
                    .map(|what| format!("{pair}, after {after} of {}: {what}\n{}", whole.chunks, answers.join("\n"))),
            );
        }
    }
}

/// The positions of cuts in an answer of this number of chunks.
fn places(chunks: usize) -> Vec<usize> {
    if is_whole() {
        return (0..chunks).collect();
    }
    let mut some = vec![0, 1, chunks / 2, chunks.saturating_sub(1)];
    some.retain(|after| *after < chunks);
    some.sort_unstable();
    some.dedup();
    some
}

/// The errors of a cut answer, compared with the whole answer.
fn judge(whole: &PlayedScenario, cut: &PlayedScenario) -> Option<String> {
    let (whole, cut) = (&whole.turns[0].shown, &cut.turns[0].shown);
    let text = |items: &[interlingua_core_testkit::scenario::Item]| -> String {
        items.iter().filter(|item| item.kind == ContentKind::Text).map(|item| item.value.as_str()).collect()
    };
    let (all, some) = (text(&whole.items), text(&cut.items));
    if !all.starts_with(&some) {
        return Some(format!("{some:?} is no beginning of {all:?}"));
    }
    match cut.end {
        // Nothing was lost, or the connector took the answer up again.
        Some(End::Completed) if cut.items == whole.items => None,
        Some(End::Completed) => {
            // What comes after the end of an answer, such as its cost, may be missing.
            let without = |items: &[interlingua_core_testkit::scenario::Item]| {
                let kept = items.iter().filter(|item| item.kind != ContentKind::Usage);
                kept.cloned().collect::<Vec<_>>()
            };
            (without(&cut.items) != without(&whole.items)).then(|| format!("it is shown as whole: {:?}", cut.items))
        }
        Some(End::Failed | End::Refused(500..)) => None,
        other => Some(format!("it ends as {other:?}")),
    }
}
