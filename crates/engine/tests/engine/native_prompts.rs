//! Native prompts: ordinary tasks, made where the caller may prompt, and answered to that caller.

use longshore_engine::port::Input;
use longshore_engine::{Outcome, SessionGuard};
use longshore_model::{
    AgentEvent, Answer, AskKind, ControlResult, Error, ErrorKind, Failure, Json, NativePrompt,
    NativePromptPart, Outcome as AgentOutcome, Part, PermissionReply, Retry, Role, StartedTask, TaskState,
};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{
    Stage, ada, bob, command, named_prompt, note, prompt, ses, share, stage, without_claim,
};
use crate::harness::{message, reason_of};

fn begun(result: ControlResult) -> StartedTask {
    match result {
        ControlResult::Done { ok: true, begun: Some(begun), .. } | ControlResult::Answered { begun, .. } => {
            begun
        }
        other => panic!("{other:?}"),
    }
}

async fn owned() -> Stage {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s
}

#[tokio::test]
async fn a_native_prompt_becomes_a_task_and_is_answered_when_the_agent_has_it() {
    let mut s = owned().await;
    let begun = begun(s.call(&ada(), prompt("ses_a", "go")).await.unwrap());
    assert_eq!(begun.context.as_str(), "ctx:session:ses_a");
    let turn = s.h.turn().await;
    assert_eq!((&turn.request.task, &turn.request.session.id), (&begun.task, &ses("ses_a")));
    assert_eq!(turn.request.input, [Input::Text("go".to_owned())]);
    let Some(NativePrompt::Prompt { parts, withheld }) = &turn.request.order else {
        panic!("no native prompt")
    };
    assert_eq!(parts, &[NativePromptPart::Content, NativePromptPart::Agent("plan".to_owned())]);
    assert!(withheld.contains("bash"));
    let task = s.h.task(&begun.task).await;
    let agent = Part::data(Json::parse(r#"{"type":"agent","name":"plan"}"#).unwrap());
    assert_eq!(task.history[0].parts, [Part::text("go"), agent]);
    turn.complete().await;
    s.h.reaches(&begun.task, TaskState::Completed).await;
    assert_eq!(s.outcomes(), [Outcome::Success]);
}

#[tokio::test]
async fn a_native_prompt_goes_to_the_context_that_was_bound_last() {
    let mut s = stage(SessionGuard::Owner);
    s.h.send("c", "m1").await;
    let turn = s.h.turn().await;
    let id = turn.request.session.id.as_str().to_owned();
    s.control.add(&id);
    // The task waits behind the turn, and the caller does not.
    let begun = begun(s.call(&ada(), prompt(&id, "go")).await.unwrap());
    assert_eq!(begun.context.as_str(), "c");
    assert_eq!(s.h.task(&begun.task).await.status.state, TaskState::Submitted);
    turn.complete().await;
    assert_eq!(s.h.turn().await.request.task, begun.task);
}

#[tokio::test]
async fn a_repeated_native_prompt_is_the_same_task_and_one_prompt() {
    let mut s = owned().await;
    let first = begun(s.call(&ada(), named_prompt("ses_a", "go", "m1")).await.unwrap());
    s.h.turn().await.complete().await;
    s.h.reaches(&first.task, TaskState::Completed).await;
    s.control.forget(&ses("ses_a"));
    let again = begun(s.call(&ada(), named_prompt("ses_a", "go", "m1")).await.unwrap());
    assert_eq!(again, first);
    assert_eq!(s.h.agent.log().prompted.len(), 1);
    assert_eq!(s.h.task(&first.task).await.history[0].id.as_str(), "m1");
    // Without a message id, or with other words, it is another prompt.
    s.control.add("ses_a");
    for other in [named_prompt("ses_a", "stop", "m1"), prompt("ses_a", "go"), prompt("ses_a", "go")] {
        assert_ne!(begun(s.call(&ada(), other).await.unwrap()).task, first.task);
    }
}

#[tokio::test]
async fn a_refused_native_prompt_leaves_nothing_behind() {
    let s = owned().await;
    s.control.refuse_next_native_prompt(Error::invalid("request.model", "is not there"));
    assert_eq!(s.refusal(&ada(), prompt("ses_a", "go")).await, Some(ErrorKind::InvalidParams));
    s.control.add_in_workspace("ses_w");
    for request in [prompt("ses_w", "go"), command("ses_w", ""), note("ses_w", "go")] {
        let error = s.call(&ada(), request).await.unwrap_err();
        assert_eq!(error.violations()[0].field, "session_id");
    }
    let mut file = prompt("ses_a", "go");
    let longshore_model::Control::NativePrompt(request) = &mut file else { panic!("not a native prompt") };
    request.content.push(Part::new(longshore_model::PartContent::Url("ftp://far/away".to_owned())));
    let NativePrompt::Prompt { parts, .. } = &mut request.order else { panic!("a prompt") };
    parts.push(NativePromptPart::Content);
    let error = s.call(&ada(), file).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "request.parts[2]");
    let unfinished = s.h.store.unfinished().await.unwrap();
    assert!(unfinished.is_empty());
    assert_eq!(s.owner_of("ses_w").await, None);
}

#[tokio::test]
async fn a_native_prompt_claims_an_unowned_session_with_its_task() {
    let mut s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.call(&ada(), prompt("ses_n", "go")).await.unwrap();
    assert_eq!(s.h.turn().await.request.session.id, ses("ses_n"));
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
    assert_eq!(s.refusal(&bob(), prompt("ses_n", "go")).await, Some(ErrorKind::SessionForbidden));
    assert!(s.control.watched().iter().any(|watched| watched.id == ses("ses_n")));
}

#[tokio::test]
async fn the_agents_refusal_is_returned_to_the_caller_and_shown_by_the_task() {
    let s = owned().await;
    s.h.agent.refuse_next(Error::new(ErrorKind::SessionGone, "Gone."));
    let error = s.call(&ada(), prompt("ses_a", "go")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionNotFound);
    let (_, task) = error.details().iter().find(|(name, _)| name == "taskId").unwrap();
    let task = longshore_model::TaskId::parse(task).unwrap();
    assert_eq!(s.h.task(&task).await.status.state, TaskState::Failed);
    assert_eq!(s.h.agent.log().opened, [], "no other session is opened for a native prompt");
    assert_eq!(s.outcomes(), [Outcome::NotFound]);
}

#[tokio::test]
async fn a_native_prompt_is_for_its_session_alone_and_leaves_the_context_unchanged() {
    let mut s = stage(SessionGuard::Owner);
    s.h.send("c", "m1").await;
    let turn = s.h.turn().await;
    let id = turn.request.session.id.as_str().to_owned();
    turn.complete().await;
    s.control.add(&id);
    let gone = || Error::new(ErrorKind::SessionGone, "Gone.");
    begun(s.call(&ada(), prompt(&id, "go")).await.unwrap());
    s.h.turn().await.complete().await;
    // No other session is made for a native prompt.
    s.h.agent.refuse_next(gone());
    let error = s.call(&ada(), prompt(&id, "again")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionNotFound);
    // A native prompt that waits behind a message does not follow it into the new session.
    s.h.agent.refuse_next(gone());
    s.h.agent.starts.hold();
    s.h.send("c", "m2").await;
    let waiting = begun(s.call(&ada(), prompt(&id, "late")).await.unwrap());
    assert_eq!(waiting.context.as_str(), "c");
    s.h.agent.starts.release(100);
    let turn = s.h.turn().await;
    assert_ne!(
        turn.request.session.id,
        ses(&id),
        "the message is the context's, which is not bound for good"
    );
    turn.complete().await;
    let failed = s.h.reaches(&waiting.task, TaskState::Failed).await;
    assert!(reason_of(&failed).contains("the session that the prompt is for"), "{}", reason_of(&failed));
}

#[tokio::test]
async fn a_command_returns_its_final_reply_when_it_is_over() {
    let mut s = owned().await;
    let (result, ()) = tokio::join!(s.call(&ada(), command("ses_a", "all of it")), async {
        let turn = s.h.turns.recv().await.unwrap();
        assert!(matches!(&turn.request.order, Some(NativePrompt::Command { name, .. }) if name == "review"));
        assert_eq!(turn.request.input, []);
        s.control.add_message("msg_before", Role::Agent, "before");
        s.control.add_message(turn.request.prompt.as_str(), Role::User, "the template");
        s.control.add_message("msg_step", Role::Agent, "a step");
        s.control.add_message("msg_last", Role::Agent, "the answer");
        s.control.add_message("msg_next", Role::User, "thanks");
        s.control.add_message("msg_else", Role::Agent, "something else");
        turn.complete().await;
    });
    let ControlResult::Answered { message, begun } = result.unwrap() else { panic!("no answer") };
    assert_eq!((message.text.as_str(), message.error), ("the answer", None));
    let task = s.h.task(&begun.task).await;
    assert_eq!(task.history[0].parts, [Part::text("/review all of it")]);
}

#[tokio::test]
async fn a_command_whose_reply_cannot_be_read_is_answered_by_its_task() {
    let mut s = owned().await;
    let (result, ()) = tokio::join!(s.call(&ada(), command("ses_a", "")), async {
        let turn = s.h.turns.recv().await.unwrap();
        turn.say("prt_1", "half an").await;
        s.control.refuse_next_query(Error::new(ErrorKind::UpstreamUnreachable, "Away."));
        let failure = Failure::new("The model broke.");
        turn.report(AgentEvent::Ended(AgentOutcome::Failed(failure))).await;
    });
    let ControlResult::Answered { message, .. } = result.unwrap() else { panic!("no answer") };
    assert_eq!(message.text, "half an");
    assert_eq!(message.error.as_deref(), Some("The model broke."));
}

#[tokio::test]
async fn a_caller_that_waits_for_a_command_learns_that_the_gateway_stops() {
    let mut s = owned().await;
    let (result, ()) = tokio::join!(s.call(&ada(), command("ses_a", "")), async {
        let _turn = s.h.turns.recv().await.unwrap();
        s.h.tasks.stop().await;
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.details().iter().any(|(name, _)| name == "taskId"));
}

/// Nothing runs until an operator gives the agent its credentials: there is nothing to wait for.
#[tokio::test]
async fn a_caller_that_waits_for_a_command_learns_at_once_that_credentials_are_missing() {
    let mut s = owned().await;
    let (result, task) = tokio::join!(s.call(&ada(), command("ses_a", "")), async {
        let turn = s.h.turns.recv().await.unwrap();
        let failure = Failure::new("The provider refused the key.");
        turn.report(AgentEvent::Ended(AgentOutcome::AuthRequired(failure))).await;
        turn.request.task.clone()
    });
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::UpstreamHttpError, "The provider refused the key.")
    );
    let facts = [("upstreamStatus", "401"), ("state", "auth_required"), ("taskId", task.as_str())];
    for (name, value) in facts {
        let fact = error.details().iter().find(|(known, _)| known == name);
        assert_eq!(fact.map(|(_, value)| value.as_str()), Some(value), "{name}");
    }
    assert_eq!(error.retry(), Retry::Never);
    assert_eq!(s.outcomes(), [Outcome::UpstreamHttpError]);
    // The task is not over, and a message retries it.
    assert_eq!(s.h.task(&task).await.status.state, TaskState::AuthRequired);
}

/// Any caller that may answer finds the ask, its task and its session while the call waits.
#[tokio::test]
async fn a_command_that_asks_waits_for_an_answer_by_any_route() {
    let mut s = owned().await;
    let (result, task) = tokio::join!(s.call(&ada(), command("ses_a", "")), async {
        let turn = s.h.turns.recv().await.unwrap();
        turn.ask("per_1").await;
        let task = turn.request.task.clone();
        s.h.reaches(&task, TaskState::InputRequired).await;
        let principal = ada().principal;
        let open = s.h.engine.open_asks(&principal, AskKind::Permission).await.unwrap();
        let [open] = open.as_slice() else { panic!("{open:?}") };
        assert_eq!((&open.task, open.ask.session.as_str()), (&task, "ses_a"));
        let once = Answer::Permission { reply: PermissionReply::Once, message: None };
        s.h.engine.answer(&principal, &open.ask.request_id, once).await.unwrap();
        s.h.reaches(&task, TaskState::Working).await;
        turn.say("prt_1", "allowed").await;
        turn.complete().await;
        task
    });
    let ControlResult::Answered { message, begun } = result.unwrap() else { panic!("no answer") };
    assert_eq!((message.text.as_str(), begun.task), ("allowed", task));
}

/// A native prompt that the agent refused does not count: a repeat is another try, until one is accepted.
#[tokio::test]
async fn a_refused_native_prompt_is_retried_and_an_accepted_one_is_not() {
    let mut s = owned().await;
    let request = || named_prompt("ses_a", "go", "m1");
    let mut failed = Vec::new();
    for refusal in [
        Error::new(ErrorKind::SessionGone, "Gone."),
        Error::new(ErrorKind::InvalidAgentResponse, "Nonsense."),
    ] {
        s.h.agent.refuse_next(refusal);
        let error = s.call(&ada(), request()).await.unwrap_err();
        let (_, task) = error.details().iter().find(|(name, _)| name == "taskId").unwrap().clone();
        failed.push(task);
    }
    assert_ne!(failed[0], failed[1]);
    let taken = begun(s.call(&ada(), request()).await.unwrap());
    assert!(!failed.contains(&taken.task.as_str().to_owned()));
    s.h.turn().await.complete().await;
    s.h.reaches(&taken.task, TaskState::Completed).await;
    assert_eq!(begun(s.call(&ada(), request()).await.unwrap()), taken);
    assert_eq!(s.h.agent.log().prompted.len(), 1);
}

/// Whether the agent has the prompt is unknown. A retry could prompt twice.
#[tokio::test]
async fn a_native_prompt_that_the_agent_may_have_is_not_retried() {
    let s = owned().await;
    let request = || named_prompt("ses_a", "go", "m1");
    s.h.agent.lose_next(Error::new(ErrorKind::InvalidAgentResponse, "Nonsense.").mark_maybe_applied());
    let error = s.call(&ada(), request()).await.unwrap_err();
    let (_, task) = error.details().iter().find(|(name, _)| name == "taskId").unwrap().clone();
    assert_eq!(begun(s.call(&ada(), request()).await.unwrap()).task.as_str(), task);
    assert_eq!(s.h.agent.log().prompted.len(), 1);
}

/// The same after a wait for the turn, when the caller did not wait.
#[tokio::test]
async fn a_native_prompt_that_is_refused_at_its_turn_is_retried() {
    let mut s = owned().await;
    begun(s.call(&ada(), prompt("ses_a", "first")).await.unwrap());
    let running = s.h.turn().await;
    let waits = begun(s.call(&ada(), named_prompt("ses_a", "go", "m1")).await.unwrap());
    assert_eq!(begun(s.call(&ada(), named_prompt("ses_a", "go", "m1")).await.unwrap()), waits);
    s.h.agent.refuse_next(Error::new(ErrorKind::InvalidAgentResponse, "Nonsense."));
    running.complete().await;
    s.h.reaches(&waits.task, TaskState::Failed).await;
    let again = begun(s.call(&ada(), named_prompt("ses_a", "go", "m1")).await.unwrap());
    assert_ne!(again.task, waits.task);
    assert_eq!(s.h.turn().await.request.task, again.task);
}

/// A prompt that lacked credentials was accepted, whatever happens to the retry.
#[tokio::test]
async fn an_accepted_native_prompt_stays_accepted_when_a_later_message_is_refused() {
    let mut s = owned().await;
    let request = || named_prompt("ses_a", "go", "m1");
    let taken = begun(s.call(&ada(), request()).await.unwrap());
    let failure = Failure::new("No key.");
    s.h.turn().await.report(AgentEvent::Ended(AgentOutcome::AuthRequired(failure))).await;
    s.h.reaches(&taken.task, TaskState::AuthRequired).await;
    s.h.agent.refuse_next(Error::new(ErrorKind::InvalidAgentResponse, "Nonsense."));
    let mut again = message(taken.context.as_str(), "m2");
    again.message.task_id = Some(taken.task.clone());
    s.h.engine.send(&ada().principal, again).await.unwrap();
    s.h.reaches(&taken.task, TaskState::Failed).await;
    assert_eq!(begun(s.call(&ada(), request()).await.unwrap()), taken);
}

/// Each failure of the agent, as the control methods report it.
#[tokio::test]
async fn a_refused_native_prompt_has_the_status_and_the_retry_time() {
    let s = owned().await;
    let away = || Error::new(ErrorKind::AgentUnavailable, "Away.").permanent();
    let strange = || Error::new(ErrorKind::InvalidAgentResponse, "Strange.");
    for (refusal, kind, status, again) in [
        (away(), ErrorKind::UpstreamUnreachable, None, false),
        (away().detail("upstreamStatus", "401"), ErrorKind::UpstreamHttpError, Some("401"), false),
        (strange(), ErrorKind::UpstreamPayloadError, None, false),
        (strange().detail("upstreamStatus", "500"), ErrorKind::UpstreamHttpError, Some("500"), true),
        (strange().detail("upstreamStatus", "418"), ErrorKind::UpstreamHttpError, Some("418"), false),
    ] {
        let said = refusal.message().to_owned();
        s.h.agent.refuse_next(refusal);
        let error = s.call(&ada(), prompt("ses_a", "go")).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, said.as_str()));
        let fact =
            |name: &str| error.details().iter().find(|(known, _)| known == name).map(|(_, it)| it.as_str());
        assert_eq!(fact("upstreamStatus"), status, "{error:?}");
        assert_eq!((fact("sessionId"), fact("taskId").is_some()), (Some("ses_a"), true), "{error:?}");
        assert_eq!(
            (error.retry_after().is_some(), fact("retryAfterSeconds").is_some()),
            (again, again),
            "{error:?}"
        );
        assert!(error.cause().is_none(), "what is public is no cause: {error:?}");
    }
}

#[tokio::test]
async fn a_note_is_added_and_makes_no_task() {
    let s = owned().await;
    let result = s.call(&ada(), note("ses_a", "by the way")).await.unwrap();
    assert_eq!(result, ControlResult::Done { session: ses("ses_a"), ok: true, begun: None });
    let said = vec![Input::Text("by the way".to_owned())];
    assert!(s.control.take_calls().contains(&Call::Note(ses("ses_a"), said)));
    assert!(s.h.store.unfinished().await.unwrap().is_empty());
    assert!(s.h.agent.log().prompted.is_empty());
}

#[tokio::test]
async fn the_context_named_after_a_session_stands_for_it() {
    let mut s = owned().await;
    let into = |session: &str, text: &str| message(&format!("ctx:session:{session}"), text);
    s.h.engine.send(&ada().principal, into("ses_a", "m1")).await.unwrap();
    assert_eq!(s.h.turn().await.request.session.id, ses("ses_a"));
    let error = s.h.engine.send(&bob().principal, into("ses_a", "m2")).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "message.contextId");
    let error = s.h.engine.send(&ada().principal, into("ses_none", "m3")).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "message.contextId");
    let mut other = into("ses_b", "m4");
    other.options.session = Some(ses("ses_a"));
    let error = s.h.engine.send(&ada().principal, other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
}

#[tokio::test]
async fn a_caller_that_may_not_claim_cannot_prompt_in_an_unowned_session() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    for control in [prompt("ses_n", "go"), command("ses_n", ""), note("ses_n", "go"), share("ses_n")] {
        let result = s.refusal(&without_claim(ada()), control).await;
        assert_eq!(result, Some(ErrorKind::SessionForbidden));
    }
    assert!(s.control.take_calls().iter().all(|call| matches!(call, Call::Find(_))));
}
