//! A task that is created in one protocol version and used in the other, and what only readers of 0.3 see.

use longshore_model::{AgentEvent, TaskState};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::{StartedTurn, text_block};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::decode::StreamEvent;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::json;

use crate::support::{
    ADA_BLIND, Call, ClientView, Frame, Gateway, ProtocolClient, TEXT, first_half, second_half,
};

fn pairs() -> impl Iterator<Item = (ProtocolClient, ProtocolClient)> {
    let all = ProtocolClient::ALL.into_iter();
    all.flat_map(|maker| ProtocolClient::ALL.into_iter().map(move |user| (maker, user)))
        .filter(|(maker, user)| maker.version != user.version)
}

#[tokio::test]
async fn a_task_of_one_version_is_read_streamed_and_resumed_in_the_other() {
    let mut gateway = Gateway::manual().await;
    for (maker, user) in pairs() {
        let about = format!("{} then {}", maker.name(), user.name());
        let message = maker.message(&about.replace(' ', "-"), "go");
        let mut whole = maker.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut frames = maker.until(&mut whole, TaskState::Working).await;
        while !frames.last().unwrap().raw.contains("words. ") {
            frames.push(whole.next().await.unwrap());
        }
        let known = maker.fold(None, &frames).unwrap();
        let read = user.task(&user.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(ClientView::of(&read), ClientView::of(&known), "{about}");

        let mut joined = user.on(&gateway, Method::SubscribeToTask, &id).stream().await;
        let snapshot = joined.next().await.unwrap();
        assert_eq!(snapshot.id, frames.last().unwrap().id, "{about}");
        // The other version resumes where this stream was cut.
        let cut = frames.last().unwrap().id.unwrap();
        let resumed =
            user.on(&gateway, Method::SubscribeToTask, &id).header("last-event-id", &cut.to_string());
        let mut resumed = resumed.stream().await;
        second_half(turn).await;
        frames.extend(whole.rest().await);
        let end = ClientView::of(&maker.fold(None, &frames).unwrap());
        assert_eq!((end.state, &*end.text), (TaskState::Completed, TEXT), "{about}");

        let mut seen = vec![snapshot];
        seen.extend(joined.rest().await);
        assert_eq!(ClientView::of(&user.fold(None, &seen).unwrap()), end, "{about}");
        let missed = resumed.rest().await;
        assert!(missed.iter().filter_map(|frame| frame.id).all(|id| id > cut), "{about}");
        assert_eq!(ClientView::of(&user.fold(Some(read), &missed).unwrap()), end, "{about}");

        // And from every event, after the end.
        for after in frames.iter().filter_map(|frame| frame.id) {
            let is_before = |frame: &&Frame| frame.id.is_some_and(|id| id <= after);
            let before: Vec<Frame> = frames.iter().filter(is_before).cloned().collect();
            let resumed =
                maker.on(&gateway, Method::SubscribeToTask, &id).header("last-event-id", &after.to_string());
            let tail = resumed.stream().await.rest().await;
            let folded = maker.fold(maker.fold(None, &before), &tail).unwrap();
            assert_eq!(ClientView::of(&folded), end, "{about} after {after}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_task_of_one_version_is_canceled_and_continued_in_the_other() {
    let mut gateway = Gateway::manual().await;
    for (maker, user) in pairs() {
        let about = format!("{} then {}", maker.name(), user.name());
        let message = maker.message(&about.replace(' ', "-"), "go");
        let mut events = maker.stream(&gateway, &message).stream().await;
        let mut turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        let mut more = user.message(&format!("more-{}", about.replace(' ', "-")), "and more");
        more["taskId"] = json!(id);
        let (answer, _) = tokio::join!(user.send(&gateway, &more, false).send(), turn.joined());
        assert_eq!(user.sent(&answer).history.len(), 2, "{about}");

        let canceled = user.task(&user.on(&gateway, Method::CancelTask, &id).send().await);
        assert_eq!(canceled.status.state, TaskState::Canceled, "{about}");
        let received = maker.until(&mut events, TaskState::Canceled).await;
        assert_eq!(events.rest().await, [], "{about}");
        if maker.version == ProtocolVersion::V03 {
            let last = received.last().unwrap().data.to_string();
            assert!(last.contains("\"final\":true"), "{last}");
        }
        drop(turn);
        // A second cancel: the versions differ by their rules, whichever version created the task.
        for client in [maker, user] {
            let again = client.on(&gateway, Method::CancelTask, &id).send().await;
            match client.version {
                ProtocolVersion::V1 => assert_eq!(client.reason(&again), "TASK_NOT_CANCELABLE", "{about}"),
                ProtocolVersion::V03 => {
                    assert_eq!(ClientView::of(&client.task(&again)), ClientView::of(&canceled), "{about}");
                }
            }
            let ended = client.on(&gateway, Method::SubscribeToTask, &id);
            match client.version {
                ProtocolVersion::V1 => {
                    assert_eq!(client.reason(&ended.send().await), "UNSUPPORTED_OPERATION", "{about}");
                }
                ProtocolVersion::V03 => {
                    let frames = ended.stream().await.rest().await;
                    assert_eq!(frames.len(), 1, "{about}");
                    let seen = ClientView::of(&client.fold(None, &frames).unwrap());
                    assert_eq!(seen, ClientView::of(&canceled), "{about}");
                }
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_of_0_3_stays_open_at_an_ask_which_either_version_answers() {
    let mut gateway = Gateway::manual().await;
    for client in ProtocolClient::ALL.into_iter().filter(|client| client.version == ProtocolVersion::V03) {
        let unique = client.name().replace(' ', "-");
        let mut events = client.stream(&gateway, &client.message(&unique, "go")).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let request = format!("per_{:?}", client.dialect);
        turn.ask(&request).await;
        let asked = client.until(&mut events, TaskState::InputRequired).await;
        // A reader of 0.3 receives the ask without activating an extension.
        let received = asked.last().unwrap().data.to_string();
        assert!(received.contains(&request) && received.contains("\"final\":false"), "{received}");
        let params = json!({"request_id": request, "reply": "once"});
        let answered = gateway.rpc("a2a.interrupt.permission.reply", &params).send().await;
        assert_eq!(answered.json()["result"], json!({"ok": true, "request_id": request}));
        assert_eq!(answered.header("a2a-version"), "0.3");
        turn.say("b", "thanks").await;
        turn.complete().await;
        let rest = events.rest().await;
        assert!(rest.last().unwrap().data.to_string().contains("\"final\":true"), "{rest:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_send_by_0_3_rest_does_not_wait_unless_it_says_so() {
    let mut gateway = Gateway::manual().await;
    for client in ProtocolClient::ALL {
        let waits = !(client.version == ProtocolVersion::V03 && client.dialect == Dialect::Rest);
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let call = client.call(&gateway, Method::SendMessage, "", &json!({"message": message}));
        let (answer, ()) = tokio::join!(call.send(), async {
            let turn = gateway.turns.recv().await.unwrap();
            if waits {
                turn.complete().await;
            }
        });
        let state = client.sent(&answer).status.state;
        assert_eq!(state == TaskState::Completed, waits, "{} {state}", client.name());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn hidden_content_is_hidden_in_both_versions() {
    let mut gateway = Gateway::manual().await;
    for client in ProtocolClient::ALL {
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let blind = |call: Call| call.header("authorization", ADA_BLIND);
        let mut sent = blind(client.stream(&gateway, &message)).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut joined = blind(client.on(&gateway, Method::SubscribeToTask, &id)).stream().await;
        second_half(turn).await;
        let (sent, joined) = (sent.rest().await, joined.rest().await);
        let read = blind(client.on(&gateway, Method::GetTask, &id)).send().await;
        for frames in [&sent, &joined] {
            assert!(frames.iter().all(|frame| !frame.raw.contains("Hm") && !frame.raw.contains("call_1")));
            let seen = ClientView::of(&client.fold(None, frames).unwrap());
            assert_eq!(seen.text, "Better words. Done.", "{}", client.name());
            assert_eq!(seen, ClientView::of(&client.task(&read)), "{}", client.name());
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_reader_of_0_3_gets_a_snapshot_if_the_log_is_incomplete() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    for client in ProtocolClient::ALL.into_iter().filter(|client| client.version == ProtocolVersion::V03) {
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let mut events = client.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut frames = vec![events.next().await.unwrap()];
        while !frames.last().unwrap().raw.contains("words. ") {
            frames.push(events.next().await.unwrap());
        }
        store.forget_before(3);
        second_half(turn).await;
        let received = events.rest().await;
        let snapshots =
            received.iter().filter(|frame| matches!(client.event(frame), StreamEvent::Task(_))).count();
        assert_eq!(snapshots, 1, "{received:?}");
        let last = frames.last().unwrap().id.unwrap();
        let gaps: Vec<_> = received.iter().filter_map(|frame| client.gap(frame)).collect();
        let [gap] = gaps.as_slice() else { panic!("{received:?}") };
        // Everything that the reader had seen is before the gap, and everything that it missed is in it.
        assert_eq!((gap["requested"].as_u64(), gap["first"].as_u64()), (Some(last), Some(last + 1)), "{gap}");
        assert!(gap["head"].as_u64() > Some(last), "{gap}");
        assert!(received.iter().filter_map(|frame| frame.id).is_sorted(), "{received:?}");
        frames.extend(received);
        let end = client.task(&client.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(
            ClientView::of(&client.fold(None, &frames).unwrap()),
            ClientView::of(&end),
            "{}",
            client.name()
        );
        store.forget_before(1);
    }
    gateway.stop().await;
}

/// A power loss removed an event that a reader had seen, and another event has its number.
#[tokio::test]
async fn a_reused_sequence_number_is_a_gap_in_every_version_and_binding() {
    let mut gateway = Gateway::manual().await;
    for client in ProtocolClient::ALL {
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let mut events = client.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let seen = events.next().await.unwrap();
        let (number, epoch) = seen.cursor.as_ref().unwrap().split_once('.').unwrap();
        let other = format!("{number}.{}", epoch.parse::<u32>().unwrap() + 1);
        let ways = |cursor: &str| {
            [client.on(&gateway, Method::SubscribeToTask, &id), client.stream(&gateway, &message)]
                .map(|call| call.header("last-event-id", cursor))
        };
        for way in ways(&other) {
            let opening = way.stream().await.next().await.unwrap();
            let gap = client.gap(&opening).unwrap_or_else(|| panic!("{opening:?}"));
            assert_eq!(gap["requested"].to_string(), number);
            assert_eq!(gap["requested_epoch"].to_string(), other.split_once('.').unwrap().1);
            assert_eq!(gap["head_epoch"].to_string(), epoch);
            // The stream continues from there.
            assert_eq!(opening.cursor, Some(format!("{}.{epoch}", gap["head"])));
        }
        for way in ways(seen.cursor.as_ref().unwrap()) {
            let next = way.stream().await.next().await.unwrap();
            assert_eq!((client.gap(&next), next.id), (None, seen.id.map(|id| id + 1)));
        }
        second_half(turn).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_reader_of_0_3_reads_the_log_from_its_start_only_once() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    let replace = async |turn: &StartedTurn, text: &str| {
        let replaced = AgentEvent::TextReplaced { block: text_block("prt_3"), text: text.to_owned() };
        turn.report(replaced).await;
    };
    for client in ProtocolClient::ALL.into_iter().filter(|client| client.version == ProtocolVersion::V03) {
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let mut events = client.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        replace(&turn, "One. ").await;
        let mut frames = vec![events.next().await.unwrap()];
        while !frames.last().unwrap().raw.contains("One. ") {
            frames.push(events.next().await.unwrap());
        }
        // The events that would have to be read again are gone.
        store.forget_before(3);
        turn.say("prt_3", "Two. ").await;
        for text in ["Three. ", "Four. "] {
            replace(&turn, text).await;
            turn.say("prt_3", "And more. ").await;
        }
        second_half(turn).await;
        let received = events.rest().await;
        assert!(
            received.iter().all(|frame| !matches!(client.event(frame), StreamEvent::Task(_))),
            "{received:?}"
        );
        frames.extend(received);
        let end = client.task(&client.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(
            ClientView::of(&client.fold(None, &frames).unwrap()),
            ClientView::of(&end),
            "{}",
            client.name()
        );
        store.forget_before(1);
    }
    gateway.stop().await;
}
