//! What a caller asks for.

use crate::{AgentOption, CancellationToken, Capability, Content, Name, Parent};
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};

/// One delegation, as a caller asks for it (SPEC 1.4).
///
/// Building one creates nothing and checks nothing; every check happens at the start, in a fixed order, before a
/// child exists (SPEC 3.1, 3.2).
///
/// `Debug` shows neither prompt nor persona.
#[derive(Clone)]
pub struct StartRequest {
    prompt: Content,
    parent: Parent,
    label: Option<Name>,
    token: Option<CancellationToken>,
    /// What few requests set lives apart, so that the common request stays small.
    extras: Option<Box<Extras>>,
}

#[derive(Clone, Default)]
struct Extras {
    agent_options: AgentOptions,
    output_schema: Option<Arc<Value>>,
    max_depth: Option<MaxDepth>,
    tool_filter: Option<ToolFilter>,
    persona: Option<Arc<str>>,
    deadlines: Deadlines,
}

impl StartRequest {
    /// Asks `prompt` of a child of `parent` (a root, an adopted agent, or a [`Parent`]).
    pub fn new(parent: impl Into<Parent>, prompt: impl Into<Content>) -> Self {
        Self { prompt: prompt.into(), parent: parent.into(), label: None, token: None, extras: None }
    }

    /// A short name that people see in the tree. It is shown, unlike the prompt.
    #[must_use]
    pub fn label(mut self, label: impl Into<Name>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Cancels the run when `token` is cancelled. Already cancelled, it refuses the start with `CANCELLED`.
    #[must_use]
    pub fn token(mut self, token: CancellationToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Overrides options of the child's agent, field by field (SPEC 4.5). An option that the provider cannot honour
    /// refuses the start.
    #[must_use]
    pub fn agent_options(mut self, options: AgentOptions) -> Self {
        self.extras().agent_options = options;
        self
    }

    /// Asks for a value that matches this JSON Schema (SPEC 8.1; needs [`Capability::OutputSchema`]).
    #[must_use]
    pub fn output_schema(mut self, schema: impl Into<Arc<Value>>) -> Self {
        self.extras().output_schema = Some(schema.into());
        self
    }

    /// The deepest place in the tree that the child's own delegations may reach: absolute, 0 forbids all
    /// (SPEC 5.2; needs [`Capability::DepthLimit`]). The smallest of this and the caps above holds.
    #[must_use]
    pub fn max_depth(mut self, depth: impl Into<MaxDepth>) -> Self {
        self.extras().max_depth = Some(depth.into());
        self
    }

    /// Restricts the child's tools (SPEC 6; needs [`Capability::ToolFilter`]).
    #[must_use]
    pub fn tool_filter(mut self, filter: ToolFilter) -> Self {
        self.extras().tool_filter = Some(filter);
        self
    }

    /// Who the child is (SPEC 7; needs [`Capability::Persona`]). Empty text is an empty persona, not an inherited
    /// one.
    #[must_use]
    pub fn persona(mut self, persona: impl Into<Arc<str>>) -> Self {
        self.extras().persona = Some(persona.into());
        self
    }

    /// Deadlines of this run; what is not set here is the service's.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.extras().deadlines = deadlines;
        self
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// What the child is asked.
    pub fn get_prompt(&self) -> &Content {
        &self.prompt
    }

    /// Who asks.
    pub fn get_parent(&self) -> &Parent {
        &self.parent
    }

    /// The label, if there is one.
    pub fn get_label(&self) -> Option<&Name> {
        self.label.as_ref()
    }

    /// The caller's token, if there is one.
    pub fn get_token(&self) -> Option<&CancellationToken> {
        self.token.as_ref()
    }

    /// The agent options; all unset by default.
    pub fn get_agent_options(&self) -> Option<&AgentOptions> {
        self.extras.as_deref().map(|extras| &extras.agent_options)
    }

    /// The schema asked for.
    pub fn get_output_schema(&self) -> Option<&Arc<Value>> {
        self.extras.as_deref().and_then(|extras| extras.output_schema.as_ref())
    }

    /// The depth asked for, as the caller gave it.
    pub fn get_max_depth(&self) -> Option<&MaxDepth> {
        self.extras.as_deref().and_then(|extras| extras.max_depth.as_ref())
    }

    /// The tool filter asked for.
    pub fn get_tool_filter(&self) -> Option<&ToolFilter> {
        self.extras.as_deref().and_then(|extras| extras.tool_filter.as_ref())
    }

    /// The persona asked for.
    pub fn get_persona(&self) -> Option<&Arc<str>> {
        self.extras.as_deref().and_then(|extras| extras.persona.as_ref())
    }

    /// The deadlines of this request, if any were set.
    pub fn get_deadlines(&self) -> Option<&Deadlines> {
        self.extras.as_deref().map(|extras| &extras.deadlines)
    }

    /// Whether the request needs a capability: it is asked for as soon as its field is set (SPEC 1.2).
    pub fn needs(&self, capability: Capability) -> bool {
        let Some(extras) = self.extras.as_deref() else { return false };
        match capability {
            Capability::OutputSchema => extras.output_schema.is_some(),
            Capability::DepthLimit => extras.max_depth.is_some(),
            Capability::ToolFilter => extras.tool_filter.is_some(),
            Capability::Persona => extras.persona.is_some(),
        }
    }
}

impl fmt::Debug for StartRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartRequest")
            .field("label", &self.label)
            .field("parent", &self.parent)
            .field("deadlines", &self.get_deadlines())
            .finish_non_exhaustive()
    }
}

/// Options of the child's agent. Unset fields are inherited (SPEC 4.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The model provider.
    pub provider: Option<Arc<str>>,
    /// The model.
    pub model: Option<Arc<str>>,
    /// How hard it thinks, in the provider's own words.
    pub effort: Option<Arc<str>>,
    /// The most tokens it may write.
    pub max_tokens: Option<u32>,
}

impl AgentOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the model provider.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<Arc<str>>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the effort.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<Arc<str>>) -> Self {
        self.effort = Some(effort.into());
        self
    }

    /// Sets the most tokens it may write.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// The options that are set, in the order in which an unsupported one is reported.
    pub fn set(&self) -> impl Iterator<Item = AgentOption> {
        [
            (AgentOption::Provider, self.provider.is_some()),
            (AgentOption::Model, self.model.is_some()),
            (AgentOption::Effort, self.effort.is_some()),
            (AgentOption::MaxTokens, self.max_tokens.is_some()),
        ]
        .into_iter()
        .filter_map(|(option, set)| set.then_some(option))
    }
}

/// Which tools a child sees (SPEC 6.1): `allow` first, then `deny`; both must admit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFilter {
    /// Only these; an empty list hides everything.
    pub allow: Option<Vec<String>>,
    /// None of these.
    pub deny: Option<Vec<String>>,
}

impl ToolFilter {
    /// Only these tools.
    pub fn allow<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self { allow: Some(names.into_iter().map(Into::into).collect()), deny: None }
    }

    /// All but these tools.
    pub fn deny<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self { allow: None, deny: Some(names.into_iter().map(Into::into).collect()) }
    }
}

/// A depth as a caller gave it: a number that a wire or a configuration carried may lie outside the domain, and is
/// then refused at the start with `INVALID_DEPTH` (SPEC 5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxDepth(Result<u32, Box<str>>);

impl MaxDepth {
    /// The depth, or what was given instead of one.
    pub fn get(&self) -> Result<u32, &str> {
        self.0.as_ref().copied().map_err(|given| &**given)
    }

    fn invalid(given: impl fmt::Display) -> Self {
        Self(Err(given.to_string().into()))
    }
}

impl From<u32> for MaxDepth {
    fn from(depth: u32) -> Self {
        Self(Ok(depth))
    }
}

impl From<i32> for MaxDepth {
    fn from(depth: i32) -> Self {
        i64::from(depth).into()
    }
}

impl From<i64> for MaxDepth {
    fn from(depth: i64) -> Self {
        u32::try_from(depth).map_or_else(|_| Self::invalid(depth), Self::from)
    }
}

impl From<f64> for MaxDepth {
    fn from(depth: f64) -> Self {
        let whole = depth.is_finite() && depth.fract() == 0.0 && !(depth == 0.0 && depth.is_sign_negative());
        if whole && (0.0..=f64::from(u32::MAX)).contains(&depth) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and in range, just checked"
            )]
            return Self(Ok(depth as u32));
        }
        Self::invalid(format_args!("{depth:?}"))
    }
}

impl From<&Value> for MaxDepth {
    fn from(value: &Value) -> Self {
        match value {
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map_or_else(|| Self::invalid(number), Self::from)
            }
            Value::Number(number) => number.as_i64().map_or_else(|| Self::invalid(number), Self::from),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                Self::invalid(crate::bounded(&value.to_string(), 100))
            }
        }
    }
}

/// How long each stretch of a run may take. A field that is `None` takes the service's value; `Duration::MAX` means
/// no deadline.
///
/// | deadline | runs from → to | ends in | default |
/// |---|---|---|---|
/// | `queue` | the call → admission | `QUEUE_TIMEOUT` | none |
/// | `start` | admission → publication | `START_TIMEOUT` | 60 s |
/// | `idle` | last sign of life → settlement | `timed-out` | none |
/// | `total` | publication → settlement | `timed-out` | none |
/// | `cancel_grace` | cancel → settlement | `aborted`, with the text so far | 2 s |
/// | `dispose` | settlement → gone | `LEAKED` | 15 s |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlines {
    /// The call → admission.
    pub queue: Option<Duration>,
    /// Admission → publication.
    pub start: Option<Duration>,
    /// The last sign of life → settlement.
    pub idle: Option<Duration>,
    /// Publication → settlement.
    pub total: Option<Duration>,
    /// Cancel → settlement.
    pub cancel_grace: Option<Duration>,
    /// Settlement → gone.
    pub dispose: Option<Duration>,
}

macro_rules! deadline_setters {
    ($($(#[$doc:meta])* $name:ident),*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, duration: Duration) -> Self {
            self.$name = Some(duration);
            self
        })*
    };
}

impl Deadlines {
    /// None set.
    pub fn new() -> Self {
        Self::default()
    }

    deadline_setters! {
        /// Sets the deadline of the queue.
        queue,
        /// Sets the deadline of the start.
        start,
        /// Sets the idle deadline.
        idle,
        /// Sets the total deadline.
        total,
        /// Sets the grace after a cancel.
        cancel_grace,
        /// Sets the deadline of the disposal.
        dispose
    }
}

#[cfg(test)]
mod tests {
    use super::MaxDepth;
    use serde_json::json;

    #[test]
    fn spec_5_3_depth_domain_rejects_what_is_no_depth() {
        for bad in [
            json!(-1),
            json!(1.5),
            json!(-0.0),
            json!(9_007_199_254_740_993_u64),
            json!(4_294_967_296_u64),
            json!("3"),
            json!(null),
        ] {
            assert!(MaxDepth::from(&bad).get().is_err(), "{bad}");
        }
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.5, -0.0, 1e300] {
            assert!(MaxDepth::from(bad).get().is_err(), "{bad}");
        }
        for (good, depth) in [(json!(0), 0), (json!(3), 3), (json!(3.0), 3), (json!(u32::MAX), u32::MAX)] {
            assert_eq!(MaxDepth::from(&good).get(), Ok(depth), "{good}");
        }
    }
}
