//! The invariants of ARCHITECTURE.md, held over `cargo metadata` and the sources.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    let text = fs::read_to_string(&path);
    assert!(text.is_ok(), "{}: {text:?}", path.display());
    text.unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "cargo knows the house")]
fn cargo(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("metadata is JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Every Rust source below a folder, as (path from the root, text).
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                let text = fs::read_to_string(&path).expect("a source");
                found.push((name, text));
            }
        }
    }
    found
}

/// The sources that ship: no tests, no benches, no examples, and of each file what stands before its unit tests.
fn shipped() -> Vec<(String, String)> {
    let mut shipped = sources("src");
    shipped.extend(sources("actors").into_iter().filter(|(name, _)| name.contains("/src/")));
    for (_, text) in &mut shipped {
        if let Some(tests) = text.find("#[cfg(test)]\nmod tests") {
            text.truncate(tests);
        }
    }
    assert!(shipped.len() > 40, "the sources were found");
    shipped
}

fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// `actors/exec` → {seam, process}, as ARCHITECTURE.md's table says.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("ARCHITECTURE.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `actors/"))
        .filter(|row| row.matches('|').count() == 3);
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let arrows = cells[2].split(", ").filter(|arrow| *arrow != "–").map(str::to_owned).collect();
        (cells[0].trim_end_matches('`').to_owned(), arrows)
    })
    .collect()
}

#[test]
fn arrows_run_one_way_as_the_table_says() {
    let table = table();
    let mut seen = BTreeSet::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        let Some(name) = name.strip_prefix("subagents-") else { continue };
        let normal =
            package["dependencies"].as_array().expect("a list").iter().filter(|d| d["kind"].is_null());
        let arrows: BTreeSet<_> = normal
            .filter_map(|dependency| {
                dependency["name"].as_str()?.strip_prefix("subagents-").map(str::to_owned)
            })
            .collect();
        let allowed =
            table.get(name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for actors/{name}"));
        assert_eq!(&arrows, allowed, "actors/{name}");
        seen.insert(name.to_owned());
    }
    assert_eq!(seen, table.into_keys().collect(), "a row without a crate");
}

#[test]
fn foreign_kits_stay_in_their_own_crates() {
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        let normal =
            package["dependencies"].as_array().expect("a list").iter().filter(|d| d["kind"].is_null());
        for dependency in normal.filter_map(|dependency| dependency["name"].as_str()) {
            assert!(dependency != "jsonschema" || name == "subagents-seam", "{name} uses jsonschema");
            assert!(dependency != "ractor" || name == "subagents-runtime", "{name} uses ractor");
            assert!(
                !dependency.starts_with("agent-client-protocol") || name == "subagents-acp",
                "{name} uses {dependency}"
            );
            assert!(dependency != "rmcp" || name == "subagents-mcp", "{name} uses rmcp");
            assert!(
                !["clap", "indicatif"].contains(&dependency) || name == "subagents",
                "{name} uses {dependency}"
            );
            assert!(dependency != "axum" || name == "subagents-testkit", "{name} uses {dependency}");
            assert!(
                !["hyper", "hyper-util", "http-body-util"].contains(&dependency)
                    || ["subagents-mcp", "subagents-testkit"].contains(&name),
                "{name} uses {dependency}"
            );
        }
    }
    for (name, text) in shipped() {
        for line in code(&text) {
            let public = line.trim_start().starts_with("pub ");
            assert!(
                !(public && (line.contains("ractor") || line.contains("ActorRef"))),
                "{name} shows ractor: {line}"
            );
        }
    }
}

#[test]
fn only_process_starts_a_process_and_only_the_program_handles_signals() {
    for (name, text) in shipped() {
        for line in code(&text) {
            let starts = line.replace("subagents_process::Command", "").contains("process::Command")
                || line.contains("Command::spawn");
            assert!(!starts || name.starts_with("actors/process/"), "{name}: {line}");
            for module in ["std::process", "tokio::process"] {
                // The facade's program ends with an exit code, and so does no library.
                let harmless = line.contains("std::process::ExitCode") && name.starts_with("src/");
                assert!(
                    !line.contains(module) || harmless || name.starts_with("actors/process/"),
                    "{name}: {line}"
                );
            }
            assert!(!line.contains("tokio::signal") || name.starts_with("src/cli/"), "{name}: {line}");
            for word in [
                "set_var(",
                "remove_var(",
                "set_current_dir(",
                "static mut",
                "waitpid(-1",
                "CHILD_SUBREAPER",
                "set_hook(",
            ] {
                assert!(!line.contains(word), "{name} has a process-wide effect: {line}");
            }
        }
    }
}

#[test]
fn nothing_shipped_is_unsafe_or_a_stub_or_aborts_on_panic() {
    for (name, text) in shipped() {
        for line in code(&text) {
            for word in
                ["unsafe {", "unsafe fn", "unsafe impl", "todo!(", "unimplemented!(", "unbounded_channel"]
            {
                // The hook between fork and exec cannot be installed otherwise.
                let audited = name == "actors/process/src/launch.rs" && word == "unsafe {";
                assert!(audited || !line.contains(word), "{name}: {line}");
            }
        }
    }
    let mut manifests = vec!["Cargo.toml".to_owned()];
    manifests.extend(table().into_keys().map(|name| format!("actors/{name}/Cargo.toml")));
    for manifest in manifests {
        let text = read(&manifest);
        assert!(!text.contains("\"abort\""), "{manifest}");
        assert!(text.contains("[lints]\nworkspace = true"), "{manifest} takes the workspace's lints");
    }
    assert!(read("Cargo.toml").contains("unsafe_code = \"deny\""));
}

#[test]
fn a_file_has_one_subject() {
    for folder in ["src", "actors", "tests", "benches", "examples"] {
        for (name, text) in sources(folder) {
            assert!(
                text.lines().count() <= 700,
                "{name} has {} lines: two subjects in one?",
                text.lines().count()
            );
            let stem = Path::new(&name).file_stem().expect("a stem").to_string_lossy().into_owned();
            assert!(!["mod", "utils", "util", "helpers", "helper", "manager"].contains(&&*stem), "{name}");
        }
    }
}

#[test]
fn the_default_build_stays_small() {
    let tree = cargo(&[
        "tree",
        "--package",
        "subagents",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--offline",
    ]);
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.len() > 10 && crates.len() <= 90, "{} crates", crates.len());
}

#[test]
fn the_facade_has_every_name_of_seam_and_runtime() {
    let words = |text: &str| -> BTreeSet<String> {
        let used =
            text.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';').map(|(used, _)| used));
        let names = used.flat_map(|used| used.split(|c: char| !c.is_alphanumeric() && c != '_'));
        names.filter(|name| name.starts_with(char::is_uppercase)).map(str::to_owned).collect()
    };
    let facade = words(&read("src/lib.rs"));
    let inside: BTreeSet<_> = ["seam", "runtime"]
        .iter()
        .flat_map(|name| words(&read(format!("actors/{name}/src/lib.rs"))))
        .collect();
    assert!(inside.len() > 60, "{}", inside.len());
    assert_eq!(inside.difference(&facade).collect::<Vec<_>>(), [""; 0], "not in src/lib.rs");
}

/// The names in the second column of a table's rows, without the word *suite*.
fn promised(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | ").map(|(_, cell)| cell));
    let names = cells.flat_map(|cell| cell.split(", ")).filter(|name| *name != "suite");
    names.map(|name| name.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let page = read("GUARANTEES.md");
    let (given, _) = page.split_once("## What is not guaranteed").expect("both halves");
    let names = promised(given);
    assert!(names.len() > 40, "{}", names.len());
    let mut all = sources("tests");
    all.extend(sources("actors"));
    all.extend(sources("src"));
    for name in names {
        let test = format!("fn {name}(");
        let found = all.iter().any(|(_, text)| {
            text.match_indices(&test).any(|(at, _)| {
                let before = &text[..at];
                let item = before.rfind("\n\n").map_or(before, |from| &before[from..]);
                item.contains("#[test]") || item.contains("#[tokio::test")
            })
        });
        assert!(found, "GUARANTEES.md names {name}, and there is no such test");
    }
}
