//! `/metrics` over HTTP. The tests of the meter crate cover the content of the page.

use longshore_meter::FAMILIES;

use crate::support::{Answer, Gateway};

async fn scrape(gateway: &Gateway) -> Answer {
    gateway.call("GET", "/metrics").send().await
}

/// The samples of a page, by name and labels. Panics if a line is not in the format.
fn samples(page: &str) -> Vec<(&str, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE "));
    lines.map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}"))).collect()
}

fn sample(line: &str) -> Option<(&str, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let name = series.split('{').next()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let closes = !series.contains('{') || series.ends_with('}');
    (is_name && closes).then_some((series, value.parse().ok()?))
}

pub(crate) fn value(page: &str, series: &str) -> f64 {
    let found = samples(page).into_iter().find(|(name, _)| *name == series);
    found.unwrap_or_else(|| panic!("no {series} in {page}")).1
}

#[tokio::test]
async fn the_page_needs_a_credential_and_is_valid_for_prometheus() {
    let gateway = Gateway::echoing().await;
    for verb in ["GET", "HEAD"] {
        let anonymous = gateway.call(verb, "/metrics").header("authorization", "").send().await;
        assert_eq!(anonymous.status.as_u16(), 401, "{verb}");
        assert!(anonymous.headers.contains_key("www-authenticate"));
    }
    let answer = scrape(&gateway).await;
    assert_eq!(answer.status.as_u16(), 200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(answer.header("cache-control"), "no-store");
    let page = str::from_utf8(&answer.body).unwrap();
    for family in FAMILIES {
        assert!(page.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
    }
    // Read at the scrape.
    #[cfg(target_os = "linux")]
    assert!(value(page, "process_resident_memory_bytes") > 100_000.0);
    assert!(value(page, "longshore_build_info{version=\"1.2.3\"}") > 0.0);

    let head = gateway.call("HEAD", "/metrics").send().await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("content-type"), answer.header("content-type"));
    let posted = gateway.call("POST", "/metrics").send().await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, "GET, HEAD"));
    gateway.stop().await;
}

#[tokio::test]
async fn the_path_does_not_exist_if_metrics_are_off() {
    let gateway = Gateway::manual_with(|config| config.deployment.metrics = false).await;
    for verb in ["GET", "HEAD", "POST"] {
        let anonymous = gateway.call(verb, "/metrics").header("authorization", "").send().await;
        assert_eq!(
            anonymous.status.as_u16(),
            401,
            "without a credential a client learns nothing about paths"
        );
        let answer = gateway.call(verb, "/metrics").send().await;
        assert_eq!(answer.status.as_u16(), 404, "{verb}");
    }
    let document = gateway.call("GET", "/openapi.json").send().await.json();
    assert!(document["paths"].get("/metrics").is_none());
    gateway.stop().await;
}

#[tokio::test]
async fn gauges_are_read_at_the_scrape() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m1").await;
    let mut events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).stream().await;
    let page = scrape(&gateway).await.body;
    let page = str::from_utf8(&page).unwrap();
    assert!(value(page, "interrupt_oldest_age_seconds").abs() < f64::EPSILON, "none is open");
    assert!((value(page, "longshore_tasks_unfinished") - 1.0).abs() < f64::EPSILON);

    turn.ask("per_1").await;
    while !events.next().await.unwrap().raw.contains("INPUT_REQUIRED") {}
    // The clock of asks has a resolution of milliseconds.
    let age = async || {
        let page = scrape(&gateway).await.body;
        value(str::from_utf8(&page).unwrap(), "interrupt_oldest_age_seconds")
    };
    while age().await <= 0.0 {}
    gateway.stop().await;
}
