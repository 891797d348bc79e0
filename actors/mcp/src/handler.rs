//! What a client lists and calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{Either, select};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, ErrorData, Extensions,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
    ServerCapabilities, ServerConfig, ServerNotification, SubscriptionFilter, ToolListChangedNotification,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::Value;
use subagents_seam::ToolContext;
use subagents_tool::{Toolbox, ToolboxChanges};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::pipe::PATIENCE;
use crate::wire;

/// What answers a client.
pub(crate) struct Handler {
    pub(crate) toolbox: Toolbox,
    /// Whose messages it gets.
    pub(crate) from: From,
}

/// Where messages come from.
pub(crate) enum From {
    /// All of one client.
    Client(Arc<Client>),
    /// Over HTTP: those of a session carry its client.
    #[cfg(feature = "http")]
    Http(Arc<crate::http::Visitors>),
}

/// Who has sent a request.
pub(crate) struct Caller {
    pub(crate) client: Arc<Client>,
    /// Held for as long as it is under way, where no session holds one.
    #[cfg(feature = "http")]
    pub(crate) _place: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Caller {
    fn known(client: Arc<Client>) -> Self {
        Self {
            client,
            #[cfg(feature = "http")]
            _place: None,
        }
    }
}

impl Handler {
    async fn caller(&self, extensions: &Extensions) -> Result<Caller, ErrorData> {
        if let Some(client) = extensions.get::<Arc<Client>>() {
            return Ok(Caller::known(client.clone()));
        }
        match &self.from {
            From::Client(client) => Ok(Caller::known(client.clone())),
            #[cfg(feature = "http")]
            From::Http(visitors) => visitors.caller(extensions).await,
        }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.toolbox.tool(&request.name).ok_or_else(|| self.unknown(&request.name))?;
        let input = request.arguments.map_or(Value::Null, Value::Object);
        let caller = self.caller(&cx.extensions).await?;
        let client = &caller.client;
        let _call = client.call();
        // Both whoever cancels the call and whoever goes cancel the run.
        let token = client.parent().token().child_token();
        let _ends = Ends(token.clone());
        let call = ToolContext::new(client.parent(), token.clone());
        let unwanted = [&cx.ct, client.gone()];
        let outcome = match cx.meta.get_progress_token() {
            None => until(unwanted, &token, tool.call(call, input)).await,
            Some(progress) => {
                let lines = Arc::new(Lines::default());
                let told = lines.clone();
                let call = call.with_progress(move |line| told.put(line));
                let telling = std::pin::pin!(tell(&cx.peer, progress, &lines));
                let calling = std::pin::pin!(until(unwanted, &token, tool.call(call, input)));
                match select(calling, telling).await {
                    // What is being told is told first: nothing comes after the answer.
                    Either::Left((outcome, telling)) => {
                        lines.end();
                        let _ = timeout(PATIENCE, telling).await;
                        outcome
                    }
                    // Nobody hears any more; the call goes on.
                    Either::Right(((), calling)) => calling.await,
                }
            }
        };
        Ok(CallToolResponse::Complete(wire::result(outcome)))
    }

    fn unknown(&self, name: &str) -> ErrorData {
        let name = subagents_seam::bounded(&subagents_seam::sanitised(name), 80);
        let absent = self.toolbox.absent().into_iter().find(|(absent, _)| *absent == *name);
        let why = if let Some((_, why)) = absent {
            format!("there is no tool `{name}` now: {why}")
        } else {
            let tools = self.toolbox.tools();
            let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            format!("there is no tool `{name}`; there are: {}", names.join(", "))
        };
        ErrorData::new(ErrorCode::INVALID_PARAMS, why, None)
    }
}

/// Awaits the call; when nobody wants it any more its token is cancelled, and it is awaited all the same.
async fn until<T>(
    [cancelled, gone]: [&CancellationToken; 2],
    token: &CancellationToken,
    call: impl Future<Output = T>,
) -> T {
    let call = std::pin::pin!(call);
    let unwanted = std::pin::pin!(async {
        tokio::select! {
            () = cancelled.cancelled() => {}
            () = gone.cancelled() => {}
        }
    });
    match select(call, unwanted).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), call)) => {
            token.cancel();
            call.await
        }
    }
}

/// Cancels when dropped: a call that is dropped in mid-way is not wanted.
struct Ends(CancellationToken);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The latest line that was not told yet. A client that is slow misses the ones between.
#[derive(Default)]
struct Lines {
    latest: Mutex<Option<String>>,
    count: AtomicU64,
    put: Notify,
    ended: AtomicBool,
}

impl Lines {
    fn put(&self, line: &str) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.to_owned());
        self.count.fetch_add(1, Relaxed);
        self.put.notify_one();
    }

    /// Nothing more is told.
    fn end(&self) {
        self.ended.store(true, Relaxed);
        self.put.notify_one();
    }

    fn take(&self) -> Option<(u64, String)> {
        let line = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((self.count.load(Relaxed), line))
    }
}

/// Tells the client what happens, until that is over or it cannot be told.
async fn tell(peer: &Peer<RoleServer>, token: ProgressToken, lines: &Lines) {
    loop {
        lines.put.notified().await;
        if lines.ended.load(Relaxed) {
            return;
        }
        let Some((count, line)) = lines.take() else { continue };
        #[expect(clippy::cast_precision_loss, reason = "one a second")]
        let told = ProgressNotificationParam::new(token.clone(), count as f64).with_message(line);
        if peer.notify_progress(told).await.is_err() {
            return;
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let us = Implementation::new("subagents", env!("CARGO_PKG_VERSION")).with_title("subagents");
        ServerConfig::new(capabilities).with_server_info(us).with_instructions(self.toolbox.instructions())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.toolbox.tools().into_iter().map(wire::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, cx).await
    }

    /// What nobody knows, and what is known and not understood: its parameters are then others than the protocol's.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _cx: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = subagents_seam::bounded(&subagents_seam::sanitised(&request.method), 80);
        Err(if KNOWN.contains(&&*method) {
            let why = format!(
                "the parameters of `{method}` are not as the protocol has them: names are text, `arguments` is an object"
            );
            ErrorData::new(ErrorCode::INVALID_PARAMS, why, None)
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}` here"), None)
        })
    }

    /// From now on the client is told when the list is another; once, however often it says so.
    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        // One without a session says no such thing.
        let Ok(Caller { client, .. }) = self.caller(&cx.extensions).await else { return };
        // First the subscription, then the look: what falls between is in both.
        let changes = self.toolbox.changes();
        let (Some(mut changes), Some(news)) = (changes, client.has_news()) else { return };
        let _call = client.call();
        let mut told = !news || cx.peer.notify_tool_list_changed().await.is_ok();
        while told && changed(&mut changes, client.gone()).await {
            told = cx.peer.notify_tool_list_changed().await.is_ok();
        }
    }

    fn accepted_subscription_filter(&self, _wanted: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    /// The same for a version of the protocol in which the client asks for it.
    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = self.caller(&cx.request_context().extensions).await?;
        let client = &caller.client;
        let Some(mut changes) = self.toolbox.changes() else { return Ok(()) };
        let mut news = client.has_news().unwrap_or(false);
        let _call = client.call();
        let telling = async {
            while news || changed(&mut changes, client.gone()).await {
                news = false;
                let changed = ToolListChangedNotification::default();
                if cx.sink().send(ServerNotification::ToolListChangedNotification(changed)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = cx.cancelled() => {}
            () = telling => {}
        }
        Ok(())
    }
}

/// What a client may ask.
const KNOWN: [&str; 4] = ["initialize", "subscriptions/listen", "tools/call", "tools/list"];

/// Waits for a change; false when the client is gone, or the service.
async fn changed(changes: &mut ToolboxChanges, gone: &CancellationToken) -> bool {
    tokio::select! {
        () = gone.cancelled() => false,
        changed = changes.next() => changed.is_some(),
    }
}
