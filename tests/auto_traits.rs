//! What async methods return can be awaited on any thread: no handler could await it otherwise, as handlers run on every
//! thread. Which auto traits the types have, `tests/interface/auto_traits.txt` lists.

use std::time::Duration;

use tower_redlock::node::Node;
use tower_redlock::{LockGuard, LockManager, Settings};

/// The closure is never called, and as the compiler looks into an async block last of all, only a `yes` can be asked of it.
fn assert_future_is_send<A, F: Future + Send>(_method: impl FnOnce(A) -> F) {}

#[test]
fn futures_of_async_methods_are_send() {
    assert_future_is_send(|node: &'static dyn Node| node.ready());
    assert_future_is_send(|locks: &'static LockManager| locks.acquire("key"));
    assert_future_is_send(|locks: &'static LockManager| locks.try_acquire("key"));
    assert_future_is_send(|locks: &'static LockManager| locks.run("key", |_lock| async {}));
    assert_future_is_send(|locks: &'static LockManager| locks.shutdown(Duration::ZERO));
    assert_future_is_send(Settings::connect);
    assert_future_is_send(LockGuard::release);
}
