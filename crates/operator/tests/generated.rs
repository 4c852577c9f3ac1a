//! What is made from the types is what is checked in.

#[allow(dead_code)]
#[path = "../examples/generate.rs"]
mod generate;

#[test]
fn generated_files_are_up_to_date() {
    for (path, text) in generate::files().unwrap() {
        let found = std::fs::read_to_string(generate::root().join(&path)).unwrap_or_default();
        let stale = found.lines().zip(text.lines()).enumerate().find(|(_, (old, new))| old != new);
        assert!(
            found == text,
            "{} is stale: run `make generate` (first difference: {stale:?})",
            path.display()
        );
    }
}
