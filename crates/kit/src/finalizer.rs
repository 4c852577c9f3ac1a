//! Cleaning up before an object goes, in steps that can be taken up where they stopped.
//!
//! A finalizer keeps an object that has been deleted until its clean-up is done. Which steps are done is
//! kept on the object itself, in an annotation, so that neither a failure in the middle nor another
//! process begins again from the start. A step may run once more than it is noted, if the process dies
//! in between, so steps are idempotent.

use kube::core::ObjectMeta;
use serde_json::{Value, json};

/// What is next for an object, as far as its clean-up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing stands in the way of ordinary work.
    Work,
    /// It needs the finalizer before anything is done that would have to be cleaned up.
    Protect,
    /// It is on its way out: this step is next.
    Clean(&'static str),
    /// All steps are done: let it go.
    Release,
    /// It is on its way out, and others have still to do with it.
    Leave,
}

/// What is next, given the steps in their order. Without steps there is no finalizer.
pub fn stage(meta: &ObjectMeta, name: &str, steps: &[&'static str]) -> Stage {
    let protected = meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    let leaving = meta.deletion_timestamp.is_some();
    match (leaving, protected) {
        (false, false) if !steps.is_empty() => Stage::Protect,
        (false, _) => Stage::Work,
        (true, false) => Stage::Leave,
        (true, true) => {
            let done: Vec<&str> = done(meta, name).collect();
            let next = steps.iter().find(|step| !done.contains(*step));
            next.map_or(Stage::Release, |step| Stage::Clean(step))
        }
    }
}

fn done<'a>(meta: &'a ObjectMeta, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let noted = meta.annotations.as_ref().and_then(|all| all.get(&annotation(name)));
    noted.map(String::as_str).unwrap_or_default().split(',').filter(|step| !step.is_empty())
}

/// Whether nothing keeps it any more: this is the last that was ever seen of it.
pub fn is_released(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().next().is_none()
}

/// The annotation that holds the steps that are done.
pub fn annotation(name: &str) -> String {
    format!("{name}.done")
}

/// The patch that follows from a stage that has been dealt with. It holds only for the version that was
/// seen, so that nobody else's finalizer is lost.
pub fn patch(meta: &ObjectMeta, name: &str, dealt_with: Stage) -> Option<Value> {
    let finalizers = meta.finalizers.iter().flatten();
    let change = match dealt_with {
        Stage::Work | Stage::Leave => return None,
        Stage::Protect => {
            json!({ "finalizers": finalizers.map(String::as_str).chain([name]).collect::<Vec<_>>() })
        }
        Stage::Clean(step) => {
            let steps: Vec<&str> = done(meta, name).chain([step]).collect();
            json!({ "annotations": { annotation(name): steps.join(",") } })
        }
        Stage::Release => json!({ "finalizers": finalizers.filter(|one| *one != name).collect::<Vec<_>>() }),
    };
    let mut patch = json!({ "metadata": change });
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "example.dev/greeting";
    const STEPS: &[&str] = &["backups", "volumes"];

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    /// What the API server makes of a patch.
    fn patched(meta: &ObjectMeta, patch: Value) -> ObjectMeta {
        let mut value = serde_json::to_value(meta).unwrap();
        for (field, new) in patch["metadata"].as_object().unwrap() {
            match (field.as_str(), new) {
                ("annotations", Value::Object(new)) => {
                    let mut all = value[field].as_object().cloned().unwrap_or_default();
                    all.extend(new.clone());
                    value[field] = all.into();
                }
                _ => value[field] = new.clone(),
            }
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_object_is_protected_before_work_and_goes_when_every_step_is_done_once() {
        let mut object = meta(json!({"resourceVersion": "1", "finalizers": ["somebody/else"]}));
        assert_eq!(stage(&object, NAME, STEPS), Stage::Protect);
        object = patched(&object, patch(&object, NAME, Stage::Protect).unwrap());
        assert_eq!(stage(&object, NAME, STEPS), Stage::Work);

        object.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-16T12:00:00Z")).unwrap());
        let mut seen = Vec::new();
        while let stage @ Stage::Clean(step) = stage(&object, NAME, STEPS) {
            seen.push(step);
            object = patched(&object, patch(&object, NAME, stage).unwrap());
        }
        assert_eq!(seen, STEPS);
        assert_eq!(stage(&object, NAME, STEPS), Stage::Release);
        object = patched(&object, patch(&object, NAME, Stage::Release).unwrap());
        assert_eq!(object.finalizers.as_deref(), Some(&["somebody/else".to_owned()][..]));
        assert_eq!(stage(&object, NAME, STEPS), Stage::Leave);
        assert!(!is_released(&object), "somebody else keeps it");
        object.finalizers = None;
        assert!(is_released(&object));
    }

    #[test]
    fn an_object_that_was_never_protected_is_left_alone_when_it_goes() {
        let object = meta(json!({"deletionTimestamp": "2026-11-16T12:00:00Z"}));
        assert_eq!(stage(&object, NAME, STEPS), Stage::Leave);
        assert_eq!(patch(&object, NAME, Stage::Leave), None);
    }

    #[test]
    fn a_kind_without_steps_has_no_finalizer() {
        assert_eq!(stage(&meta(json!({})), NAME, &[]), Stage::Work);
        let old = meta(json!({"finalizers": [NAME], "deletionTimestamp": "2026-11-16T12:00:00Z"}));
        assert_eq!(stage(&old, NAME, &[]), Stage::Release, "one from a version that had steps still goes");
    }

    #[test]
    fn a_patch_holds_only_for_the_version_that_was_seen() {
        let object = meta(json!({"resourceVersion": "7"}));
        assert_eq!(patch(&object, NAME, Stage::Protect).unwrap()["metadata"]["resourceVersion"], "7");
    }
}
