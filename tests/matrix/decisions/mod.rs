//! Decisions of people: every form in which an agent asks, with every client and every form of an answer. What an agent
//! runs is what was decided, or nothing, also if it looks at one mark of the answer alone. A refusal can always be said
//! and arrives as one. An answer that is refused has a reason and changes nothing.
//!
//! Agents take part by their requests: each [`Reading`] of a request says which call it would run. Not here: contents
//! beside decisions, which scenarios have.

mod cases;
mod equal_ids;
mod forms;
mod readings;
mod speakers;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::future::join_all;
use interlingua_core::pending;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, ClientAct, Ending, Scenario, Turn};
use interlingua_testing_agents::{Asker, askers};
use interlingua_testing_clients::{Open, Talk};
use serde_json::Value;
use tokio::time::timeout;

use self::cases::{ASKED, Case, EDITED, TOOL};
use self::forms::Form;
use self::readings::{AgentAnswer, Decision, READINGS, Reading, answers};
use self::speakers::{AskForm, Speaker, accept_and_reject, speakers};
use crate::Choice;
use crate::play::read;
use crate::stand::{AGENT, Stand};

/// Timeout of one answer, after which its cell fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// New words in an answer that make a reason.
const MIN_WORDS: usize = 3;
/// Turns of a conversation: more than there are forms of an answer.
const MAX_TURNS: usize = 120;

const ORDER: Call = Call { name: "a", tool: TOOL, arguments: &[ASKED] };
const WIPE: Call = Call { name: "b", tool: "wipe_disk", arguments: &[r#"{"disk":"sda"}"#] };

/// An agent that asks about these calls, and says that it is done whatever the answer is.
fn scenario(calls: &[Call]) -> Scenario {
    let ask = calls.iter().map(|call| AgentAct::Ask(Ask::Approval(*call))).collect();
    let turn = |agent| Turn { client: vec![ClientAct::Say("order")], agent, ending: Ending::Completed };
    let mut turns = vec![turn(ask)];
    turns.resize_with(MAX_TURNS, || turn(vec![AgentAct::Text(&["It is done."])]));
    Scenario { name: "decisions", turns }
}

/// One client with one agent.
struct Cell<'a> {
    stand: &'a Stand,
    asker: &'a Asker,
    speaker: &'a Speaker,
}

/// A conversation that waits for an answer.
struct Conversation {
    talk: Talk,
    /// The question as it was shown first.
    question: String,
    /// Open items, in the order of the question.
    open: Vec<Open>,
}

/// Result of an answer.
enum Outcome {
    /// The agent received these requests.
    Taken(Vec<Value>),
    /// The agent received nothing. With the words that were not in the question.
    Refused(Vec<String>),
}

impl Cell<'_> {
    fn protocol(&self) -> &'static str {
        self.stand.agent.protocol()
    }

    /// Lets the agent ask.
    async fn begin(&self, calls: &[Call]) -> Result<Conversation, String> {
        let play = self.stand.stage.open(scenario(calls), None);
        let mut talk = Talk::new(AGENT, &format!("{}-decisions-{play}", self.speaker.name()), play);
        let request = self.speaker.ask(&mut talk);
        let (_, question) = self.exchange(&request, &mut talk).await?;
        let open = talk.open.clone();
        if open.is_empty() {
            return Err(format!("nothing is asked: {question}"));
        }
        Ok(Conversation { talk, question, open })
    }

    /// Sends a request, and lets the client read the answer. Returns its status and text.
    async fn exchange(
        &self,
        request: &interlingua_testing_clients::Request,
        talk: &mut Talk,
    ) -> Result<(u16, String), String> {
        let sent = async {
            let mut open = self.stand.send(request).await;
            read(&mut open, self.speaker.client.leaves_at()).await
        };
        let Ok((status, text)) = timeout(ANSWER_TIMEOUT, sent).await else {
            return Err(format!("no answer in time: {}", request.body));
        };
        let client = &self.speaker.client;
        catch_unwind(AssertUnwindSafe(|| client.read(status, &text, talk)))
            .map_err(|_| format!("the client cannot read {status}: {text}"))?;
        Ok((status, text))
    }

    /// Sends an answer. After a refusal the conversation continues from the client's view of it.
    async fn answer(&self, conversation: &mut Conversation, given: &[(usize, &Form)]) -> Result<Outcome, String> {
        let play = conversation.talk.mark.play;
        let before = self.stand.stage.requests(play).len();
        conversation.talk.mark.turn += 1;
        let mut talk = conversation.talk.clone();
        let given: Vec<(&Open, &Form)> = given.iter().map(|(item, form)| (&conversation.open[*item], *form)).collect();
        let said = words(&format!("{given:?}"));
        let request = self.speaker.answer(&given, &mut talk);
        let (status, text) = self.exchange(&request, &mut talk).await?;

        let requests = self.stand.stage.requests(play).split_off(before);
        if !requests.is_empty() {
            return Ok(Outcome::Taken(requests));
        }
        // A client with the whole conversation adds the repeated question to it.
        let keeps = matches!(
            self.speaker.way,
            AskForm::ChatWords | AskForm::ChatCalls | AskForm::MessagesWords | AskForm::MessagesCalls
        );
        if keeps && status == 200 {
            if talk.open.is_empty() {
                return Err(format!("the question is not asked again: {text}"));
            }
            conversation.open.clone_from(&talk.open);
            conversation.talk = talk;
        }
        // The answer may repeat the question, and the words of the client.
        let mut known = words(&conversation.question);
        known.extend(said);
        let mut reason = words(&text);
        reason.retain(|word| !known.contains(word));
        reason.dedup();
        Ok(Outcome::Refused(reason))
    }

    /// Tries every answer to one question. Returns what is wrong.
    async fn every_answer(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut waiting: Option<Conversation> = None;
        let mut taken: Vec<Case> = Vec::new();
        let forms = self.speaker.way.forms();
        for (case, form) in &forms {
            let mut conversation = match waiting.take() {
                Some(conversation) => conversation,
                None => match self.begin(&[ORDER]).await {
                    Ok(conversation) => conversation,
                    Err(error) => return vec![self.named(&format!("cannot be asked: {error}"))],
                },
            };
            match self.answer(&mut conversation, &[(0, form)]).await {
                Ok(Outcome::Taken(requests)) => {
                    taken.push(*case);
                    let found = self.judge(*case, &requests);
                    wrong.extend(found.map(|what| self.named(&format!("{case:?} {form:?}: {what}"))));
                    if *case == Case::Reject && taken.iter().filter(|case| **case == Case::Reject).count() == 1 {
                        wrong.extend(self.answer_again(&mut conversation, &forms).await);
                    }
                }
                Ok(Outcome::Refused(reason)) => {
                    if reason.len() < MIN_WORDS {
                        wrong.push(self.named(&format!("{case:?} {form:?} is refused without a reason: {reason:?}")));
                    }
                    if *case == Case::Reject {
                        wrong.push(self.named(&format!("{case:?} {form:?} is refused: {reason:?}")));
                    }
                    waiting = Some(conversation);
                }
                Err(error) => wrong.push(self.named(&format!("{case:?} {form:?}: {error}"))),
            }
        }

        let can = |case: Case| forms.iter().any(|(known, _)| *known == case);
        let understands = |decision| self.asker.understands.contains(&decision);
        // A word has no place for arguments, nor has the answer of Responses.
        let has_place = !matches!(self.speaker.way, AskForm::Responses | AskForm::ChatWords | AskForm::MessagesWords);
        let promised = [
            (Case::Accept, true),
            (Case::Reject, true),
            (Case::Edit, understands(pending::Decision::Edit) && has_place),
            (Case::Respond, understands(pending::Decision::Respond)),
        ];
        for (case, _) in promised.into_iter().filter(|(case, is_promised)| *is_promised && can(*case)) {
            if !taken.contains(&case) {
                wrong.push(self.named(&format!("no form of {case:?} is taken")));
            }
        }
        wrong
    }

    /// Compares the answer in the agent's requests with the decision. Returns the first difference.
    fn judge(&self, case: Case, requests: &[Value]) -> Option<String> {
        let received: Vec<AgentAnswer> =
            requests.iter().flat_map(|request| answers(self.protocol(), request)).collect();
        let [one] = received.as_slice() else {
            return Some(format!("{} answers arrive: {requests:?}", received.len()));
        };
        let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let understands = |decision| self.asker.understands.contains(&decision);
        let is_right = match case {
            Case::Accept => one.decision == Decision::Accept,
            Case::AcceptSame => one.decision == Decision::Accept || one.decision == Decision::Edit(json(ASKED)),
            Case::Edit => understands(pending::Decision::Edit) && one.decision == Decision::Edit(json(EDITED)),
            Case::Respond => {
                // An agent without a word for it gets a rejection with the text as its reason.
                understands(pending::Decision::Respond)
                    && (one.decision == Decision::Respond(cases::RESULT.to_owned()) || one.decision == Decision::Reject)
            }
            Case::Reject | Case::Cancel => matches!(one.decision, Decision::Reject | Decision::Cancel),
            Case::Nonsense => false,
        };
        if !is_right {
            return Some(format!("arrives as {:?}: {}", one.decision, requests[0]));
        }

        let allowed = match case {
            Case::Accept | Case::AcceptSame => Some(json(ASKED)),
            Case::Edit => Some(json(EDITED)),
            _ => None,
        };
        let wrong = READINGS.into_iter().find_map(|reading| {
            let is_asked_for = case == Case::Edit && reading == Reading::Flag && self.asker.edits_with_flag;
            let runs = one.runs(reading, ASKED).filter(|_| !is_asked_for)?;
            (Some(&runs) != allowed.as_ref()).then_some((reading, runs))
        });
        wrong.map(|(reading, runs)| format!("an agent that reads {reading:?} runs {runs}: {}", requests[0]))
    }

    /// Accepts what was rejected before, where answers name what they answer.
    async fn answer_again(&self, conversation: &mut Conversation, forms: &[(Case, Form)]) -> Option<String> {
        let has_ids = matches!(
            self.speaker.way,
            AskForm::AgentApi | AskForm::Responses | AskForm::A2a | AskForm::AgKit | AskForm::AgUi | AskForm::Mcp
        );
        let accepts =
            |(case, form): &&(Case, Form)| *case == Case::Accept && !matches!(form, Form::Words(_) | Form::Command(_));
        let (_, accept) = forms.iter().find(accepts).filter(|_| has_ids)?;
        match self.answer(conversation, &[(0, accept)]).await {
            Ok(Outcome::Refused(_)) => None,
            Ok(Outcome::Taken(requests)) => {
                let is_answered = requests.iter().any(|request| !answers(self.protocol(), request).is_empty());
                is_answered.then(|| self.named(&format!("an item is answered twice: {requests:?}")))
            }
            Err(error) => Some(self.named(&format!("a second answer: {error}"))),
        }
    }

    /// Answers two calls at once, in every order. Each gets its own decision.
    async fn two_at_once(&self) -> Vec<String> {
        let Some((accept, reject)) = accept_and_reject(self.speaker.way) else { return Vec::new() };
        if !self.asker.asks_several {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        for (accepted, rejected) in [(0, 1), (1, 0)] {
            for is_second_first in [false, true] {
                let mut conversation = match self.begin(&[ORDER, WIPE]).await {
                    Ok(conversation) if conversation.open.len() == 2 => conversation,
                    Ok(conversation) => {
                        return vec![self.named(&format!("two are not asked: {:?}", conversation.open))];
                    }
                    Err(error) => return vec![self.named(&format!("two cannot be asked: {error}"))],
                };
                let mut given = [(accepted, &accept), (rejected, &reject)];
                given.sort_by_key(|(item, _)| if is_second_first { 1 - *item } else { *item });
                let named = |what: &str| {
                    self.named(&format!("call {accepted} is accepted, second first: {is_second_first}: {what}"))
                };
                match self.answer(&mut conversation, &given).await {
                    Ok(Outcome::Taken(requests)) => {
                        wrong.extend(self.judge_two(accepted, &requests).map(|what| named(&what)));
                    }
                    Ok(Outcome::Refused(reason)) => wrong.push(named(&format!("it is refused: {reason:?}"))),
                    Err(error) => wrong.push(named(&error)),
                }
            }
        }
        wrong
    }

    fn judge_two(&self, accepted: usize, requests: &[Value]) -> Option<String> {
        let received: Vec<AgentAnswer> =
            requests.iter().flat_map(|request| answers(self.protocol(), request)).collect();
        let place = |one: &AgentAnswer| {
            let by_id = || one.id.as_deref().map(|id| usize::from(id.ends_with("-b")));
            one.place.filter(|_| received.iter().any(|other| other.place == Some(1))).or_else(by_id)
        };
        let mut decisions: Vec<(Option<usize>, &Decision)> =
            received.iter().map(|one| (place(one), &one.decision)).collect();
        decisions.sort_by_key(|(place, _)| *place);
        let expected =
            [0, 1].map(|item| (Some(item), if item == accepted { Decision::Accept } else { Decision::Reject }));
        let is_right = decisions.len() == 2
            && decisions.iter().zip(&expected).all(|((place, decision), (item, wanted))| {
                let is_refused = *wanted == Decision::Reject && matches!(decision, Decision::Cancel);
                place == item && (*decision == wanted || is_refused)
            });
        if !is_right {
            return Some(format!("they arrive as {decisions:?}: {}", requests[0]));
        }
        let rejected = received.iter().filter(|one| place(one) != Some(accepted));
        let runs = rejected.flat_map(|one| READINGS.map(|reading| (reading, one.runs(reading, ASKED))));
        let mut runs = runs.filter(|(reading, runs)| *reading != Reading::Text && runs.is_some());
        runs.next()
            .map(|(reading, _)| format!("an agent that reads {reading:?} runs the rejected call: {}", requests[0]))
    }

    /// The cell and what is wrong in it.
    fn named(&self, what: &str) -> String {
        let what: String = what.chars().take(1200).collect();
        format!("{} ← {}: {what}", self.speaker.name(), self.asker.name)
    }
}

/// The words of a text, without numbers and ids.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphabetic()).filter(|word| word.len() > 2);
    words.map(str::to_lowercase).collect()
}

/// Plays all answers with agents of this protocol.
pub(crate) async fn play(protocol: &str) {
    let choice = Choice::of_environment();
    if !choice.agent(protocol) {
        return;
    }
    let mut wrong = Vec::new();
    let speakers = speakers();
    for asker in askers().iter().filter(|asker| asker.agent.protocol() == protocol && choice.scenario(asker.name)) {
        let stand = Stand::start(std::sync::Arc::clone(&asker.agent)).await;
        let asked = speakers.iter().filter(|speaker| choice.client(speaker.client.protocol()));
        let cells: Vec<Cell<'_>> = asked.map(|speaker| Cell { stand: &stand, asker, speaker }).collect();
        let played = cells.iter().map(|cell| async {
            let mut wrong = cell.every_answer().await;
            wrong.extend(cell.two_at_once().await);
            wrong
        });
        wrong.extend(join_all(played).await.into_iter().flatten());
    }
    if let Some(path) = std::env::var_os("MATRIX_DECISIONS") {
        let path = std::path::PathBuf::from(path).join(format!("{protocol}.txt"));
        std::fs::write(path, wrong.join("\n")).expect("the list is written");
    }
    assert!(wrong.is_empty(), "{} wrong, an example of each kind:\n{}", wrong.len(), examples(&wrong));
}

/// One line of each kind of fault, with how many there are. A fault in one place concerns many cells.
fn examples(wrong: &[String]) -> String {
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for line in wrong.iter().map(String::as_str) {
        // Without the client, the form and the request.
        let (_, rest) = line.split_once(" ← ").unwrap_or(("", line));
        let (asker, what) = rest.split_once(": ").unwrap_or((rest, ""));
        let case = what.split(' ').next().unwrap_or_default();
        let found = ["arrives as", "an agent that reads", "refused without a reason", "is refused", "is taken"];
        let found = found.into_iter().find(|found| what.contains(found)).unwrap_or_default();
        kinds.entry(format!("{asker}: {case} {found}")).or_insert((0, line)).0 += 1;
    }
    let lines = kinds.iter().map(|(kind, (count, example))| format!("{count} x {kind}\n    {example}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_agent_that_asks_has_a_form() {
    let mut asking: Vec<&str> = askers().iter().map(|asker| asker.agent.protocol()).collect();
    asking.sort_unstable();
    asking.dedup();
    let asks = |agent: &std::sync::Arc<dyn interlingua_testing_agents::ScriptedAgent>| {
        agent.speaks(&AgentAct::Ask(Ask::Approval(ORDER)))
    };
    let mut speaking: Vec<&str> =
        interlingua_testing_agents::all().iter().filter(|agent| asks(agent)).map(|agent| agent.protocol()).collect();
    speaking.sort_unstable();
    assert_eq!(asking, speaking);
}
