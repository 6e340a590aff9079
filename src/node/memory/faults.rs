//! Makes a memory node fail like a server that is down or frozen. Feature `test-util`.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use crate::node::memory::keyed::Now;
use crate::node::memory::store::{Data, Store};
use crate::node::{NodeError, NodeErrorKind, NodeFuture, NodeState};

pub(super) struct Faults {
    pub(super) mode: watch::Sender<Mode>,
    // Commands that wait in the sockets of a frozen node. They run when it is thawed, even if their callers have gone.
    backlog: Mutex<Vec<Queued>>,
}

pub(super) type Queued = Box<dyn FnOnce(&mut Store, Now) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Up,
    Down,
    Frozen,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            mode: watch::Sender::new(Mode::Up),
            backlog: Mutex::default(),
        }
    }
}

impl Faults {
    pub(super) fn state(&self) -> NodeState {
        match *self.mode.borrow() {
            Mode::Up | Mode::Frozen => NodeState::Up,
            Mode::Down => NodeState::Down(down()),
        }
    }

    pub(super) fn until_up(&self) -> NodeFuture<Result<(), NodeError>> {
        let mut mode = self.mode.subscribe();
        Box::pin(async move {
            // Ignore the error, which occurs only if the node is dropped meanwhile.
            let _ = mode.wait_for(|mode| *mode == Mode::Up).await;
            Ok(())
        })
    }

    /// Runs `command` with `execute` if the node is up, queues it if frozen, and refuses it if down.
    pub(super) async fn run<C, T>(
        &self,
        command: C,
        execute: impl FnOnce(C) -> T + Send,
    ) -> Result<T, NodeError>
    where
        C: FnOnce(&mut Store, Now) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        {
            // `thaw` changes the mode under this mutex, so that no command is queued after it has emptied the backlog.
            let mut backlog = self.backlog();
            let mode = *self.mode.borrow();
            match mode {
                Mode::Up => return Ok(execute(command)),
                Mode::Down => return Err(down()),
                Mode::Frozen => backlog.push(Box::new(move |store, now| {
                    // Ignore the error, because the caller may have gone.
                    let _ = sender.send(command(store, now));
                })),
            }
        }
        let broken = |_| NodeError::new(NodeErrorKind::Interrupted, "the connection broke");
        receiver.await.map_err(broken)
    }

    pub(super) fn backlog(&self) -> MutexGuard<'_, Vec<Queued>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn down() -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, "the node is down")
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&*self.mode.borrow()).finish()
    }
}

/// The data that a [`MemoryNode`](crate::node::MemoryNode) had at one moment. Clones share it.
#[derive(Clone)]
pub struct MemorySnapshot(pub(super) Arc<Data>);

impl fmt::Debug for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySnapshot").finish_non_exhaustive()
    }
}
