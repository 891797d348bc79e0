use super::{Config, Lookup, nearest};
use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::Path,
    time::Duration,
};
use subagents_seam::{Deadlines, SubagentProvider};

/// The faults of a file, one a line; empty where there is none.
fn faults(text: &str) -> String {
    faults_of(text, &[])
}

fn faults_of(text: &str, variables: &[(&str, &str)]) -> String {
    read(text, variables).err().map(|error| error.to_string()).unwrap_or_default()
}

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, super::ConfigError> {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    Config::from_parts(Some((Path::new("s.toml"), text)), Some(Path::new("/here")), variables)
}

const WC: &str = "[providers.wc]\nkind = \"exec\"\ncommand = [\"wc\", \"-w\"]\n";

fn wc(line: &str) -> String {
    format!("{WC}{line}\n")
}

#[test]
fn every_key_is_read() {
    let text = r#"
default_provider = "b.2"
defaults = { timeout = "1h", idle_timeout = "2m", start_timeout = "3s", jobs = 7 }
[providers."b.2"]
kind = "exec"
command = ["agent", "--print", "{}", ""]
description = "asks"
pass_env = ["API_KEY"]
env = { NO_COLOR = "1", PORT = "8080" }
cwd = "work"
allow_empty = true
max_output = "64KiB"
max_total_output = "2MiB"
max_concurrent = 3
timeout = "500ms"
idle_timeout = "1m30s"
start_timeout = "9s"
[providers.a]
command = ["/bin/a"]
kind = "exec"
cwd = "/there"
max_output = 0x10
"#;
    let config = read(text, &[]).expect("it is right");
    let names: Vec<_> = config.providers().iter().map(|provider| provider.name().as_str()).collect();
    assert_eq!(names, ["b.2", "a"], "in the order of the file");
    assert_eq!(config.jobs(), Some(7));
    let seconds = Duration::from_secs;
    assert_eq!(
        config.deadlines(),
        &Deadlines::new().total(seconds(3_600)).idle(seconds(120)).start(seconds(3))
    );
    let b = config.select(None).expect("the default");
    assert_eq!(b.name(), "b.2");
    assert_eq!(b.command(), ["agent", "--print", "{}", ""]);
    assert_eq!((b.description(), b.limit()), (Some("asks"), Some(3)));
    assert_eq!(b.cwd(), Some(Path::new("/here/work")));
    assert_eq!(b.pass_env(), ["API_KEY"]);
    assert_eq!(b.env_names().collect::<Vec<_>>(), ["NO_COLOR", "PORT"]);
    assert_eq!(
        b.deadlines(),
        &Deadlines::new().total(Duration::from_millis(500)).idle(seconds(90)).start(seconds(9))
    );
    assert_eq!((b.max_output(), b.max_total_output(), b.allow_empty()), (Some(65_536), Some(2 << 20), true));
    assert!(b.exec().expect("of that kind").allows_blank_answer());
    let a = config.provider("a").expect("it is there");
    assert_eq!((a.cwd(), a.limit(), a.max_output()), (Some(Path::new("/there")), None, Some(16)));
    assert_eq!(a.deadlines(), &Deadlines::new());
    assert!(read("", &[]).expect("nothing is no fault").providers().is_empty());
}

#[test]
fn the_ledger_is_on_off_or_in_a_folder() {
    use super::LedgerConfig::{Default, Folder, Off, On};
    for (text, variables, wanted) in [
        ("", &[][..], Default),
        ("ledger = true", &[], On),
        ("ledger = false", &[], Off),
        ("ledger = \"./state\"", &[], Folder("/here/./state".into())),
        ("ledger = false", &[("SUBAGENTS__LEDGER", "/state")], Folder("/state".into())),
        ("", &[("SUBAGENTS__LEDGER", "false")], Off),
    ] {
        assert_eq!(read(text, variables).expect(text).ledger(), &wanted, "{text} {variables:?}");
    }
    assert_eq!(
        faults("ledger = 1"),
        "s.toml:1:10: `ledger`: expected true, false or a folder in quotes, found an integer"
    );
    assert!(faults("ledger = \"no\"").contains("a path with a slash in it"));
}

#[test]
fn an_unknown_key_is_told_with_the_nearest_and_its_place() {
    for (text, expected) in [
        ("defualts = {}", "s.toml:1:1: unknown key `defualts`; did you mean `defaults`?"),
        (
            "[hooks.x]",
            "s.toml:1:2: unknown key `hooks`; known here: `default_provider`, `defaults`, `ledger`, `providers`, `tools`",
        ),
        (
            "[defaults]\n time-out = \"1s\"",
            "s.toml:2:2: unknown key `defaults.time-out`; did you mean `timeout`?",
        ),
        (&wc("pas_env = []"), "s.toml:4:1: unknown key `providers.wc.pas_env`; did you mean `pass_env`?"),
        (
            &wc("concurrent = 1"),
            "s.toml:4:1: unknown key `providers.wc.concurrent`; did you mean `max_concurrent`?",
        ),
        (&wc("Timeout = \"1s\""), "s.toml:4:1: unknown key `providers.wc.Timeout`; did you mean `timeout`?"),
        (
            &wc("x = 1"),
            "s.toml:4:1: unknown key `providers.wc.x`; known here: `kind`, `command`, `description`, `pass_env`, \
             `env`, `cwd`, `allow_empty`, `max_output`, `max_total_output`, `max_concurrent`, `timeout`, `idle_timeout`, `start_timeout`",
        ),
        (&wc("\"\\u001b[31m\\n\" = 1"), "s.toml:4:1: unknown key `providers.wc. `; known here"),
    ] {
        let told = faults(text);
        assert!(told.starts_with(expected), "{text}\n{told}\n{expected}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_wrong_value_is_told_with_what_would_be_right() {
    let long = "a".repeat(65);
    for (line, expected) in [
        (
            "timeout = 5",
            "s.toml:4:11: `providers.wc.timeout`: expected a duration in quotes, like \"30s\", found an integer",
        ),
        ("timeout = \"5\"", "4:11: `providers.wc.timeout`: that is no duration (it has no unit)"),
        ("timeout = \"0s\"", "4:11: `providers.wc.timeout`: zero leaves no time"),
        ("allow_empty = \"yes\"", "4:15: `providers.wc.allow_empty`: expected true or false, found a string"),
        ("max_concurrent = 0", "4:18: `providers.wc.max_concurrent`: give a whole number from 1"),
        ("max_concurrent = -1", "4:18: `providers.wc.max_concurrent`: give a whole number from 1"),
        (
            "max_concurrent = 1.5",
            "4:18: `providers.wc.max_concurrent`: expected a whole number, like 8, found a float",
        ),
        ("max_output = \"16mib\"", "4:14: `providers.wc.max_output`: that is no size; write whole bytes"),
        ("max_output = 0", "4:14: `providers.wc.max_output`: that is no size"),
        ("max_output = -5", "4:14: `providers.wc.max_output`: that is no size"),
        (
            "max_output = 1979-05-27",
            "4:14: `providers.wc.max_output`: expected a size, like \"16MiB\", found a date",
        ),
        ("cwd = \"\"", "4:7: `providers.wc.cwd`: it is empty"),
        ("cwd = \"a\\u0000\"", "4:7: `providers.wc.cwd`: it holds a NUL character"),
        ("pass_env = \"A\"", "4:12: `providers.wc.pass_env`: expected an array of strings"),
        ("pass_env = [\"A\", 1]", "4:18: `providers.wc.pass_env`: expected a string, found an integer"),
        ("pass_env = [\"A\", \"\"]", "4:18: `providers.wc.pass_env`: that is no name of a variable"),
        ("pass_env = [\"A=B\"]", "4:13: `providers.wc.pass_env`: that is no name of a variable"),
        (
            "pass_env = [\"SUBAGENTS_DEPTH\"]",
            "4:13: `providers.wc.pass_env`: `SUBAGENTS_DEPTH` is set for each child",
        ),
        ("env = [\"A\"]", "4:7: `providers.wc.env`: expected a table of strings"),
        ("env = { \"\" = \"1\" }", "4:9: `providers.wc.env`: that is no name of a variable"),
        ("env = { \"A=\" = \"1\" }", "4:9: `providers.wc.env`: that is no name of a variable"),
        (
            "env = { A = 1 }",
            "4:13: `providers.wc.env`: `A`: expected a string, found an integer; put it in quotes",
        ),
        ("env.A = \"\\u0000\"", "4:9: `providers.wc.env`: `A`: it holds a NUL character"),
        ("env = { SUBAGENTS_MAX_DEPTH = \"1\" }", "4:9: `providers.wc.env`: `SUBAGENTS_MAX_DEPTH` is set"),
        ("description = 1", "4:15: `providers.wc.description`: expected a string, found an integer"),
        ("[defaults]\njobs = 65536", "5:8: `defaults.jobs`: give a whole number from 1 to 65535"),
        (
            "[providers.UP]\nkind = \"exec\"\ncommand = [\"x\"]",
            "4:12: `UP` is no provider name; use 1 to 64 bytes",
        ),
        (&format!("[providers.{long}]\nkind = \"exec\"\ncommand = [\"x\"]"), "is no provider name"),
        (
            "[providers.x]\ncommand = [\"x\"]",
            "4:12: `providers.x` has no `kind`; add one, like kind = \"exec\"",
        ),
        ("[providers.x]\nkind = \"exec\"", "4:12: `providers.x` has no `command`; add one, like command = ["),
        ("[providers.x]\nkind = \"exec\"\ncommand = []", "6:11: `providers.x.command`: it names no program"),
        (
            "[providers.x]\nkind = \"exec\"\ncommand = [\"\", \"a\"]",
            "6:11: `providers.x.command`: it names no program",
        ),
        (
            "[providers.x]\nkind = \"exec\"\ncommand = \"wc -w\"",
            "6:11: `providers.x.command`: expected an array",
        ),
        (
            "[providers.x]\nkind = \"exec\"\ncommand = [\"a\", \"\\u0000\"]",
            "6:17: `providers.x.command`: it holds a NUL",
        ),
        (
            "[providers.x]\nkind = \"spawn\"\nmodel = \"x\"",
            "5:8: `providers.x.kind`: providers of kind `spawn` are not in this version, which has `exec`, `acp`",
        ),
        (
            "[providers.x]\nkind = \"exce\"\ncommand = [\"x\"]",
            "5:8: `providers.x.kind`: there is no kind `exce`; did you mean `exec`?",
        ),
        (
            "[providers.x]\nkind = \"q\"\ncommand = [\"x\"]",
            "5:8: `providers.x.kind`: there is no kind `q`; this version has `exec`, `acp`",
        ),
    ] {
        let told = faults(&wc(line));
        assert!(told.contains(expected), "{line}\n{told}");
        assert_eq!(told.lines().count(), 1, "{line}\n{told}");
    }
    assert_eq!(
        faults(&format!("default_provider = \"cw\"\n{WC}")),
        "s.toml:1:20: `default_provider`: no provider is named `cw`; did you mean `wc`? configured: `wc`"
    );
    assert!(faults("default_provider = \"x\"").contains("no provider is configured"));
    assert_eq!(
        faults("[providers]\nx = 1"),
        "s.toml:2:5: `providers.x` is an integer; it has to be a table, like [providers.x]"
    );
    assert!(faults("defaults = 1").contains("s.toml:1:12: `defaults` is an integer; it has to be a table"));
}

#[test]
fn what_is_no_toml_is_told_with_its_place_and_without_the_line() {
    for (text, place) in [
        ("a = ", "s.toml:1:5: "),
        ("\u{feff}[providers.wc\n", "s.toml:1:14: "),
        ("é = 1\nk = 'x\n", "s.toml:1:1: "),
        ("[defaults]\njobs = 1\njobs = 2\n", "s.toml:3:1: duplicate key"),
        ("[providers.a]\n[providers.a]\n", "s.toml:2:"),
        ("[providers.a.env]\nTOKEN = hunter2\n", "s.toml:2:9: "),
        ("[providers.a.env]\nTOKEN = 'hunter2\n", "s.toml:2:"),
    ] {
        let error = read(text, &[]).expect_err(text);
        assert_eq!(error.code(), "CONFIG_SYNTAX", "{text}: {error}");
        let told = error.to_string();
        assert!(told.starts_with(place) && !told.contains("hunter2"), "{text}: {told}");
        assert!(!told.trim_end().contains('\n'), "{told}");
    }
}

#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_file() {
    let error = read(&format!("jbos = 1\n{}", wc("timeout = 1\ncwd = 2")), &[]).expect_err("three faults");
    let codes: Vec<_> = error.faults().map(|fault| fault.kind.code()).collect();
    assert_eq!(codes, ["CONFIG_UNKNOWN_KEY", "CONFIG_INVALID_VALUE", "CONFIG_INVALID_VALUE"]);
    assert_eq!(error.code(), codes[0]);
    let many = (0..100).map(|i| format!("key{i} = 1\n")).collect::<Vec<_>>().concat();
    let told = faults(&many);
    assert_eq!(told.lines().count(), 21);
    assert!(told.ends_with("\n… and 80 more"), "{told}");
}

#[test]
fn the_environment_overrides_and_needs_no_file() {
    let config = read(
        &wc("timeout = \"1s\"\nmax_concurrent = 9\nenv = { A = \"a\", B = \"b\" }"),
        &[
            ("SUBAGENTS__DEFAULTS__TIMEOUT", "5m"),
            ("SUBAGENTS__DEFAULTS__JOBS", "3"),
            ("SUBAGENTS__DEFAULT_PROVIDER", "wc"),
            ("SUBAGENTS__PROVIDERS__WC__MAX_CONCURRENT", "2"),
            ("SUBAGENTS__PROVIDERS__WC__TIMEOUT", "\"2s\""),
            ("SUBAGENTS__PROVIDERS__WC__DESCRIPTION", "true"),
            ("SUBAGENTS__PROVIDERS__WC__ENV__B", "1"),
            ("SUBAGENTS__PROVIDERS__WC__ENV__c", "{"),
            ("SUBAGENTS__PROVIDERS__LS", "{ kind = \"exec\", command = [\"ls\"] }"),
            ("SUBAGENTS_DEPTH", "not ours"),
        ],
    );
    let config = config.expect("it is right");
    assert_eq!((config.jobs(), config.deadlines().total), (Some(3), Some(Duration::from_mins(5))));
    let wc = config.select(None).expect("the default");
    assert_eq!((wc.limit(), wc.deadlines().total), (Some(2), Some(Duration::from_secs(2))));
    assert_eq!(wc.description(), Some("true"));
    let env: Vec<_> = wc.env.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(env, [("A", "a"), ("B", "1"), ("c", "{")]);
    assert_eq!(config.provider("ls").expect("from a variable").command(), ["ls"]);

    let hyphened = "[providers.a-b]\nkind = \"exec\"\ncommand = [\"x\"]\n";
    let config = read(hyphened, &[("SUBAGENTS__PROVIDERS__A_B__COMMAND", "[\"y\"]")]).expect("it is right");
    assert_eq!((config.providers().len(), config.providers()[0].command()), (1, &["y".to_owned()][..]));

    let lookup = Lookup::new("/").variables([
        ("SUBAGENTS__PROVIDERS__WC__KIND", "exec"),
        ("SUBAGENTS__PROVIDERS__WC__COMMAND", "[\"wc\"]"),
        ("SUBAGENTS__PROVIDERS__WC__CWD", "here"),
    ]);
    let config = Config::load(&lookup).expect("without any file");
    assert_eq!((config.file(), config.providers()[0].cwd()), (None, Some(Path::new("/here"))));
}

#[test]
fn a_fault_of_the_environment_names_the_variable() {
    for (variables, expected) in [
        (
            &[("SUBAGENTS__DEFAULTS__TIMOUT", "5m")][..],
            "SUBAGENTS__DEFAULTS__TIMOUT: unknown key `defaults.timout`; did you mean `timeout`?",
        ),
        (
            &[("SUBAGENTS__DEFAULTS__TIMEOUT", "5")],
            "SUBAGENTS__DEFAULTS__TIMEOUT: `defaults.timeout`: that is no duration",
        ),
        (&[("SUBAGENTS__DEFAULTS", "5")], "SUBAGENTS__DEFAULTS: `defaults` is an integer"),
        (
            &[("SUBAGENTS__PROVIDERS__WC__COMMAND", "wc")],
            "SUBAGENTS__PROVIDERS__WC__COMMAND: `providers.wc.command`: expected an array",
        ),
        (&[("SUBAGENTS__PROVIDERS__WC__ENV__", "x")], "SUBAGENTS__PROVIDERS__WC__ENV__: it names no key"),
        (
            &[("SUBAGENTS__PROVIDERS__WC__KIND__X", "x")],
            "SUBAGENTS__PROVIDERS__WC__KIND__X: `providers.wc.kind` is no table",
        ),
        (
            &[("SUBAGENTS__PROVIDERS__X__TIMEOUT", "1s")],
            "SUBAGENTS__PROVIDERS__X__TIMEOUT: `providers.x` has no `kind`",
        ),
        (
            &[("SUBAGENTS__DEFAULT_PROVIDER", "x")],
            "SUBAGENTS__DEFAULT_PROVIDER: `default_provider`: no provider is named `x`",
        ),
        (
            &[("SUBAGENTS__DEFAULTS__JOBS", "1"), ("SUBAGENTS__DEFAULTS__jobs", "2")],
            "SUBAGENTS__DEFAULTS__jobs: SUBAGENTS__DEFAULTS__JOBS sets the same; unset one of them",
        ),
        (
            &[("SUBAGENTS__DEFAULTS", "{ jobs = 1 }"), ("SUBAGENTS__DEFAULTS__JOBS", "2")],
            "SUBAGENTS__DEFAULTS__JOBS: SUBAGENTS__DEFAULTS sets the same; unset one of them",
        ),
    ] {
        let told = faults_of(WC, variables);
        assert!(told.starts_with(expected), "{told}");
    }
    for (name, value) in [(&b"SUBAGENTS__A"[..], &b"\xff"[..]), (b"SUBAGENTS__\xff", b"x")] {
        let variables = [(OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()))];
        let told = Config::load(&Lookup::new("/").variables(variables)).expect_err("no text").to_string();
        assert!(told.contains("SUBAGENTS__") && told.contains("it is not UTF-8"), "{told}");
    }
    let deep = [("SUBAGENTS__".to_owned() + &"A__".repeat(30_000) + "B", "x")];
    assert!(
        Config::load(&Lookup::new("/").variables(deep)).expect_err("too deep").to_string().contains("no key")
    );
}

#[test]
fn a_provider_is_selected_by_name_by_default_or_as_the_only_one() {
    let two = format!("{WC}[providers.ls]\nkind = \"exec\"\ncommand = [\"ls\"]\n");
    let config = read(&two, &[]).expect("it is right");
    assert_eq!(config.select(Some("ls")).expect("named").name(), "ls");
    for (name, code, told) in [
        (
            Some("sl"),
            "CONFIG_UNKNOWN_PROVIDER",
            "no provider is named `sl`; did you mean `ls`? configured: `wc`, `ls`",
        ),
        (Some("other"), "CONFIG_UNKNOWN_PROVIDER", "no provider is named `other`; configured: `wc`, `ls`"),
        (None, "CONFIG_NO_PROVIDER", "name one of `wc`, `ls`, or set `default_provider`"),
    ] {
        let error = config.select(name).expect_err("none");
        assert_eq!(error.code(), code);
        assert!(error.to_string().starts_with("s.toml: ") && error.to_string().contains(told), "{error}");
    }
    assert_eq!(read(WC, &[]).expect("it is right").select(None).expect("the only one").name(), "wc");
    let none = Config::default().select(None).expect_err("none");
    assert!(none.to_string().starts_with("no provider is configured; write a table"), "{none}");
}

#[test]
fn the_file_is_looked_for_upwards_and_then_with_the_user() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("a/b/c")).expect("folders");
    fs::create_dir_all(at("home/.config/subagents")).expect("folders");
    fs::create_dir_all(at("xdg/subagents")).expect("folders");
    let jobs =
        |path: &str, jobs: usize| fs::write(at(path), format!("defaults.jobs = {jobs}")).expect("written");
    let find = |variables: &[(&str, &Path)]| {
        let variables = variables.iter().map(|(name, path)| (name, path));
        Config::load(&Lookup::new(at("a/b/c")).variables(variables)).map(|config| config.jobs())
    };
    let (home, xdg) = (at("home"), at("xdg"));
    let both = [("HOME", &*home), ("XDG_CONFIG_HOME", &*xdg)];
    assert_eq!(find(&both), Ok(None), "none is no fault");
    jobs("home/.config/subagents/subagents.toml", 1);
    assert_eq!(find(&both), Ok(None), "another folder was said");
    assert_eq!(find(&both[..1]), Ok(Some(1)));
    assert_eq!(
        find(&[both[0], ("XDG_CONFIG_HOME", Path::new("xdg"))]),
        Ok(Some(1)),
        "a relative one does not count"
    );
    assert_eq!(find(&[both[0], ("XDG_CONFIG_HOME", Path::new(""))]), Ok(Some(1)));
    jobs("xdg/subagents/subagents.toml", 2);
    assert_eq!(find(&both), Ok(Some(2)));
    jobs("a/subagents.toml", 3);
    assert_eq!(find(&both), Ok(Some(3)));
    jobs("a/b/c/subagents.toml", 4);
    assert_eq!(find(&both), Ok(Some(4)));
    let named = Config::load(&Lookup::new(at("a/b")).file("../subagents.toml")).expect("it is there");
    assert_eq!((named.jobs(), named.file()), (Some(3), Some(Path::new("../subagents.toml"))));

    fs::remove_file(at("a/b/c/subagents.toml")).expect("removed");
    std::os::unix::fs::symlink("/no/such", at("a/b/c/subagents.toml")).expect("a link");
    assert!(find(&both).expect_err("it leads nowhere").to_string().contains("it leads nowhere"));
    fs::remove_file(at("a/b/c/subagents.toml")).expect("removed");
    fs::create_dir(at("a/b/c/subagents.toml")).expect("a folder");
    assert!(find(&both).expect_err("a folder").to_string().contains("it is a directory"));
}

#[test]
fn a_file_of_somebody_else_is_not_taken_and_a_closed_folder_is_no_missing_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("subagents.toml");
    fs::write(&file, "defaults.jobs = 3").expect("written");
    let here = Lookup::new(folder.path());
    assert_eq!(Config::load(&here).expect("it is ours").jobs(), Some(3));
    // Only the superuser can give a file away, and only to the superuser no folder is closed.
    if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
        let error = Config::load(&here).expect_err("it is somebody else's").to_string();
        assert!(error.contains("another user (12345)") && error.contains("--config"), "{error}");
        assert_eq!(Config::load(&here.file(&file)).expect("it was named").jobs(), Some(3));
    } else {
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).expect("a folder");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("closed");
        let error = Config::load(&Lookup::new("/").variables([("XDG_CONFIG_HOME", &closed)]));
        assert!(error.expect_err("closed").to_string().contains("it cannot be looked for"));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let load = |name: &str| Config::load(&Lookup::new(folder.path()).file(name)).expect_err(name);
    fs::write(folder.path().join("latin"), b"# \xe9").expect("written");
    fs::write(folder.path().join("long"), "#".repeat(64 * 1024 + 1)).expect("written");
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    for (name, why) in [
        ("none", "none: it cannot be read: there is no such file"),
        ("latin", "latin: it is not UTF-8 (at byte 2)"),
        ("long", "long: it is longer than 64 KiB"),
        ("folder", "folder: it is a directory"),
    ] {
        let error = load(name);
        assert_eq!(error.code(), "CONFIG_UNREADABLE");
        assert!(error.to_string().starts_with(why), "{error}");
    }
}

#[test]
fn f07_no_value_of_env_is_in_debug() {
    let variables = [("SUBAGENTS__PROVIDERS__WC__ENV__B", "hunter3"), ("API_KEY", "hunter4")];
    let lookup = Lookup::new("/").variables(variables);
    let config = read(&wc("env = { API_KEY = \"hunter2\" }"), &variables[..1]).expect("it is right");
    let shown = format!("{config:?} {:?} {lookup:?}", config.providers()[0]);
    assert!(shown.contains("API_KEY") && !shown.contains("hunter"), "{shown}");
}

#[test]
fn a_check_finds_the_program_and_starts_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mark = folder.path().join("started");
    let text = format!(
        "[providers.sh]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"touch {0}\"]\n\
         [providers.no]\nkind = \"exec\"\ncommand = [\"no-such-program-anywhere\"]\nenv = {{ PATH = \"/x\" }}\n",
        mark.display()
    );
    let config = read(&text, &[]).expect("it is right");
    let found = config.providers()[0].check(folder.path()).expect("a shell");
    assert!(found.is_absolute() && found.ends_with("sh"), "{found:?}");
    let failure = config.providers()[1].check(folder.path()).expect_err("no such program");
    assert_eq!(failure.code().as_str(), "NOT_ON_PATH");
    assert!(failure.to_string().contains("(/x)"), "{failure}");
    let failure = config.providers()[0].check(Path::new("/no/such")).expect_err("no such directory");
    assert_eq!(failure.code().as_str(), "CWD_NOT_USABLE");
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_host_registers_all_in_one_call() {
    use subagents_runtime::SubagentService;
    use subagents_seam::StartRequest;

    let text = "[defaults]\ntimeout = \"1m\"\n".to_owned() + &wc("max_concurrent = 1");
    let config = read(&text, &[]).expect("it is right");
    let service = config.register(SubagentService::builder()).build().expect("it is built");
    let root = service.root("/").expect("a root");
    let request =
        StartRequest::new(&root, "three short words").deadlines(config.providers()[0].deadlines().clone());
    let answer = service.delegate("wc", request).await.expect("an answer");
    assert_eq!(answer.text().trim(), "3");
    assert!(service.shutdown(Duration::from_secs(5)).await.is_clean());
}

#[test]
fn the_example_of_the_readme_is_right() {
    let page = include_str!("../../README.md");
    let (_, rest) = page.split_once("```toml\ndefault_provider").expect("an example");
    let (example, rest) = rest.split_once("```").expect("its end");
    let config = read(&format!("default_provider{example}"), &[]).expect("it is right");
    assert_eq!(config.select(None).expect("the default").name(), "some-agent");
    assert_eq!(config.provider("words").and_then(super::ProviderConfig::cwd), Some(Path::new("/here/docs")));
    // The error that the page shows.
    let shown = rest.split_once("```text\n").and_then(|(_, rest)| rest.split_once("\n```"));
    let shown = shown.expect("an error");
    let wrong = format!("default_provider{example}").replace("pass_env", "pas_env");
    let error = Config::parse("subagents.toml", &wrong.replace("\ncwd", "\n#")).expect_err("a slip");
    assert_eq!(error.to_string(), shown.0);
}

#[test]
fn no_text_breaks_the_reader() {
    let text = format!(
        "\u{feff}{}",
        wc("env = { \"é\" = '日本' }\r\ncwd = \"\"\"\n日\"\"\"\nmax_output = 0x7f # é")
    );
    for (at, _) in text.char_indices() {
        let _ = read(&text[..at], &[]);
        let _ = read(&format!("{}\u{1b}{}", &text[..at], &text[at..]), &[]);
        let _ = read(&text[at..], &[("SUBAGENTS__PROVIDERS__WC__ENV", &text[at..])]);
    }
    assert_eq!(faults(&text), "");
    for deep in
        [format!("a = {}", "[".repeat(60_000)), format!("a{} = 1", ".a".repeat(30_000)), "[".repeat(60_000)]
    {
        assert_eq!(read(&deep, &[]).expect_err("too deep").faults().count(), 1);
    }
    let deep = "[".repeat(100_000);
    let told = faults_of(WC, &[("SUBAGENTS__DEFAULTS__TIMEOUT", &deep)]);
    assert!(
        told.starts_with("SUBAGENTS__DEFAULTS__TIMEOUT: `defaults.timeout`: that is no duration"),
        "{told}"
    );
    let wide: String = (0..6_000).map(|i| format!("k{i}=1,")).collect::<Vec<_>>().concat();
    let begun = std::time::Instant::now();
    assert_eq!(faults(&format!("defaults = {{{}}}", wide.trim_end_matches(','))).lines().count(), 21);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn the_nearest_is_near() {
    let known = ["timeout", "idle_timeout", "env", "command"];
    for (typed, near) in [
        ("timeout", Some("timeout")),
        ("tiemout", Some("timeout")),
        ("idle", Some("idle_timeout")),
        ("IDLE-TIMEOUT", Some("idle_timeout")),
        ("environment", Some("env")),
        ("cmd", None),
        ("x", None),
        ("", None),
    ] {
        assert_eq!(nearest(typed, &known), near, "{typed}");
    }
    assert_eq!(nearest(&"timeout".repeat(1000), &known), None);
}
