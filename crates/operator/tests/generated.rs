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
fn what_is_installed_without_helm_is_what_helm_makes_of_the_chart() {
    for (path, text) in generate::installs().unwrap() {
        assert_fresh(&path, &text);
    }
}

#[test]
fn nothing_is_left_of_what_is_no_longer_generated() {
    let made: Vec<_> = generate::installs().unwrap().into_iter().map(|(path, _)| path).collect();
    for folder in [generate::kustomize::FOLDER, "deploy/olm/manifests", "deploy/olm/metadata"] {
        for entry in std::fs::read_dir(generate::root().join(folder)).unwrap() {
            let path = Path::new(folder).join(entry.unwrap().file_name());
            assert!(made.contains(&path), "{} is generated no longer: remove it", path.display());
        }
    }
}
