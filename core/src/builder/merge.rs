//! Merges data deltas by the builder's rules (Agent API, section 6): strings and arrays are appended, numbers added,
//! objects merged, everything else replaced, new keys added. Booleans are not numbers. Keys keep their order.

use serde_json::value::RawValue;

use crate::json::{Extra, Json};

/// Merges `fragment` into `old`.
///
/// Objects nested deeper than serde_json's limit are replaced.
pub(super) fn merge(old: &Json, fragment: &Json) -> Json {
    match (first_byte(old), first_byte(fragment)) {
        (b'{', b'{') => merge_objects(old, fragment),
        (b'[', b'[') => append_arrays(old, fragment),
        (b'"', b'"') => append_strings(old, fragment),
        (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') => add_numbers(old, fragment),
        _ => None,
    }
    .unwrap_or_else(|| fragment.clone())
}

fn first_byte(json: &Json) -> u8 {
    json.text().bytes().next().unwrap_or(b'n')
}

fn merge_objects(old: &Json, fragment: &Json) -> Option<Json> {
    let mut fields: Extra = old.decode()?;
    for (name, value) in fragment.decode::<Extra>()?.iter() {
        let value = fields.get(name).map_or_else(|| value.clone(), |old| merge(old, value));
        fields.set(name, value);
    }
    Some(Json::from_serialize(&fields))
}

fn append_arrays(old: &Json, fragment: &Json) -> Option<Json> {
    let mut entries: Vec<&RawValue> = old.decode()?;
    entries.extend(fragment.decode::<Vec<&RawValue>>()?);
    Some(Json::from_serialize(&entries))
}

fn append_strings(old: &Json, fragment: &Json) -> Option<Json> {
    Some(Json::from_serialize(&(old.decode::<String>()? + &fragment.decode::<String>()?)))
}

fn add_numbers(old: &Json, fragment: &Json) -> Option<Json> {
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
    fn each_type_is_merged_by_its_own_rule() {
        for (old, fragment, expected) in [
            (r#"{"z":"a","l":[1],"n":1}"#, r#"{"z":"b","l":[{}],"n":2}"#, r#"{"z":"ab","l":[1,{}],"n":3}"#),
            (r#"{"o":{"b":"p","a":0}}"#, r#"{"o":{"b":"q","c":1}}"#, r#"{"o":{"b":"pq","a":0,"c":1}}"#),
            (r#"{"n":1}"#, r#"{"n":-0.5}"#, r#"{"n":0.5}"#),
            (r#"{"b":true,"x":null,"t":"a"}"#, r#"{"b":true,"x":1,"t":[1]}"#, r#"{"b":true,"x":1,"t":[1]}"#),
            (r#"{}"#, r#"{"new":true}"#, r#"{"new":true}"#),
        ] {
            let json = |text| Json::parse(text).expect("JSON");
            assert_eq!(merge(&json(old), &json(fragment)).text(), expected);
        }
    }
}
