//! The page token of a list: an opaque string for the caller, which holds a cursor of the store.

use longshore_model::{Error, Result, TaskId, Timestamp};

use crate::port::PageCursor;

pub(crate) fn encode(cursor: &PageCursor) -> String {
    format!("{}~{}", cursor.status_at.0, cursor.task)
}

pub(crate) fn decode(token: &str) -> Result<PageCursor> {
    let read = || {
        let (at, task) = token.split_once('~')?;
        Some(PageCursor { status_at: Timestamp(at.parse().ok()?), task: TaskId::parse(task).ok()? })
    };
    read().ok_or_else(|| {
        Error::invalid("pageToken", "is not a token that this gateway gave; use nextPageToken as it came")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_cursor_and_anything_else_is_refused() {
        let cursor = PageCursor { status_at: Timestamp(17), task: TaskId::parse("t-1").unwrap() };
        assert_eq!(decode(&encode(&cursor)).unwrap(), cursor);
        for bad in ["", "17", "~t", "x~t", "17~", "17~a/b", "17~t~u"] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }
}
