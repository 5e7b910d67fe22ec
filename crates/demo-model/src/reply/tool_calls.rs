//! Calls of OpenCode's own tools.

use serde_json::{Value, json};

use crate::script::Directive;

/// The most questions in one call: no screen shows more.
const MAX_QUESTIONS: usize = 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) tool: String,
    /// JSON, or whatever the script gives as JSON.
    pub(super) arguments: String,
}

/// The calls of a directive. `None`: it is not a tool directive.
pub(super) fn calls(directive: &Directive) -> Option<Vec<Call>> {
    let arg = |key, otherwise| directive.text(key, otherwise);
    let one =
        |tool: &str, arguments: Value| vec![Call { tool: tool.to_owned(), arguments: arguments.to_string() }];
    let bash = |command: &str, description: &str| {
        one("bash", json!({"command": command, "description": description}))
    };
    Some(match directive.name.as_str() {
        "bash" => bash(arg("cmd", "echo ahoy"), arg("desc", "Run a scripted command")),
        "pair" => [
            bash(arg("a", "echo port"), "Run the first of two commands"),
            bash(arg("b", "echo starboard"), "Run the second of two commands"),
        ]
        .concat(),
        "read" => one("read", json!({"filePath": arg("path", "README.md")})),
        "write" => one(
            "write",
            json!({"filePath": arg("path", "demo.txt"), "content": arg("content", "Written by the demo model.\n")}),
        ),
        "edit" => one(
            "edit",
            json!({
                "filePath": arg("path", "demo.txt"),
                "oldString": arg("old", "Written"),
                "newString": arg("new", "Rewritten"),
            }),
        ),
        "glob" => one("glob", json!({"pattern": arg("pattern", "**/*")})),
        "grep" => one("grep", json!({"pattern": arg("pattern", "demo")})),
        "webfetch" => one("webfetch", json!({"url": arg("url", "http://127.0.0.1:1/"), "format": "text"})),
        "question" => one("question", questions(directive)),
        "task" => one("task", sub_agent(directive)),
        "todo" => one("todowrite", todos(directive)),
        "plan_exit" => one("plan_exit", json!({})),
        "tool" => {
            vec![Call { tool: arg("name", "bash").to_owned(), arguments: arg("args", "{}").to_owned() }]
        }
        _ => return None,
    })
}

fn questions(directive: &Directive) -> Value {
    let options: Vec<Value> = directive
        .text("options", "Red|Green|Blue")
        .split('|')
        .map(|label| json!({"label": label, "description": format!("Take {label}")}))
        .collect();
    let count = directive.number("n", 1_usize).clamp(1, MAX_QUESTIONS);
    let numbered = |text: &str, index: usize| {
        if count == 1 { text.to_owned() } else { format!("{text} {}", index + 1) }
    };
    let questions: Vec<Value> = (0..count)
        .map(|index| {
            let mut question = json!({
                "question": numbered(directive.text("q", "Which colour shall the hull have?"), index),
                "header": numbered(directive.text("header", "Colour"), index),
                "options": options,
            });
            if directive.flag("multiple") {
                question["multiple"] = true.into();
            }
            question
        })
        .collect();
    json!({ "questions": questions })
}

fn sub_agent(directive: &Directive) -> Value {
    let mut arguments = json!({
        "description": directive.text("desc", "scripted errand"),
        "prompt": directive.text("prompt", "scn:text n=3"),
        "subagent_type": directive.text("agent", "general"),
    });
    if let Some(id) = directive.get("task_id") {
        arguments["task_id"] = id.into();
    }
    if directive.flag("background") {
        arguments["background"] = true.into();
    }
    arguments
}

/// The first `done` items are completed, the next is in progress, the rest wait.
fn todos(directive: &Directive) -> Value {
    let done = directive.number("done", 0_usize);
    let todos: Vec<Value> = directive
        .text("items", "Cast off|Set sail|Make port")
        .split('|')
        .enumerate()
        .map(|(index, item)| {
            let status = match index.cmp(&done) {
                std::cmp::Ordering::Less => "completed",
                std::cmp::Ordering::Equal => "in_progress",
                std::cmp::Ordering::Greater => "pending",
            };
            let priority = ["high", "medium", "low"][index % 3];
            json!({"content": item, "status": status, "priority": priority})
        })
        .collect();
    json!({ "todos": todos })
}
