//! What goes to `tracing`: one span per run, and a warning where a run is dropped.

use crate::support::{Probe, quiet, service, until};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use subagents_seam::StartRequest;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

type Fields = BTreeMap<String, String>;

/// Writes down spans of runs and warnings.
#[derive(Clone, Default)]
struct Notes {
    spans: Arc<Mutex<BTreeMap<u64, Fields>>>,
    warnings: Arc<Mutex<Vec<Fields>>>,
    next: Arc<AtomicU64>,
}

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("subagents_runtime")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, SeqCst) + 1;
        let mut fields = Fields::from([("name".to_owned(), span.metadata().name().to_owned())]);
        span.record(&mut Into(&mut fields));
        self.spans.lock().unwrap().insert(id, fields);
        Id::from_u64(id)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(fields) = self.spans.lock().unwrap().get_mut(&span.into_u64()) {
            values.record(&mut Into(fields));
        }
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::from([("level".to_owned(), event.metadata().level().to_string())]);
        event.record(&mut Into(&mut fields));
        self.warnings.lock().unwrap().push(fields);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn each_run_has_a_span_and_a_dropped_one_a_warning_that_names_it() {
    let notes = Notes::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (id, dropped) = tracing::subscriber::with_default(notes.clone(), || {
        runtime.block_on(async {
            let probe = Probe::default();
            let (service, root) = service(&probe);
            let run = service
                .start("it", StartRequest::new(&root, "a secret prompt").label("shown"))
                .await
                .unwrap();
            run.result().await.unwrap();
            run.dispose().await.unwrap();
            let other = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
            until("it runs", || probe.runs() == 2).await;
            let dropped = other.id();
            drop(other);
            quiet(&service, &probe).await;
            (run.id(), dropped)
        })
    });
    let spans = notes.spans.lock().unwrap();
    let span =
        spans.values().find(|span| span.get("run") == Some(&id.to_string())).expect("a span of the run");
    let field = |name: &str| span.get(name).map(String::as_str);
    assert_eq!(field("name"), Some("subagent.run"));
    assert_eq!((field("provider"), field("label"), field("depth")), (Some("it"), Some("shown"), Some("1")));
    assert_eq!(field("stop_reason"), Some("completed"));
    assert!(
        spans.values().flat_map(Fields::values).all(|value| !value.contains("secret")),
        "no prompt in a span"
    );
    let warnings = notes.warnings.lock().unwrap();
    let warning =
        warnings.iter().find(|warning| warning.get("run") == Some(&dropped.to_string())).expect("a warning");
    assert_eq!(warning.get("level").map(String::as_str), Some("WARN"));
}
