//! Runs requests one after the other and writes down their responses.

use std::fmt::Write;

use super::{Call, shown};

/// One mistake, made in both bindings.
pub(crate) struct Case {
    name: String,
    rpc: Option<Call>,
    rest: Option<Call>,
}

pub(crate) async fn transcript(cases: Vec<Case>) -> String {
    let mut text = String::new();
    for Case { name, rpc, rest } in cases {
        writeln!(text, "# {name}").unwrap();
        for (binding, call) in [("JSON-RPC", rpc), ("REST", rest)] {
            if let Some(call) = call {
                writeln!(text, "{binding} {}", shown(&call.send().await)).unwrap();
            }
        }
    }
    text
}

pub(crate) fn case(name: &str, rpc: impl Into<Option<Call>>, rest: impl Into<Option<Call>>) -> Case {
    Case { name: name.to_owned(), rpc: rpc.into(), rest: rest.into() }
}
