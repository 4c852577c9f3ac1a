//! All changes, alone and in pairs, on a model: the plan comes to an end from wherever it is, the end does not
//! depend on the way, and nothing is left of what was taken back.

use keelson_api::v1::{DatabaseSpec, Settings};
use serde_json::{Value, json};

use super::model::{Model, Rest};
use super::schema::{Field, fields};

/// A version that is named can be named differently, but not taken away.
fn base() -> Value {
    json!({"version": "17", "replicas": 2, "deletionPolicy": "Delete"})
}

/// A change that can be read, as a spec and as what it means.
struct Change {
    name: String,
    field: Field,
    value: Value,
}

fn read(spec: &Value) -> Option<DatabaseSpec> {
    serde_json::from_value(spec.clone()).ok()
}

/// Every change of one field; of those that mean the same, or are wrong for the same reason, one; and of each
/// field only so many.
fn changes(of_each: usize) -> Vec<Change> {
    let base = base();
    let mut changes = Vec::new();
    for field in fields() {
        let mut meanings: Vec<(Result<Settings, String>, Value)> = Vec::new();
        for value in &field.values {
            let spec = field.set(&base, value);
            let Some(read) = read(&spec) else { continue };
            let meaning = read.settings().map_err(|errors| errors[0].field.clone());
            // What children take as it is written.
            let raw = json!([read.scheduling, read.image, read.image_pull_secrets]);
            let known = meanings.contains(&(meaning.clone(), raw.clone()));
            if spec == base || known || meanings.len() == of_each {
                continue;
            }
            meanings.push((meaning, raw));
            let name = format!("{} = {}", field.name(), short(value));
            changes.push(Change { name, field: field.clone(), value: value.clone() });
        }
    }
    changes
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

fn settled(spec: &Value) -> (Model, Rest) {
    let mut model = Model::new(spec);
    let rest = model.settle().unwrap();
    (model, rest)
}

/// The same, but for volumes, which never shrink: then that must be said. Where nothing is done, the same is said.
fn same(expected: &Rest, found: &Rest) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    // What was there when it was asked for stays.
    if expected.held_up && found.held_up && expected.conditions == found.conditions {
        return Ok(());
    }
    let grown = expected.claims != found.claims;
    let said = found.conditions.get("Degraded").is_some_and(|(_, reason, message)| {
        reason == "VolumeCannotShrink" || message.contains("can't become")
    });
    if grown && said {
        return Ok(());
    }
    let (expected, found) = (format!("{expected:#?}"), format!("{found:#?}"));
    let differs = expected.lines().zip(found.lines()).filter(|(one, other)| one != other);
    Err(format!("{:#?}", differs.take(10).collect::<Vec<_>>()))
}

#[test]
fn every_change_comes_to_an_end_that_is_said_and_leaves_nothing_behind() {
    let (base_model, base_rest) = settled(&base());
    for Change { name, field, value } in changes(usize::MAX) {
        let mut model = base_model.clone();
        let with = field.set(&base(), &value);
        let rest = model.change(read(&with).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (_, reason, message) = &rest.conditions["Degraded"];
        assert!(
            rest.phase == "Running" || !message.is_empty() && reason != "AsAsked",
            "{name} ends in {} without a word: {:?}",
            rest.phase,
            rest.conditions
        );
        let back = model.change(read(&base()).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        same(&base_rest, &back).unwrap_or_else(|error| panic!("{name} is not taken back: {error}"));
    }
}

#[test]
fn every_pair_of_changes_comes_to_an_end_that_does_not_depend_on_the_way() {
    let changes = changes(3);
    let (base_model, base_rest) = settled(&base());
    let alone: Vec<Rest> = changes
        .iter()
        .map(|one| base_model.clone().change(read(&one.field.set(&base(), &one.value)).unwrap()).unwrap())
        .collect();
    let begun = std::time::Instant::now();
    let mut tried = 0;
    for (first, one) in changes.iter().enumerate() {
        let with_one = one.field.set(&base(), &one.value);
        let mut began = base_model.clone();
        began.change(read(&with_one).unwrap()).unwrap();
        // Which of two comes first alternates.
        let others = changes.iter().enumerate();
        let others = others.filter(|(second, _)| (first < *second) == ((first + second) % 2 == 0));
        for (second, other) in others.filter(|(second, _)| *second != first) {
            let name = format!("{}, then {}", one.name, other.name);
            let Some(both) = read(&other.field.set(&with_one, &other.value)) else { continue };
            let mut model = began.clone();
            let failed = |error: String| -> Rest { panic!("{name}: {error}") };
            model.change(both).unwrap_or_else(failed);
            let with_other = read(&other.field.set(&base(), &other.value)).unwrap();
            let rest = model.change(with_other).unwrap_or_else(failed);
            same(&alone[second], &rest).unwrap_or_else(|error| panic!("{name}, without the first: {error}"));
            let back = model.change(read(&base()).unwrap()).unwrap_or_else(failed);
            same(&base_rest, &back).unwrap_or_else(|error| panic!("{name}, without both: {error}"));
            tried += 1;
        }
    }
    println!("{} changes, {tried} pairs in {:?}", changes.len(), begun.elapsed());
}
