//! From a tool to what the protocol has for it. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::Value;
use subagents_seam::{ToolDefinition, ToolError, ToolOutput};

pub(crate) fn tool(definition: ToolDefinition) -> Tool {
    let ToolDefinition { name, title, description, input_schema, output_schema, read_only, .. } = definition;
    let mut tool = Tool::new(Cow::Owned(name.to_string()), description, object(&input_schema));
    let hints = ToolAnnotations::new().read_only(read_only);
    // A child may do anything that its provider lets it, where nobody has said that it only reads.
    tool.annotations = Some(if read_only { hints } else { hints.destructive(true).open_world(true) });
    tool.title = title;
    tool.output_schema = output_schema.map(|schema| object(&schema));
    tool
}

fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// An error is a result that the model reads.
pub(crate) fn result(outcome: Result<ToolOutput, ToolError>) -> CallToolResult {
    match outcome {
        Ok(output) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(output.content.to_text())]);
            result.structured_content = output.structured;
            result
        }
        Err(error) => CallToolResult::error(vec![ContentBlock::text(error.text())]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_and_its_results_go_over_the_wire_as_the_protocol_has_them() {
        let definition = ToolDefinition::new("t", "about", json!({"type": "object"})).with_title("T");
        let sent = serde_json::to_value(tool(definition)).expect("JSON");
        assert_eq!(
            (&sent["name"], &sent["title"], &sent["inputSchema"]),
            (&json!("t"), &json!("T"), &json!({"type": "object"}))
        );
        assert_eq!(
            sent["annotations"],
            json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true})
        );
        let reads = ToolDefinition::new("t", "about", json!({"type": "object"})).read_only();
        let sent = serde_json::to_value(tool(reads)).expect("JSON");
        assert_eq!(sent["annotations"], json!({"readOnlyHint": true}));
        let output = ToolOutput::new("said").with_structured(json!({"n": 1}));
        let sent = serde_json::to_value(result(Ok(output))).expect("JSON");
        assert_eq!(sent["structuredContent"], json!({"n": 1}));
        assert_eq!(sent["isError"], json!(false));
        let sent = serde_json::to_value(result(Err(ToolError::new("why")))).expect("JSON");
        assert_eq!((&sent["isError"], &sent["content"][0]["text"]), (&json!(true), &json!("why")));
        assert_eq!(sent.get("structuredContent"), None);
    }
}
