//! Ids in OpenCode's form, and how the ids of a recording move to the time of the test.
//!
//! OpenCode sorts messages by id, so that a recorded reply must be moved behind the prompt that it answers now.

use longshore_engine::port::{Clock, SystemClock};
use longshore_opencode_shapes::{ID_TIME_MASK, new_id};

/// The number of digits of time, and the length of an id after its prefix.
const TIME: usize = 12;
const BODY: usize = 26;

/// A new id, larger than all ids before it.
pub(super) fn fresh(prefix: &str) -> String {
    new_id(prefix, now_ms())
}

/// Milliseconds since 1970, as OpenCode writes its times.
pub(super) fn now_ms() -> u64 {
    u64::try_from(SystemClock.now().0).unwrap_or_default()
}

/// How far `to` is from `from` in time, in the unit of ids. `None` when one of them is not an id.
pub(super) fn distance(from: &str, to: &str) -> Option<u64> {
    Some(time(to)?.wrapping_sub(time(from)?) & ID_TIME_MASK)
}

/// The id moved in time by `distance`. Text that is not an id stays as it is.
pub(super) fn moved(id: &str, distance: u64) -> String {
    match (time(id), id.split_once('_')) {
        (Some(time), Some((prefix, body))) => {
            format!("{prefix}_{:012x}{}", time.wrapping_add(distance) & ID_TIME_MASK, &body[TIME..])
        }
        _ => id.to_owned(),
    }
}

fn time(id: &str) -> Option<u64> {
    let (_, body) = id.split_once('_')?;
    if body.len() != BODY || !body.is_ascii() {
        return None;
    }
    u64::from_str_radix(&body[..TIME], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_reply_moves_behind_the_prompt_that_it_now_answers() {
        let (recorded_prompt, recorded_reply) =
            ("msg_1dd48888c001jqStNGKmZyZoz7", "msg_1dd48889c0017P9Vq1VM4RTuCL");
        let prompt = fresh("msg");
        let distance = distance(recorded_prompt, &prompt).expect("both are ids");
        let reply = moved(recorded_reply, distance);
        assert!(reply > prompt, "{reply} should sort behind {prompt}");
        assert!(reply.ends_with("7P9Vq1VM4RTuCL"));
        assert_eq!(moved("msg_nope", distance), "msg_nope");
    }
}
