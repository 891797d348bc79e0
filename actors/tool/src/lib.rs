//! The tools by which a model delegates: `subagent`, foreground (SPEC 12), and `subagent_output`, which reads the rest of a
//! long answer. No transport: an MCP server, or an agent of one's own, offers them.
//!
//! ```
//! use subagents_runtime::SubagentService;
//! use subagents_seam::{Capabilities, SubagentResult, ToolContext, provider_fn};
//! use subagents_tool::{SubagentTool, Toolbox};
//! # use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let count = provider_fn(Capabilities::NONE, |start, _run| async move {
//!     Ok(SubagentResult::completed(start.prompt().to_text().split_whitespace().count().to_string()))
//! });
//! let service = SubagentService::builder().provider("count", count).build()?;
//! let toolbox = Toolbox::new(&service, [SubagentTool::new("subagent", "count")])?;
//! assert_eq!(toolbox.tools().len(), 2);
//!
//! // What a host does with the call of a model.
//! let root = service.root(std::env::temp_dir())?;
//! let tool = toolbox.tool("subagent").expect("its provider is here");
//! let cx = ToolContext::new(&root, root.parent().token().child_token());
//! let output = tool.call(cx, json!({"description": "count words", "prompt": "three short words"})).await?;
//! assert_eq!(output.structured.expect("a value")["output"][0]["text"], "3");
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - One tool, one provider (SPEC 12.1): the model chooses no transport. It is there exactly while its provider is (SPEC 2.4):
//!   [`Toolbox::tools`] looks each time, and [`Toolbox::absent`] says why one is not.
//! - A call starts a child, awaits its result, and always awaits its disposal (SPEC 12.6); only `completed` is a success.
//! - The depth is judged at each call; a tool at the limit stays, and answers with an error (SPEC 5.4).
//! - What a child said is data: it stands in a frame that it cannot close, cleaned, bounded, the rest to be read with
//!   `subagent_output`.
//! - A [`Toolbox`] does not keep the service.

mod answers;
mod arguments;
mod error;
mod frame;
mod outcome;
mod output;
mod subagent;
mod toolbox;
mod watch;
mod wording;

pub use error::ToolboxError;
pub use output::OUTPUT_TOOL;
pub use subagent::{DEFAULT_ANSWER_BYTES, DEFAULT_MAX_DEPTH, SubagentTool, ToolDepth};
pub use toolbox::{Toolbox, ToolboxChanges};
