//! Which tools are here, and why not.

use crate::support::{asked, within};
use serde_json::json;
use subagents_runtime::SubagentService;
use subagents_seam::{AgentOptions, Capabilities, ToolContext, ToolFilter};
use subagents_testkit::{Script, Scripted};
use subagents_tool::{OUTPUT_TOOL, SubagentTool, ToolDepth, Toolbox};

fn names(toolbox: &Toolbox) -> Vec<String> {
    toolbox.tools().into_iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn spec_2_4_a_tool_is_there_while_its_provider_is_and_its_wording_follows() {
    let service = SubagentService::builder().build().unwrap();
    let tools = [SubagentTool::new("research", "late"), SubagentTool::new("other", "never")];
    let toolbox = Toolbox::new(&service, tools).unwrap();
    // Whoever listens first and looks then misses nothing.
    let mut changes = toolbox.changes().unwrap();
    assert_eq!(names(&toolbox), [""; 0]);
    let registration = service.register("late", Scripted::obedient()).unwrap();
    within(changes.next()).await.unwrap();
    assert_eq!(names(&toolbox), ["research", OUTPUT_TOOL]);
    assert!(toolbox.tools()[0].description.contains("knows nothing of this conversation"));
    let held = toolbox.tool("research").unwrap();
    drop(registration);
    within(changes.next()).await.unwrap();
    assert_eq!(names(&toolbox), [""; 0]);
    assert!(toolbox.tool("research").is_none());
    // Whoever holds on to it is told.
    let root = service.root(std::env::temp_dir()).unwrap();
    let cx = ToolContext::new(&root, root.parent().token().clone());
    let error = within(held.call(cx, asked("x"))).await.unwrap_err();
    assert!(error.text().contains("NO_PROVIDER"), "{error}");
    let _again =
        service.register("late", Scripted::new(Script::echo()).inherits_parent_context(true)).unwrap();
    within(changes.next()).await.unwrap();
    let tool = &toolbox.tools()[0];
    assert!(tool.description.contains("states only what is new"), "{}", tool.description);
    assert!(
        tool.input_schema["properties"]["prompt"]["description"].as_str().unwrap().contains("What is new")
    );
}

#[tokio::test]
async fn a10_a_tool_that_is_absent_says_why() {
    let service = SubagentService::builder().build().unwrap();
    let toolbox = Toolbox::new(&service, [SubagentTool::new("research", "gone")]).unwrap();
    let (name, why) = toolbox.absent().remove(0);
    assert_eq!((&*name, why.code()), ("research", "NO_PROVIDER"));
    let told = toolbox.instructions();
    assert!(told.contains("tool `research` needs the provider `gone`, which is not here"), "{told}");
    let none = Toolbox::new(&service, []).unwrap();
    assert!(none.instructions().contains("no tool is configured"), "{}", none.instructions());
    // One that comes and cannot do what its tool is set up for is absent, never there and broken.
    let wants = SubagentTool::new("research", "p").persona("a cat");
    let toolbox = Toolbox::new(&service, [wants]).unwrap();
    let _p = service.register("p", Scripted::obedient()).unwrap();
    assert_eq!(names(&toolbox), [""; 0]);
    assert_eq!(toolbox.absent()[0].1.code(), "UNSUPPORTED_CAPABILITY");
    let here = Toolbox::new(&service, [SubagentTool::new("research", "p")]).unwrap();
    assert!(here.absent().is_empty() && here.instructions().contains("in parallel"));
}

#[tokio::test]
async fn spec_12_3_and_5_5_what_the_provider_cannot_do_fails_when_the_tool_is_made() {
    let able = Capabilities::NONE.with_output_schema().with_depth_limit();
    let service = SubagentService::builder()
        .provider("p", Scripted::obedient())
        .provider("able", Scripted::new(Script::echo()).capabilities(able))
        .build()
        .unwrap();
    let p = || SubagentTool::new("t", "p");
    let schema = json!({"type": "object", "pattern": "x"});
    for (tool, code, part) in [
        (p().max_depth(ToolDepth::AtMost(2)), "UNSUPPORTED_CAPABILITY", "`depthLimit`"),
        (p().persona("x"), "UNSUPPORTED_CAPABILITY", "`persona`"),
        (p().tool_filter(ToolFilter::allow(["x"])), "UNSUPPORTED_CAPABILITY", "`toolFilter`"),
        (p().output_schema(json!({"type": "object"})), "UNSUPPORTED_CAPABILITY", "`outputSchema`"),
        (p().agent_options(AgentOptions::new().model("x")), "UNSUPPORTED_CAPABILITY", "`agentOptions.model`"),
        (p().tool_filter(ToolFilter::allow([""; 0])), "EMPTY_TOOL_FILTER", "name tools in it"),
        (SubagentTool::new("t", "able").output_schema(schema), "UNSUPPORTED_SCHEMA", "pattern"),
        (SubagentTool::new("", "p"), "INVALID_TOOL_NAME", "64 bytes"),
        (SubagentTool::new("a.b", "p"), "INVALID_TOOL_NAME", "`a.b`"),
        (SubagentTool::new("x".repeat(65), "p"), "INVALID_TOOL_NAME", "64 bytes"),
    ] {
        let error = Toolbox::new(&service, [tool]).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let twice = [p(), SubagentTool::new("t", "able")];
    assert_eq!(Toolbox::new(&service, twice).unwrap_err().code(), "DUPLICATE_TOOL");
    let taken = Toolbox::new(&service, [SubagentTool::new(OUTPUT_TOOL, "p")]).unwrap_err();
    assert_eq!(taken.code(), "DUPLICATE_TOOL");
    let fine = SubagentTool::new("t", "able")
        .max_depth(ToolDepth::AtMost(2))
        .output_schema(json!({"type": "object"}));
    let toolbox = Toolbox::new(&service, [fine, p().max_depth(ToolDepth::ProviderManaged)].map(|tool| tool))
        .map(|_| ());
    assert_eq!(toolbox.unwrap_err().code(), "DUPLICATE_TOOL");
}

#[tokio::test]
async fn a_toolbox_does_not_keep_the_service() {
    let service = SubagentService::builder().provider("p", Scripted::obedient()).build().unwrap();
    let toolbox = Toolbox::new(&service, [SubagentTool::new("t", "p")]).unwrap();
    let root = service.root(std::env::temp_dir()).unwrap();
    let held = toolbox.tool("t").unwrap();
    drop(service);
    assert!(toolbox.tools().is_empty() && toolbox.changes().is_none());
    let cx = ToolContext::new(&root, root.parent().token().child_token());
    let error = within(held.call(cx, asked("x"))).await.unwrap_err();
    assert!(error.text().contains("nothing was started"), "{error}");
}
