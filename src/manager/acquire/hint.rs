//! [`WaitingWriter`]: what a writer that waits for readers leaves at the nodes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::ledger::Obligation;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::{FreeCommand, Freeing, Release, release};
use crate::manager::round::fresh_token;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{ExtendReplies, ExtendRequest, ReleaseRequest};
use crate::token::OwnerToken;

/// A hint: new readers are refused at nodes that have it. It never votes. Dropped, it is released as a lock is, and at the
/// end of its life it goes by itself.
pub(crate) struct WaitingWriter {
    shared: Arc<Shared>,
    key: NodeKeys,
    token: OwnerToken,
    began: Moment,
    sent: Arc<Mutex<Vec<Sent>>>,
    // Only `drop` takes it.
    obligation: Option<Obligation>,
    // Its writer has given up: readers may come.
    pub(crate) is_news: bool,
}

/// What a node may have of it.
#[derive(Clone, Copy, Default)]
struct Sent {
    is_set: bool,
    // Commands that may set it yet.
    open: u32,
}

impl WaitingWriter {
    /// A hint for a lock on `key`. `None`: the operating system gave no random bytes, or the manager is shutting down.
    pub(crate) fn new(shared: &Arc<Shared>, key: &NodeKey) -> Option<Self> {
        Some(Self {
            shared: Arc::clone(shared),
            key: key.writer().into(),
            token: fresh_token().ok()?.labelled(&shared.instance),
            began: shared.clock.now(),
            sent: Arc::new(Mutex::new(vec![Sent::default(); shared.nodes.len()])),
            obligation: Some(shared.ledger.begin(life(shared))?),
            is_news: true,
        })
    }

    pub(crate) fn is_for(&self, key: &NodeKey) -> bool {
        *self.key.first() == key.writer()
    }

    pub(crate) fn sorts_up_to(&self, key: &NodeKey) -> bool {
        self.key.first().as_str() <= key.writer().as_str()
    }

    /// Sets it anew, for its whole life. The replies are heard in the background.
    pub(crate) async fn renew(&self) {
        // In one step, as a bare acquire is not: between two, a release might overtake the second.
        let request = ExtendRequest {
            keys: self.key.clone(),
            token: self.token,
            ttl: life(&self.shared),
            refill: true,
            config: None,
            fence: None,
        };
        let requests: Arc<[ExtendRequest]> = Arc::from([request]);
        nodes(&self.sent).iter_mut().for_each(|node| node.open += 1);
        let asked = (self.shared).send_all(|node| node.extend(Arc::clone(&requests)));
        let mut heard = Box::pin(self.heard(asked));
        tokio::select! {
            biased;
            () = &mut heard => {}
            // It is on its way now: a release that begins later comes after it.
            () = std::future::ready(()) => {
                self.shared.tasks.spawn(false, heard);
            }
        }
    }

    fn heard(&self, mut replies: Fanout<ExtendReplies>) -> impl Future<Output = ()> + Send + use<> {
        replies.until(self.shared.tasks.timer(self.shared.node_timeout));
        let sent = Arc::clone(&self.sent);
        async move {
            while let Some((node, reply)) = replies.next().await {
                let is_known = !reply.as_ref().is_err_and(|error| error.outcome_unknown());
                if let Some(node) = nodes(&sent).get_mut(node).filter(|_| is_known) {
                    node.is_set |= reply.is_ok();
                    node.open -= 1;
                }
            }
        }
    }
}

impl Drop for WaitingWriter {
    fn drop(&mut self) {
        let request = ReleaseRequest {
            keys: self.key.clone(),
            token: self.token,
            announce: self.is_news,
            waited: Duration::ZERO,
            since: Some(self.began),
            // The way of extensions.
            aside: true,
        };
        let sent = nodes(&self.sent).clone();
        let those = |is_one: fn(&Sent) -> bool| {
            let nodes = sent.iter().enumerate();
            let nodes = nodes.filter(|(_, node)| is_one(node));
            nodes.map(|(node, _)| node).collect()
        };
        let owing = those(|node| node.is_set || node.open > 0);
        let command = (request, release as FreeCommand);
        let (shared, obligation) = (&self.shared, self.obligation.take());
        let mut freeing = Freeing::new(shared, command, owing, obligation, life(shared));
        freeing.doubtful = those(|node| node.open > 0);
        // Nobody waits long for it.
        freeing.is_told = true;
        drop(Release::aside(freeing));
    }
}

fn nodes(sent: &Mutex<Vec<Sent>>) -> MutexGuard<'_, Vec<Sent>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longer than three pauses between two rounds of a caller that waits.
fn life(shared: &Shared) -> Duration {
    Duration::from_secs(3).max(4 * shared.node_timeout)
}
