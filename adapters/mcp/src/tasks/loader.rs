//! Loading of a task: its run, the runs that answered its questions over another protocol, and the number of times that
//! its open questions were closed.

use std::collections::BTreeMap;

use interlingua_core::call::{ATTACHMENTS, DocumentCall, Replaces, RunInfo, attachment, attachment_key};
use interlingua_core::pending::Pending;
use interlingua_core::run::Record;
use interlingua_core::{Call, Fault, Json, Reply, RunId, RunView, Target};

use super::phase::Phase;
use crate::envelope::RpcError;
use crate::envelope::rpc_error::INTERNAL_ERROR;
use crate::forms;

/// Maximum number of runs that are followed from one task.
const MAX_LINKS: usize = 32;
/// The name of the attachment with the closed questions.
const DISMISSED: &str = "mcp_dismissed";

/// A run as it was when it was loaded.
#[derive(Clone, Debug)]
pub(crate) struct KeptRun {
    record: Record,
    info: RunInfo,
    pending: Vec<Pending>,
}

impl KeptRun {
    /// Keeps a run beyond the reply that shows it.
    pub(crate) fn new(view: RunView<'_>) -> Self {
        Self { record: view.record.clone(), info: view.info.clone(), pending: view.pending.to_vec() }
    }

    /// The run.
    pub(crate) fn view(&self) -> RunView<'_> {
        RunView { record: &self.record, info: &self.info, pending: &self.pending }
    }
}

/// The number of times that the questions of a run were closed, by the keys of their items: a key is never used twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DismissalCounts(BTreeMap<String, usize>);

impl DismissalCounts {
    /// The number for an item.
    pub(crate) fn of(&self, item: &Pending) -> usize {
        self.0.get(&forms::key(item)).copied().unwrap_or(0)
    }

    /// The numbers after these items were closed once more.
    pub(crate) fn with(&self, items: &[&Pending]) -> Self {
        let mut counts = self.0.clone();
        for item in items {
            *counts.entry(forms::key(item)).or_default() += 1;
        }
        Self(counts)
    }

    /// The call that stores the numbers, with the run.
    pub(crate) fn put(&self, run: RunId) -> Call {
        Call::Document(DocumentCall::Put {
            collection: ATTACHMENTS.to_owned(),
            key: attachment_key(run, DISMISSED),
            value: Json::from_serialize(&self.0),
            replaces: Replaces::Anything,
        })
    }

    fn read(documents: &[(String, Json)]) -> Self {
        Self(documents.first().and_then(|(_, value)| value.decode()).unwrap_or_default())
    }
}

/// The progress of loading.
#[derive(Debug)]
pub(crate) enum LoadStep<T> {
    /// Another call is needed.
    Call(Call),
    /// The task is loaded.
    Done(T),
}

/// Loads one task.
pub(crate) struct TaskLoader {
    /// The runs before the one that is being loaded, or all of them.
    kept: Vec<KeptRun>,
    is_reading_dismissed: bool,
}

impl TaskLoader {
    /// Begins to load a task.
    pub(crate) const fn new(id: RunId) -> (Self, Call) {
        (Self { kept: Vec::new(), is_reading_dismissed: false }, Call::Fetch(Target::Run(id)))
    }

    /// Continues with a reply of the engine. `show` gets the task's run and those that followed it, oldest first.
    ///
    /// # Errors
    /// The reply does not match.
    pub(crate) fn reply<T>(
        &mut self,
        reply: Reply<'_>,
        show: impl FnOnce(&[RunView<'_>], &DismissalCounts) -> T,
    ) -> Result<LoadStep<T>, RpcError> {
        match reply {
            Reply::Run(view) if !self.is_reading_dismissed => Ok(self.take(view, show)),
            // The run that answered the last one was deleted.
            Reply::Done if !self.kept.is_empty() => Ok(LoadStep::Done(self.show(&DismissalCounts::default(), show))),
            Reply::Documents(documents) if self.is_reading_dismissed => {
                Ok(LoadStep::Done(self.show(&DismissalCounts::read(documents), show)))
            }
            _ => Err(RpcError::new(INTERNAL_ERROR, Fault::unexpected_reply().message)),
        }
    }

    fn take<T>(&mut self, view: RunView<'_>, show: impl FnOnce(&[RunView<'_>], &DismissalCounts) -> T) -> LoadStep<T> {
        let is_known = |id: RunId| id == view.run().id || self.kept.iter().any(|kept| kept.view().run().id == id);
        if let Some(next) = view.run().answered_by()
            && self.kept.len() < MAX_LINKS
            && !is_known(next)
        {
            self.kept.push(KeptRun::new(view));
            return LoadStep::Call(Call::Fetch(Target::Run(next)));
        }
        if Phase::of(view) == Phase::Asks {
            self.kept.push(KeptRun::new(view));
            self.is_reading_dismissed = true;
            return LoadStep::Call(attachment(view.run().id, DISMISSED));
        }
        let mut runs: Vec<RunView<'_>> = self.kept.iter().map(KeptRun::view).collect();
        runs.push(view);
        LoadStep::Done(show(&runs, &DismissalCounts::default()))
    }

    fn show<T>(&self, dismissed: &DismissalCounts, show: impl FnOnce(&[RunView<'_>], &DismissalCounts) -> T) -> T {
        let runs: Vec<RunView<'_>> = self.kept.iter().map(KeptRun::view).collect();
        show(&runs, dismissed)
    }

    /// The call to make instead of one that found nothing. `None`: there is no such task.
    pub(crate) fn on_not_found(&self) -> Option<Call> {
        (!self.kept.is_empty()).then_some(Call::Nothing)
    }
}
