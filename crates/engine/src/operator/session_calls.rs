//! Calls that list, read, change and delete sessions of the caller.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use interlingua_core::call::{RunState, SessionCall, SessionFilter, SessionPage, SessionView};
use interlingua_core::model::Message;
use interlingua_core::{Extra, Fault, FaultKind, RunId};

use crate::runs::{RunTable, Scope};
use crate::sessions::{PageSelection, Session};
use crate::turns::{Canceller, Transcripts};

/// The number of times that a list is read again because sessions in it got new runs meanwhile.
const MAX_LIST_ROUNDS: usize = 4;

/// Serves calls about sessions.
pub(crate) struct SessionCalls {
    runs: Arc<RunTable>,
    transcripts: Arc<Transcripts>,
    canceller: Arc<Canceller>,
}

impl SessionCalls {
    pub(crate) const fn new(runs: Arc<RunTable>, transcripts: Arc<Transcripts>, canceller: Arc<Canceller>) -> Self {
        Self { runs, transcripts, canceller }
    }

    /// Serves a call about one session. `None`: the session was deleted.
    pub(crate) async fn serve(&self, call: SessionCall, scope: &Scope) -> Result<Option<Vec<SessionView>>, Fault> {
        let view = match call {
            SessionCall::Create { agent, session, items, labels } => {
                self.create(&agent, &session, &items, &labels, scope).await
            }
            SessionCall::Get { session } => self.view(&*self.find(&session, scope).await?, false, usize::MAX).await,
            SessionCall::GetPart { session, newest, least } => {
                self.view(&*self.find(&session, scope).await?, newest, least).await
            }
            SessionCall::List(_) => return Err(Fault::new(FaultKind::Internal, "a list is no single session")),
            SessionCall::Append { session, items } => {
                let session = self.find(&session, scope).await?;
                session.append(&items)?;
                self.save_and_view(&session, items.len()).await
            }
            SessionCall::Remove { session, item } => {
                let session = self.find(&session, scope).await?;
                if !self.transcripts.remove_item(&session, &item).await? {
                    return Err(Fault::not_found(format_args!("item '{item}'")));
                }
                self.save_and_view(&session, 0).await
            }
            SessionCall::Label { session, labels } => {
                let session = self.find(&session, scope).await?;
                session.set_labels(&labels);
                self.save_and_view(&session, 0).await
            }
            SessionCall::Delete { session } => {
                let session = self.find(&session, scope).await?;
                self.canceller.cancel_all(&session, scope).await?;
                self.runs.sessions().delete(&session).await?;
                return Ok(None);
            }
        };

        Ok(Some(vec![view?]))
    }

    async fn create(
        &self,
        agent: &str,
        id: &str,
        items: &[Message],
        labels: &Extra,
        scope: &Scope,
    ) -> Result<SessionView, Fault> {
        if !scope.agents.contains(agent) {
            return Err(Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{agent}'")));
        }

        let session = self.runs.sessions().get_or_create(agent, &scope.owner, id).await?;
        session.begin_conversation(items, labels)?;
        self.save_and_view(&session, 0).await
    }

    pub(crate) async fn list(&self, filter: &SessionFilter, scope: &Scope) -> Result<SessionPage, Fault> {
        let mut page = self.select(filter, scope).await?;
        let mut states: HashMap<RunId, Option<RunState>> = HashMap::new();
        for _ in 0..MAX_LIST_ROUNDS {
            let mut has_new_runs = false;
            for run in page.sessions.iter().filter_map(|session| session.latest) {
                if let Entry::Vacant(unknown) = states.entry(run) {
                    unknown.insert(self.state_of(Some(run)).await?);
                    has_new_runs = true;
                }
            }
            if !has_new_runs {
                break;
            }
            // As in `view`: pending items must be read after the state of their run.
            page = self.select(filter, scope).await?;
        }

        for session in &mut page.sessions {
            session.state = session.latest.and_then(|run| states.get(&run).copied().flatten());
        }
        Ok(page)
    }

    async fn select(&self, filter: &SessionFilter, scope: &Scope) -> Result<SessionPage, Fault> {
        let mut selection = PageSelection::new(filter);
        let is_selected = |agent: &str| filter.agent.as_ref().is_none_or(|only| only == agent);
        for card in scope.agents.iter().filter(|card| is_selected(&card.name)) {
            self.runs.sessions().visit(&card.name, &scope.owner, |session| selection.add(session)).await?;
        }
        Ok(selection.finish())
    }

    async fn find(&self, id: &str, scope: &Scope) -> Result<Arc<Session>, Fault> {
        for card in scope.agents.iter() {
            if let Some(session) = self.runs.sessions().find(&card.name, &scope.owner, id).await? {
                return Ok(session);
            }
        }
        Err(Fault::not_found(format_args!("session '{id}'")))
    }

    /// Saves a session and returns it with at least `least` of its latest items, if it has that many.
    async fn save_and_view(&self, session: &Arc<Session>, least: usize) -> Result<SessionView, Fault> {
        self.runs.sessions().save(session).await?;
        self.view(session, true, least).await
    }

    /// The session with at least `least` of its newest or oldest items, if it has that many.
    async fn view(&self, session: &Session, newest: bool, least: usize) -> Result<SessionView, Fault> {
        let items = self.transcripts.items(session, newest, least).await?;
        loop {
            let latest = session.latest();
            let state = self.state_of(latest).await?;
            // A run adds its pending items to the session before it starts to wait. If the items were read before the
            // state, a run could appear to wait without an item.
            let view = session.view();
            if view.latest == latest {
                return Ok(SessionView { state, items, ..view });
            }
        }
    }

    async fn state_of(&self, run: Option<RunId>) -> Result<Option<RunState>, Fault> {
        match run {
            Some(id) => Ok(self.runs.find(id).await?.map(|run| run.run_state())),
            None => Ok(None),
        }
    }
}
