//! Runs the test suite that every store must pass, against both stores.

use std::sync::Arc;

use longshore_engine::port::{CallStore, PushConfigs, PushQueue, Store};
use longshore_seal::{KeysInMemory, Sealer};
use longshore_store::{Durability, SqliteOptions};
use longshore_testkit::store_suite::calls::{
    CallStores, calls_are_kept_and_leave_with_their_task,
    open_calls_are_read_in_pages_until_there_are_no_more,
};
use longshore_testkit::store_suite::push::{PushFixture, PushStores};
use longshore_testkit::store_suite::{self, Fixture};
use proptest::prelude::*;
use tempfile::TempDir;

struct Memory;

impl Fixture for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(longshore_store::memory())
    }

    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        // The content of a memory store does not survive, so "reopening" returns the same store.
        store
    }
}

struct Sqlite {
    directory: TempDir,
    durability: Durability,
}

impl Sqlite {
    fn new(durability: Durability) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), durability }
    }
}

impl Fixture for Sqlite {
    fn open(&self) -> Arc<dyn Store> {
        let path = self.directory.path().join("store.db");
        Arc::new(longshore_store::sqlite(&path, self.durability).expect("a store"))
    }

    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        assert_eq!(Arc::strong_count(&store), 1, "the old store must be closed");
        drop(store);
        self.open()
    }
}

/// Both stores, with the three traits that push notifications use.
struct PushMemory;

impl PushFixture for PushMemory {
    fn open(&self) -> PushStores {
        stores(longshore_store::memory())
    }

    fn reopen(&self, stores: PushStores) -> PushStores {
        stores
    }
}

struct PushSqlite {
    directory: TempDir,
    /// The sealer, which is kept across reopening the store.
    sealer: Arc<Sealer>,
}

impl PushSqlite {
    fn new() -> Self {
        let sealer = Arc::new(Sealer::new(KeysInMemory::default()));
        Self { directory: tempfile::tempdir().expect("a directory"), sealer }
    }
}

impl PushFixture for PushSqlite {
    fn open(&self) -> PushStores {
        let path = self.directory.path().join("store.db");
        let options = SqliteOptions { sealer: Some(Arc::clone(&self.sealer)), ..SqliteOptions::default() };
        stores(longshore_store::sqlite(&path, options).expect("a store"))
    }

    fn reopen(&self, stores: PushStores) -> PushStores {
        assert_eq!(Arc::strong_count(&stores.store), 3, "the old store must be closed");
        drop(stores);
        self.open()
    }
}

fn stores(store: impl Store + PushConfigs + PushQueue + 'static) -> PushStores {
    let store = Arc::new(store);
    PushStores { store: store.clone(), configs: store.clone(), queue: store }
}

macro_rules! each_push_check {
    ($($group:ident: $($check:ident),+;)+) => {
        mod push_memory {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::store_suite::run_push(stringify!($check), &super::PushMemory).await;
                }
            )+)+
        }

        mod push_sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::store_suite::run_push(stringify!($check), &super::PushSqlite::new()).await;
                }
            )+)+
        }
    };
}

longshore_testkit::for_each_push_check!(each_push_check);

fn with_calls(store: impl Store + CallStore + 'static) -> CallStores {
    let store = Arc::new(store);
    CallStores { store: store.clone(), calls: store }
}

#[tokio::test]
async fn calls_are_kept_in_memory() {
    calls_are_kept_and_leave_with_their_task(with_calls(longshore_store::memory()), |stores| stores).await;
    open_calls_are_read_in_pages_until_there_are_no_more(with_calls(longshore_store::memory())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_kept_in_sqlite() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let open = || with_calls(longshore_store::sqlite(&path, Durability::Process).expect("a store"));
    let reopen = |stores: CallStores| {
        drop(stores);
        open()
    };
    calls_are_kept_and_leave_with_their_task(open(), reopen).await;
    let directory = tempfile::tempdir().expect("a directory");
    let store = longshore_store::sqlite(&directory.path().join("store.db"), Durability::Process);
    open_calls_are_read_in_pages_until_there_are_no_more(with_calls(store.expect("a store"))).await;
}

macro_rules! each_check {
    ($($group:ident: $($check:ident),+;)+) => {
        mod memory {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::store_suite::run(stringify!($check), &super::Memory).await;
                }
            )+)+
        }

        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let fixture = super::Sqlite::new(super::Durability::Process);
                    super::store_suite::run(stringify!($check), &fixture).await;
                }
            )+)+
        }
    };
}

longshore_testkit::for_each_store_check!(each_check);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_power_durability_keeps_everything_too() {
    store_suite::run("everything_survives_a_restart", &Sqlite::new(Durability::Power)).await;
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future);
}

proptest! {
    // Each case opens two databases, and compares all queries on both after every batch.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_log_folds_to_its_task_in_memory(script in store_suite::script()) {
        block_on(store_suite::replay(&Memory, script));
    }

    #[test]
    fn any_log_folds_to_its_task_in_sqlite(script in store_suite::script()) {
        block_on(store_suite::replay(&Sqlite::new(Durability::Process), script));
    }
}
