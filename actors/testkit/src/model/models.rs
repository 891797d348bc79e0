//! The lists of models that clients ask for before anything else.

use axum::{Json, extract::Path, http::HeaderMap};
use serde_json::{Value, json};

/// The one model of which lists tell; every other name is answered as well.
const NAME: &str = "fake-model";

/// All of them may ask at the same address: Gemini's clients do where they are given a base.
pub(crate) async fn list(headers: HeaderMap) -> Json<Value> {
    if is_gemini(&headers) {
        return gemini_list().await;
    }
    Json(if is_anthropic(&headers) {
        json!({"data": [anthropic(NAME)], "has_more": false, "first_id": NAME, "last_id": NAME})
    } else {
        // Codex wants `models`, and the details that it would have of the real ones are nobody's to invent.
        json!({"object": "list", "data": [openai(NAME)], "models": []})
    })
}

pub(crate) async fn one(Path(name): Path<String>, headers: HeaderMap) -> Json<Value> {
    Json(if is_gemini(&headers) {
        gemini(&name)
    } else if is_anthropic(&headers) {
        anthropic(&name)
    } else {
        openai(&name)
    })
}

pub(crate) async fn gemini_list() -> Json<Value> {
    Json(json!({"models": [gemini(NAME)]}))
}

pub(crate) async fn gemini_one(Path(name): Path<String>) -> Json<Value> {
    Json(gemini(&name))
}

fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

fn is_gemini(headers: &HeaderMap) -> bool {
    headers.contains_key("x-goog-api-key")
}

fn openai(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "nobody"})
}

fn anthropic(name: &str) -> Value {
    json!({"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"})
}

fn gemini(name: &str) -> Value {
    json!({
        "name": format!("models/{name}"), "displayName": name, "version": "1",
        "inputTokenLimit": 1_000_000, "outputTokenLimit": 100_000,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    })
}
