//! Short lists in the store, the latest item at the end. Several requests may change a list at the same time.

use interlingua_core::{Fault, Json};
use serde::Serialize;

use crate::faults::store_fault;
use crate::stored_json;
use interlingua_base::clock;
use interlingua_store::{Expect, Store, Version};

/// The number of attempts to write a list that other requests change meanwhile.
const MAX_WRITES: usize = 4;

/// The lists of one collection. Each list is a document.
pub(super) struct RecentLists<T> {
    pub(super) collection: &'static str,
    /// The oldest items beyond this number are dropped.
    pub(super) max_len: usize,
    /// True: a push that changes nothing is written, too, so that retention counts the age of the list from then.
    pub(super) is_refreshed: bool,
    /// Reads a list. Empty if the document has an unknown form: the next write replaces it.
    pub(super) parse: fn(&Json) -> Vec<T>,
}

impl<T: Clone + PartialEq + Serialize> RecentLists<T> {
    /// The list of a key, and the version of its document. `None`: there is no document.
    pub(super) async fn read(&self, store: &dyn Store, key: &str) -> Result<(Vec<T>, Option<Version>), Fault> {
        let found = store.get(self.collection, key).await.map_err(store_fault)?;
        let Some(document) = found else { return Ok((Vec::new(), None)) };
        let items = stored_json::parse(&document.value).map(|json| (self.parse)(&json));
        Ok((items.unwrap_or_default(), Some(document.version)))
    }

    /// Moves or adds an item to the end. False: other requests changed the list at each attempt.
    pub(super) async fn push(&self, store: &dyn Store, key: &str, item: &T) -> Result<bool, Fault> {
        for _ in 0..MAX_WRITES {
            let (mut items, version) = self.read(store, key).await?;
            if !self.is_refreshed && items.last() == Some(item) {
                return Ok(true);
            }

            items.retain(|known| known != item);
            items.push(item.clone());
            let surplus = items.len().saturating_sub(self.max_len);
            items.drain(..surplus);

            let value = stored_json::to_bytes(&Json::from_serialize(&items));
            let expect = version.map_or(Expect::Absent, Expect::Version);
            if store.put(self.collection, key, value, expect, clock::now()).await.map_err(store_fault)?.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
