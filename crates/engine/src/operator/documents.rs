//! Small documents that adapters store for a caller, for example push receivers.

use std::sync::Arc;

use interlingua_core::call::{DocumentCall, Replaces};
use interlingua_core::{Fault, Json};

use crate::deliveries::{Deliveries, ReceiverDocument, names_receiver};
use crate::faults::store_fault;
use crate::runs::Scope;
use crate::{faults, stored_json};
use interlingua_base::clock;
use interlingua_store::{Document, Expect, Store};

/// The maximum length of a list.
const MAX_DOCUMENTS: usize = 1000;

pub(crate) struct Documents {
    store: Arc<dyn Store>,
    deliveries: Arc<Deliveries>,
    /// The maximum number of push receivers of a caller. A caller can have a lower limit.
    receivers: usize,
}

impl Documents {
    pub(crate) const fn new(store: Arc<dyn Store>, deliveries: Arc<Deliveries>, receivers: usize) -> Self {
        Self { store, deliveries, receivers }
    }

    /// Serves a call. Returns the keys and values that were read. `None`: the call wrote or deleted a document.
    pub(crate) async fn serve(&self, call: DocumentCall, scope: &Scope) -> Result<Option<Vec<(String, Json)>>, Fault> {
        match call {
            DocumentCall::Get { collection, key } => self.get(&collection, key, scope).await.map(Some),
            DocumentCall::List { collection, prefix } => self.list(&collection, &prefix, scope).await.map(Some),
            DocumentCall::Put { collection, key, value, replaces } => {
                let is_put = self.put(&collection, &key, value, &replaces, scope).await?;
                if is_put { Ok(None) } else { self.get(&collection, key, scope).await.map(Some) }
            }
            DocumentCall::Delete { collection, key } => {
                let deleted = self.store.delete(&collection, &scope.document_key(&key), Expect::Any);
                let _ = deleted.await.map_err(store_fault)?;
                self.deliveries.receiver_removed(&collection, &key, scope);
                Ok(None)
            }
        }
    }

    async fn get(&self, collection: &str, key: String, scope: &Scope) -> Result<Vec<(String, Json)>, Fault> {
        let found = self.store.get(collection, &scope.document_key(&key)).await.map_err(store_fault)?;
        let value = found.and_then(|document| stored_json::parse(&document.value));
        Ok(value.map(|value| (key, value)).into_iter().collect())
    }

    /// The documents with a prefix, oldest first.
    async fn list(&self, collection: &str, prefix: &str, scope: &Scope) -> Result<Vec<(String, Json)>, Fault> {
        let owner_len = scope.document_key("").len();
        let found = self.store.list(collection, &scope.document_key(prefix), None, MAX_DOCUMENTS).await;
        let mut found = found.map_err(store_fault)?;
        found.sort_by_key(|entry| entry.document.created);
        let read = |entry: &interlingua_store::DocumentEntry| {
            Some((entry.key.get(owner_len..)?.to_owned(), stored_json::parse(&entry.document.value)?))
        };
        Ok(found.iter().filter_map(read).collect())
    }

    /// Fails if the document would exceed the number of receivers of the caller. Replacing a document is always allowed.
    async fn check_receivers(&self, collection: &str, key: &str, scope: &Scope) -> Result<(), Fault> {
        let limit = scope.caller.usage.limits().receivers.min(self.receivers);
        let count = self.store.count(collection, scope.owner.base_key()).await.map_err(store_fault)?;
        if count < limit as u64 {
            return Ok(());
        }

        let known = self.store.get(collection, &scope.document_key(key)).await.map_err(store_fault)?;
        if known.is_some() { Ok(()) } else { Err(faults::too_many_receivers(limit)) }
    }

    /// The precondition of the write. `None`: the document differs from the value to replace.
    async fn expected(
        &self,
        collection: &str,
        key: &str,
        replaces: &Replaces,
        scope: &Scope,
    ) -> Result<Option<Expect>, Fault> {
        let known = match replaces {
            Replaces::Anything => return Ok(Some(Expect::Any)),
            Replaces::Nothing => return Ok(Some(Expect::Absent)),
            Replaces::Value(known) => known,
        };
        let found = self.store.get(collection, &scope.document_key(key)).await.map_err(store_fault)?;
        let is_known = |document: &Document| stored_json::parse(&document.value).as_ref() == Some(known);
        Ok(found.filter(is_known).map(|document| Expect::Version(document.version)))
    }

    /// Writes a document. False: the document differs from the value to replace, and nothing was written.
    async fn put(
        &self,
        collection: &str,
        key: &str,
        value: Json,
        replaces: &Replaces,
        scope: &Scope,
    ) -> Result<bool, Fault> {
        if names_receiver(collection, scope) {
            self.check_receivers(collection, key, scope).await?;
        }
        self.deliveries.check_receiver(collection, &value, scope).await?;
        let Some(expected) = self.expected(collection, key, replaces, scope).await? else { return Ok(false) };
        let (bytes, stored_key) = (stored_json::to_bytes(&value), scope.document_key(key));
        let put = async |expected| {
            let put = self.store.put(collection, &stored_key, bytes.clone(), expected, clock::now());
            put.await.map_err(store_fault)
        };
        let version = match put(expected).await? {
            Ok(version) => version,
            // A damaged document counts as missing, as in `get`. Otherwise no request could ever replace it.
            Err(_) if *replaces == Replaces::Nothing => {
                let found = self.store.get(collection, &stored_key).await.map_err(store_fault)?;
                let damaged = found.filter(|document| stored_json::parse(&document.value).is_none());
                let Some(damaged) = damaged else { return Ok(false) };
                let Ok(version) = put(Expect::Version(damaged.version)).await? else { return Ok(false) };
                version
            }
            Err(_) => return Ok(false),
        };
        let document = ReceiverDocument { key, value: &value, version };
        self.deliveries.receiver_added(collection, document, scope).await;
        Ok(true)
    }
}
