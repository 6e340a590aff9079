//! Whether the server that a node is at is still the one that most of its Sentinels mean.

use std::time::Duration;

use redis::{Client, RedisError};
use tokio::time::{sleep, timeout};

use super::confirmation::{Address, Place};
use super::connection::{Core, Setback};
use super::info::Info;
use super::link::Link;
use super::question::connection;
use super::sentinel::Sentinels;
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

impl Core {
    /// Whether what is sent on `link` now may count as this node's word. A server that was found through Sentinels is
    /// the node for as long as most of them say so.
    pub(super) fn vouch(&self, link: &Link) -> Result<(), NodeError> {
        let sentinels = self.target.way.sentinels();
        sentinels.map_or(Ok(()), |sentinels| sentinels.vouch(link).map(drop))
    }

    /// Waits until most Sentinels name another server as the master, and that takes itself for it. Meanwhile the state
    /// of the first lane, which looks for all of them, says whether most of them still name this one.
    ///
    /// A master that is cut off from its Sentinels goes on as if nothing had happened, with us if we still reach it.
    /// One Sentinel alone may be cut off itself.
    pub(super) async fn replaced(&self, lane: usize, link: &Link) {
        let (Some(sentinels), 0) = (self.target.way.sentinels(), lane) else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            () = self.show_doubt(sentinels, link) => {}
            () = sentinels.left(link, self.connect_timeout) => {}
        }
    }

    /// Shows in the state whether the server counts. Never ends.
    async fn show_doubt(&self, sentinels: &Sentinels, link: &Link) {
        let mut news = sentinels.board.subscribe();
        let mut doubted = None;
        loop {
            let until = sentinels.vouch(link).ok();
            if doubted != Some(until.is_none()) {
                doubted = Some(until.is_none());
                // The link stays: locks can be given back on it.
                self.doubt(until.is_none().then(|| sentinels.unconfirmed()));
            }
            let over = async {
                match until {
                    Some(until) => sleep(until.since(sentinels.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = news.changed() => {}
                () = over => {}
            }
        }
    }
}

impl Sentinels {
    /// Takes the server `run_id` for the node, if most Sentinels mean it. It was reached at `place`, and they may know
    /// it by other addresses, too.
    pub(super) async fn accept(
        &self,
        place: &Place,
        run_id: &str,
        limit: Duration,
    ) -> Result<(), Setback> {
        self.board.send_modify(|board| board.sit(run_id, place));
        if !self.board.borrow().is_settled() {
            self.other_names(run_id, &place.epoch, limit).await;
        }
        if self
            .until(run_id, &place.epoch)
            .is_some_and(|until| self.now() < until)
        {
            return Ok(());
        }
        Err(Setback::Down(self.unconfirmed()))
    }

    /// Until when the server may count; `None` if most Sentinels do not stand by it at all.
    fn until(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let confirmed = self.board.borrow().confirmed(run_id, epoch)?;
        Some(confirmed + self.within)
    }

    /// Until when what is sent on `link` may count. An error: not now.
    fn vouch(&self, link: &Link) -> Result<Moment, NodeError> {
        let until = self.until(link.info().run_id(), link.epoch());
        until.filter(|until| self.now() < *until).ok_or_else(|| {
            let within = self.within;
            NodeError::new(
                NodeErrorKind::Unavailable,
                format!("most of its Sentinels have not confirmed its master within {within:?}"),
            )
        })
    }

    /// The same in full, for people.
    fn unconfirmed(&self) -> NodeError {
        let reasons = self
            .board
            .borrow()
            .describe(self.horizon(), self.addresses());
        let within = self.within;
        NodeError::new(
            NodeErrorKind::Unavailable,
            format!(
                "most of its Sentinels have not confirmed its master within {within:?}, so that it does not count: {reasons}"
            ),
        )
    }

    /// Looks which servers the Sentinels mean that do not name ours, and learns other names of that. Tells whether most
    /// of them mean another, and that takes itself for the master.
    async fn other_names(&self, run_id: &str, epoch: &str, limit: Duration) -> bool {
        let named = self.board.borrow().named(self.horizon());
        // Servers with their votes.
        let mut servers: Vec<(String, String, usize)> = Vec::new();
        for (place, votes) in named {
            let known = self.board.borrow().knows(&place.address);
            let server = if known {
                Some(run_id.to_owned())
            } else {
                self.server_at(&place.address, limit).await
            };
            let Some(server) = server else { continue };
            if server == run_id && place.epoch == epoch {
                self.board.send_modify(|board| board.call(&place.address));
                if self.board.borrow().is_settled() {
                    return false;
                }
                continue;
            }
            match servers
                .iter_mut()
                .find(|(id, since, _)| *id == server && *since == place.epoch)
            {
                Some((_, _, sum)) => *sum += votes,
                None => servers.push((server, place.epoch, votes)),
            }
        }
        let board = self.board.borrow();
        servers.iter().any(|(_, _, votes)| board.is_most(*votes))
    }

    /// The `run_id` of the server at `address`, unless it is a replica. It may be on its way to become the master.
    async fn server_at(&self, address: &Address, limit: Duration) -> Option<String> {
        let client = self.client(address).ok()?;
        let info = timeout(limit, info_of(&client)).await.ok()?.ok()?;
        (!info.is_replica()).then(|| info.run_id().to_owned())
    }

    /// Waits until most Sentinels mean another server than that of `link`, or have made it the master once more since.
    async fn left(&self, link: &Link, limit: Duration) {
        let mut news = self.board.subscribe();
        loop {
            let settled = news.borrow_and_update().is_settled();
            let (run_id, epoch) = (link.info().run_id(), link.epoch());
            if !settled && self.other_names(run_id, epoch, limit).await {
                return;
            }
            sleep(self.pause()).await;
            // The sender lives in `self`, so this cannot fail.
            let _ = news.changed().await;
        }
    }
}

/// What the server at the end of `client` says of itself.
async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Info::parse(&text))
}
