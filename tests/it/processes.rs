//! Real processes, found again in `/proc` by a mark in their environment or by their id.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

/// The variable that holds the mark.
pub(crate) const VARIABLE: &str = "SUBJECT_OF_TEST";

/// By this everything below one subject of a test is found again, wherever it sits: the environment is inherited.
#[derive(Clone, Debug)]
pub(crate) struct Mark(String);

impl Mark {
    /// One that nobody else has.
    pub(crate) fn fresh() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// The command lines of all processes with this mark. A zombie has neither command line nor environment.
    pub(crate) fn alive(&self) -> Vec<String> {
        let variable = format!("{VARIABLE}={}", self.0);
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let processes = processes.flatten().filter_map(|process| {
            let environment = fs::read(process.path().join("environ")).ok()?;
            let marked = environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes());
            let command = fs::read(process.path().join("cmdline")).ok()?;
            marked.then(|| String::from_utf8_lossy(&command).replace('\0', " "))
        });
        processes.collect()
    }
}

/// The command lines that hold this text. A zombie has none.
pub(crate) fn running(text: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten().filter_map(|process| {
        let command = fs::read(process.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(text).then_some(command)
    });
    processes.collect()
}

/// Whether this is a process for the test of this name alone; where it is not, one is started, and the test holds if it
/// does there. For what concerns a whole process.
#[expect(clippy::disallowed_methods, reason = "it is this test program")]
pub(crate) fn alone(test: &str) -> bool {
    const ALONE: &str = "ALONE_IN_ITS_PROCESS";
    if std::env::var(ALONE).is_ok_and(|alone| alone == test) {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, test).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Whether it is a child of ours that has exited and was not waited for.
pub(crate) fn is_our_zombie(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name, in brackets, may hold anything.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    rest.starts_with(&format!("Z {} ", std::process::id()))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a zombie has to be left by somebody")]
fn the_observer_sees_the_living_and_the_zombies() {
    let (mark, patience) = (Mark::fresh(), std::time::Duration::from_secs(20));
    let mut child =
        std::process::Command::new("sleep").arg("1000").env(VARIABLE, mark.value()).spawn().unwrap();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < patience, "waited in vain until {what}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    until("it runs", &|| mark.alive() == ["sleep 1000 "]);
    assert!(!is_our_zombie(child.id()));
    child.kill().unwrap();
    until("it is a zombie", &|| is_our_zombie(child.id()));
    assert_eq!(mark.alive(), [""; 0]);
    child.wait().unwrap();
    assert!(!is_our_zombie(child.id()));
}
