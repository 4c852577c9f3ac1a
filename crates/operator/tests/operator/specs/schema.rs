//! From the schema to fields, and values for each: within its bounds, at them, and just beyond.

use std::collections::BTreeMap;

use keelson_api::crds;
use proptest::strategy::{Strategy, ValueTree};
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

/// A field, with values to try.
#[derive(Clone, Debug)]
pub struct Field {
    pub path: Vec<String>,
    pub values: Vec<Value>,
    /// What must be there too for an object on the way to it to be whole, by path.
    required: BTreeMap<Vec<String>, Value>,
}

impl Field {
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// The last part of its name.
    pub fn last(&self) -> &str {
        self.path.last().unwrap()
    }

    /// A spec with this value in it, and with what that takes.
    pub fn set(&self, spec: &Value, value: &Value) -> Value {
        let mut made = spec.clone();
        for (path, needed) in &self.required {
            if get(&made, path).is_none() {
                put(&mut made, path, needed.clone());
            }
        }
        put(&mut made, &self.path, value.clone());
        made
    }

    /// A spec without it.
    pub fn without(&self, spec: &Value) -> Value {
        let mut made = spec.clone();
        let (last, above) = self.path.split_last().unwrap();
        let pointer: String = above.iter().map(|part| format!("/{part}")).collect();
        if let Some(Value::Object(fields)) = made.pointer_mut(&pointer) {
            fields.remove(last);
        }
        made
    }
}

pub fn get<'a>(spec: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(spec, |value, part| value.get(part))
}

fn put(spec: &mut Value, path: &[String], value: Value) {
    let mut place = spec;
    for part in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = place.as_object_mut().unwrap().entry(part).or_insert(Value::Null);
    }
    *place = value;
}

/// All fields of a spec, in the version that is stored.
pub fn fields() -> Vec<Field> {
    let crd = serde_json::to_value(crds::database().unwrap()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
    let spec = &stored["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut reader = Reader { runner: runner(), found: Vec::new() };
    reader.object(&[], spec, &BTreeMap::new());
    reader.found
}

/// The same values in each run.
fn runner() -> TestRunner {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    TestRunner::new_with_rng(Config::default(), seed)
}

struct Reader {
    runner: TestRunner,
    found: Vec<Field>,
}

impl Reader {
    fn object(&mut self, path: &[String], schema: &Value, required: &BTreeMap<Vec<String>, Value>) {
        let mut required = required.clone();
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            let at = [path, &[name.to_owned()]].concat();
            let value = self.good(&schema["properties"][name]);
            required.insert(at, value);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = [path, std::slice::from_ref(name)].concat();
            let values = self.values(field);
            self.found.push(Field { path: path.clone(), values, required: required.clone() });
            if field["properties"].is_object() {
                self.object(&path, field, &required);
            }
        }
    }

    /// A value that the schema lets pass.
    fn good(&mut self, schema: &Value) -> Value {
        if let Some(word) = schema["enum"].get(0) {
            return word.clone();
        }
        if let Some(pattern) = schema["pattern"].as_str() {
            return schema.get("example").cloned().unwrap_or_else(|| self.drawn(pattern).remove(0));
        }
        match schema["type"].as_str() {
            Some("string") => Value::from("a".repeat(bound(schema, "minLength").unwrap_or(1).max(1))),
            Some("integer") => schema.get("minimum").map_or(json!(1), whole),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            _ => {
                let names = schema["required"].as_array().cloned().unwrap_or_default();
                let names = names.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
                let fields = names.into_iter().map(|name| {
                    let value = self.good(&schema["properties"][&name]);
                    (name, value)
                });
                Value::Object(fields.collect())
            }
        }
    }

    fn values(&mut self, schema: &Value) -> Vec<Value> {
        let mut values = match schema["type"].as_str() {
            _ if schema["enum"].is_array() => {
                let mut words = schema["enum"].as_array().unwrap().clone();
                words.push(json!("none-of-these"));
                words
            }
            Some("boolean") => vec![json!(true), json!(false), json!("yes")],
            Some("integer") => integers(schema),
            Some("string") => self.texts(schema),
            Some("array") => self.lists(schema),
            Some("object") if schema["additionalProperties"].is_object() => self.maps(schema),
            Some("object") => vec![json!({}), self.good(schema), json!("text")],
            // What takes an integer or a text, and what takes a text or an object.
            _ if schema["x-kubernetes-int-or-string"] == true => {
                let long = "a".repeat(bound(schema, "maxLength").unwrap_or(8) + 1);
                vec![json!(5), json!("5"), json!("on"), json!(""), json!(long), json!([1])]
            }
            _ => [self.texts(schema), vec![json!({}), json!(5), json!([1]), json!({"other": 1})]].concat(),
        };
        let mut seen = Vec::new();
        values.retain(|value| {
            !seen.contains(value) && {
                seen.push(value.clone());
                true
            }
        });
        values
    }

    /// Texts that match a pattern, the same in each run.
    fn drawn(&mut self, pattern: &str) -> Vec<Value> {
        let bare = pattern.replace("$|^", "|");
        let bare = bare.trim_start_matches('^').trim_end_matches('$');
        let texts = string_regex(&format!("({bare})")).unwrap();
        (0..8).map(|_| json!(texts.new_tree(&mut self.runner).unwrap().current())).collect()
    }

    fn texts(&mut self, schema: &Value) -> Vec<Value> {
        let mut texts = Vec::new();
        texts.extend(schema.get("example").cloned());
        if let Some(pattern) = schema["pattern"].as_str() {
            texts.extend(self.drawn(pattern));
        } else if schema["format"] == "date-time" {
            texts.extend([json!("2026-11-16T09:30:00Z"), json!("2026-02-30T09:30:00Z")]);
        }
        let (least, most) = (bound(schema, "minLength"), bound(schema, "maxLength"));
        texts.extend(least.map(|least| json!("a".repeat(least))));
        texts
            .extend(most.into_iter().flat_map(|most| [json!("a".repeat(most)), json!("a".repeat(most + 1))]));
        texts.extend([json!(""), json!("a"), json!("Not a name, ü"), json!("0"), json!(7)]);
        texts
    }

    fn lists(&mut self, schema: &Value) -> Vec<Value> {
        let item = self.good(&schema["items"]);
        let mut lists = vec![json!([]), json!([item]), json!([item, item])];
        lists.extend(self.parts(&schema["items"]).into_iter().map(|part| json!([part])));
        if let Some(most) = bound(schema, "maxItems") {
            let items = |count: usize| Value::from(vec![item.clone(); count]);
            lists.extend([items(most), items(most + 1)]);
        }
        lists
    }

    /// Values of an item: each of its fields, one at a time.
    fn parts(&mut self, schema: &Value) -> Vec<Value> {
        let Some(fields) = schema["properties"].as_object() else { return self.values(schema) };
        let fields = fields.clone();
        let each = fields.iter().flat_map(|(name, field)| {
            let values = self.values(field);
            values.into_iter().map(move |value| json!({name: value}))
        });
        each.collect()
    }

    fn maps(&mut self, schema: &Value) -> Vec<Value> {
        let item = &schema["additionalProperties"];
        let mut maps = vec![json!({})];
        maps.extend(self.values(item).into_iter().map(|value| json!({"some_key": value})));
        let value = if item["type"] == "string" { json!("a") } else { json!(5) };
        let mut names =
            vec![String::new(), "Not a name, ü".to_owned(), "a".repeat(300), "example.dev/key".to_owned()];
        names.extend(named_in_rules(schema));
        maps.extend(names.into_iter().map(|name| json!({name: value})));
        if let Some(most) = bound(schema, "maxProperties") {
            let many = |count: usize| {
                let fields = (0..count).map(|number| (format!("key_{number}"), value.clone()));
                Value::Object(fields.collect::<Map<_, _>>())
            };
            maps.extend([many(most), many(most + 1)]);
        }
        maps
    }
}

/// The first word of each list in a rule: what it speaks of is likely to matter.
fn named_in_rules(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let texts = rules.filter_map(|rule| rule["rule"].as_str());
    texts.filter_map(|rule| rule.split('\'').nth(1)).map(str::to_owned).collect()
}

fn bound(schema: &Value, name: &str) -> Option<usize> {
    schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok())
}

/// Bounds are written as floating point numbers.
#[expect(clippy::cast_possible_truncation, reason = "bounds of integers are integers")]
fn whole(bound: &Value) -> Value {
    json!(bound.as_f64().unwrap() as i64)
}

fn integers(schema: &Value) -> Vec<Value> {
    let mut values = vec![json!(0), json!(1), json!(2), json!(-1), json!("text")];
    for (name, beyond) in [("minimum", -1), ("maximum", 1)] {
        if let Some(bound) = schema.get(name).map(whole) {
            values.extend([json!(bound.as_i64().unwrap() + beyond), bound]);
        }
    }
    values.push(if schema["format"] == "int32" { json!(i32::MAX) } else { json!(i64::MAX) });
    values
}

#[test]
fn every_field_of_the_schema_has_values_to_try() {
    let fields = fields();
    let names: Vec<String> = fields.iter().map(Field::name).collect();
    for expected in ["replicas", "storage", "storage.autogrow.limit", "backup.to.s3.bucket", "restore.from"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    let values: usize = fields.iter().map(|field| field.values.len()).sum();
    println!("{} fields, {values} values", fields.len());
    assert!(fields.iter().all(|field| field.values.len() >= 2));
    let bucket = fields.iter().find(|field| field.name() == "backup.to.s3.region").unwrap();
    assert_eq!(
        bucket.set(&json!({"replicas": 1}), &json!("x")),
        json!({"replicas": 1, "backup": {"to": {"s3": {"bucket": "aaa", "region": "x"}}}})
    );
    let storage = fields.iter().find(|field| field.name() == "storage.class").unwrap();
    assert_eq!(storage.set(&json!({"storage": "5Gi"}), &json!("x")), json!({"storage": {"class": "x"}}));
}
