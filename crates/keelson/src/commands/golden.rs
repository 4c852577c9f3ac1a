//! What commands print, as it is checked in. `GOLDEN=write cargo test --package keelson` writes it anew: look at the
//! difference before it is committed.

use std::path::Path;

/// Compares with `golden/NAME` beside this file.
#[track_caller]
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/golden").join(name);
    if std::env::var_os("GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} is printed differently. This is printed now:\n{text}\nand this was expected:\n{expected}\n\
         Where that is meant: GOLDEN=write cargo test --package keelson"
    );
}
