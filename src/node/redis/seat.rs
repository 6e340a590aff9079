//! Whether the node's server is still the one that most of its Sentinels name.

use std::time::Duration;

use redis::{Client, RedisError};
use tokio::time::{sleep, timeout};

use crate::moment::Moment;
use crate::node::redis::confirmation::{Address, Place};
use crate::node::redis::connect_failure::ConnectFailure;
use crate::node::redis::connection::Connection;
use crate::node::redis::info::Info;
use crate::node::redis::sentinel::{Sentinels, connection};
use crate::node::{NodeError, NodeErrorKind};

impl Sentinels {
    /// Accepts the server `run_id` as the node's, if most Sentinels name it. It was reached at `place`; they may know
    /// it by other addresses, too.
    pub(super) async fn accept(
        &self,
        place: &Place,
        run_id: &str,
        limit: Duration,
    ) -> Result<(), ConnectFailure> {
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
        Err(ConnectFailure::Down(self.unconfirmed()))
    }

    /// Until when the server is confirmed; `None` if most Sentinels do not name it at all.
    fn until(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let confirmed = self.board.borrow().confirmed(run_id, epoch)?;
        Some(confirmed + self.within)
    }

    /// Until when replies on `connection` count as this node's. An error if they do not count now.
    pub(super) fn confirmed_until(&self, connection: &Connection) -> Result<Moment, NodeError> {
        let until = self.until(connection.info().run_id(), connection.epoch());
        until.filter(|until| self.now() < *until).ok_or_else(|| {
            let within = self.within;
            NodeError::new(
                NodeErrorKind::Unavailable,
                format!("most of its Sentinels have not confirmed its master within {within:?}"),
            )
        })
    }

    /// The reason why the server is not confirmed, with what each Sentinel said.
    pub(super) fn unconfirmed(&self) -> NodeError {
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

    /// Looks up the servers at the addresses that are not known as ours; if one is ours, learns the address. Returns
    /// whether most Sentinels name another server, and that server is a master.
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

    /// The `run_id` of the server at `address`, unless it is a replica (which may be about to become the master).
    async fn server_at(&self, address: &Address, limit: Duration) -> Option<String> {
        let client = self.client(address).ok()?;
        let info = timeout(limit, info_of(&client)).await.ok()?.ok()?;
        (!info.is_replica()).then(|| info.run_id().to_owned())
    }

    /// Waits until most Sentinels name another server than that of `connection`, or a later failover to the same one.
    pub(super) async fn left(&self, connection: &Connection, limit: Duration) {
        let mut news = self.board.subscribe();
        loop {
            let settled = news.borrow_and_update().is_settled();
            let (run_id, epoch) = (connection.info().run_id(), connection.epoch());
            if !settled && self.other_names(run_id, epoch, limit).await {
                return;
            }
            sleep(self.pause()).await;
            // The sender lives in `self`, so this cannot fail.
            let _ = news.changed().await;
        }
    }
}

/// The `INFO` of the server that `client` leads to.
async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Info::parse(&text))
}
