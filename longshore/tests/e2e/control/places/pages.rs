//! Something else than OpenCode's API behind the address.

use longshore_testkit::gateway::{Gateway, Record, Setup, TOKEN};

use super::{is_change, rows};
use crate::control::caller::{Caller, Kind};
use crate::control::stage::Stage;
use crate::harness::LONGSHORE;

/// OpenCode has a page for people under every path that its API does not have.
pub(super) async fn o10_a_web_page_is_no_answer(stage: &Stage) {
    let record = Record::read(&stage.harness.gateway.data_dir()).expect("OpenCode runs");
    let url = format!("http://127.0.0.1:{}/not/the/api", record.port);
    let setup = Setup::attached(LONGSHORE, &url).env("OPENCODE_AUTH_PASSWORD", record.password);
    let gateway = Gateway::start(setup.flag("--workspace-mutations")).await;
    for ada in Caller::on_both_lines(&gateway, TOKEN, &stage.seen) {
        for (method, params) in rows() {
            // To make something, OpenCode is listened to first.
            if !is_change(method) || method.ends_with("remove") || method.ends_with("reset") {
                ada.refused(method, params, Kind::PAYLOAD).await;
            }
        }
    }
}
