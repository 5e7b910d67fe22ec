//! Polls a task, for agents that answer a message with an unfinished task.

use std::time::Duration;

use tokio::time::Instant;

use crate::Result;
use crate::client::Client;
use crate::error::{Error, ErrorKind, Retry};
use crate::settings::Polling;
use crate::value::Task;

/// The schedule of polling a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    next: Duration,
    polling: Polling,
    deadline: Option<Instant>,
}

impl Looks {
    pub(crate) fn new(polling: Polling) -> Self {
        let deadline = polling.timeout.map(|timeout| Instant::now() + timeout);
        Self { next: polling.initial, polling, deadline }
    }

    /// Waits until the next poll. Fails if the time for polling is over.
    pub(crate) async fn wait(&mut self, task: &str) -> Result<()> {
        let now = Instant::now();
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            let text = format!(
                "The task {task} is not over after {} s of looking. It goes on; look at it again later.",
                self.polling.timeout.unwrap_or_default().as_secs_f32()
            );
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        tokio::time::sleep(self.interval().min(left)).await;
        Ok(())
    }

    fn interval(&mut self) -> Duration {
        let interval = self.next.min(self.polling.longest);
        self.next = interval.mul_f64(self.polling.factor.max(1.0)).min(self.polling.longest);
        interval
    }
}

/// Polls until the task has ended or waits for its user.
pub(crate) async fn until_settled(client: &Client, mut task: Task, polling: Polling) -> Result<Task> {
    let mut looks = Looks::new(polling);
    while !task.is_settled() {
        looks.wait(&task.id).await?;
        match client.get(&task.id).await {
            Ok(found) => task = found,
            // Ignore the error, because the next poll may succeed. The timeout ends the loop.
            Err(error) if polling.timeout.is_some() && matches!(error.retry(), Retry::Later(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_to_the_longest() {
        let mut looks = Looks::new(Polling::default());
        let found: Vec<u128> = (0..4).map(|_| looks.interval().as_millis()).collect();
        assert_eq!(found, [500, 1000, 2000, 2000]);
    }
}
