//! Every change of one field, and a sample of changes of two, on a real API server with an operator at work.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::schema::{Field, fields, get};
use super::tryout::{Outcome, Tryout};
use crate::parallel::each;

/// So many databases are changed side by side.
const AT_ONCE: usize = 8;
/// So many pairs are tried on the API server; all of them are on the model.
const PAIRS: usize = 24;
/// So many values of a field go all the way: set, lived with, and taken back.
const ALL_THE_WAY: usize = 2;
/// Draws the pairs.
const SEED: u64 = 7;

/// The volumes of instances that go are to go too: nothing is left of more instances than before.
fn base() -> Value {
    json!({"deletionPolicy": "Delete"})
}

/// A change, or several one after the other.
#[derive(Clone)]
struct Case {
    fields: Vec<Field>,
    specs: Vec<Value>,
}

impl Case {
    fn name(&self) -> String {
        let one = |field: &Field| {
            let value = self.specs.last().and_then(|spec| get(spec, &field.path));
            let value = value.map_or_else(|| "none".to_owned(), |value| value.to_string());
            format!("{} = {}", field.name(), value.chars().take(80).collect::<String>())
        };
        self.fields.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// What came of all cases.
#[derive(Default)]
struct Results {
    refused: Vec<Case>,
    taken_back: Vec<Case>,
    one_way: Vec<Case>,
    /// Let pass, and not tried any further.
    known: usize,
    failures: Vec<String>,
}

/// Tries all cases, each on a database that is as it was in the beginning.
async fn tried(name: &'static str, base: Value, cases: Vec<Case>) -> Results {
    let cases = Arc::new(Mutex::new(VecDeque::from(cases)));
    let results = Arc::new(Mutex::new(Results::default()));
    let shared = (cases, results.clone());
    each(0..AT_ONCE, move |worker| {
        let ((cases, results), base) = (shared.clone(), base.clone());
        async move {
            let mut begun = 0;
            let mut tryout = None;
            loop {
                let Some(case) = cases.lock().unwrap().pop_front() else { break };
                let current = match tryout.take() {
                    Some(current) => current,
                    None => {
                        begun += 1;
                        Tryout::begin(&format!("{name}-{worker}-{begun}"), &base).await
                    }
                };
                let fields: Vec<&Field> = case.fields.iter().collect();
                let enough = results.lock().unwrap().has_enough_of(&case);
                let outcome = match enough {
                    true => current.is_refused_or_known(&fields, &case.specs[0]).await,
                    false => current.goes_through(&fields, &case.specs).await,
                };
                let as_before = matches!(outcome, Ok(Outcome::Refused | Outcome::TakenBack));
                results.lock().unwrap().keep(case, outcome);
                match as_before {
                    true => tryout = Some(current),
                    false => current.end().await,
                }
            }
            if let Some(current) = tryout {
                current.end().await;
            }
        }
    })
    .await;
    Arc::into_inner(results).unwrap().into_inner().unwrap()
}

impl Results {
    fn keep(&mut self, case: Case, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome::Refused) => self.refused.push(case),
            Ok(Outcome::TakenBack) => self.taken_back.push(case),
            Ok(Outcome::OneWay) => self.one_way.push(case),
            Ok(Outcome::Known) => self.known += 1,
            Err(why) => {
                let failure = format!("{} {why}", case.name());
                eprintln!("{failure}");
                self.failures.push(failure);
            }
        }
    }

    /// Whether some values of this very field have gone all the way already. What plans make of all of them is
    /// tried on the model.
    fn has_enough_of(&self, case: &Case) -> bool {
        let [field] = case.fields.as_slice() else { return false };
        let same = |other: &&Case| matches!(other.fields.as_slice(), [one] if one.path == field.path);
        self.taken_back.iter().chain(&self.one_way).filter(same).count() >= ALL_THE_WAY
    }

    fn print(&self, what: &str) {
        let Results { refused, taken_back, one_way, known, failures } = self;
        println!(
            "{what}: {} refused, {} taken back, {} one way, {known} more let pass, {} failed",
            refused.len(),
            taken_back.len(),
            one_way.len(),
            failures.len()
        );
    }

    fn is_well(&self, what: &str) {
        self.print(what);
        assert!(self.failures.is_empty(), "{what}: {:#?}", self.failures);
        assert!(!self.refused.is_empty() && !self.taken_back.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_can_be_set_to_each_value_and_taken_back_or_is_refused_with_words_that_help() {
    let base = base();
    let fields = fields();
    let cases = fields.iter().flat_map(|field| {
        let spec = |value: &Value| field.set(&base, value);
        field.values.iter().map(move |value| Case { fields: vec![field.clone()], specs: vec![spec(value)] })
    });
    let mut cases: Vec<Case> = cases.collect();
    // Those that take long side by side with those that do not.
    fastrand::Rng::with_seed(SEED).shuffle(&mut cases);
    let results = tried("alone", base.clone(), cases).await;
    results.is_well("one field");
    let one_way: BTreeSet<String> = results.one_way.iter().map(|case| case.fields[0].name()).collect();
    // Volumes only grow, and a version that was named is not taken away.
    assert_eq!(one_way, ["storage", "storage.size", "version"].map(str::to_owned).into());

    let mut chance = fastrand::Rng::with_seed(SEED);
    let taken_back = &results.taken_back;
    let pairs = std::iter::repeat_with(|| {
        let (one, other) = (chance.usize(..taken_back.len()), chance.usize(..taken_back.len()));
        let (one, other) = (&taken_back[one], &taken_back[other]);
        let (first, second) = (&one.fields[0], &other.fields[0]);
        let value = get(&other.specs[0], &second.path).cloned().unwrap_or_default();
        let both = second.set(&one.specs[0], &value);
        let fields = vec![first.clone(), second.clone()];
        Case { fields, specs: vec![one.specs[0].clone(), both, other.specs[0].clone()] }
    });
    let pairs = pairs.take(PAIRS).collect();
    tried("pairs", base, pairs).await.is_well_or_refused("two fields");
}

impl Results {
    /// Two that are each let pass may not be together.
    fn is_well_or_refused(&self, what: &str) {
        self.print(what);
        assert!(self.failures.is_empty(), "{what}: {:#?}", self.failures);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_spec_that_says_everything_can_be_changed_and_left_out_and_put_back() {
    let fields = fields();
    let first = Tryout::begin("full", &json!({})).await;
    let mut full = base();
    for field in fields.iter().filter(|field| !matches!(field.path[0].as_str(), "restore" | "engine")) {
        for value in &field.values {
            let with = field.set(&full, value);
            if get(&full, &field.path).is_none() && first.could_begin_with(&with).await {
                full = with;
                break;
            }
        }
    }
    // Without it there would never be a pod; that is tried by itself.
    if let Some(name) = full.pointer("/scheduling/priorityClassName") {
        first.world.priority_class(name.as_str().unwrap()).await;
    }
    first.end().await;
    println!("{full:#}");
    let cases = fields.iter().flat_map(|field| {
        let Some(current) = get(&full, &field.path) else { return Vec::new() };
        let one = |spec: Value| Case { fields: vec![field.clone()], specs: vec![spec] };
        let others = field.values.iter().filter(|value| *value != current);
        let changed = others.map(|value| one(field.set(&full, value)));
        changed.chain([one(field.without(&full))]).collect::<Vec<_>>()
    });
    let mut cases: Vec<Case> = cases.collect();
    let mut chance = fastrand::Rng::with_seed(SEED);
    chance.shuffle(&mut cases);
    tried("full", full.clone(), cases).await.is_well("a spec that says everything");
}

/// Fields that can be given only when a database is made: what they ask for is refused, comes about, or is said
/// not to; and without them the database is as one that never had them.
#[tokio::test(flavor = "multi_thread")]
async fn what_can_only_be_said_in_the_beginning_leaves_nothing_behind_when_it_is_left_out() {
    let plain = Tryout::begin("begins-plain", &base()).await;
    let expected = plain.state().await;
    let mut cases = Vec::new();
    for field in fields() {
        let mut passed = 0;
        for value in &field.values {
            let spec = field.set(&base(), value);
            let later = || async { plain.would_take(&base(), &spec).await };
            if passed < 1 && plain.could_begin_with(&spec).await && !later().await {
                passed += 1;
                cases.push(Case { fields: vec![field.clone()], specs: vec![spec] });
            }
        }
    }
    plain.end().await;
    assert!(cases.iter().any(|case| case.fields[0].path[0] == "restore"), "{}", cases.len());
    let cases = cases.into_iter().enumerate();
    let failures = each(cases, move |(number, case)| {
        let expected = expected.clone();
        async move {
            let tryout = Tryout::begin(&format!("begins-{number}"), &case.specs[0]).await;
            let outcome = tryout.is_left_out(&base(), &expected).await;
            tryout.end().await;
            outcome.map_err(|why| format!("{} {why}", case.name())).err()
        }
    })
    .await;
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
