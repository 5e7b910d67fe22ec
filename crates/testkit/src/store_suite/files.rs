//! Files: stored whole, read in ranges.

use longshore_engine::Tasks;
use longshore_engine::port::{FileFacts, NewFile};
use longshore_model::{ErrorKind, TaskState, Timestamp};

use super::Fixture;
use super::make::{ada, append, appended, chunk, create, file, file_id, made, owner, status, task_id};

/// Bytes that depend on their position, so that a shifted range is noticed.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at ^ at >> 8 ^ at >> 16) & 0xff).expect("a byte")).collect()
}

pub(super) async fn a_file_is_read_in_ranges(fixture: &dyn Fixture) {
    /// The chunk size of a store, and the size of one write.
    const UNIT: usize = 256 * 1024;
    let store = fixture.open();
    made(&store, create("t")).await;
    let sizes = [0, 1, UNIT - 1, UNIT, UNIT + 1, 4 * UNIT, 4 * UNIT + 1, 9 * UNIT + 77];
    for size in sizes {
        let (name, bytes) = (format!("f{size}"), content(size));
        store.put_file(file("t", &name, &bytes)).await.expect("a file");
    }
    let store = fixture.reopen(store);
    for size in sizes {
        let (name, bytes) = (format!("f{size}"), content(size));
        let id = file_id(&name);
        let facts = store.file(&ada(), &id).await.expect("a read");
        assert_eq!(facts, Some(file("t", &name, &bytes).facts));
        let whole = [(0, size), (0, usize::MAX), (0, size + 1)];
        let parts =
            [(0, 0), (0, 1), (1, UNIT), (UNIT - 1, 2), (UNIT, UNIT), (2 * UNIT - 5, 3 * UNIT), (size, 1)];
        let ends = [(size.saturating_sub(3), 9), (size / 2, usize::MAX), (size + 9, 9)];
        for (offset, length) in whole.into_iter().chain(parts).chain(ends) {
            let found = store.read_file(&ada(), &id, offset as u64, length).await.expect("a read");
            let begin = offset.min(size);
            let expected = &bytes[begin..begin.saturating_add(length).min(size)];
            // Not `assert_eq`, which would print both contents.
            assert!(found.as_deref() == Some(expected), "{length} bytes of {size} from {offset}");
        }
        let beyond = store.read_file(&ada(), &id, u64::MAX, usize::MAX).await.expect("a read");
        assert_eq!(beyond, Some(Vec::new()));
    }
    for unknown in ["none", "F1"] {
        assert_eq!(store.read_file(&ada(), &file_id(unknown), 0, 9).await.expect("a read"), None);
        assert_eq!(store.file(&ada(), &file_id(unknown)).await.expect("a read"), None);
    }
}

pub(super) async fn a_file_is_stored_once(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let first = file("t", "f", b"content");
    let facts = FileFacts { name: None, at: Timestamp(9), ..first.facts.clone() };
    store.put_file(first.clone()).await.expect("a file");
    store.put_file(NewFile { facts, ..first.clone() }).await.expect("the same file");
    assert_eq!(store.file(&ada(), &first.id).await.expect("a read"), Some(first.facts.clone()));

    // Many writers at once, with files so large that a store may interleave their writes.
    let bytes = content(3 * 1024 * 1024);
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (store, file) = (store.clone(), file("t", "large", &bytes));
            tasks.spawn("writer", async move { store.put_file(file).await })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer panics").expect("the same file");
    }
    let found = store.read_file(&ada(), &file_id("large"), 0, usize::MAX).await.expect("a read");
    assert!(found == Some(bytes));

    // Another file with the same id would be served in place of the first.
    made(&store, create("u")).await;
    let digest = FileFacts { sha256: [9; 32], ..first.facts.clone() };
    let others = [
        NewFile { facts: digest, ..first.clone() },
        NewFile { owner: owner("bob"), ..first.clone() },
        NewFile { task: task_id("u"), ..first.clone() },
        file("t", "f", b"another content"),
    ];
    for other in others {
        let refused = store.put_file(other).await.expect_err("another file");
        assert_eq!(refused.kind(), ErrorKind::Internal);
    }
    let kept = store.read_file(&ada(), &first.id, 0, 99).await.expect("a read");
    assert_eq!(kept.as_deref(), Some(&b"content"[..]));
}

pub(super) async fn only_its_owner_sees_a_file(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let kept = file("t", "f", b"content");
    store.put_file(kept.clone()).await.expect("a file");
    for (who, sees) in [("ada", true), ("bob", false), ("ADA", false)] {
        let facts = store.file(&owner(who), &kept.id).await.expect("a read");
        assert_eq!(facts, sees.then(|| kept.facts.clone()), "{who}");
    }
}

pub(super) async fn an_invalid_file_is_refused(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    made(&store, create("over")).await;
    appended(&store, append("over", 1, vec![status(TaskState::Completed, 2)])).await;
    let whole = file("t", "f", b"content");
    let size = FileFacts { size: 6, ..whole.facts.clone() };
    let wrong = [
        ("of no task", file("none", "f", b"content"), ErrorKind::TaskNotFound),
        ("of a foreign task", NewFile { owner: owner("bob"), ..whole.clone() }, ErrorKind::Internal),
        ("of another size", NewFile { facts: size, ..whole.clone() }, ErrorKind::Internal),
    ];
    for (name, file, kind) in wrong {
        let refused =
            store.put_file(file).await.err().unwrap_or_else(|| panic!("a file {name} was accepted"));
        assert_eq!(refused.kind(), kind, "{name}");
        assert_eq!(store.read_file(&ada(), &whole.id, 0, 9).await.expect("a read"), None, "{name}");
    }
    // A finished task can still get a file.
    store.put_file(file("over", "f", b"content")).await.expect("a file");
}

pub(super) async fn large_files_are_stored_while_tasks_go_on(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["a", "b", "t"] {
        made(&store, create(name)).await;
    }
    let bytes = content(6 * 1024 * 1024 + 5);
    let tasks = Tasks::new();
    let writers = ["a", "b"].map(|name| {
        let (store, file) = (store.clone(), file(name, name, &bytes));
        tasks.spawn("writer", async move { store.put_file(file).await })
    });
    for n in 0..50 {
        appended(&store, append("t", 1 + n, vec![chunk("x")])).await;
    }
    for writer in writers {
        writer.await.expect("no writer panics").expect("a file");
    }
    for name in ["a", "b"] {
        let found = store.read_file(&ada(), &file_id(name), 0, usize::MAX).await.expect("a read");
        assert!(found.as_ref() == Some(&bytes), "{name}");
    }
}
