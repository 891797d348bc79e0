//! Replies that fail, break, or take their time.

use super::{
    client::{read_until, send},
    dialect::{ALL, ask, body, both, hear, path, user},
    soon,
};
use std::time::{Duration, Instant};
use subagents_testkit::model::{FakeModel, Protocol, Reply, Traffic};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn an_http_error_has_the_form_of_its_protocol_and_says_when_to_come_back() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        let limited = ask(&model, manner, &[user("[[http:429:2]]")]).await;
        assert_eq!((limited.status, limited.header("retry-after")), (429, Some("2")), "{manner:?}");
        let error = &limited.json()["error"];
        let (field, value) = match manner.0 {
            Protocol::Messages => ("type", "rate_limit_error"),
            Protocol::Gemini => ("status", "RESOURCE_EXHAUSTED"),
            Protocol::Responses | Protocol::ChatCompletions | _ => ("code", "rate_limit_exceeded"),
        };
        assert_eq!(error[field], value, "{manner:?}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains("429")), "{error}");
        let broken = ask(&model, manner, &[user("[[http:500]]")]).await;
        assert_eq!((broken.status, broken.header("retry-after")), (500, None), "{manner:?}");
    }
    assert_eq!(model.traffic(), {
        let mut traffic = Traffic::default();
        traffic.asked = 16;
        traffic
    });
}

#[tokio::test]
async fn the_first_calls_of_a_conversation_fail_and_the_next_is_fine() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        let mut statuses = Vec::new();
        for prompt in ["a", "a", "b", "a", "b", "b"] {
            let prompt = format!("{prompt} [[httpx:2:503:1]] [[reply:fine]]");
            let answer = ask(&model, manner, &[user(&prompt)]).await;
            assert_eq!(answer.header("retry-after").is_some(), answer.status == 503);
            statuses.push(answer.status);
        }
        // Each protocol and each text is a conversation; streamed or not, it is the same one.
        let wanted = if manner.1 { [503, 503, 503, 200, 503, 200] } else { [200; 6] };
        assert_eq!(statuses, wanted, "{manner:?}");
    }
}

#[tokio::test]
async fn a_drop_breaks_the_answer_after_its_first_piece() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        for prompt in ["[[drop]] [[reply:the first piece and more]]", "[[drop]] [[tool:read]]"] {
            let broken = ask(&model, manner, &[user(prompt)]).await;
            assert_eq!((broken.status, broken.complete), (200, false), "{manner:?}: {broken:?}");
            assert!(!broken.body.is_empty(), "{manner:?}");
            if manner.1 && prompt.contains("tool") {
                assert!(broken.body.contains("\"read\""), "{manner:?}: {}", broken.body);
            } else if manner.1 {
                assert!(broken.body.contains("the first pi"), "{manner:?}: {}", broken.body);
                assert!(!broken.body.contains("ece and more"), "{manner:?}: {}", broken.body);
            }
        }
        let prompt = [user(&format!("{} [[dropx:1]] [[reply:fine]]", manner.1))];
        assert!(!ask(&model, manner, &prompt).await.complete, "{manner:?}");
        assert_eq!(hear(&model, manner, &prompt).await.text, "fine", "{manner:?}");
    }
    let traffic = model.traffic();
    assert_eq!((traffic.in_flight, traffic.abandoned), (0, 0), "whom the server left has not left it");
}

#[tokio::test]
async fn a_stall_comes_before_the_status_and_a_midstall_after_the_first_piece() {
    let model = FakeModel::start().await.expect("a model");
    for protocol in ALL {
        for streaming in [true, false] {
            let start = async |prompt: &str| {
                let body = body(protocol, streaming, &[user(prompt)]).to_string();
                send(&model, &format!("POST {} HTTP/1.1", path(protocol, streaming)), &body).await
            };
            let mut before = start("[[stall:600]]").await;
            soon("the stall", model.until(|traffic| traffic.in_flight == 1)).await;
            let mut byte = [0];
            let early = tokio::time::timeout(Duration::from_millis(30), before.read(&mut byte)).await;
            assert!(early.is_err(), "{protocol}: nothing comes in a stall: {early:?}");
            drop(before);
            soon("the end of the stall", model.until(|traffic| traffic.in_flight == 0)).await;

            let mut midway = start("[[midstall:600]] [[reply:the first piece and the rest]]").await;
            read_until(&mut midway, if streaming { "the first pi" } else { "\r\n\r\n{" }).await;
            let mut some = [0; 4096];
            let more = async { while midway.read(&mut some).await.is_ok_and(|read| read > 0) {} };
            assert!(tokio::time::timeout(Duration::from_millis(30), more).await.is_err(), "{protocol}");
            assert_eq!(model.in_flight(), 1, "{protocol}");
            drop(midway);
            soon("the end of the stall", model.until(|traffic| traffic.in_flight == 0)).await;
        }
    }
    assert_eq!(model.traffic().abandoned, 16, "each was left by its client");
}

#[tokio::test]
async fn a_cut_stream_looks_whole_and_lacks_its_last_words() {
    let model = FakeModel::start().await.expect("a model");
    for protocol in ALL {
        let whole = ask(&model, (protocol, true), &[user("[[reply:the first piece and more]]")]).await;
        let cut = ask(&model, (protocol, true), &[user("[[cut]] [[reply:the first piece and more]]")]).await;
        assert_eq!((cut.status, cut.complete), (200, true), "{protocol}: {cut:?}");
        assert!(cut.body.contains("the first pi"), "{protocol}: {}", cut.body);
        assert!(!cut.body.contains("ece and more"), "{protocol}: {}", cut.body);
        let last = |body: &str| body.trim_end().rsplit("\n\n").next().unwrap_or_default().to_owned();
        assert!(!cut.body.contains(&last(&whole.body)), "{protocol}: {}", cut.body);
        let unstreamed = [user("[[cut]] [[reply:the first piece and more]]")];
        assert_eq!(
            hear(&model, (protocol, false), &unstreamed).await.text,
            "the first piece and more",
            "{protocol}"
        );
    }
    let traffic = model.traffic();
    assert_eq!((traffic.in_flight, traffic.abandoned), (0, 0), "nobody has left");
}

#[tokio::test]
async fn a_short_stall_passes_and_a_slow_text_takes_its_time() {
    let model = FakeModel::start().await.expect("a model");
    // Three pieces and two pauses; a stall before, and one after the first.
    let prompt = "[[stall:0.05]] [[midstall:0.05]] [[slow:50]] [[reply:twelve of them, and twelve more]]";
    for protocol in ALL {
        let begun = Instant::now();
        let heard = hear(&model, (protocol, true), &[user(prompt)]).await;
        assert_eq!(heard.text, "twelve of them, and twelve more", "{protocol}");
        assert!(begun.elapsed() >= Duration::from_millis(200), "{protocol}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_script_may_fail_in_all_these_ways() {
    let model = FakeModel::builder()
        .script(|request| match request.prompt() {
            "limited" => Reply::http(429).message("wait").retry_after(Duration::from_millis(1500)),
            "odd" => Reply::http(204),
            "flaky" => Reply::text("at last").fail_first(1, 502),
            "cut" => Reply::text("a text of some length").drop_midway(),
            _ => Reply::default().drop_first(1),
        })
        .start()
        .await
        .expect("a model");
    let ask = async |prompt: &str| ask(&model, (Protocol::Messages, true), &[user(prompt)]).await;
    let limited = ask("limited").await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("2")), "rounded up");
    assert_eq!(limited.json()["error"]["message"], "wait");
    let odd = ask("odd").await;
    assert!(odd.status == 500 && odd.body.contains("400 to 599"), "{odd:?}");
    assert_eq!([ask("flaky").await.status, ask("flaky").await.status], [502, 200]);
    assert!(!ask("cut").await.complete);
    let empty = ask("empty").await;
    assert!(
        !empty.complete && !empty.body.contains("message_stop"),
        "nothing was said, and it breaks: {empty:?}"
    );
    assert!(ask("empty").await.complete);
}
