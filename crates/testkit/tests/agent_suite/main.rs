//! Runs the suite that every agent must pass on each implementation of the port.

mod opencode;

use longshore_testkit::agent_suite::{self, ScriptedUnderTest};

macro_rules! each_check {
    ($($group:ident: $($check:ident),+;)+) => {
        mod on_scripted {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::agent_suite::run(stringify!($check), &super::ScriptedUnderTest::start()).await;
                }
            )+)+
        }

        mod on_opencode {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::agent_suite::run(stringify!($check), &super::opencode::OverHttp::start()).await;
                }
            )+)+
        }
    };
}

longshore_testkit::for_each_agent_check!(each_check);
