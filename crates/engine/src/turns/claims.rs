//! Claims: documents by which one of several requests that would start the same run is the only one that does.
//!
//! Not here: when a request claims something, and when it takes the claim of a lost one over (the adapters).

use std::sync::Arc;

use interlingua_core::call::{CLAIMS, RunClaim};
use interlingua_core::{Fault, FaultKind};

use crate::faults::store_fault;
use crate::runs::Scope;
use crate::stored_json;
use interlingua_store::{Document, Expect, Store, Version};

/// A claim while its run is started. Dropped, it is deleted: also if the run is refused, or the client leaves.
pub(super) struct HeldClaim {
    store: Arc<dyn Store>,
    key: String,
    version: Version,
}

impl HeldClaim {
    /// # Errors
    /// Another request has taken the claim over meanwhile.
    pub(super) async fn hold(
        store: &Arc<dyn Store>,
        claim: Option<RunClaim>,
        scope: &Scope,
    ) -> Result<Option<Self>, Fault> {
        let Some(claim) = claim else { return Ok(None) };
        let key = scope.document_key(&claim.key);
        let found = store.get(CLAIMS, &key).await.map_err(store_fault)?;
        let stands = |document: &Document| stored_json::parse(&document.value).as_ref() == Some(&claim.value);
        let Some(version) = found.filter(stands).map(|document| document.version) else {
            let message = "another request has taken over what this one was to start: send it again";
            return Err(Fault::new(FaultKind::Overloaded, message));
        };
        Ok(Some(Self { store: Arc::clone(store), key, version }))
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        // Not waited for: it takes effect after the run was opened, and another version is another request's.
        drop(self.store.delete(CLAIMS, &self.key, Expect::Version(self.version)));
    }
}
