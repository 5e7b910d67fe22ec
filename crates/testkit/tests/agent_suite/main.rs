//! Runs the suite that every agent must pass on each implementation of the port.

mod acp;
mod hostile_acp;
mod opencode;

use longshore_testkit::agent_suite::{self, ScriptedUnderTest};

macro_rules! each_check {
    ($($group:ident: $($check:ident),+;)+) => {
        each_check!(on_scripted, super::ScriptedUnderTest::start(), $($($check)+)+);
        each_check!(on_opencode, super::opencode::OverHttp::start(), $($($check)+)+);
        each_check!(on_acp, super::acp::OverStdio::loading(), $($($check)+)+);
        each_check!(on_forgetful_acp, super::acp::OverStdio::forgetful(), $($($check)+)+);
    };
    ($module:ident, $agent:expr, $($check:ident)+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::agent_suite::run(stringify!($check), &$agent).await;
                }
            )+
        }
    };
}

longshore_testkit::for_each_agent_check!(each_check);
