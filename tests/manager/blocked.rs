//! Handlers that block the only thread of their runtime. On real time: what goes on meanwhile is another thread's.

use std::sync::mpsc::{Sender, channel};

use super::*;

/// Tells of each call that reaches its node.
#[derive(Debug)]
struct Told(MemoryNode, Mutex<Sender<Call>>);

impl Between for Told {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.0
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let told = self.1.lock().unwrap().clone();
        Box::pin(async move {
            let reply = reply.await;
            // Nobody listens to the last ones.
            let _ = told.send(call);
            reply
        })
    }
}

async fn manager(node: Told) -> LockManager {
    let ttl = Duration::from_millis(600);
    let builder = LockManager::builder().nodes([Wrapped(node)]);
    let builder = builder.ttl(ttl).max_ttl(ttl);
    builder.without_restart_guard().connect().await.unwrap()
}

#[test]
fn what_no_caller_waits_for_goes_on_while_the_only_thread_is_blocked() {
    let (told, calls) = channel();
    let node = MemoryNode::new("n");
    let wait_for = |wanted: Call| {
        while calls.recv_timeout(10 * SECOND).unwrap() != wanted {}
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let locks = manager(Told(node.clone(), Mutex::new(told))).await;
        let held = locks.try_acquire("held").await.unwrap();
        // No await: nothing else runs on this thread. A ttl has three renewals, so that is more than three ttls.
        (0..10).for_each(|_| wait_for(Call::Extend));
        assert!(!held.is_lost());
        drop(held);
        wait_for(Call::Release);
        assert_eq!(node.keys(), Vec::<String>::new());
        locks.shutdown(Duration::ZERO).await;
    });
}
