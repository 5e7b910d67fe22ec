//! Checks the whole file after the start, on a separate thread. The same thread then counts the stored bytes.
//!
//! Lists wait until the check is done. Reads of single tasks wait too, with two exceptions: a task that has ended, and a task that
//! was created since the start. Such a task is checked alone, and its read waits only if that check finds damage.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use longshore_model::{Epoch, Error, Result};
use rusqlite::InterruptHandle;
use tokio::sync::watch;

use super::fault::Fault;
use super::known_damage::{Damage, KnownDamage};
use super::stored_bytes::StoredBytesCount;
use super::{inspect, schema};

/// Checks the store at `path` while no gateway uses it. Blocks.
pub fn find_damage(path: &Path) -> Result<Damage> {
    let db = schema::open_reader(path)?;
    schema::check_current(&db)?;
    Ok(inspect::inspect(&db, None)?)
}

/// Checks the file in the background. Dropping this value ends the check.
pub(super) struct StartupCheck {
    path: PathBuf,
    /// The epoch of this start. Tasks of this epoch were created since the start.
    epoch: Epoch,
    damage: KnownDamage,
    bytes: StoredBytesCount,
    /// Whether no check is running.
    is_done: watch::Sender<bool>,
    running: Mutex<Option<(InterruptHandle, JoinHandle<()>)>>,
}

impl StartupCheck {
    pub(super) fn new(path: &Path, epoch: Epoch, damage: KnownDamage, bytes: StoredBytesCount) -> Self {
        let running = Mutex::new(None);
        Self { path: path.to_owned(), epoch, damage, bytes, is_done: watch::Sender::new(true), running }
    }

    /// Starts the check. From now on, lists and some reads wait until it is done (see the module).
    pub(super) fn begin(&self) {
        let started = schema::open_reader(&self.path).and_then(|db| {
            let (interrupt, damage, is_done) =
                (db.get_interrupt_handle(), self.damage.clone(), self.is_done.clone());
            let (bytes, epoch) = (self.bytes.clone(), self.epoch);
            is_done.send_replace(false);
            let check = move || {
                match inspect::inspect(&db, Some(epoch)) {
                    // The store is being closed.
                    Err(Fault(error)) if inspect::is_interrupt(&error) => {}
                    found => report(&damage, found.unwrap_or_else(|fault| not_checked(&fault))),
                }
                is_done.send_replace(true);
                match bytes.count(&db) {
                    Err(Fault(error)) if !inspect::is_interrupt(&error) => {
                        tracing::warn!(error = ?error, "the stored bytes could not be counted");
                    }
                    _ => {}
                }
            };
            let thread = std::thread::Builder::new().name("store-check".to_owned()).spawn(check);
            Ok((interrupt, thread.map_err(Error::internal)?))
        });
        match started {
            Ok(running) => *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running),
            Err(fault) => {
                report(&self.damage, not_checked(&fault));
                self.is_done.send_replace(true);
            }
        }
    }

    /// Behaves as if a check ran for ever. For tests.
    #[cfg(test)]
    pub(super) fn hold(&self) {
        self.is_done.send_replace(false);
    }

    pub(super) fn is_done(&self) -> bool {
        *self.is_done.borrow()
    }

    /// Waits until the check is done, which takes as long as reading the file once.
    pub(super) async fn wait(&self) {
        // Fast path for a check that is done: unlike the await below, it uses up nothing of the task's budget in the runtime.
        if self.is_done() {
            return;
        }
        // The error cannot happen: the sender lives as long as this value.
        let _ = self.is_done.subscribe().wait_for(|is_done| *is_done).await;
    }
}

/// The damage to assume if the store could not be checked: any task may be damaged.
fn not_checked(fault: &Fault) -> Damage {
    let structure = vec![format!("the store could not be checked: {:?}", fault.0)];
    Damage { structure, hides_names: true, ..Damage::default() }
}

fn report(known: &KnownDamage, found: Damage) {
    for (ordinal, task) in &found.tasks {
        let (id, reason) = (task.id.as_ref().map(tracing::field::display), &task.reason);
        tracing::error!(task = id, ordinal, reason, "a stored task is damaged");
    }
    for message in &found.structure {
        tracing::error!(message, "the store's file is damaged");
    }
    known.set(found);
}

impl Drop for StartupCheck {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((interrupt, thread)) = running {
            // An interrupt ends only the running statement, so repeat it until the thread has ended.
            while !thread.is_finished() {
                interrupt.interrupt();
                std::thread::yield_now();
            }
            if thread.join().is_err() {
                tracing::error!("the thread that checks the store had panicked");
            }
        }
    }
}
