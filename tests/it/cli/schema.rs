//! `--schema`, `--persona`, `--max-depth`: what is asked of a child beside its prompt, and who cannot do that.

use super::support::{configured, subagents};
use serde_json::Value;

const GOOD: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

#[test]
fn a_schema_that_cannot_be_used_is_told_with_its_place_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("started");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let long = format!("{{\"description\": \"{}\"}}", "x".repeat(1 << 20));
    for (name, text, told) in [
        ("a.json", &b"{\n  \"type\": \"object\",\n}"[..], &["a.json:3:1: the schema is no JSON: trailing comma", "like"][..]),
        ("b.json", b"", &["b.json:1:0: the schema is no JSON: EOF"]),
        ("c.json", b"type: object", &["c.json:1:2: the schema is no JSON"]),
        ("d.json", b"{\"title\":\n \"\xff\"}", &["d.json:2:3: the schema is not UTF-8", "iconv"]),
        ("e.json", long.as_bytes(), &["cannot read the schema", "longer than 1 MiB"]),
        (
            "f.json",
            br##"{"type": "object", "pattern": "x", "properties": {"a": {"type": ["string", "null"]}, "b": {"$ref": "#"}}, "required": ["c"]}"##,
            &["f.json", "\n  /pattern: ", "\n  /properties/a/type: ", "\n  /properties/b/$ref: ", "\n  /required: `c`"],
        ),
        ("g.json", br#"{"type": "array", "items": {"type": "string"}}"#, &["(root): the root must be an object"]),
        ("h.json", b"[\n[", &["h.json:2:1: the schema is no JSON: EOF"]),
    ] {
        std::fs::write(path(name), text).expect("it can be written");
        let ended = subagents(["run", "x", "--schema", &path(name), "--", "touch", marker.to_str().expect("plain")]).end();
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{name}: {ended:?}");
        assert!(told.iter().all(|told| ended.err.contains(told)), "{name}: {}", ended.err);
    }
    for (args, told) in [
        (["--schema", "/no/such.json"], "cannot read the schema in /no/such.json"),
        (["--schema", "/"], "cannot read the schema in /: "),
        (["--schema", "-"], "not read from stdin"),
        (["--persona", "@/no/such.md"], "cannot read the persona in /no/such.md"),
        (["--persona", "@-"], "not read from stdin"),
        (["--persona", "@"], "name of a file"),
        (["--max-depth", "-1"], "--max-depth"),
        (["--max-depth", "1.5"], "--max-depth"),
        (["--max-depth", "4294967296"], "--max-depth"),
    ] {
        let ended = subagents(["run", "x"].iter().chain(&args).chain(&[
            "--",
            "touch",
            marker.to_str().expect("plain"),
        ]))
        .end();
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}: {ended:?}");
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
    assert!(!marker.exists(), "nothing was started");
}

#[test]
fn a_provider_that_cannot_do_it_refuses_by_name_and_nothing_is_started() {
    let folder = configured("[providers.words]\nkind = \"exec\"\ncommand = [\"wc\", \"-w\"]\n");
    std::fs::write(folder.path().join("s.json"), format!("\u{feff}{GOOD}")).expect("it can be written");
    std::fs::write(folder.path().join("who.md"), "You are brief.\n").expect("it can be written");
    for (args, feature, option) in [
        (&["--schema", "s.json"][..], "outputSchema", "--schema"),
        (&["--persona", "You are brief."], "persona", "--persona"),
        (&["--persona", ""], "persona", "--persona"),
        (&["--persona", "@who.md"], "persona", "--persona"),
        (&["--max-depth", "0"], "depthLimit", "--max-depth"),
        // In the fixed order.
        (&["--persona", "x", "--max-depth", "3", "--schema", "s.json"], "outputSchema", "--schema"),
    ] {
        for (provider, name) in [(&["--", "touch", "started"][..], "exec"), (&["-p", "words"], "words")] {
            let all = || ["run", "x"].iter().chain(args);
            let ended =
                subagents(all().chain(provider)).directory(&folder).env("PATH", "/usr/bin:/bin").end();
            assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}: {ended:?}");
            let told = format!("UNSUPPORTED_CAPABILITY: provider `{name}` cannot honour `{feature}`");
            assert!(ended.err.contains(&told), "{args:?}: {}", ended.err);
            let advice =
                format!("({option}: no provider here can; `subagents providers` tells what each can do");
            assert!(ended.err.contains(&advice), "{args:?}: {}", ended.err);

            let ended = subagents(all().chain(&["--json"]).chain(provider))
                .directory(&folder)
                .env("PATH", "/usr/bin:/bin")
                .end();
            let line: Value = serde_json::from_str(&ended.out).expect("one line of JSON");
            assert_eq!(
                (&line["type"], &line["code"]),
                (&"start_error".into(), &"UNSUPPORTED_CAPABILITY".into())
            );
            assert!(line["message"].as_str().is_some_and(|message| message.contains(&advice)), "{line}");
        }
    }
    assert!(!folder.path().join("started").exists());
}
