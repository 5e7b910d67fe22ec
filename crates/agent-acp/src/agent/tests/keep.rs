//! Tests of the sessions that the agent keeps, as callers see them.

use longshore_engine::port::Control;
use longshore_model::{ControlCommand, ControlQuery, ControlResult, SessionInfo, SessionQuery};

use super::*;

/// The initialize response of an agent that offers these session methods.
fn offers(methods: &[&str]) -> Value {
    let capabilities: serde_json::Map<_, _> =
        methods.iter().map(|method| ((*method).to_owned(), json!({}))).collect();
    json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true, "sessionCapabilities": capabilities}})
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn listed(result: Result<ControlResult>) -> Vec<SessionInfo> {
    let Ok(ControlResult::Sessions(sessions)) = result else { panic!("{result:?}") };
    sessions
}

fn fork(session: &Session) -> ControlCommand {
    ControlCommand::Fork { session: session.id.clone(), before: None }
}

#[tokio::test]
async fn sessions_are_listed_page_by_page_and_only_those_of_the_directory() {
    let mut stage = stage(1);
    stage.begin(offers(&["list"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    let query =
        |limit| ControlQuery::Sessions(SessionQuery { limit, roots: None, start: None, search: None });
    let first = json!({"nextCursor": "n", "sessions": [
        {"sessionId": "a", "cwd": here, "title": "One"},
        {"sessionId": "b", "cwd": "/elsewhere"},
        {"sessionId": "not valid", "cwd": here},
        {"title": "without an id"},
        {"sessionId": "c"},
    ]});
    let second = json!({"sessions": [{"sessionId": "d", "cwd": here}, {"sessionId": "e", "cwd": here}]});
    let wide = query(3);
    let (result, ()) = tokio::join!(agent.query(&here, None, &wide), async {
        let asked = peer.answer("session/list", first.clone()).await;
        assert_eq!(asked["params"], json!({"cwd": here}));
        let asked = peer.answer("session/list", second).await;
        assert_eq!(asked["params"], json!({"cwd": here, "cursor": "n"}));
    });
    let found = listed(result);
    let shown: Vec<_> = found.iter().map(|info| (info.id.as_str(), info.title.as_str())).collect();
    assert_eq!(shown, [("a", "One"), ("c", ""), ("d", "")]);
    assert!(found.iter().all(|info| info.directory.as_deref() == Some(here.as_str())));
    // No more pages are read than needed, and a page whose cursor repeats is the last one.
    let narrow = query(1);
    let (result, _) = tokio::join!(agent.query(&here, None, &narrow), peer.answer("session/list", first));
    assert_eq!(listed(result).len(), 1);
    let endless = json!({"nextCursor": "n", "sessions": []});
    let (result, ()) = tokio::join!(agent.query(&here, None, &narrow), async {
        peer.answer("session/list", endless.clone()).await;
        peer.answer("session/list", endless).await;
    });
    assert_eq!(listed(result), []);
}

#[tokio::test]
async fn a_session_is_found_if_it_is_open_or_in_the_agents_list() {
    let mut stage = stage(1);
    let open = stage.begin(offers(&["list"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    // No request is sent, because the process has the session.
    let found = agent.find(&open.id).await.unwrap().unwrap();
    assert_eq!((found.session, found.is_open), (open, true));
    let list = json!({"sessions": [{"sessionId": "out", "cwd": "/"}, {"sessionId": "in", "cwd": here}]});
    for (name, is_open) in [("in", Some(true)), ("out", Some(false)), ("none", None)] {
        let name = id(name);
        let (found, ()) = tokio::join!(agent.find(&name), async {
            let asked = peer.answer("session/list", json!({"sessions": []})).await;
            assert_eq!(asked["params"], json!({"cwd": here}));
            let asked = peer.answer("session/list", list.clone()).await;
            assert_eq!(asked["params"], json!({}));
        });
        assert_eq!(found.unwrap().map(|known| known.is_open), is_open, "{name}");
    }
    let finder = Agent::session_finder(&*agent).unwrap();
    let (outside, inside) = (id("out"), id("in"));
    for (name, expected) in [(&outside, None), (&inside, Some(here.clone()))] {
        let (found, _) = tokio::join!(finder.find_session(name), peer.answer("session/list", list.clone()));
        assert_eq!(found.unwrap().map(|session| session.directory), expected);
    }
}

#[tokio::test]
async fn a_session_is_copied_and_deleted_where_the_agent_offers_it() {
    let mut stage = stage(1);
    let session = stage.begin(offers(&["fork", "delete"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    let command = fork(&session);
    let (forked, asked) = tokio::join!(
        agent.run_command(&here, Some(&session), &command),
        peer.answer("session/fork", json!({"sessionId": "copy"}))
    );
    assert_eq!(asked["params"]["sessionId"], "s");
    let Ok(ControlResult::Session(copy)) = forked else { panic!("{forked:?}") };
    assert_eq!((copy.id.as_str(), copy.directory.as_deref()), ("copy", Some(here.as_str())));
    // A turn can begin in the copy at once.
    let copy = Session { id: copy.id, directory: here.clone() };
    let (turn, prompt) = tokio::join!(agent.start_turn(request(&copy, "hi")), peer.get());
    assert_eq!(
        (&prompt["method"], &prompt["params"]["sessionId"]),
        (&json!("session/prompt"), &json!("copy"))
    );
    let busy = ControlCommand::Delete(copy.id.clone());
    let refused = agent.run_command(&here, Some(&copy), &busy).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    drop(turn);
    let command = ControlCommand::Delete(session.id.clone());
    let (deleted, asked) = tokio::join!(
        agent.run_command(&here, Some(&session), &command),
        peer.answer("session/delete", json!({}))
    );
    assert!(matches!(deleted, Ok(ControlResult::Done { ok: true, .. })), "{deleted:?}");
    assert_eq!(asked["params"], json!({"sessionId": "s"}));
}

#[tokio::test]
async fn a_method_that_the_agent_lacks_is_refused_also_if_it_was_advertised() {
    for (advertised, is_asked) in [(&[][..], false), (&["fork", "delete", "list"][..], true)] {
        let mut stage = stage(1);
        let session = stage.begin(offers(advertised), "s").await;
        let here = stage.directory();
        let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
        let list = ControlQuery::Sessions(SessionQuery { limit: 1, roots: None, start: None, search: None });
        for round in 0..2 {
            // The agent is asked once. After its error the method counts as absent.
            let is_asked = is_asked && round == 0;
            let (fork, delete) = (fork(&session), ControlCommand::Delete(session.id.clone()));
            for (method, command) in [("session/fork", &fork), ("session/delete", &delete)] {
                let (refused, ()) = tokio::join!(agent.run_command(&here, Some(&session), command), async {
                    if is_asked {
                        peer.fail(method, -32601, "no such method").await;
                    }
                });
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedOperation, "{method}");
            }
            let (refused, ()) = tokio::join!(agent.query(&here, None, &list), async {
                if is_asked {
                    peer.fail("session/list", -32601, "no such method").await;
                }
            });
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
        }
        // The refused deletion did not close the session.
        let (turn, prompt) = tokio::join!(agent.start_turn(request(&session, "hi")), peer.get());
        assert_eq!(prompt["method"], "session/prompt");
        drop(turn);
        let finder = Agent::session_finder(&*agent).unwrap();
        assert_eq!(finder.find_session(&id("other")).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_session_that_the_agents_list_no_longer_has_is_not_found() {
    let mut stage = stage(1);
    stage.begin(offers(&["list"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    // The gateway knows the session, because a task ran in it.
    let gone = Session { id: id("gone"), directory: here.clone() };
    let query = ControlQuery::Session(gone.id.clone());
    let (read, ()) = tokio::join!(agent.query(&here, Some(&gone), &query), async {
        for _ in 0..2 {
            peer.answer("session/list", json!({"sessions": [{"sessionId": "other", "cwd": here}]})).await;
        }
    });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn the_title_of_an_open_session_is_told_also_if_only_the_agents_list_has_it() {
    let mut stage = stage(1);
    let session = stage.begin(offers(&["list"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    let query = ControlQuery::Session(session.id.clone());
    let listed = json!([{"sessionId": "s", "cwd": here, "title": "Listed"}]);
    for (sessions, title) in [(json!([]), ""), (listed, "Listed")] {
        let asked = if title.is_empty() { 2 } else { 1 };
        let (read, ()) = tokio::join!(agent.query(&here, Some(&session), &query), async {
            for _ in 0..asked {
                peer.answer("session/list", json!({"sessions": sessions})).await;
            }
        });
        let Ok(ControlResult::Session(read)) = read else { panic!("{read:?}") };
        assert_eq!((read.title.as_str(), read.directory.as_deref()), (title, Some(here.as_str())));
    }
    // If the agent has reported the title by itself, no list is needed.
    let all = ControlQuery::Sessions(SessionQuery { limit: 1, roots: None, start: None, search: None });
    let (_, ()) = tokio::join!(agent.query(&here, None, &all), async {
        peer.update("s", json!({"sessionUpdate": "session_info_update", "title": "Told"})).await;
        peer.answer("session/list", json!({"sessions": []})).await;
    });
    let read = agent.query(&here, Some(&session), &query).await;
    let Ok(ControlResult::Session(read)) = read else { panic!("{read:?}") };
    assert_eq!(read.title, "Told");
}

#[tokio::test]
async fn a_session_of_an_agent_without_a_list_is_told_as_the_gateway_knows_it() {
    let mut stage = stage(1);
    stage.begin(offers(&[]), "s").await;
    let here = stage.directory();
    let old = Session { id: id("old"), directory: here.clone() };
    let read = stage.agent.query(&here, Some(&old), &ControlQuery::Session(old.id.clone())).await;
    let Ok(ControlResult::Session(read)) = read else { panic!("{read:?}") };
    assert_eq!((read.id, read.directory), (old.id, Some(here)));
}

#[tokio::test(start_paused = true)]
async fn the_search_for_a_session_ends_with_pages_in_a_circle_and_at_its_deadline() {
    let mut stage = stage(1);
    stage.begin(offers(&["list"]), "s").await;
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    let wanted = id("wanted");
    let page = |next: &str| json!({"sessions": [], "nextCursor": next});
    let (found, ()) = tokio::join!(agent.find(&wanted), async {
        for _ in 0..2 {
            for next in ["a", "b", "a"] {
                peer.answer("session/list", page(next)).await;
            }
        }
    });
    assert_eq!(found.unwrap(), None);

    let call = agent.config.limits.call;
    let began = Instant::now();
    let slow = async {
        for number in 0.. {
            let request = peer.get().await;
            tokio::time::sleep(call / 2).await;
            peer.say(&json!({"id": request["id"], "result": page(&number.to_string())})).await;
        }
    };
    let found = tokio::select! {
        found = agent.find(&wanted) => found,
        () = slow => unreachable!("the pages have no end"),
    };
    assert_eq!(found.unwrap_err().kind(), ErrorKind::UpstreamUnreachable);
    assert_eq!(began.elapsed().as_secs(), (call * 2).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_deletion_was_not_answered_counts_as_closed() {
    let mut stage = stage(1);
    let session = stage.begin(offers(&["delete"]), "s").await;
    let here = stage.directory();
    let (agent, peer) = (Arc::clone(&stage.agent), &mut stage.peers[0]);
    let command = ControlCommand::Delete(session.id.clone());
    let (deleted, asked) = tokio::join!(agent.run_command(&here, Some(&session), &command), peer.get());
    assert_eq!(asked["method"], "session/delete");
    assert!(deleted.unwrap_err().is_maybe_applied());
    let (turn, ()) = tokio::join!(
        agent.start_turn(request(&session, "hi")),
        peer.fail("session/load", -32_002, "no such session")
    );
    assert_eq!(turn.unwrap_err().kind(), ErrorKind::SessionGone);
}

#[tokio::test]
async fn a_wrong_directory_is_refused_by_the_name_of_its_parameter() {
    let stage = stage(0);
    let directory = longshore_model::RequestedDirectory { path: "..".to_owned(), field: "directory" };
    let location = longshore_model::RequestedLocation { directory: Some(directory), ..Default::default() };
    let refused = stage.agent.resolve_location(&location).await.unwrap_err();
    assert_eq!(refused.violations()[0].field, "directory");
}
