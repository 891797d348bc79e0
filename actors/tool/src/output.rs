//! The tool `subagent_output`: the rest of a long answer.

use std::sync::Arc;

use serde_json::Value;
use subagents_seam::{Tool, ToolContext, ToolDefinition, ToolError, ToolOutput};

use crate::answers::Answers;
use crate::arguments::Reading;
use crate::frame::{DATA, Mark, Piece};
use crate::subagent::DEFAULT_ANSWER_BYTES;

/// Its name.
pub const OUTPUT_TOOL: &str = "subagent_output";

pub(crate) struct OutputTool {
    pub(crate) answers: Arc<Answers>,
}

impl Tool for OutputTool {
    fn definition(&self) -> ToolDefinition {
        let about = "Reads on in the answer of a subagent that was too long to be shown at once. Its first part says the run_id \
                     and the offset to go on at. Long answers are kept for a while.";
        ToolDefinition::new(OUTPUT_TOOL, about, Reading::schema())
            .read_only()
            .with_title("Read on in a subagent's answer")
    }

    async fn call(&self, cx: ToolContext, input: Value) -> Result<ToolOutput, ToolError> {
        let Reading { run, offset } = Reading::read(input)?;
        let id = run.trim().parse().map_err(|_| {
            ToolError::new("`run_id` is no id of a run. Take it from the answer that is to be read on.")
        })?;
        let text = self.answers.read(cx.caller().agent_id(), id).ok_or_else(|| {
            ToolError::new(
                "No long answer of such a run is kept: answers that fit are shown whole at once, and of the long ones the \
                 oldest give way. To have it again, delegate again, and ask for a shorter answer.",
            )
        })?;
        let piece = Piece::of(&text, offset, DEFAULT_ANSWER_BYTES);
        let Piece { text, offset, total } = piece;
        let end = offset + text.len();
        let next = match piece.next() {
            Some(next) => format!("To read on, call `{OUTPUT_TOOL}` with run_id \"{id}\" and offset {next}."),
            None => "That is the end of it.".to_owned(),
        };
        let framed = Mark::fresh().framed(text);
        let output =
            format!("Bytes {offset} to {end} of {total} of the answer of run {id}. {DATA}\n{framed}\n{next}");
        Ok(ToolOutput::new(output))
    }
}
