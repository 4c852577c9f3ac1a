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

/// What is between ```` ```console ```` and its end, by file.
fn console_blocks() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    documents(&project("docs"), &mut pages);
    let blocks = pages.iter().flat_map(|page| {
        let text = std::fs::read_to_string(page).unwrap();
        let blocks: Vec<String> = text.split("```console\n").skip(1).map(str::to_owned).collect();
        blocks.into_iter().map(|block| {
            (page.display().to_string(), block.split("```").next().unwrap_or_default().to_owned())
        })
    });
    blocks.collect()
}

#[test]
fn commands_have_one_form_a_program_could_run_them() {
    let blocks = console_blocks();
    assert!(blocks.len() > 20);
    let programs = ["kubectl", "helm", "keelson", "make"];
    for (page, line) in blocks.iter().flat_map(|(page, block)| block.lines().map(move |line| (page, line))) {
        let command =
            line.strip_prefix("$ ").unwrap_or_else(|| panic!("{page}: `{line}` does not begin with `$ `"));
        let program = command.split(' ').next().unwrap();
        assert!(programs.contains(&program), "{page}: {program}");
        assert!(!command.ends_with('\\'), "{page}: one line, one command: {line}");
        for file in
            command.split(' ').filter(|word| word.starts_with("docs/") || word.starts_with("examples/"))
        {
            assert!(project(file).exists(), "{page}: there is no {file}");
        }
    }
}

#[test]
fn files_of_recipes_are_objects() {
    for entry in std::fs::read_dir(project("docs/recipes/files")).unwrap() {
        let path = entry.unwrap().path();
        let object: serde_json::Value =
            serde_yaml_ng::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(object["kind"].is_string() && object["metadata"]["name"].is_string(), "{}", path.display());
    }
}
