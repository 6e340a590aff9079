//! [`Queue`]: which caller of this process contends for a key, and which callers wait.
//!
//! ```text
//!   enter ──► Turn  (the key is not in use here: contend for it)
//!     │         │ dropped, or handed over with a lock: the first waiter is called
//!     │         ▼
//!     ├─────► Seat ──► Handover  (a turn, or a lock with its turn)
//!     └─────► Refused  (it would have to wait and will not, or the queue is full or closed)
//! ```
//!
//! For each key there is at most one turn, and an entry exactly while there is one, or while the key is kept for a
//! moment. A turn may be for several keys: it is taken at once or not at all, so that no caller has the turn of one key
//! while it waits for that of another. [`passing`] tells how waiters for several keys keep up with those for one.
//!
//! A waiter that is called and does not want it any more drops the handover, which passes it on: no wake-up is lost.
//! All changes are made under one short mutex; no waiter is woken and nothing of a caller's is dropped inside it.
//!
//! The module depends on the standard library and the [`sync`](super::sync) module beside it, so that the model checker
//! of `tests/queue` runs this very code.

pub(super) mod fifo;
mod list;
mod passing;
mod wakeups;

pub(super) use self::fifo::{Entered, Handover, Queue, Seat, Turn};
pub(super) use self::list::{Bounds, Name, Refused, SentAway};
