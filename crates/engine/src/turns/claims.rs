//! Claims: documents that ensure that only one of several concurrent requests starts a run.
//!
//! Not here: acquiring a claim, and taking over the claim of a lost request (the adapters).

use std::sync::Arc;

use interlingua_core::call::{CLAIMS, RunClaim};
use interlingua_core::{Fault, FaultKind};

use crate::faults::store_fault;
use crate::runs::Scope;
use crate::stored_json;
use interlingua_store::{Document, Expect, Store, Version};

/// A claim whose run is being started. The claim is deleted on drop, even if the run is refused or the client
/// disconnects.
pub(super) struct HeldClaim {
    store: Arc<dyn Store>,
    key: String,
    version: Version,
}

impl HeldClaim {
    /// # Errors
    /// If another request took the claim over, or the store fails.
    pub(super) async fn hold(
        store: &Arc<dyn Store>,
        claim: Option<RunClaim>,
        scope: &Scope,
    ) -> Result<Option<Self>, Fault> {
        let Some(claim) = claim else { return Ok(None) };
        let key = scope.document_key(&claim.key);
        let found = store.get(CLAIMS, &key).await.map_err(store_fault)?;
        let is_unchanged = |document: &Document| stored_json::parse(&document.value).as_ref() == Some(&claim.value);
        let Some(version) = found.filter(is_unchanged).map(|document| document.version) else {
            let message = "another request has taken over what this one was to start: send it again";
            return Err(Fault::new(FaultKind::Overloaded, message));
        };
        Ok(Some(Self { store: Arc::clone(store), key, version }))
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        // Not awaited: the store deletes it after the write that opened the run. A claim of another version belongs to
        // another request and stays.
        drop(self.store.delete(CLAIMS, &self.key, Expect::Version(self.version)));
    }
}
