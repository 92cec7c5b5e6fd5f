//! Agents that use the same ids in every session: an answer reaches the conversation in which it was given.

use std::sync::Arc;

use interlingua_core_testkit::scenario::{ClientAct, find};
use interlingua_testing_clients::Talk;
use serde_json::Value;

use super::cases::Case;
use super::readings::{AgentAnswer, Decision, answers};
use super::speakers::speakers;
use super::{Cell, ORDER, Outcome};
use crate::play::read;
use crate::stand::{AGENT, Stand};

#[tokio::test]
async fn equal_ids_in_two_conversations_are_two_questions() {
    let asker = interlingua_testing_agents::numbering_asker();
    let stand = Stand::start(Arc::clone(&asker.agent)).await;
    let mut wrong = Vec::new();
    for speaker in &speakers() {
        let cell = Cell { stand: &stand, asker: &asker, speaker };
        wrong.extend(cell.in_two_conversations().await);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn equal_ids_in_two_conversations_are_two_calls() {
    let asker = interlingua_testing_agents::numbering_asker();
    let stand = Stand::start(Arc::clone(&asker.agent)).await;
    let mut wrong = Vec::new();
    for client in interlingua_testing_clients::all() {
        let scenario = find("client-tool");
        if !stand.can_play(&*client, &scenario) {
            continue;
        }
        let mut talks = Vec::new();
        for _ in 0..2 {
            let play = stand.stage.open(scenario.clone(), None);
            let mut talk = Talk::new(AGENT, &format!("{}-calls-{play}", client.protocol()), play);
            let request = client.request(&scenario.turns[0].client, &mut talk);
            let mut open = stand.send(&request).await;
            let (status, text) = read(&mut open, client.leaves_at()).await;
            client.read(status, &text, &mut talk);
            assert_eq!(talk.open.len(), 1, "{}: {text}", client.protocol());
            talks.push(talk);
        }
        // The second conversation continues first.
        for (place, output) in [(1, "18 C"), (0, "21 C")] {
            let talk = &mut talks[place];
            talk.mark.turn = 1;
            let request = client.request(&[ClientAct::Output(0, output)], talk);
            let mut open = stand.send(&request).await;
            let (status, text) = read(&mut open, client.leaves_at()).await;
            let received = stand.stage.requests(talk.mark.play);
            let outputs: Vec<&Value> = received
                .iter()
                .flat_map(|body| body["input"].as_array().into_iter().flatten())
                .filter(|message| message["type"] == "function_call_output")
                .map(|message| &message["content"][0]["data"]["output"])
                .collect();
            if outputs != [output] {
                wrong.push(format!("{}: {output:?} arrives as {outputs:?}: {status} {text}", client.protocol()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

impl Cell<'_> {
    async fn in_two_conversations(&self) -> Vec<String> {
        let forms = self.speaker.way.forms();
        let find = |wanted: Case| forms.iter().find(|(case, _)| *case == wanted).map(|(_, form)| form);
        let (Some(accept), Some(reject)) = (find(Case::Accept), find(Case::Reject)) else { return Vec::new() };
        let mut wrong = Vec::new();
        for (first, second) in [(accept, reject), (reject, accept)] {
            let (Ok(mut one), Ok(mut other)) = (self.begin(&[ORDER]).await, self.begin(&[ORDER]).await) else {
                return vec![self.named("cannot be asked twice")];
            };
            let given = [(&mut other, first), (&mut one, second)];
            for (conversation, form) in given {
                let wanted = if std::ptr::eq(form, accept) { Decision::Accept } else { Decision::Reject };
                match self.answer(conversation, &[(0, form)]).await {
                    Ok(Outcome::Taken(requests)) => {
                        let received: Vec<AgentAnswer> =
                            requests.iter().flat_map(|request| answers(self.protocol(), request)).collect();
                        let decisions: Vec<&Decision> = received.iter().map(|one| &one.decision).collect();
                        if decisions != [&wanted] {
                            wrong.push(self.named(&format!("{form:?} arrives as {decisions:?}: {requests:?}")));
                        }
                    }
                    Ok(Outcome::Refused(reason)) => wrong.push(self.named(&format!("{form:?} is refused: {reason:?}"))),
                    Err(error) => wrong.push(self.named(&format!("{form:?}: {error}"))),
                }
            }
        }
        wrong
    }
}
