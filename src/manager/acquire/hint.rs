//! [`WaitingWriter`]: what a writer that waits for readers leaves at the nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::round::fresh_token;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{ExtendRequest, ReleaseRequest};
use crate::token::OwnerToken;

/// A hint: new readers are refused at nodes that have it. It never votes. Dropped, it goes, and at the end of its life by
/// itself.
pub(crate) struct WaitingWriter {
    shared: Arc<Shared>,
    key: NodeKeys,
    token: OwnerToken,
    began: Moment,
    // Its writer has given up: readers may come.
    pub(crate) is_news: bool,
}

impl WaitingWriter {
    /// A hint for a lock on `key`. `None`: the operating system gave no random bytes.
    pub(crate) fn new(shared: &Arc<Shared>, key: &NodeKey) -> Option<Self> {
        Some(Self {
            shared: Arc::clone(shared),
            key: key.writer().into(),
            token: fresh_token().ok()?.labelled(&shared.instance),
            began: shared.clock.now(),
            is_news: true,
        })
    }

    pub(crate) fn is_for(&self, key: &NodeKey) -> bool {
        *self.key.first() == key.writer()
    }

    /// Sets it anew, for its whole life. The replies are heard in the background.
    pub(crate) async fn renew(&self) {
        // In one step, as a bare acquire is not: between two, a release might overtake the second.
        let request = ExtendRequest {
            keys: self.key.clone(),
            token: self.token,
            ttl: LIFE.max(4 * self.shared.node_timeout),
            refill: true,
            config: None,
            fence: None,
        };
        let requests: Arc<[ExtendRequest]> = Arc::from([request]);
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

    /// Hears replies that say nothing.
    fn heard<T: Send + 'static>(
        &self,
        mut replies: Fanout<T>,
    ) -> impl Future<Output = ()> + Send + use<T> {
        replies.until(self.shared.tasks.timer(self.shared.node_timeout));
        async move { while replies.next().await.is_some() {} }
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
        let released = (self.shared).send_all(|node| node.release(request.clone()));
        // Where it is not released it ends soon.
        self.shared.tasks.spawn(false, self.heard(released));
    }
}

/// Longer than three pauses between two rounds of a caller that waits.
const LIFE: Duration = Duration::from_secs(3);
