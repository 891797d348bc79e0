//! The addresses that are answered, and what of a request is refused before the model sees it.

use super::{
    ModelRequest, Protocol,
    answer::{Model, error, tokens},
    models, protocol,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, RawQuery, State, rejection::BytesRejection},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use std::sync::Arc;

type Shared = State<Arc<Model>>;
type Body = Result<Bytes, BytesRejection>;

pub(crate) fn router(model: Arc<Model>, max_body: usize) -> Router {
    let api = Router::new()
        .route("/responses", post(responses))
        .route("/chat/completions", post(chat))
        .route("/messages", post(messages))
        .route("/messages/count_tokens", post(count_messages))
        .route("/models", get(models::list))
        .route("/models/{target}", get(models::one).post(gemini));
    let gemini = Router::new()
        .route("/models", get(models::gemini_list))
        .route("/models/{target}", get(models::gemini_one).post(gemini));
    // Some clients take the version into the base address, some have it in their paths.
    Router::new()
        .route("/", get(async || "a fake model"))
        .nest("/v1", api.clone())
        .nest("/v1beta", gemini)
        .merge(api)
        .fallback(lost)
        .method_not_allowed_fallback(lost)
        .layer(DefaultBodyLimit::max(max_body))
        .with_state(model)
}

async fn responses(State(model): Shared, headers: HeaderMap, body: Body) -> Response {
    ask(&model, Protocol::Responses, None, &headers, body).await
}

async fn chat(State(model): Shared, headers: HeaderMap, body: Body) -> Response {
    ask(&model, Protocol::ChatCompletions, None, &headers, body).await
}

async fn messages(State(model): Shared, headers: HeaderMap, body: Body) -> Response {
    ask(&model, Protocol::Messages, None, &headers, body).await
}

async fn count_messages(headers: HeaderMap, body: Body) -> Response {
    match json_of(&headers, body) {
        Ok((_, bytes)) => Json(json!({"input_tokens": tokens(bytes)})).into_response(),
        Err((status, message)) => error(Protocol::Messages, status, &message),
    }
}

/// `M:generateContent` and the like.
async fn gemini(
    State(model): Shared,
    Path(target): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let refuse = |status, message: &str| error(Protocol::Gemini, status, message);
    let (name, verb) = target.rsplit_once(':').unwrap_or((&target, ""));
    let streaming = match verb {
        "generateContent" => false,
        "streamGenerateContent" => {
            if !query.unwrap_or_default().split('&').any(|pair| pair == "alt=sse") {
                return refuse(StatusCode::BAD_REQUEST, "this server streams events only: ask with ?alt=sse");
            }
            true
        }
        "countTokens" => {
            return match json_of(&headers, body) {
                Ok((_, bytes)) => Json(json!({"totalTokens": tokens(bytes)})).into_response(),
                Err((status, message)) => refuse(status, &message),
            };
        }
        _ => {
            let message = format!(
                "nothing here is called `{verb}`: ask for MODEL:generateContent, :streamGenerateContent or :countTokens"
            );
            return refuse(StatusCode::NOT_FOUND, &message);
        }
    };
    ask(&model, Protocol::Gemini, Some((name, streaming)), &headers, body).await
}

async fn ask(
    model: &Model,
    protocol: Protocol,
    target: Option<(&str, bool)>,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let read = json_of(headers, body).and_then(|(value, bytes)| {
        let asked = protocol::read(protocol, &value, target);
        let asked = asked.map_err(|message| (StatusCode::BAD_REQUEST, message))?;
        Ok(ModelRequest::new(protocol, asked, value, bytes))
    });
    match read {
        Ok(request) => model.answer(&request).await,
        Err((status, message)) => error(protocol, status, &message),
    }
}

/// The body's JSON and its length, or what is wrong with it.
fn json_of(headers: &HeaderMap, body: Body) -> Result<(Value, usize), (StatusCode, String)> {
    let bytes = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = "the body is longer than this server takes: give the server a larger `max_body`";
            (StatusCode::PAYLOAD_TOO_LARGE, message.to_owned())
        }
        status => (status, "the body did not arrive as a whole".to_owned()),
    })?;
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message = "this server does not unpack bodies: send it without Content-Encoding";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()));
    }
    let value = serde_json::from_slice(&bytes).map_err(|fault| {
        (StatusCode::BAD_REQUEST, format!("the body is not JSON ({fault}): send one JSON object"))
    })?;
    Ok((value, bytes.len()))
}

async fn lost(method: Method, uri: Uri) -> Response {
    let message = format!(
        "nothing is at {method} {}: there are POST /v1/responses, POST /v1/chat/completions, POST /v1/messages, \
         POST /v1beta/models/MODEL:streamGenerateContent?alt=sse and GET /v1/models",
        uri.path()
    );
    error(Protocol::ChatCompletions, StatusCode::NOT_FOUND, &message)
}
