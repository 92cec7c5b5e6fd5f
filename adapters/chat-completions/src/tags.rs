//! The tags of a stored completion: by them lists find it, and its client may change its metadata
//! (docs/protocols/chat-completions.md#stored-completions). A run without tags is no stored completion.

use interlingua_core::call::{RunInfo, RunState, Tags};
use interlingua_core::event::End;
use interlingua_core::{Extra, Json};

use crate::ids;

/// The tag that every stored completion has.
const STORE: &str = "store";
/// The tag with the model's name, as the client wrote it.
const MODEL: &str = "model";
/// The prefix of the keys of the metadata.
const METADATA: &str = "metadata.";

/// The ends of runs that have an answer.
pub(crate) const ANSWERED: [RunState; 2] = [RunState::Ended(End::Completed), RunState::Ended(End::Incomplete)];

/// The tags of a completion.
pub(crate) fn parse(model: &str, metadata: &Extra) -> Tags {
    let pairs = metadata.iter().filter_map(|(name, value)| Some(with_metadata(name, &value.decode::<String>()?)));
    pairs.chain([store(), with_model(model)]).collect()
}

/// The tag that every stored completion has.
pub(crate) fn store() -> (String, String) {
    (STORE.to_owned(), true.to_string())
}

/// The tag of a model.
pub(crate) fn with_model(model: &str) -> (String, String) {
    (MODEL.to_owned(), model.to_owned())
}

/// The tag of a pair of the metadata.
pub(crate) fn with_metadata(name: &str, value: &str) -> (String, String) {
    (format!("{METADATA}{name}"), value.to_owned())
}

/// These tags with other metadata.
pub(crate) fn replaced(tags: &Tags, metadata: &Extra) -> Tags {
    parse(tags.get(MODEL).map_or("", String::as_str), metadata)
}

/// The metadata among these tags.
pub(crate) fn metadata(tags: &Tags) -> Extra {
    let pairs = tags.iter().filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, value)));
    pairs.map(|(name, value)| (Box::<str>::from(name), Json::from_serialize(value))).collect()
}

/// True for a run that is a stored completion: one that this protocol began with `store`, and that has an answer.
pub(crate) fn is_completion(info: &RunInfo) -> bool {
    info.protocol == ids::NAME && info.stored && !info.tags.is_empty() && ANSWERED.contains(&info.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_survives_tags_and_is_replaced_as_a_whole() {
        let pairs = |pairs: &[(&str, &str)]| -> Extra {
            pairs.iter().map(|(name, value)| (Box::<str>::from(*name), Json::from_serialize(value))).collect()
        };
        let first = pairs(&[("model", "x"), ("metadata.a", "\"")]);
        let tags = parse("demo", &first);
        assert_eq!(metadata(&tags), pairs(&[("metadata.a", "\""), ("model", "x")]));

        let second = replaced(&tags, &pairs(&[("b", "2")]));
        assert_eq!((metadata(&second), second.get("model").map(String::as_str)), (pairs(&[("b", "2")]), Some("demo")));
        assert_eq!(replaced(&second, &Extra::new()).len(), 2, "it stays a stored completion");
    }
}
