//! [`Cluster`]: a Redis Cluster in which each used slot is a node. All its servers, including replicas, are witnesses
//! and are asked repeatedly who owns the slots. We do not use the client's `cluster_async`, because it believes the
//! `MOVED` of a single server.
//!
//! A server never returns to an earlier owner of a slot and never accepts an owner with a lower config epoch (source:
//! the Redis Cluster specification). So the rule for Sentinels also holds here if any two majorities have a server in
//! common. Masters alone would not suffice, because a failover changes which servers are masters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::moment::Moment;
use crate::node::redis::access::shown;
use crate::node::redis::discovery::asking::{AskError, Reach, ask_within, garbled, host_in};
use crate::node::redis::discovery::confirmation::{
    Address, Confirmation, Place, Statement, Trouble, Witness,
};
use crate::node::redis::error::ConnectFailure;

/// A limit, because comparing more views would take too much CPU time.
const MOST_SERVERS: usize = 300;

pub(crate) struct Cluster {
    seeds: Vec<Address>,
    pub(crate) reach: Arc<Reach>,
    /// The slots that are nodes, and what is known of their owners.
    slots: Vec<(u16, Arc<watch::Sender<Confirmation>>)>,
    heard: Mutex<Heard>,
    changed: Notify,
}

#[derive(Default)]
struct Heard {
    /// The last answer from each address, or why there is none.
    answers: BTreeMap<Address, Answer>,
    /// The servers of the cluster by id, as agreed by most of them.
    servers: Arc<BTreeMap<String, Address>>,
    /// The highest config epoch of each slot's owner that most servers confirmed. If an operator gives a slot away and
    /// back, only this shows that another server may have granted locks.
    highest: BTreeMap<u16, u64>,
    asked: BTreeSet<Address>,
    wanted: BTreeSet<Address>,
}

#[derive(Default)]
struct Answer {
    view: Option<(Moment, View)>,
    trouble: Option<Trouble>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    id: String,
    servers: Arc<BTreeMap<String, Address>>,
    owners: BTreeMap<u16, Place>,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Address>, reach: Arc<Reach>, slots: &[u16]) -> Self {
        let names: Vec<String> = seeds
            .iter()
            .map(|(host, port)| shown(host, *port))
            .collect();
        let unknown = || {
            Arc::new(watch::Sender::new(Confirmation::new(
                names.iter().map(|name| &**name),
            )))
        };
        Self {
            slots: slots.iter().map(|slot| (*slot, unknown())).collect(),
            heard: Mutex::new(Heard {
                wanted: seeds.iter().cloned().collect(),
                ..Heard::default()
            }),
            seeds,
            reach,
            changed: Notify::new(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn confirmation(&self, slot: u16) -> Arc<watch::Sender<Confirmation>> {
        let known = self.slots.iter().find(|(known, _)| *known == slot);
        known.map_or_else(
            || Arc::new(watch::Sender::new(Confirmation::new([]))),
            |(_, confirmation)| Arc::clone(confirmation),
        )
    }

    pub(crate) fn is_first(&self, slot: u16) -> bool {
        self.slots.first().is_some_and(|(first, _)| *first == slot)
    }

    pub(crate) async fn next_to_ask(&self) -> Address {
        loop {
            if let Some(new) = self.heard().next_unasked() {
                return new;
            }
            self.changed.notified().await;
        }
    }

    /// Asks a server until no other server names it any more.
    pub(crate) async fn ask_on(
        &self,
        address: &Address,
        limit: Duration,
        clean: impl Fn(&str) -> String + Sync,
    ) {
        let mut questions: Pipeline = redis::pipe();
        questions.cmd("CLUSTER").arg("NODES");
        let slots: Vec<u16> = self.slots.iter().map(|(slot, _)| *slot).collect();
        let read = |replies| read_replies(replies, &slots, address, self.reach.tls);
        let mut kept = None;
        while self.heard().wanted.contains(address) {
            // Use the time of the question, because the reply is no older than that.
            let asked = self.reach.now();
            let said = match self.reach.client(address) {
                Ok(client) => ask_within(limit, &client, &mut kept, &questions, read, &clean).await,
                Err(ConnectFailure::Down(error) | ConnectFailure::Refused(error)) => Err(Trouble {
                    reason: error.to_string(),
                    lasting: false,
                }),
                Err(_) => return,
            };
            self.hear(address, asked, said);
            sleep(self.reach.pause()).await;
        }
        let mut heard = self.heard();
        heard.answers.remove(address);
        heard.asked.remove(address);
    }

    fn hear(&self, address: &Address, asked: Moment, said: Result<View, Trouble>) {
        let mut heard = self.heard();
        if heard.take(address, asked, said, self.reach.horizon()) {
            heard.wanted = heard.named(&self.seeds);
            heard.count();
        }
        let last = heard.last();
        let mut epochs = Vec::new();
        for (slot, confirmation) in &self.slots {
            let witnesses = heard.witnesses(*slot, &self.seeds, &last);
            confirmation.send_modify(|known| known.replace(witnesses));
            let owner = confirmation.borrow().likely_master(self.reach.horizon());
            epochs.extend(owner.and_then(|owner| Some((*slot, owner.epoch.parse().ok()?))));
        }
        drop(last);
        heard.owned(epochs);
        drop(heard);
        self.changed.notify_one();
    }
}

impl Heard {
    /// Returns whether the answer can change the list of servers.
    fn take(
        &mut self,
        address: &Address,
        asked: Moment,
        said: Result<View, Trouble>,
        horizon: Moment,
    ) -> bool {
        let answer = self.answers.entry(address.clone()).or_default();
        match said {
            Ok(view) => {
                let before = answer.view.as_ref().map(|(_, before)| before);
                let same = before
                    .is_some_and(|before| before.id == view.id && before.servers == view.servers);
                *answer = Answer {
                    view: Some((asked, view)),
                    trouble: None,
                };
                !same
            }
            Err(trouble) => {
                let is_old = |(asked, _): &mut (Moment, View)| trouble.lasting || *asked < horizon;
                // The server's old statement does not count any more, and servers that only it named may be gone.
                let gone = answer.view.take_if(is_old).is_some();
                answer.trouble = Some(trouble);
                gone
            }
        }
    }

    fn owned(&mut self, epochs: Vec<(u16, u64)>) {
        for (slot, epoch) in epochs {
            let highest = self.highest.entry(slot).or_default();
            *highest = epoch.max(*highest);
        }
    }

    fn is_outdated(&self, slot: u16, owner: &Place) -> bool {
        let (highest, epoch) = (self.highest.get(&slot), owner.epoch.parse::<u64>());
        highest.is_some_and(|highest| epoch.is_ok_and(|epoch| epoch < *highest))
    }

    fn views(&self) -> impl Iterator<Item = &(Moment, View)> {
        self.answers
            .values()
            .filter_map(|answer| answer.view.as_ref())
    }

    fn named(&self, seeds: &[Address]) -> BTreeSet<Address> {
        let named = self.views().flat_map(|(_, view)| view.servers.values());
        named.chain(seeds).cloned().collect()
    }

    fn next_unasked(&mut self) -> Option<Address> {
        let new = self.wanted.difference(&self.asked).next()?.clone();
        self.asked.insert(new.clone());
        Some(new)
    }

    /// Accepts a list of servers if majorities of both the new and the old list report it. So a server that was told to
    /// forget the others cannot become a cluster of its own. Servers that know no owners do not count.
    fn count(&mut self) {
        let mut sayings: BTreeMap<Vec<&String>, (&View, BTreeSet<&str>)> = BTreeMap::new();
        for (_, view) in self.views().filter(|(_, view)| !view.owners.is_empty()) {
            let ids = view.servers.keys().collect();
            let (_, saying) = sayings
                .entry(ids)
                .or_insert_with(|| (view, BTreeSet::new()));
            saying.insert(&view.id);
        }
        let agreed = sayings.into_values().find(|(view, saying)| {
            let are_most = |servers: &BTreeMap<String, Address>| {
                let theirs = saying.iter().filter(|id| servers.contains_key(**id));
                servers.is_empty() || theirs.count() > servers.len() / 2
            };
            are_most(&view.servers) && are_most(&self.servers)
        });
        if let Some(servers) = agreed.map(|(view, _)| Arc::clone(&view.servers)) {
            self.servers = servers;
        }
    }

    fn last(&self) -> BTreeMap<&str, &(Moment, View)> {
        let mut last = BTreeMap::new();
        for said in self.views() {
            let known = last.entry(&*said.1.id).or_insert(said);
            if said.0 > known.0 {
                *known = said;
            }
        }
        last
    }

    /// Whether this seed belongs to another cluster, which other processes may use instead of ours.
    fn is_of_another(&self, seed: &Address) -> bool {
        let view = self
            .answers
            .get(seed)
            .and_then(|answer| answer.view.as_ref());
        view.is_some_and(|(_, view)| {
            let mut ids = view.servers.keys();
            !view.owners.is_empty() && !ids.any(|id| self.servers.contains_key(id))
        })
    }

    /// The witnesses for a slot's owner. Until they are known, these are the seeds, whose statements do not count.
    fn witnesses(
        &self,
        slot: u16,
        seeds: &[Address],
        last: &BTreeMap<&str, &(Moment, View)>,
    ) -> Vec<Witness> {
        let silent = |seed: &Address, trouble| Witness {
            name: shown(&seed.0, seed.1),
            statement: None,
            trouble,
        };
        let trouble =
            |address: &Address| self.answers.get(address).and_then(|it| it.trouble.clone());
        if self.servers.is_empty() {
            let of = |seed| silent(seed, trouble(seed));
            return seeds.iter().map(of).collect();
        }
        if let Some(stranger) = seeds.iter().find(|seed| self.is_of_another(seed)) {
            return vec![silent(
                stranger,
                Some(lasting("belongs to another cluster")),
            )];
        }
        let of = |(id, address): (&String, &Address)| {
            let said = last
                .get(&**id)
                .map(|(asked, view)| (*asked, view.owners.get(&slot)));
            let statement = said.and_then(|(asked, place)| {
                let place = place
                    .filter(|owner| !self.is_outdated(slot, owner))?
                    .clone();
                Some((asked, Statement { place, id: None }))
            });
            Witness {
                statement,
                ..silent(
                    address,
                    match said {
                        Some((_, None)) => Some(lasting("knows no owner of the slot")),
                        Some((_, Some(owner))) if self.is_outdated(slot, owner) => {
                            Some(lasting(OUTDATED))
                        }
                        _ => trouble(address),
                    },
                )
            }
        };
        self.servers.iter().map(of).collect()
    }
}

const OUTDATED: &str = "names an owner of the slot with a lower config epoch than a former owner; run `CLUSTER BUMPEPOCH` on that owner; if the cluster was restored from older files, restart this process";

fn lasting(reason: &str) -> Trouble {
    Trouble {
        reason: reason.to_owned(),
        lasting: true,
    }
}

/// Uses the host in `asked` if that server does not know its own host.
pub(crate) fn read_replies(
    replies: Vec<Value>,
    slots: &[u16],
    asked: &Address,
    tls: bool,
) -> Result<View, AskError> {
    let reply = replies.into_iter().next().unwrap_or(Value::Nil);
    let text: String = redis::from_redis_value(reply.extract_error()?).map_err(RedisError::from)?;
    let mut view = View::default();
    let mut servers = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [id, address, flags, _, _, _, epoch, _, ranges @ ..] = &*fields else {
            return Err(garbled("a line of `CLUSTER NODES` makes no sense"));
        };
        let has = |flag: &str| flags.split(',').any(|other| other == flag);
        if has("handshake") || has("noaddr") {
            continue;
        }
        if has("myself") {
            (*id).clone_into(&mut view.id);
        }
        let place = Place {
            address: address_in(address, asked, has("myself"), tls)?,
            epoch: (*epoch).to_owned(),
        };
        if !epoch.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(garbled("a config epoch of `CLUSTER NODES` is no number"));
        }
        // A slot that moves is in brackets and belongs to its former owner until it has arrived.
        let owned: Vec<(u16, u16)> = ranges.iter().filter_map(|range| range_in(range)).collect();
        let is_owned = |slot: &u16| {
            owned
                .iter()
                .any(|(first, last)| (first..=last).contains(&slot))
        };
        let theirs = slots.iter().filter(|slot| has("master") && is_owned(slot));
        view.owners
            .extend(theirs.map(|slot| (*slot, place.clone())));
        servers.insert((*id).to_owned(), place.address);
    }
    if !servers.contains_key(&view.id) || servers.len() > MOST_SERVERS {
        return Err(garbled(
            "`CLUSTER NODES` names no server as its own, or too many",
        ));
    }
    view.servers = Arc::new(servers);
    Ok(view)
}

/// `5` or `5-70`.
fn range_in(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Reads `host:port@bus[,name[,..]]`. With TLS, uses the name if there is one, because certificates are issued for
/// names.
fn address_in(text: &str, asked: &Address, is_own: bool, tls: bool) -> Result<Address, AskError> {
    let no_address = || garbled("an address of `CLUSTER NODES` makes no sense");
    let mut parts = text.split(',');
    let address = parts.next().unwrap_or_default();
    let name = parts.next().filter(|_| tls).unwrap_or_default();
    let (address, _) = address.split_once('@').unwrap_or((address, ""));
    let (host, port) = address.rsplit_once(':').ok_or_else(no_address)?;
    let host = match (name, host) {
        ("", "") if is_own => asked.0.clone(),
        ("", "") => return Err(no_address()),
        ("", host) => host_in(host)?,
        (name, _) => host_in(name)?,
    };
    Ok((host, port.parse().map_err(|_| no_address())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text((host, port): &Address) -> String {
        shown(host, *port)
    }

    fn asked() -> Address {
        ("seed".to_owned(), 7_000)
    }

    fn read(text: &str, slots: &[u16]) -> Result<View, AskError> {
        read_replies(
            vec![Value::BulkString(text.as_bytes().to_vec())],
            slots,
            &asked(),
            true,
        )
    }

    const THREE: &str = "\
a 10.0.0.1:6379@16379,,tls-port=0 myself,master - 0 0 1 connected 0-5460 [5461-<-b]
b 10.0.0.2:6379@16379,redis-b.example,shard-id=x master - 0 1 2 connected 5461-8191 8193-10922
c 10.0.0.3:6379@16379 master,fail - 0 1 3 disconnected 8192 10923-16383
d 10.0.0.4:6379@16379 slave c 0 1 3 connected
e :0@0 master,noaddr - 0 1 0 disconnected
";

    #[test]
    fn a_view_names_the_owners_and_the_servers() {
        let view = read(THREE, &[2_731, 8_192, 13_654]).unwrap_or_default();
        assert_eq!(view.id, "a");
        let servers: Vec<&str> = view.servers.keys().map(|id| &**id).collect();
        assert_eq!(servers, ["a", "b", "c", "d"]);
        assert_eq!(text(&view.servers["b"]), "redis-b.example:6379");
        let owner = |slot| text(&view.owners[&slot].address);
        assert_eq!(owner(2_731), "10.0.0.1:6379");
        assert_eq!(owner(8_192), "10.0.0.3:6379");
        assert_eq!(view.owners[&13_654].epoch, "3");
        let own = "a :7001@17001 myself,master - 0 0 1 connected 0-16383\n";
        let view = read(own, &[5]).unwrap_or_default();
        assert_eq!(text(&view.owners[&5].address), "seed:7001");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "a b c",
            "a 10.0.0.1:6379@1 master - 0 0 1 connected 0-16383",
            "a 10.0.0.1:x@1 myself,master - 0 0 1 connected 0-16383",
            "a 10.0.0.1:6379@1 myself,master - 0 0 one connected 0-16383",
            "a nowhere myself,master - 0 0 1 connected 0-16383",
        ] {
            assert!(read(text, &[1]).is_err(), "{text}");
        }
    }

    fn at(port: u16) -> Address {
        ("h".to_owned(), port)
    }

    /// The view of the server `id`, with these servers and the owner of slot 5.
    fn view(id: &str, servers: &[&str], owner: (u16, &str)) -> View {
        let servers = (1..)
            .zip(servers)
            .map(|(port, id)| ((*id).to_owned(), at(port)));
        let place = Place {
            address: at(owner.0),
            epoch: owner.1.to_owned(),
        };
        View {
            id: id.to_owned(),
            servers: Arc::new(servers.collect()),
            owners: BTreeMap::from([(5, place)]),
        }
    }

    /// The owner of slot 5 that most confirm after the servers at these ports report these views.
    fn owner(views: &[(u16, View)]) -> Option<(u16, String)> {
        owner_after(&mut Heard::default(), views)
    }

    fn owner_after(heard: &mut Heard, views: &[(u16, View)]) -> Option<(u16, String)> {
        for (port, view) in views {
            heard.take(
                &at(*port),
                Moment::from_nanos(9),
                Ok(view.clone()),
                Moment::ORIGIN,
            );
        }
        heard.count();
        let mut known = Confirmation::new(["seed"]);
        known.replace(heard.witnesses(5, &[asked()], &heard.last()));
        let place = known.likely_master(Moment::from_nanos(1))?;
        heard.owned(vec![(5, place.epoch.parse().ok()?)]);
        Some((place.address.1, place.epoch))
    }

    #[test]
    fn a_slot_that_comes_back_without_a_new_epoch_has_no_owner() {
        let mut heard = Heard::default();
        let all = ["a", "b", "c"];
        let mut owner = |owner: (u16, &str)| {
            let of = |(port, id)| (port, view(id, &all, owner));
            owner_after(&mut heard, &[(1, "a"), (2, "b"), (3, "c")].map(of))
        };
        let found = |port, epoch: &str| Some((port, epoch.to_owned()));
        assert_eq!(owner((1, "9")), found(1, "9"));
        assert_eq!(owner((3, "10")), found(3, "10"));
        assert_eq!(owner((1, "9")), None);
        assert_eq!(owner((1, "11")), found(1, "11"), "after `BUMPEPOCH`");
    }

    #[test]
    fn most_servers_decide_and_a_minority_does_not() {
        // The masters a, b and c, each with a replica.
        let all = ["a", "b", "c", "d", "e", "f"];
        let owned = [(6, 2), (7, 3)].map(|(slot, port)| {
            let (address, epoch) = (at(port), "1".to_owned());
            (slot, Place { address, epoch })
        });
        let at = |id| (1..).zip(all).find(|(_, other)| *other == id).unwrap().0;
        let old = |id| {
            let mut view = view(id, &all, (1, "1"));
            view.owners.extend(owned.clone());
            (at(id), view)
        };
        let new = |id| (at(id), view(id, &all, (4, "7")));
        let first = Some((1, "1".to_owned()));
        assert_eq!(owner(&["a", "b", "c", "d"].map(old)), first);
        assert_eq!(
            owner(&["a", "b", "e"].map(old)),
            None,
            "that is half of them"
        );
        let promoted = Some((4, "7".to_owned()));
        assert_eq!(owner(&["b", "c", "d", "e"].map(new)), promoted);
        // Two masters that have not heard of a failover do not confirm the old owner. Neither do the two that have
        // confirm the new one.
        let torn = [old("a"), old("b"), old("e"), new("c"), new("d"), new("f")];
        assert_eq!(owner(&torn), None);
        let unknown = |id| {
            let (port, mut view) = old(id);
            view.owners.remove(&5);
            (port, view)
        };
        let masters = [old("a"), old("b")].into_iter();
        let masters: Vec<_> = masters.chain(["c", "d", "e", "f"].map(unknown)).collect();
        assert_eq!(owner(&masters), None, "two of three masters");
        // A server that is asked at two addresses has one vote.
        let doubled = [old("a"), old("b"), old("c"), (12, old("a").1)];
        assert_eq!(owner(&doubled), None);
        let strangers = ["x", "y", "z"].map(|id| (at("a"), view(id, &all, (1, "1"))));
        assert_eq!(owner(&strangers), None);
    }

    #[test]
    fn a_server_that_is_added_counts_when_most_know_it() {
        let (three, four) = (["a", "b", "c"], ["a", "b", "c", "g"]);
        let before = |id, port| (port, view(id, &three, (1, "1")));
        let after = |id, port| (port, view(id, &four, (1, "1")));
        let first = Some((1, "1".to_owned()));
        assert_eq!(
            owner(&[before("a", 1), before("b", 2), after("c", 3)]),
            first
        );
        assert_eq!(owner(&[after("a", 1), after("b", 2)]), None, "two of four");
        assert_eq!(owner(&[after("a", 1), after("b", 2), after("g", 4)]), first);
        let mut heard = Heard::default();
        owner_after(
            &mut heard,
            &[before("a", 1), before("b", 2), before("c", 3)],
        );
        let alone = (1, view("a", &["a"], (1, "1")));
        assert_eq!(
            owner_after(&mut heard, &[alone.clone(), after("b", 2)]),
            first
        );
        assert_eq!(heard.servers.len(), 3, "neither one nor four");
        owner_after(&mut heard, &[alone, after("c", 3), after("g", 4)]);
        assert_eq!(heard.servers.len(), 4);
    }

    #[test]
    fn a_seed_that_was_reset_is_no_cluster_and_one_of_another_cluster_stops_the_node() {
        let all = ["a", "b", "c"];
        let ours = |id, port| (port, view(id, &all, (1, "1")));
        let mut reset = view("r", &["r"], (9, "1"));
        reset.owners.clear();
        let mut heard = Heard::default();
        assert_eq!(owner_after(&mut heard, &[(9, reset)]), None);
        assert!(heard.servers.is_empty(), "it would never be left");
        let first = Some((1, "1".to_owned()));
        assert_eq!(
            owner_after(&mut heard, &[ours("a", 1), ours("b", 2)]),
            first
        );
        let stranger = view("x", &["x"], (9, "1"));
        heard.take(&at(9), Moment::from_nanos(9), Ok(stranger), Moment::ORIGIN);
        let seeds = [at(1), at(9)];
        let mut known = Confirmation::new(["seed"]);
        known.replace(heard.witnesses(5, &seeds, &heard.last()));
        assert!(known.is_hopeless() && known.likely_master(Moment::ORIGIN).is_none());
        let text = known.describe(Moment::ORIGIN);
        assert_eq!(text, "h:9: belongs to another cluster");
    }

    #[test]
    fn whoever_is_gone_is_asked_no_more() {
        let all = ["a", "b", "c"];
        let mut heard = Heard::default();
        let now = Moment::from_nanos(9);
        let silent = || {
            let reason = "did not answer".to_owned();
            let lasting = false;
            Err(Trouble { reason, lasting })
        };
        let seen = |id| Ok(view(id, &all, (1, "1")));
        assert!(heard.take(&at(1), now, seen("a"), Moment::ORIGIN));
        assert!(
            !heard.take(&at(1), now, seen("a"), Moment::ORIGIN),
            "that is not new"
        );
        assert_eq!(heard.named(&[]).len(), 3);
        assert!(
            !heard.take(&at(1), now, silent(), now),
            "it may still count"
        );
        assert_eq!(heard.named(&[]).len(), 3);
        assert!(heard.take(&at(1), now, silent(), Moment::from_nanos(10)));
        assert!(heard.named(&[]).is_empty());
    }

    #[test]
    fn names_are_for_certificates() {
        let text = "10.0.0.1:6379@16379,redis-a.example";
        let address = |tls| address_in(text, &asked(), false, tls).unwrap_or_else(|_| asked());
        assert_eq!(address(true).0, "redis-a.example");
        assert_eq!(address(false).0, "10.0.0.1");
    }
}
