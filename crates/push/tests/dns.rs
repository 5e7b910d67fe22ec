//! A host name that resolves to another address at the call than at the registration.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{NewPushConfig, PushQueue as _, Store, SystemClock};
use longshore_meter::Metrics;
use longshore_model::{PushConfig, TaskState};
use longshore_outbound::{BoxFuture, Dialer, Guard, Outbound, Resolver, Timeouts, Trust};
use longshore_push::{Delivery, DeliveryParts, DeliveryRules};
use longshore_testkit::store_suite::make::{append, appended, create, made, status};
use longshore_testkit::store_suite::push;

const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// A resolver that returns one answer after the other, and repeats the last one.
#[derive(Debug)]
struct Answers(Mutex<VecDeque<IpAddr>>);

impl Resolver for Answers {
    fn resolve<'a>(&'a self, _host: &'a str) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().expect("not poisoned");
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        Box::pin(async move { Ok(next.into_iter().collect()) })
    }
}

#[derive(Debug, Default)]
struct Dials(Mutex<Vec<SocketAddr>>);

impl Dialer for Dials {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<tokio::net::TcpStream>> {
        self.0.lock().expect("not poisoned").push(address);
        Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
    }
}

#[tokio::test]
async fn an_address_that_changes_after_the_registration_is_never_dialed() {
    let (answers, dials) = (Answers(Mutex::new([PUBLIC, METADATA].into())), Arc::new(Dials::default()));
    let trust = Trust::new(None).expect("no authorities");
    let outbound =
        Outbound::with(Guard::default(), trust, Timeouts::default(), Arc::new(answers), dials.clone());
    let url = "https://hooks.example.com/x";
    assert_eq!(outbound.check(url).await, Ok(()));

    let store = Arc::new(longshore_store::memory());
    let delivery = Delivery::new(DeliveryParts {
        store: store.clone(),
        configs: store.clone(),
        queue: store.clone(),
        transport: Arc::new(outbound),
        clock: Arc::new(SystemClock),
        metrics: Arc::new(Metrics::new("0")),
        rules: DeliveryRules::default(),
    });
    let (configs, tasks) = (delivery.configs(), Tasks::new());
    delivery.start(&tasks);
    let log: Arc<dyn Store> = store.clone();
    made(&log, create("t")).await;
    let config = PushConfig { url: url.to_owned(), ..push::config("t", "a") };
    let put = longshore_engine::port::PushConfigs::put(
        &*configs,
        NewPushConfig { config, ..push::new("t", "a", 1) },
    );
    put.await.expect("a write");
    appended(&log, append("t", 1, vec![status(TaskState::Completed, 2)])).await;
    let dead = async {
        loop {
            let dead = store.dead(0, 9).await.expect("a read");
            if !dead.is_empty() {
                return dead;
            }
            tokio::task::yield_now().await;
        }
    };
    let dead = tokio::time::timeout(Duration::from_mins(1), dead).await.expect("it is given up");
    assert!(dead[0].reason.contains("public Internet"), "{}", dead[0].reason);
    assert_eq!(*dials.0.lock().expect("not poisoned"), []);
    tasks.stop().await;
}
