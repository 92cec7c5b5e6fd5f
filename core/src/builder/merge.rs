//! Merging fragments of data by the builder's rule (Agent API, section 6): texts and lists grow, numbers but not
//! booleans are added, objects merge, all else is replaced, new keys are added. Keys keep their order.

use serde_json::value::RawValue;

use crate::json::{Extra, Json};

/// The data with a fragment merged into it.
///
/// Objects nested deeper than a parser follows are replaced.
pub(super) fn merged(old: &Json, fragment: &Json) -> Json {
    match (first(old), first(fragment)) {
        (b'{', b'{') => objects(old, fragment),
        (b'[', b'[') => lists(old, fragment),
        (b'"', b'"') => texts(old, fragment),
        (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') => numbers(old, fragment),
        _ => None,
    }
    .unwrap_or_else(|| fragment.clone())
}

fn first(json: &Json) -> u8 {
    json.text().bytes().next().unwrap_or(b'n')
}

fn objects(old: &Json, fragment: &Json) -> Option<Json> {
    let mut fields: Extra = old.decode()?;
    for (name, value) in fragment.decode::<Extra>()?.iter() {
        let value = fields.get(name).map_or_else(|| value.clone(), |old| merged(old, value));
        fields.set(name, value);
    }
    Some(Json::from_serialize(&fields))
}

fn lists(old: &Json, fragment: &Json) -> Option<Json> {
    let mut entries: Vec<&RawValue> = old.decode()?;
    entries.extend(fragment.decode::<Vec<&RawValue>>()?);
    Some(Json::from_serialize(&entries))
}

fn texts(old: &Json, fragment: &Json) -> Option<Json> {
    Some(Json::from_serialize(&(old.decode::<String>()? + &fragment.decode::<String>()?)))
}

fn numbers(old: &Json, fragment: &Json) -> Option<Json> {
    if let (Some(old), Some(added)) = (old.decode::<i64>(), fragment.decode::<i64>())
        && let Some(sum) = old.checked_add(added)
    {
        return Some(Json::from_serialize(&sum));
    }
    Some(Json::from_serialize(&(old.decode::<f64>()? + fragment.decode::<f64>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_own_way_to_grow() {
        for (old, fragment, whole) in [
            (r#"{"z":"a","l":[1],"n":1}"#, r#"{"z":"b","l":[{}],"n":2}"#, r#"{"z":"ab","l":[1,{}],"n":3}"#),
            (r#"{"o":{"b":"p","a":0}}"#, r#"{"o":{"b":"q","c":1}}"#, r#"{"o":{"b":"pq","a":0,"c":1}}"#),
            (r#"{"n":1}"#, r#"{"n":-0.5}"#, r#"{"n":0.5}"#),
            (r#"{"b":true,"x":null,"t":"a"}"#, r#"{"b":true,"x":1,"t":[1]}"#, r#"{"b":true,"x":1,"t":[1]}"#),
            (r#"{}"#, r#"{"new":true}"#, r#"{"new":true}"#),
        ] {
            let json = |text| Json::parse(text).expect("JSON");
            assert_eq!(merged(&json(old), &json(fragment)).text(), whole);
        }
    }
}
