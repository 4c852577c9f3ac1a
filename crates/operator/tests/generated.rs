//! What is made from the types is what is checked in.

#[allow(dead_code)]
#[path = "../examples/generate/main.rs"]
mod generate;

use std::path::Path;

fn assert_fresh(path: &Path, text: &str) {
    let found = std::fs::read_to_string(generate::root().join(path)).unwrap_or_default();
    let stale = found.lines().zip(text.lines()).enumerate().find(|(_, (old, new))| old != new);
    assert!(found == text, "{} is stale: run `make generate` (first difference: {stale:?})", path.display());
}

#[test]
fn generated_files_are_up_to_date() {
    for (path, text) in generate::files().unwrap() {
        assert_fresh(&path, &text);
    }
}

#[test]
fn the_plain_manifest_is_what_helm_makes_of_the_chart() {
    let text = generate::chart::install(&testbed::helm().unwrap(), &generate::root()).unwrap();
    assert_fresh(Path::new(generate::chart::INSTALL), &text);
}
