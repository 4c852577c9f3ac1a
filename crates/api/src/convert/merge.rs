//! Three-way merge of JSON.

use serde_json::Value;

/// Applies to `kept` what has changed from `then` to `now`. Where nothing has, `kept` stays as it is.
pub(super) fn carry_over(then: &Value, now: &Value, mut kept: Value) -> Value {
    if then == now {
        return kept;
    }
    let (Value::Object(then), Value::Object(now), Value::Object(fields)) = (then, now, &mut kept) else {
        return now.clone();
    };
    for (name, before) in then {
        match (now.get(name), fields.get(name)) {
            (Some(after), _) if after == before => {}
            (Some(after), Some(field)) => {
                let merged = carry_over(before, after, field.clone());
                fields.insert(name.clone(), merged);
            }
            (Some(after), None) => {
                fields.insert(name.clone(), after.clone());
            }
            (None, _) => {
                fields.remove(name);
            }
        }
    }
    for (name, added) in now.iter().filter(|(name, _)| !then.contains_key(*name)) {
        fields.insert(name.clone(), added.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changed_is_applied_and_the_rest_is_kept() {
        let then = json!({"same": 1, "changed": 1, "gone": 1, "deep": {"same": 1, "changed": 1}});
        let now = json!({"same": 1, "changed": 2, "new": 3, "deep": {"same": 1, "changed": 2}});
        let kept = json!({"same": 9, "changed": 9, "gone": 9, "deep": {"same": 9, "changed": 9, "more": 9}, "more": 9});
        assert_eq!(
            carry_over(&then, &now, kept),
            json!({"same": 9, "changed": 2, "new": 3, "deep": {"same": 9, "changed": 2, "more": 9}, "more": 9})
        );
    }
}
