//! Files of tasks. A file is stored in chunks, so that a range can be read without the rest. It is written in steps, so that other
//! writes do not wait for a whole file.

use std::sync::Arc;

use longshore_engine::port::{FileFacts, NewFile};
use longshore_model::{Error, FileId, Principal, Result, TaskId, Timestamp};
use rusqlite::{Connection, Row, named_params};

use super::fault::{Outcome, damaged};
use super::queue::Owner;
use super::writer::Writer;
use crate::rules::{self, FileIdentity};

/// The size of every chunk except the last one of a file. It must never change, because stored files would then be read wrongly.
const CHUNK_BYTES: usize = 256 * 1024;

/// The most bytes of a file in one request to the writer. Such a step takes some milliseconds, and all waiting requests run before
/// the next step.
const STEP_BYTES: usize = 4 * CHUNK_BYTES;

/// Writes the file step by step. The last step makes the file visible. If the caller drops this future before that, the next writer
/// of the file completes it, or the next start of the gateway removes it. Returns whether this call completed the file.
pub(super) async fn put(writer: &Writer, file: NewFile) -> Result<bool> {
    rules::check_file(&file)?;
    let file = Arc::new(file);
    let mut from = 0;
    loop {
        let step = file.clone();
        let owner = Owner::Principal(file.owner.clone());
        match writer.run_large(owner, move |db| put_step(db, &step, from)).await? {
            Put::More => from += STEP_BYTES,
            Put::Completed => return Ok(true),
            Put::WasComplete => return Ok(false),
        }
    }
}

/// The facts about a complete file, if the owner has it.
pub(super) fn facts(db: &Connection, owner: &Principal, id: &FileId) -> Outcome<Option<FileFacts>> {
    let mut statement = db.prepare_cached(
        "SELECT name, media_type, size, sha256, at FROM files WHERE id = :id AND owner = :owner AND complete",
    )?;
    let mut rows = statement.query(named_params! { ":id": id.as_str(), ":owner": owner.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(FileFacts {
        name: row.get(0)?,
        media_type: row.get(1)?,
        size: size(id, row, 2)?,
        sha256: sha256(id, row, 3)?,
        at: Timestamp(row.get(4)?),
    }))
}

/// Reads a range of a file. Reads only the chunks that overlap the range.
pub(super) fn read(db: &Connection, id: &FileId, offset: u64, length: usize) -> Outcome<Option<Vec<u8>>> {
    let mut statement = db.prepare_cached("SELECT ordinal, size FROM files WHERE id = :id AND complete")?;
    let mut rows = statement.query(named_params! { ":id": id.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (ordinal, size) = (row.get::<_, i64>(0)?, size(id, row, 1)?);
    let wanted = size.saturating_sub(offset).min(length as u64);
    let mut bytes = Vec::new();
    if wanted == 0 {
        return Ok(Some(bytes));
    }

    let chunk = CHUNK_BYTES as u64;
    let mut statement = db.prepare_cached(READ_CHUNKS)?;
    let mut rows = statement.query(named_params! {
        ":file": ordinal,
        ":first": to_integer(offset / chunk),
        ":last": to_integer((offset + wanted - 1) / chunk),
    })?;
    let mut skipped = usize::try_from(offset % chunk).unwrap_or(CHUNK_BYTES);
    while let Some(row) = rows.next()? {
        let rest = row.get_ref(0)?.as_blob()?.get(skipped..).unwrap_or_default();
        let missing = usize::try_from(wanted).unwrap_or(usize::MAX) - bytes.len();
        bytes.extend_from_slice(&rest[..missing.min(rest.len())]);
        skipped = 0;
    }
    // A missing or short chunk would shift all bytes after it.
    if bytes.len() as u64 != wanted {
        return Err(damaged(&what(id), "its chunks do not add up to its size"));
    }
    Ok(Some(bytes))
}

/// Removes incomplete files. Called at startup, when no writer can complete them any more.
pub(super) fn remove_incomplete(db: &Connection) -> Outcome<()> {
    db.execute(REMOVE_INCOMPLETE, [])?;
    Ok(())
}

const REMOVE_INCOMPLETE: &str = "DELETE FROM files WHERE complete = 0";

const READ_CHUNKS: &str =
    "SELECT bytes FROM file_chunks WHERE file = :file AND place BETWEEN :first AND :last ORDER BY place";

/// The result of one step.
#[derive(PartialEq, Eq, Debug)]
enum Put {
    More,
    Completed,
    WasComplete,
}

/// Writes the step at offset `from`.
///
/// Each step looks up the file again, because its task may have been removed and the ordinal reused. Two writers of the same file
/// do no harm, because they write the same chunks.
fn put_step(db: &Connection, file: &NewFile, from: usize) -> Outcome<Put> {
    let ordinal = match find_file(db, &file.id)? {
        Some(known) => {
            known.identity.check(file)?;
            if known.complete {
                return Ok(Put::WasComplete);
            }
            known.ordinal
        }
        None if from == 0 => insert(db, file)?,
        None => return Err(Error::task_not_found(file.task.as_str()).into()),
    };
    let to = file.bytes.len().min(from + STEP_BYTES);
    for (number, bytes) in ((from / CHUNK_BYTES) as u64..).zip(file.bytes[from..to].chunks(CHUNK_BYTES)) {
        db.prepare_cached(
            "INSERT OR IGNORE INTO file_chunks (file, place, bytes) VALUES (:file, :place, :bytes)",
        )?
        .execute(named_params! { ":file": ordinal, ":place": to_integer(number), ":bytes": bytes })?;
    }
    if to < file.bytes.len() {
        return Ok(Put::More);
    }
    db.prepare_cached("UPDATE files SET complete = 1 WHERE ordinal = :file")?
        .execute(named_params! { ":file": ordinal })?;
    Ok(Put::Completed)
}

/// The row of a file, which is complete or being written.
struct StoredFile {
    ordinal: i64,
    identity: FileIdentity,
    complete: bool,
}

fn find_file(db: &Connection, id: &FileId) -> Outcome<Option<StoredFile>> {
    let mut statement = db.prepare_cached(
        "SELECT files.ordinal, files.owner, tasks.id, size, sha256, complete
         FROM files JOIN tasks ON tasks.ordinal = files.task WHERE files.id = :id",
    )?;
    let mut rows = statement.query(named_params! { ":id": id.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let identity = FileIdentity {
        owner: Principal::new(row.get_ref(1)?.as_str()?),
        task: TaskId::parse(row.get_ref(2)?.as_str()?).map_err(|cause| damaged(&what(id), cause))?,
        size: size(id, row, 3)?,
        sha256: sha256(id, row, 4)?,
    };
    Ok(Some(StoredFile { ordinal: row.get(0)?, identity, complete: row.get(5)? }))
}

fn insert(db: &Connection, file: &NewFile) -> Outcome<i64> {
    let NewFile { id, owner, task, facts, .. } = file;
    let mut statement = db.prepare_cached("SELECT ordinal, owner FROM tasks WHERE id = :id")?;
    let mut rows = statement.query(named_params! { ":id": task.as_str() })?;
    let found = match rows.next()? {
        Some(row) => Some((row.get::<_, i64>(0)?, Principal::new(row.get_ref(1)?.as_str()?))),
        None => None,
    };
    rules::check_file_task(file, found.as_ref().map(|(_, owner)| owner))?;
    db.prepare_cached(
        "INSERT INTO files (id, task, owner, name, media_type, size, sha256, at, complete)
         VALUES (:id, :task, :owner, :name, :media_type, :size, :sha256, :at, 0)",
    )?
    .execute(named_params! {
        ":id": id.as_str(),
        ":task": found.map(|(ordinal, _)| ordinal),
        ":owner": owner.as_str(),
        ":name": facts.name,
        ":media_type": facts.media_type,
        ":size": to_integer(facts.size),
        ":sha256": facts.sha256,
        ":at": facts.at.0,
    })?;
    Ok(db.last_insert_rowid())
}

fn size(id: &FileId, row: &Row<'_>, column: usize) -> Outcome<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|cause| damaged(&what(id), cause))
}

fn sha256(id: &FileId, row: &Row<'_>, column: usize) -> Outcome<[u8; 32]> {
    row.get_ref(column)?
        .as_blob()?
        .try_into()
        .map_err(|cause: std::array::TryFromSliceError| damaged(&what(id), cause))
}

/// Converts to SQLite's signed integers. A larger number becomes the largest one, which is past the end of every file.
fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn what(id: &FileId) -> String {
    format!("file {id}")
}

#[cfg(test)]
mod tests;
