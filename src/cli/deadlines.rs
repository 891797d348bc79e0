//! The deadlines that hold, and who says so: the most specific wins.

use std::time::Duration;
use subagents::{
    CancelCause, DeadlineKind, Deadlines, Name, StopReason, SubagentResult, acp::KnownAgent,
    config::ProviderConfig,
};

/// Who said how long.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Option(&'static str),
    Provider(&'static str, Name),
    Defaults(&'static str),
    /// Nobody: an agent that is known.
    Known(Name),
}

/// Deadlines of every prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) deadlines: Deadlines,
    total: Option<By>,
    idle: Option<By>,
}

impl Limits {
    /// Of the command line, of the provider, of `[defaults]`; `known` is the agent that a command of the command line starts.
    pub(crate) fn new(
        typed: &Deadlines,
        provider: Option<&ProviderConfig>,
        known: Option<&KnownAgent>,
        defaults: &Deadlines,
    ) -> Self {
        let own = provider.map(ProviderConfig::deadlines).cloned().unwrap_or_default();
        let name = provider.map(ProviderConfig::name).cloned().unwrap_or_default();
        let first =
            |typed: Option<Duration>, own: Option<Duration>, default: Option<Duration>, option, key| {
                let typed = typed.map(|time| (time, By::Option(option)));
                let own = own.map(|time| (time, By::Provider(key, name.clone())));
                typed.or(own).or(default.map(|time| (time, By::Defaults(key)))).unzip()
            };
        let (time, total) = first(typed.total, own.total, defaults.total, "--timeout", "timeout");
        let idle = first(typed.idle, own.idle, defaults.idle, "--idle-timeout", "idle_timeout");
        let (quiet, idle) = match (idle, known) {
            ((time, Some(By::Provider(..))), _)
                if provider.is_some_and(ProviderConfig::is_bounded_as_known) =>
            {
                (time, Some(By::Known(name)))
            }
            ((None, _), Some(known)) => (Some(KnownAgent::IDLE_TIMEOUT), Some(By::Known(known.name.into()))),
            (set, _) => set,
        };
        let mut deadlines = Deadlines::new();
        (deadlines.total, deadlines.idle) = (time, quiet);
        deadlines.start = typed.start.or(own.start).or(defaults.start);
        Self { deadlines, total, idle }
    }

    /// Whose time was over, of a result that has timed out.
    pub(crate) fn over(&self, result: &SubagentResult) -> Option<String> {
        let text = result.diagnostic.as_ref().map_or("", |diagnostic| diagnostic.text());
        let limits = [
            (DeadlineKind::Total, self.deadlines.total, &self.total),
            (DeadlineKind::Idle, self.deadlines.idle, &self.idle),
        ];
        let (_, time, by) = limits.into_iter().find(|(kind, ..)| {
            result.stop_reason == StopReason::TimedOut && text == CancelCause::Deadline(*kind).to_string()
        })?;
        let time = time?;
        Some(match by.as_ref()? {
            By::Option(option) => format!("{option} {time:?}"),
            By::Provider(key, name) => format!("{key} {time:?} of provider {name}"),
            By::Defaults(key) => format!("{key} {time:?} of [defaults]"),
            By::Known(name) => {
                format!("{time:?}, since nothing else is set for {name}; --idle-timeout sets another")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{By, KnownAgent, Limits};
    use std::time::Duration;
    use subagents::{CancelCause, DeadlineKind, Deadlines, StopReason, SubagentResult, config::Config};

    #[test]
    fn the_most_specific_deadline_wins_and_is_named() {
        let config = "[defaults]\ntimeout = \"4s\"\nidle_timeout = \"5s\"\nstart_timeout = \"6s\"\n\
                      [providers.p]\nkind = \"exec\"\ncommand = [\"x\"]\ntimeout = \"2s\"\nidle_timeout = \"3s\"\n";
        let config = Config::parse("x", config).expect("it is right");
        let timed_out = |kind| {
            let mut result = SubagentResult::new(StopReason::TimedOut, "");
            result.diagnostic = Some(CancelCause::Deadline(kind).diagnostic("timed-out"));
            result
        };
        let typed = Deadlines::new().total(Duration::from_secs(1));
        for (typed, provider, total, idle) in [
            (&typed, true, "--timeout 1s", "idle_timeout 3s of provider p"),
            (&Deadlines::new(), true, "timeout 2s of provider p", "idle_timeout 3s of provider p"),
            (&Deadlines::new(), false, "timeout 4s of [defaults]", "idle_timeout 5s of [defaults]"),
        ] {
            let p = config.provider("p").filter(|_| provider);
            let limits = Limits::new(typed, p, None, config.deadlines());
            assert_eq!(limits.over(&timed_out(DeadlineKind::Total)).as_deref(), Some(total));
            assert_eq!(limits.over(&timed_out(DeadlineKind::Idle)).as_deref(), Some(idle));
            assert_eq!(limits.over(&timed_out(DeadlineKind::Batch)), None);
            assert_eq!(limits.over(&SubagentResult::completed("x")), None);
            assert_eq!(limits.deadlines.start, Some(Duration::from_secs(6)));
        }
    }

    #[test]
    fn a_known_agent_is_bounded_however_it_is_named() {
        let known = KnownAgent::named("gemini").expect("it is known");
        let file = "[providers.mine]\nkind = \"acp\"\ncommand = [\"gemini\", \"--acp\"]\n";
        let said = |text: &str| {
            let config = Config::parse("x", text).expect("it is right").with_known_agents();
            let idle = |provider: &str| config.provider(provider).expect("it is there").deadlines().idle;
            let of = |provider| {
                let limits =
                    Limits::new(&Deadlines::new(), config.provider(provider), None, config.deadlines());
                (limits.deadlines.idle, limits.idle)
            };
            let typed = Limits::new(&Deadlines::new(), None, Some(known), config.deadlines());
            (idle("mine"), idle("gemini"), of("mine"), of("gemini"), (typed.deadlines.idle, typed.idle))
        };
        let half = Some(KnownAgent::IDLE_TIMEOUT);
        let by = |name: &str| (half, Some(By::Known(name.into())));
        assert_eq!(said(file), (half, half, by("mine"), by("gemini"), by("gemini")));
        let minute = Some(Duration::from_mins(1));
        let defaults = || (minute, Some(By::Defaults("idle_timeout")));
        assert_eq!(
            said(&format!("defaults = {{ idle_timeout = \"1m\" }}\n{file}")),
            (None, None, defaults(), defaults(), defaults())
        );
        let own = said(&format!("{file}idle_timeout = \"1m\"\n"));
        assert_eq!((own.0, own.2), (minute, (minute, Some(By::Provider("idle_timeout", "mine".into())))));
    }
}
