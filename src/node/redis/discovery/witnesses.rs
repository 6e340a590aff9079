//! [`Witnesses`]: Sentinels or the servers of a cluster. Each is asked repeatedly where the node's server is, and the
//! answer of most of them counts for a time.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::moment::Moment;
use crate::node::redis::connection::Connection;
use crate::node::redis::discovery::asking::{Reach, ask_within, info_of};
use crate::node::redis::discovery::cluster::Cluster;
use crate::node::redis::discovery::confirmation::{Address, Confirmation, Place};
use crate::node::redis::discovery::sentinel::{Sentinels, read_replies};
use crate::node::redis::error::{ConnectFailure, unavailable};
use crate::node::{NodeContext, NodeError};

pub(crate) const CONFIRM_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct Witnesses {
    pub(crate) source: Source,
    pub(crate) reach: Arc<Reach>,
    pub(crate) confirmation: Arc<watch::Sender<Confirmation>>,
}

pub(crate) enum Source {
    Sentinels(Sentinels),
    /// The servers of a cluster, and the slot whose owner they report.
    Cluster(Arc<Cluster>, u16),
}

pub(crate) struct Route {
    pub(crate) client: Client,
    pub(crate) place: Option<Place>,
}

impl Witnesses {
    pub(crate) fn begin(&self, context: &NodeContext) {
        self.reach.clock.get_or_init(|| Arc::clone(&context.clock));
    }

    pub(crate) fn agreed(&self) -> String {
        let within = self.reach.within;
        match &self.source {
            Source::Sentinels(sentinels) => {
                let mut addresses: Vec<&str> = sentinels.addresses().collect();
                addresses.sort_unstable();
                let (master, addresses) = (&sentinels.master, addresses.join(", "));
                format!("master `{master}` as most of {addresses} said within {within:?}")
            }
            Source::Cluster(..) => {
                format!("its owner as most servers said within {within:?}")
            }
        }
    }

    const fn most(&self) -> &'static str {
        match self.source {
            Source::Sentinels(_) => "most of its Sentinels",
            Source::Cluster(..) => "most servers of its cluster",
        }
    }

    fn describe(&self) -> String {
        self.confirmation.borrow().describe(self.reach.horizon())
    }

    /// The route to the server that most witnesses name. Waits at most for two thirds of `limit`.
    pub(crate) async fn master(&self, limit: Duration) -> Result<Route, ConnectFailure> {
        let mut news = self.confirmation.subscribe();
        let is_enough = |known: &Confirmation| {
            known.likely_master(self.reach.horizon()).is_some() || known.is_complete()
        };
        let _ = timeout(limit / 3 * 2, news.wait_for(is_enough)).await;
        let known = self.confirmation.borrow().clone();
        if let Some(place) = known.likely_master(self.reach.horizon()) {
            let client = self.reach.client(&place.address)?;
            let place = Some(place);
            return Ok(Route { client, place });
        }
        let (reasons, most) = (known.describe(self.reach.horizon()), self.most());
        Err(match &self.source {
            Source::Sentinels(Sentinels { master, .. }) if known.is_hopeless() => {
                ConnectFailure::misconfigured(format!(
                    "too few of its Sentinels tell where the master `{master}` is; check its name, and that the URLs are those of Sentinels, each listed once and with its credentials: {reasons}"
                ))
            }
            Source::Cluster(..) if known.is_hopeless() => ConnectFailure::misconfigured(format!(
                "too few servers of its cluster tell who has the slot; check that the URLs are those of servers in cluster mode, and the credentials: {reasons}"
            )),
            Source::Sentinels(Sentinels { master, .. }) => ConnectFailure::down(format!(
                "{most} do not agree where the master `{master}` is: {reasons}"
            )),
            Source::Cluster(_, slot) => ConnectFailure::down(format!(
                "{most} do not agree who has the slot {slot}: {reasons}"
            )),
        })
    }

    /// Accepts the server `run_id` at `place` if most witnesses name it, even by another address.
    pub(crate) async fn accept(
        &self,
        place: &Place,
        run_id: &str,
        limit: Duration,
    ) -> Result<(), ConnectFailure> {
        let accept = |known: &mut Confirmation| known.set_server(run_id, place);
        self.confirmation.send_modify(accept);
        if !self.confirmation.borrow().is_settled() {
            self.other_names(run_id, &place.epoch, limit).await;
        }
        let until = self.until(run_id, &place.epoch);
        match until.filter(|until| self.reach.now() < *until) {
            Some(_) => Ok(()),
            None => Err(ConnectFailure::Down(self.unconfirmed())),
        }
    }

    fn until(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let confirmed = self.confirmation.borrow().confirmed(run_id, epoch)?;
        Some(confirmed + self.reach.within)
    }

    pub(crate) fn confirmed_until(&self, connection: &Connection) -> Result<Moment, NodeError> {
        let until = self.until(connection.info().run_id(), connection.epoch());
        until
            .filter(|until| self.reach.now() < *until)
            .ok_or_else(|| {
                let (most, within) = (self.most(), self.reach.within);
                unavailable(format!(
                    "{most} have not confirmed its server within {within:?}"
                ))
            })
    }

    pub(crate) fn unconfirmed(&self) -> NodeError {
        let (most, within) = (self.most(), self.reach.within);
        let reasons = self.describe();
        unavailable(format!(
            "{most} have not confirmed its server within {within:?}, so that it does not count: {reasons}"
        ))
    }

    /// Asks servers at unknown addresses for their ids. Returns whether most witnesses name another server that is a
    /// master.
    async fn other_names(&self, run_id: &str, epoch: &str, limit: Duration) -> bool {
        let named = self.confirmation.borrow().named(self.reach.horizon());
        // Servers with their epochs and votes.
        let mut servers: Vec<(String, String, usize)> = Vec::new();
        for (place, votes) in named {
            let known = self.confirmation.borrow().knows(&place.address);
            let server = if known {
                Some(run_id.to_owned())
            } else {
                self.server_at(&place.address, limit).await
            };
            let Some(server) = server else { continue };
            if server == run_id && place.epoch == epoch {
                let learn = |known: &mut Confirmation| known.add_address(&place.address);
                self.confirmation.send_modify(learn);
                if self.confirmation.borrow().is_settled() {
                    return false;
                }
                continue;
            }
            let same = |(id, epoch, _): &&mut _| *id == server && *epoch == place.epoch;
            match servers.iter_mut().find(same) {
                Some((_, _, sum)) => *sum += votes,
                None => servers.push((server, place.epoch, votes)),
            }
        }
        let known = self.confirmation.borrow();
        servers.iter().any(|(_, _, votes)| known.is_most(*votes))
    }

    async fn server_at(&self, address: &Address, limit: Duration) -> Option<String> {
        let client = self.reach.client(address).ok()?;
        let info = timeout(limit, info_of(&client)).await.ok()?.ok()?;
        (!info.is_replica()).then(|| info.run_id().to_owned())
    }

    /// Waits until most witnesses name a server other than that of `connection`, or a later failover to the same
    /// server.
    pub(crate) async fn left(&self, connection: &Connection, limit: Duration) {
        let mut news = self.confirmation.subscribe();
        loop {
            let settled = news.borrow_and_update().is_settled();
            let (run_id, epoch) = (connection.info().run_id(), connection.epoch());
            if !settled && self.other_names(run_id, epoch, limit).await {
                return;
            }
            sleep(self.reach.pause()).await;
            // This cannot fail, because `self` owns the sender.
            let _ = news.changed().await;
        }
    }
}

impl Witnesses {
    pub(crate) async fn ask_sentinel(
        &self,
        index: usize,
        limit: Duration,
        clean: impl Fn(&str) -> String + Sync,
    ) {
        let Source::Sentinels(sentinels) = &self.source else {
            return;
        };
        let Some((_, sentinel)) = sentinels.listed.get(index) else {
            return;
        };
        let (questions, mut kept) = (sentinels.questions(), None);
        loop {
            // Use the time of the question, because the reply is no older than that.
            let asked = self.reach.now();
            let said = ask_within(limit, sentinel, &mut kept, &questions, read_replies, &clean);
            let said = said.await;
            let note = |known: &mut Confirmation| known.note(index, asked, said);
            self.confirmation.send_modify(note);
            sleep(self.reach.pause()).await;
        }
    }
}
