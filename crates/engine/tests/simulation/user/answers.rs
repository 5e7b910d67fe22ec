//! How users answer: by the name of the ask, by a message that names it, or by words. Some say the same twice.

use longshore_model::{Answer, Delivery, ErrorKind, Json, Part, PermissionReply, RequestId, TaskId};

use super::{ControlResult, Lost, User, command, is_for_later, owner};

impl User {
    pub(super) async fn answer(&self, task: &TaskId, request: &RequestId) {
        self.world.stage.wait(0, 500).await;
        let reply = self.world.stage.draw(|chance| *chance.pick(&PermissionReply::ALL));
        match self.draw_between(0, 3) {
            0 => self.answer_by_words(task, request).await,
            1 => self.answer_by_data(task, request, reply).await,
            _ => self.answer_by_name(request, reply).await,
        }
    }

    /// Where the ask can be answered: the task that shows it, or that of the sub-agent whose it is.
    fn place_to_answer(&self, task: &TaskId, request: &RequestId) -> TaskId {
        let asks_it = |child: &TaskId| {
            let stored = self.world.store.task(&owner(), child);
            stored.is_some_and(|stored| stored.task.open_asks.iter().any(|open| open.request_id == *request))
        };
        let child = self.world.store.children_of(task).into_iter().find(asks_it);
        child.filter(|_| self.one_in(2)).unwrap_or_else(|| task.clone())
    }

    /// With a reason, by which the agent knows the message.
    async fn answer_by_words(&self, task: &TaskId, request: &RequestId) {
        let id = self.new_answer();
        let words = Part::text(format!("reject: {id}"));
        self.answer_by_message(&self.place_to_answer(task, request), &id, words, None).await;
    }

    async fn answer_by_data(&self, task: &TaskId, request: &RequestId, reply: PermissionReply) {
        let id = self.new_answer();
        let data = format!(r#"{{"request_id":"{request}","reply":"{}","message":"{id}"}}"#, reply.as_str());
        let data = Part::data(Json::parse(&data).expect("JSON"));
        let answer = Answer::Permission { reply, message: None };
        self.answer_by_message(&self.place_to_answer(task, request), &id, data, Some((request, answer)))
            .await;
    }

    fn new_answer(&self) -> String {
        format!("{}a{}", self.name, self.world.stage.tick())
    }

    async fn answer_by_message(
        &self,
        task: &TaskId,
        id: &str,
        part: Part,
        named: Option<(&RequestId, Answer)>,
    ) {
        let command = command(id, vec![part], Delivery::Queue, |message| {
            message.task_id = Some(task.clone());
        });
        self.world.oracle.is_answer(&command.message.id, named);
        loop {
            match self.send(&command).await {
                ControlResult::Sent(place) => {
                    self.opened(task, place.opening);
                    self.world.oracle.answer_was_told(&command.message.id, true);
                }
                ControlResult::Refused => self.world.oracle.answer_was_told(&command.message.id, false),
                ControlResult::GaveUp => {}
            }
            if !self.one_in(4) {
                return;
            }
            self.note(format_args!("says {id} once more"));
            self.world.stage.wait(0, 1500).await;
        }
    }

    async fn answer_by_name(&self, request: &RequestId, reply: PermissionReply) {
        loop {
            let answered = self
                .call(|engine| {
                    let request = request.clone();
                    let answer = Answer::Permission { reply, message: None };
                    async move { engine.answer(&owner(), &request, answer).await }
                })
                .await;
            match answered {
                Ok(Ok(())) => {
                    self.note(format_args!("{request} is answered"));
                    self.world.check_answered(request);
                    return;
                }
                Ok(Err(error)) if is_for_later(&error) => {}
                Ok(Err(error)) => {
                    self.expect(&error, &[ErrorKind::InterruptNotFound, ErrorKind::InterruptExpired]);
                    return;
                }
                Err(Lost) if self.one_in(4) => return,
                Err(Lost) => {}
            }
            self.world.stage.wait(0, 300).await;
        }
    }
}
