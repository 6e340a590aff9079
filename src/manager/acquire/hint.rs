//! [`WaitingWriter`]: what a writer that waits for readers leaves at the nodes.

use std::future::ready;
use std::pin::pin;
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
    // When it is to be renewed.
    due: Moment,
    sent: Arc<Mutex<Vec<Sent>>>,
    // Until it is released.
    obligation: Option<Obligation>,
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
        let began = shared.clock.now();
        Some(Self {
            shared: Arc::clone(shared),
            key: key.writer().into(),
            token: fresh_token().ok()?.labelled(&shared.instance),
            began,
            due: began,
            sent: Arc::new(Mutex::new(vec![Sent::default(); shared.nodes.len()])),
            obligation: Some(shared.ledger.begin(life(shared))?),
        })
    }

    pub(crate) fn is_for(&self, key: &NodeKey) -> bool {
        *self.key.first() == key.writer()
    }

    pub(crate) fn sorts_up_to(&self, key: &NodeKey) -> bool {
        self.key.first().as_str() <= key.writer().as_str()
    }

    /// Sets it anew, for its whole life, unless that has hardly begun. The replies are heard in the background.
    pub(crate) async fn renew(&mut self) {
        let now = self.shared.clock.now();
        if now < self.due {
            return;
        }
        self.due = now + life(&self.shared) / 3;
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
            () = ready(()) => {
                self.shared.tasks.spawn(false, heard);
            }
        }
    }

    /// Releases it for a writer that has the lock: that is on its way before the release of the lock.
    pub(crate) async fn take_back(mut self) {
        if let Some(freeing) = self.freeing(false) {
            tokio::select! {
                biased;
                _ = Release::new(freeing).quorum() => {}
                // It goes on in the background.
                () = ready(()) => {}
            }
        }
    }

    /// `is_news`: readers may come.
    fn freeing(&mut self, is_news: bool) -> Option<Freeing> {
        let obligation = self.obligation.take()?;
        let request = ReleaseRequest {
            keys: self.key.clone(),
            token: self.token,
            announce: is_news,
            waited: Duration::ZERO,
            since: Some(self.began),
            aside: false,
        };
        let sent = nodes(&self.sent).clone();
        let those = |is_one: fn(&Sent) -> bool| {
            let nodes = sent.iter().enumerate();
            let nodes = nodes.filter(|(_, node)| is_one(node));
            nodes.map(|(node, _)| node).collect()
        };
        let owing = those(|node| node.is_set || node.open > 0);
        let command = (request, release as FreeCommand);
        let life = life(&self.shared);
        let mut freeing = Freeing::new(&self.shared, command, owing, Some(obligation), life);
        freeing.doubtful = those(|node| node.open > 0);
        // Nobody waits long for it.
        freeing.is_told = true;
        Some(freeing)
    }

    fn heard(&self, mut replies: Fanout<ExtendReplies>) -> impl Future<Output = ()> + Send + use<> {
        let deadline = self.shared.tasks.timer(self.shared.node_timeout);
        let sent = Arc::clone(&self.sent);
        async move {
            let mut deadline = pin!(deadline);
            while let Some((node, reply)) = replies.next_before(deadline.as_mut()).await {
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
        // Its writer has given up.
        drop(self.freeing(true).map(Release::aside));
    }
}

fn nodes(sent: &Mutex<Vec<Sent>>) -> MutexGuard<'_, Vec<Sent>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longer than three pauses between two rounds of a caller that waits.
fn life(shared: &Shared) -> Duration {
    Duration::from_secs(3).max(4 * shared.node_timeout)
}
