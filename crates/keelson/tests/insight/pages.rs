//! What the documents point to is there.

use std::path::{Path, PathBuf};

use crate::known::project;

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].into_iter().map(project).collect();
    documents(&project("docs"), &mut pages);
    let mut lost = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            if !page.parent().unwrap().join(path).exists() {
                lost.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn the_table_of_contents_leads_to_every_page() {
    let mut pages = Vec::new();
    documents(&project("docs"), &mut pages);
    let contents = std::fs::read_to_string(project("docs/README.md")).unwrap();
    let docs = project("docs");
    for page in pages {
        let path = page.strip_prefix(&docs).unwrap().display().to_string();
        // The runbooks have a list of their own.
        let listed = path == "README.md" || (path.starts_with("runbooks/") && path != "runbooks/README.md");
        assert!(listed || contents.contains(&format!("({path})")), "docs/README.md does not lead to {path}");
    }
}
