//! What was typed.

use std::path::PathBuf;

/// A suite, as its command line knows it.
pub(crate) struct Suite {
    /// Its test target.
    pub(crate) name: &'static str,
    /// One of those who play, in the usage.
    pub(crate) one: &'static str,
    pub(crate) names: Vec<&'static str>,
    pub(crate) scenarios: Vec<&'static str>,
    /// Where those who play are described.
    pub(crate) folder: &'static str,
    /// Whether it can record what was said.
    pub(crate) records: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Empty for all.
    pub(crate) only: Vec<String>,
    pub(crate) require: Vec<String>,
    /// Empty for all.
    pub(crate) scenarios: Vec<String>,
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Play(Arguments),
    Markdown,
    Help,
    /// Another test was asked for: `cargo test NAME` and test runners ask every test binary.
    Nothing,
}

impl Suite {
    pub(crate) fn usage(&self) -> String {
        let Self { name, one, folder, .. } = self;
        let record = "  --record DIR       record what each agent and the provider say to each other, a file each, in DIR\n";
        let record = if self.records { record } else { "" };
        format!(
            "\
usage: cargo test --test {name} -- [OPTION]...

  --only {one:<11} this one (may be given several times); see {folder}
  --require {one:<8} this one, and it has to be installed
  --scenario NAME    this one (may be given several times)
{record}  --markdown         print the README's table and play nothing

They are looked for in $SUBAGENTS_PEERS, or target/peers; tests/peers/install.sh puts them there."
        )
    }

    pub(crate) fn read(&self, mut arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
        let mut read = Arguments::default();
        let mut wish = None;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let among = |names: &[&str], value: String| {
                let known = names.contains(&&*value);
                known
                    .then(|| value.clone())
                    .ok_or_else(|| format!("no `{value}`; known: {}", names.join(", ")))
            };
            match &*argument {
                "--only" => read.only.push(among(&self.names, value()?)?),
                "--require" => {
                    let name = among(&self.names, value()?)?;
                    read.only.push(name.clone());
                    read.require.push(name);
                }
                "--scenario" => {
                    read.scenarios.push(among(&self.scenarios, value()?)?);
                }
                "--record" if self.records => read.record = Some(value()?.into()),
                "--markdown" => wish = Some(Wish::Markdown),
                "--help" | "-h" => wish = Some(Wish::Help),
                // What test binaries understand: a name or a list is for others, the rest means nothing here.
                "--list" => wish = Some(Wish::Nothing),
                "--skip" | "--test-threads" | "--format" | "--color" | "-Z" => drop(value()?),
                "--nocapture" | "--no-capture" | "--quiet" | "-q" | "--exact" | "--ignored"
                | "--include-ignored" | "--show-output" | "--test" => {}
                option if option.starts_with("--test-threads=") || option.starts_with("--format=") => {}
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                _ => wish = Some(Wish::Nothing),
            }
        }
        Ok(wish.unwrap_or(Wish::Play(read)))
    }
}
