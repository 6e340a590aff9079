use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::asking::fresh_token;
use crate::manager::freeing::{FreeCommand, Freeing, Release, release};
use crate::manager::ledger::Obligation;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::of_error;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{ExtendReplies, ExtendRequest, ReleaseRequest};
use crate::protocol::on_nodes::{Keys, Landed, OnNodes};
use crate::token::OwnerToken;

/// A hint that a waiting writer leaves on the nodes, which then refuse new readers. Dropping it releases it.
pub(crate) struct WaitingWriter {
    shared: Arc<Shared>,
    key: NodeKeys,
    token: OwnerToken,
    began: Moment,
    // When the hint must be renewed.
    due: Moment,
    nodes: Arc<Mutex<OnNodes>>,
    // `None` once the release has begun.
    obligation: Option<Obligation>,
}

impl WaitingWriter {
    pub(crate) fn new(shared: &Arc<Shared>, key: &NodeKey) -> Option<Self> {
        let began = shared.set.clock.now();
        let nodes = OnNodes::new(shared.set.terms.quorum, Keys::All, life(shared));
        Some(Self {
            shared: Arc::clone(shared),
            key: key.writer().into(),
            token: fresh_token().ok()?.labelled(&shared.set.instance),
            began,
            due: began,
            nodes: Arc::new(Mutex::new(nodes)),
            obligation: Some(shared.common.ledger.begin(life(shared))?),
        })
    }

    pub(crate) fn is_for(&self, key: &NodeKey) -> bool {
        *self.key.first() == key.writer()
    }

    pub(crate) fn sorts_up_to(&self, key: &NodeKey) -> bool {
        self.key.first().as_str() <= key.writer().as_str()
    }

    /// Sets the hint again once a third of its life is over. Does not wait for the replies.
    pub(crate) async fn renew(&mut self) {
        let now = self.shared.set.clock.now();
        if now < self.due {
            return;
        }
        self.due = now + life(&self.shared) / 3;
        // Not an acquire, because an acquire can take two commands, and a release could overtake the second one. An
        // extend sets the key in one command.
        let request = ExtendRequest {
            keys: self.key.clone(),
            token: self.token,
            ttl: life(&self.shared),
            refill: true,
            config: None,
            fence: None,
        };
        let requests: Arc<[ExtendRequest]> = Arc::from([request]);
        (0..self.shared.set.nodes.len()).for_each(|node| nodes(&self.nodes).send(node));
        let asked = (self.shared)
            .set
            .send_all(|node| node.extend(Arc::clone(&requests)));
        let mut heard = Box::pin(self.heard(asked));
        tokio::select! {
            biased;
            () = &mut heard => {}
            // The first poll has sent the commands, so a release that begins later comes after them. A task takes in
            // the replies.
            () = ready(()) => {
                self.shared.common.tasks.spawn(false, heard);
            }
        }
    }

    /// Releases the hint of a writer that has the lock.
    pub(crate) async fn take_back(mut self) {
        if let Some(freeing) = self.freeing(false) {
            tokio::select! {
                biased;
                _ = Release::new(freeing).quorum() => {}
                // The release of the hint goes on in the background.
                () = ready(()) => {}
            }
        }
    }

    fn freeing(&mut self, is_news: bool) -> Option<Freeing> {
        let obligation = self.obligation.take()?;
        let request = ReleaseRequest {
            keys: self.key.clone(),
            token: self.token,
            announce: is_news,
            waited: Duration::ZERO,
            since: Some(self.began),
            background: false,
        };
        let mut nodes = nodes(&self.nodes).clone();
        // The replies to commands in flight change the original but not this copy, so the copy counts these commands as
        // abandoned.
        nodes.abandon_all();
        let command = (request, release as FreeCommand);
        let life = life(&self.shared);
        let freeing = Freeing::new(&self.shared, command, nodes, Some(obligation), life);
        // If a node does not release the hint, nothing is logged, because the hint soon expires there.
        Some(freeing.of_hint())
    }

    fn heard(&self, mut replies: Fanout<ExtendReplies>) -> impl Future<Output = ()> + Send + use<> {
        let deadline = self.shared.common.tasks.timer(self.shared.set.node_timeout);
        let (on_nodes, sent) = (Arc::clone(&self.nodes), self.shared.set.clock.now());
        async move {
            let mut deadline = pin!(deadline);
            while let Some((node, reply)) = replies.next_before(deadline.as_mut()).await {
                let (fence, key) = (None, 0);
                let landed = match &reply {
                    Ok(_) => Landed::Ours { fence, key },
                    Err(error) => of_error(error),
                };
                nodes(&on_nodes).land(node, sent, landed);
            }
        }
    }
}

impl Drop for WaitingWriter {
    fn drop(&mut self) {
        // Announce the release, because the writer has given up and waiting readers can try again.
        drop(self.freeing(true).map(Release::in_background));
    }
}

fn nodes(nodes: &Mutex<OnNodes>) -> MutexGuard<'_, OnNodes> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn life(shared: &Shared) -> Duration {
    Duration::from_secs(3).max(4 * shared.set.node_timeout)
}
