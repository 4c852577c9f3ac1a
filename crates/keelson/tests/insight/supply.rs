//! What Keelson is made of: from where, under which licences, and that its bill of materials says so. cargo-deny asks
//! for more (`make audit`), and takes minutes to build; this needs nothing but cargo.

#[allow(dead_code)]
#[path = "../../examples/sbom.rs"]
mod sbom;

use serde_json::Value;

use crate::known::text;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The licences that are allowed, as deny.toml has them.
fn allowed() -> Vec<String> {
    let settings = text("deny.toml");
    let list = settings.split("allow = [").nth(1).unwrap().split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with these licences alone.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = either(&mut rest, allowed);
    assert!(rest.is_empty(), "{expression} is not understood from {rest:?} on");
    met
}

fn either(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = both(words, allowed);
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        met |= both(words, allowed);
    }
    met
}

fn both(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[&str], allowed: &[String]) -> bool {
    let (first, rest) = words.split_first().expect("an expression ends too early");
    *words = rest;
    if *first == "(" {
        let met = either(words, allowed);
        *words = &words[1..];
        return met;
    }
    if words.first() == Some(&"WITH") {
        *words = &words[2..];
        return false;
    }
    allowed.iter().any(|licence| licence == first)
}

#[test]
fn licences_are_met_as_their_expressions_say() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR ISC) AND MIT", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT WITH something", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn all_that_is_used_comes_from_one_registry_under_licences_that_are_allowed() {
    let (metadata, allowed) = (sbom::metadata().unwrap(), allowed());
    assert!(allowed.len() > 3 && text("deny.toml").contains("unknown-git = \"deny\""));
    for package in list(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        assert!(is_met(licence, &allowed), "{name} is under {licence}, which deny.toml does not allow");
        let source = package["source"].as_str();
        let known =
            source.is_none_or(|source| source == "registry+https://github.com/rust-lang/crates.io-index");
        assert!(known, "{name} comes from {source:?}");
    }
}

#[test]
fn the_bill_of_materials_has_what_the_program_is_made_of_and_not_what_only_tests_need() {
    let document = sbom::document(&sbom::metadata().unwrap(), &text("Cargo.lock")).unwrap();
    let named = |name: &str| list(&document["components"]).iter().find(|component| component["name"] == name);
    assert_eq!(document["metadata"]["component"]["name"], "keelson");
    let rustls = named("rustls").expect("rustls is in it");
    assert_eq!(rustls["hashes"][0]["content"].as_str().map(str::len), Some(64));
    assert_eq!(rustls["purl"], format!("pkg:cargo/rustls@{}", rustls["version"].as_str().unwrap()));
    assert!(named("keelson-agent").is_some());
    for only_for_tests in ["testbed", "keelson-rig", "proptest"] {
        assert!(named(only_for_tests).is_none(), "{only_for_tests}");
    }
    let known: Vec<&Value> = list(&document["dependencies"]).iter().map(|one| &one["ref"]).collect();
    for needed in list(&document["dependencies"]).iter().flat_map(|one| list(&one["dependsOn"])) {
        assert!(known.contains(&needed), "{needed} is needed and not described");
    }
}

#[test]
fn the_workflow_does_what_ci_does_and_audits() {
    let workflow: Value = serde_yaml_ng::from_str(&text(".github/workflows/ci.yml")).unwrap();
    let steps = workflow["jobs"].as_object().unwrap().values().flat_map(|job| list(&job["steps"]));
    let commands: Vec<&str> = steps.filter_map(|step| step["run"].as_str()).collect();
    for command in [".ci/run", "make audit", "make sbom"] {
        assert!(commands.iter().any(|run| run.contains(command)), "{command} is not in {commands:?}");
    }
}
