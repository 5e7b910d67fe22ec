//! Health checks: whether the store can be read and written at the moment.

use super::super::write_connection::WriteContext;
use super::*;

#[tokio::test]
async fn a_store_that_cannot_be_written_or_read_is_unhealthy() {
    let bench = Bench::new().await;
    bench.store.writer.connection.lock().unwrap().set_busy_timeout(Duration::ZERO);
    bench.store.check().await.unwrap();

    let intruder = bench.intruder();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = bench.store.check().await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "in use by another program");
    intruder.execute_batch("ROLLBACK").unwrap();
    bench.store.check().await.unwrap();

    intruder.execute_batch("PRAGMA foreign_keys = OFF; DROP TABLE tasks").unwrap();
    let refused = bench.store.check().await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "failed");
}

#[tokio::test]
async fn a_full_disk_and_a_read_only_file_are_unhealthy() {
    let bench = Bench::new().await;
    bench.store.check().await.unwrap();
    bench.pragma("PRAGMA max_page_count = 1").await;
    // First use up the free space inside the file.
    let mut head = 3;
    while let Ok(Appended::Head(seq)) = bench.store.append(append("t", head, vec![chunk("y")])).await {
        head = seq.0;
    }
    let refused = bench.store.check().await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "full");
    bench.pragma("PRAGMA max_page_count = 1000000").await;
    bench.store.check().await.unwrap();

    bench.pragma("PRAGMA query_only = 1").await;
    let refused = bench.store.check().await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "cannot be opened for writing");
}

#[tokio::test]
async fn a_health_check_leaves_nothing_behind() {
    let bench = Bench::new().await;
    bench.store.check().await.unwrap();
    let pages = async || -> i64 {
        let pages =
            |db: &mut WriteContext<'_>| Ok(db.pragma_query_value(None, "page_count", |row| row.get(0))?);
        bench.store.writer.run(Owner::Gateway, pages).await.unwrap()
    };
    let before = pages().await;
    for _ in 0..50 {
        bench.store.check().await.unwrap();
    }
    assert_eq!(pages().await, before);
    let left: i64 = bench.intruder().query_row("SELECT count(*) FROM probes", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
