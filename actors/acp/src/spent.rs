//! What an agent says it used up. Pure.
//!
//! The protocol has no settled place for tokens yet. Agents put them beside the stop reason, as `usage` or below
//! `_meta.quota.token_count`, or beside a piece of the answer; the cost so far comes in an update.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use subagents_seam::Usage;

/// What is larger is no account of tokens.
const LARGEST: usize = 64 * 1024;

/// The tokens of all turns so far, and what they cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spent {
    usage: Usage,
    calls: Usage,
}

impl Spent {
    /// Adds the tokens of a turn, as its response tells them. Zero everywhere is not a fact: agents write it where they
    /// do not know.
    pub(crate) fn turn(&mut self, ending: &Ending) {
        let places = [&ending.usage, &ending.meta["quota"]["token_count"]];
        if let Some(tokens) = places.into_iter().map(Tokens::read).find(Tokens::is_known) {
            tokens.add_to(&mut self.usage);
        }
    }

    /// Adds the tokens of one answer of its model, as qwen tells them beside a piece of its own answer. They count where no
    /// turn tells any.
    pub(crate) fn call(&mut self, usage: &Value) {
        let tokens = Tokens::read(usage);
        if tokens.is_known() {
            tokens.add_to(&mut self.calls);
        }
    }

    /// Takes the cost of the session so far; in another currency than the dollar it stays unknown.
    pub(crate) fn cost(&mut self, amount: f64, currency: &str) {
        if currency.eq_ignore_ascii_case("USD") && amount.is_finite() && amount > 0.0 {
            self.usage.cost_usd = Some(amount);
        }
    }

    /// All of it; none where nothing is known.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let told = self.usage.input_tokens.or(self.usage.output_tokens).or(self.usage.total_tokens);
        let mut usage = if told.is_some() { self.usage.clone() } else { self.calls.clone() };
        usage.cost_usd = self.usage.cost_usd;
        (usage != Usage::default()).then_some(usage)
    }
}

/// How an agent ends a turn: its stop reason, and what it tells beside it.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) stop: String,
    usage: Value,
    meta: Value,
}

#[derive(Deserialize)]
struct RawEnding<'a> {
    #[serde(borrow, default, rename = "stopReason")]
    stop: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl Ending {
    /// Of the response to a prompt. What is odd, or too large to be what it should be, is missing; whatever else is there is
    /// not even read.
    pub(crate) fn read(response: &RawValue) -> Self {
        let object = Some(response.get()).filter(|response| response.starts_with('{'));
        let Some(Ok(raw)) = object.map(serde_json::from_str::<RawEnding<'_>>) else { return Self::default() };
        let small = |value: Option<&RawValue>| {
            let value = value.map(RawValue::get).filter(|value| value.len() <= LARGEST);
            value.and_then(|value| serde_json::from_str(value).ok()).unwrap_or(Value::Null)
        };
        let stop = small(raw.stop).as_str().unwrap_or_default().to_owned();
        Self { stop, usage: small(raw.usage), meta: small(raw.meta) }
    }
}

struct Tokens {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    total: Option<u64>,
}

impl Tokens {
    fn read(place: &Value) -> Self {
        let number = |names: [&str; 2]| names.iter().find_map(|name| place[*name].as_u64());
        Self {
            input: number(["inputTokens", "input_tokens"]),
            output: number(["outputTokens", "output_tokens"]),
            cached: number(["cachedReadTokens", "cachedInputTokens"]),
            total: number(["totalTokens", "total_tokens"]),
        }
    }

    fn add_to(&self, usage: &mut Usage) {
        let sum = |so_far: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *so_far = Some(so_far.unwrap_or(0).saturating_add(more));
            }
        };
        sum(&mut usage.input_tokens, self.input);
        sum(&mut usage.output_tokens, self.output);
        sum(&mut usage.cached_tokens, self.cached);
        sum(&mut usage.total_tokens, self.total);
    }

    fn is_known(&self) -> bool {
        [self.input, self.output, self.cached, self.total].into_iter().flatten().any(|tokens| tokens > 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ending(response: &Value) -> Ending {
        Ending::read(&serde_json::value::to_raw_value(response).unwrap())
    }

    #[test]
    fn an_end_is_read_whatever_stands_beside_it() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let response = format!(r#"{{"stopReason":"end_turn","_meta":{deep},"usage":{deep},"more":{deep}}}"#);
        let read = Ending::read(&RawValue::from_string(response).unwrap());
        assert_eq!((&*read.stop, &read.usage, &read.meta), ("end_turn", &Value::Null, &Value::Null));
        for odd in [json!(null), json!([1]), json!({"stopReason": 7}), json!({})] {
            assert_eq!(ending(&odd).stop, "");
        }
    }

    #[test]
    fn tokens_are_found_where_agents_put_them_and_summed_over_turns() {
        let mut spent = Spent::default();
        spent.turn(&ending(&json!({"usage": {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 0, "totalTokens": 12}})));
        spent.turn(&ending(&json!({"usage": null, "_meta": {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 1}}}})));
        let usage = spent.usage().unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (Some(15), Some(3)));
        assert_eq!((usage.cached_tokens, usage.total_tokens, usage.cost_usd), (Some(0), Some(12), None));
    }

    #[test]
    fn the_tokens_of_single_calls_count_where_no_turn_tells_any() {
        let mut spent = Spent::default();
        for _ in 0..2 {
            spent.call(&json!({"inputTokens": 10, "outputTokens": 2}));
        }
        assert_eq!(spent.usage().unwrap().input_tokens, Some(20));
        spent.turn(&ending(&json!({"usage": {"inputTokens": 21, "outputTokens": 4}})));
        assert_eq!(spent.usage().unwrap().input_tokens, Some(21));
    }

    #[test]
    fn c08_zero_everywhere_is_unknown() {
        let mut spent = Spent::default();
        spent.turn(&ending(&json!({"usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}})));
        spent.turn(&ending(&json!({"usage": "much", "_meta": 7})));
        spent.turn(&ending(&json!(null)));
        spent.cost(0.0, "USD");
        spent.cost(3.0, "EUR");
        assert_eq!(spent.usage(), None);
        spent.cost(0.25, "usd");
        assert_eq!(spent.usage().unwrap().cost_usd, Some(0.25));
    }
}
