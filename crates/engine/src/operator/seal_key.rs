//! The key that seals data held by clients. The first gateway that uses a store generates it.

use std::sync::Arc;

use interlingua_core::seal::Sealer;

use interlingua_base::{clock, random};
use interlingua_store::{Expect, Store, StoreError};

const COLLECTION: &str = "secrets";
const DOCUMENT: &str = "seal";

/// Sets the key of the sealer, unless it has one. Generates the key if the store has none.
pub(crate) async fn load(store: &Arc<dyn Store>, sealer: &Sealer) -> Result<(), StoreError> {
    while !sealer.has_key() {
        match store.get(COLLECTION, DOCUMENT).await? {
            Some(document) => match <[u8; 32]>::try_from(&document.value[..]) {
                Ok(key) => sealer.set_key(key),
                Err(_) => {
                    // Replace a key of the wrong length: no data can be sealed with it.
                    let expect = Expect::Version(document.version);
                    let _ = store.put(COLLECTION, DOCUMENT, new_key(), expect, clock::now()).await?;
                }
            },
            // If another gateway is faster, the next iteration reads its key.
            None => drop(store.put(COLLECTION, DOCUMENT, new_key(), Expect::Absent, clock::now()).await?),
        }
    }
    Ok(())
}

fn new_key() -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&random::bytes::<32>())
}
