//! Where the master is at this time: the Sentinels know, and most of them have to say so again and again.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, Value,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::confirmation::{Address, Board, Place, Told, Trouble};
use super::connect::ASK;
use super::connection::{Core, Setback, random};
use super::error::{NodeUrlError, is_not_ready, server_text};
use super::info::Info;
use super::link::Link;
use super::url::{Access, Certificates, Target, Way, address_of, client, read};
use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::{NodeContext, NodeError, NodeErrorKind};
use crate::protocol::backoff::jitter;

/// For how long a word of the Sentinels counts, unless set.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
/// For how long it may count.
const LEAST_WITHIN: Duration = Duration::from_millis(100);
const MOST_WITHIN: Duration = Duration::from_secs(60);
/// How long to wait before a Sentinel is asked again, more or less by half.
const LOOK: Duration = Duration::from_millis(500);
/// How often each is asked, at least, while its word counts.
const LOOKS: u32 = 6;

/// The Sentinels that watch one master, and how to get to that.
pub(super) struct Sentinels {
    master: String,
    /// Each with its address.
    sentinels: Vec<(String, Client)>,
    settings: RedisConnectionInfo,
    tls: bool,
    certificates: Certificates,
    /// How long what most of them say counts, from when they were asked.
    within: Duration,
    board: watch::Sender<Board>,
    // Known once the node has started.
    clock: OnceLock<Arc<dyn Clock>>,
}

/// How to get to the server that is the master now.
pub(super) struct Lead {
    pub(super) client: Client,
    /// What the Sentinels said of it, where there are any.
    pub(super) place: Option<Place>,
}

/// The node that is whatever server the Sentinels at `urls` call `master`.
pub(super) fn target(
    urls: &[String],
    master: &str,
    within: Duration,
    access: &Access,
    certificates: &Certificates,
) -> Result<Target, NodeUrlError> {
    if !(LEAST_WITHIN..=MOST_WITHIN).contains(&within) {
        return Err(NodeUrlError::of("confirm_within", BAD_WITHIN));
    }
    if master.is_empty() {
        return Err(NodeUrlError::of("master", NO_NAME));
    }
    let mut sentinels = Vec::new();
    let mut secrets: Vec<String> = access.password.clone().into_iter().collect();
    let mut kinds = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        let here = |error: NodeUrlError| error.of_sentinel(index);
        let (info, tls) = read(url, certificates).map_err(here)?;
        if !matches!(
            info.addr(),
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. }
        ) {
            return Err(here(NodeUrlError::new(SOCKET)));
        }
        let settings = info.redis_settings().clone();
        if settings.db() != 0 {
            return Err(here(NodeUrlError::new(DATABASE)));
        }
        secrets.extend(settings.password().map(str::to_owned));
        let address = address_of(info.addr());
        if sentinels.iter().any(|(other, _)| *other == address) {
            return Err(here(NodeUrlError::new(TWICE)));
        }
        let info = info.set_redis_settings(
            settings
                .set_protocol(ProtocolVersion::RESP2)
                .set_skip_set_lib_name(),
        );
        sentinels.push((address, client(info, tls, certificates).map_err(here)?));
        kinds.push(tls);
    }
    let Some(tls) = kinds.first().copied() else {
        return Err(NodeUrlError::of("sentinels", NO_SENTINELS));
    };
    if kinds.iter().any(|kind| *kind != tls) {
        return Err(NodeUrlError::of("sentinels", MIXED));
    }
    let mut addresses: Vec<&str> = sentinels.iter().map(|(address, _)| &**address).collect();
    addresses.sort_unstable();
    let settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    Ok(Target {
        address: format!("sentinel:{master}@{}", addresses.join(",")),
        // Never the address of the master, which changes.
        name: format!("sentinel:{master}"),
        secrets: secrets
            .into_iter()
            .filter(|secret| !secret.is_empty())
            .collect(),
        way: Way::Sentinels(Sentinels {
            master: master.to_owned(),
            board: watch::Sender::new(Board::new(sentinels.len())),
            sentinels,
            settings: access.apply(settings),
            tls,
            certificates: certificates.clone(),
            within,
            clock: OnceLock::new(),
        }),
    })
}

impl Sentinels {
    /// Takes in the clock that confirmations are measured with.
    pub(super) fn begin(&self, context: &NodeContext) {
        self.clock.get_or_init(|| Arc::clone(&context.clock));
    }

    /// For how long what most Sentinels say counts.
    pub(super) const fn within(&self) -> Duration {
        self.within
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sentinels.len()
    }

    /// What all processes must have alike.
    pub(super) fn agreed(&self) -> String {
        let (master, within) = (&self.master, self.within);
        let mut addresses: Vec<&str> = self.addresses().collect();
        addresses.sort_unstable();
        let addresses = addresses.join(", ");
        format!("master `{master}` as most of {addresses} said within {within:?}")
    }

    fn addresses(&self) -> impl Iterator<Item = &str> {
        self.sentinels.iter().map(|(address, _)| &**address)
    }

    fn now(&self) -> Moment {
        self.clock.get().map_or(Moment::ORIGIN, |clock| clock.now())
    }

    /// What was asked before is too old to count.
    fn horizon(&self) -> Moment {
        self.now().saturating_sub(self.within)
    }

    /// Leads to the server that most Sentinels name. The answer comes within two thirds of `limit`.
    pub(super) async fn master(&self, limit: Duration) -> Result<Lead, Setback> {
        let mut board = self.board.subscribe();
        let known =
            |board: &Board| board.favourite(self.horizon()).is_some() || board.is_complete();
        let _ = timeout(limit / 3 * 2, board.wait_for(known)).await;
        let board = self.board.borrow().clone();
        if let Some(place) = board.favourite(self.horizon()) {
            let client = self.client(&place.address)?;
            let place = Some(place);
            return Ok(Lead { client, place });
        }
        let reasons = board.describe(self.horizon(), self.addresses());
        let master = &self.master;
        Err(if board.is_hopeless() {
            Setback::Refused(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "too few of its Sentinels tell where the master `{master}` is; check its name, and that the URLs are those of Sentinels, each listed once and with its credentials: {reasons}"
                ),
            ))
        } else {
            Setback::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                format!(
                    "most of its Sentinels do not agree where the master `{master}` is: {reasons}"
                ),
            ))
        })
    }

    /// Takes the server `run_id` for the node, if most Sentinels mean it. It was reached at `place`, and they may know it
    /// by other addresses, too.
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

    fn client(&self, (host, port): &Address) -> Result<Client, Setback> {
        let (host, port) = (host.clone(), *port);
        let addr = if self.tls {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let made = addr.into_connection_info().ok().and_then(|info| {
            let info = info
                .set_redis_settings(self.settings.clone())
                .set_tcp_settings(TcpSettings::default().set_nodelay(true));
            client(info, self.tls, &self.certificates).ok()
        });
        made.ok_or_else(|| {
            Setback::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                "a Sentinel told an address of the master that cannot be used",
            ))
        })
    }
}

impl Core {
    /// The way to the server, and what is known of it before it is asked.
    pub(super) async fn lead(&self) -> Result<Lead, Setback> {
        match &self.target.way {
            Way::Direct(client) => Ok(Lead {
                client: client.clone(),
                place: None,
            }),
            Way::Sentinels(sentinels) => sentinels.master(self.connect_timeout).await,
        }
    }

    /// Whether what is sent on `link` now may count as this node's word. A server that was found through Sentinels is
    /// the node for as long as most of them say so.
    pub(super) fn vouch(&self, link: &Link) -> Result<(), NodeError> {
        match &self.target.way {
            Way::Direct(_) => Ok(()),
            Way::Sentinels(sentinels) => sentinels.vouch(link).map(drop),
        }
    }

    /// Waits until most Sentinels name another server as the master, and that takes itself for it. Meanwhile the state
    /// of the first lane, which looks for all of them, says whether most of them still name this one.
    ///
    /// A master that is cut off from its Sentinels goes on as if nothing had happened, with us if we still reach it.
    /// One Sentinel alone may be cut off itself.
    pub(super) async fn replaced(&self, lane: usize, link: &Link) {
        let (Way::Sentinels(sentinels), 0) = (&self.target.way, lane) else {
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

    /// How long to wait between two questions, more or less by half.
    fn pause(&self) -> Duration {
        let pause = LOOK.min(self.within / LOOKS);
        pause / 2 + jitter(random(), pause)
    }

    /// Asks one Sentinel for ever.
    async fn ask_on(&self, index: usize, core: &Core) {
        let Some((_, sentinel)) = self.sentinels.get(index) else {
            return;
        };
        let limit = self.within.min(core.connect_timeout / 2);
        let mut connection = None;
        loop {
            // What counts is when the question went out: the answer is no older than that.
            let asked = self.now();
            let answer = match timeout(limit, ask(sentinel, &mut connection, &self.master)).await {
                Ok(Ok(told)) => Ok(told),
                Ok(Err(Mute::Unknown)) => Err(Trouble {
                    reason: "does not know it".to_owned(),
                    lasting: true,
                }),
                Ok(Err(Mute::Failed(error))) => Err(Trouble {
                    reason: core.clean(&match error.kind() {
                        ErrorKind::Server(_) | ErrorKind::Extension => server_text(&error),
                        _ => error.to_string(),
                    }),
                    lasting: is_refusal(&error),
                }),
                Err(_) => Err(Trouble {
                    reason: format!("did not answer within {limit:?}"),
                    lasting: false,
                }),
            };
            if answer.is_err() {
                connection = None;
            }
            self.board
                .send_modify(|board| board.note(index, asked, answer));
            sleep(self.pause()).await;
        }
    }
}

/// What the server at the end of `client` says of itself.
async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Info::parse(&text))
}

/// Asks one Sentinel of a node until that is closed.
pub(super) async fn follow(core: Arc<Core>, index: usize) {
    let Way::Sentinels(sentinels) = &core.target.way else {
        return;
    };
    tokio::select! {
        biased;
        () = core.closing() => {}
        () = sentinels.ask_on(index, &core) => {}
    }
}

/// What the scripts are told of a server that was found through Sentinels and is the master by the failover `epoch`:
/// they ask it themselves who it is, and put that number before it. One that is made the master again, without having
/// been anything else in its own eyes, has not what was granted elsewhere meanwhile.
pub(super) fn told(epoch: &str) -> String {
    match epoch {
        "" => ASK.to_owned(),
        epoch => format!("{epoch}|{ASK}"),
    }
}

async fn connection(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Why a Sentinel does not tell.
enum Mute {
    /// It knows no master of that name.
    Unknown,
    Failed(RedisError),
}

impl From<RedisError> for Mute {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

/// Asks one Sentinel where the master is, on a connection that is made where there is none or the last one broke.
async fn ask(
    sentinel: &Client,
    kept: &mut Option<MultiplexedConnection>,
    master: &str,
) -> Result<Told, Mute> {
    let mut questions = redis::pipe();
    questions
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(master);
    // The address in this one lags behind while a failover is under way; the epoch does not.
    questions.cmd("SENTINEL").arg("MASTER").arg(master);
    questions.cmd("SENTINEL").arg("MYID");
    if let Some(connection) = kept {
        match connection.send_packed_commands(&questions, 0, 3).await {
            Ok(answers) => return read_answers(answers),
            // It may be there again.
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error.into()),
        }
    }
    let connection = kept.insert(connection(sentinel).await?);
    read_answers(connection.send_packed_commands(&questions, 0, 3).await?)
}

fn read_answers(answers: Vec<Value>) -> Result<Told, Mute> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let address: Option<Address> = redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let (host, port) = address.ok_or(Mute::Unknown)?;
    let address = (host.to_ascii_lowercase(), port);
    let fields: HashMap<String, String> =
        redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let epoch = fields.get("config-epoch").cloned().unwrap_or_default();
    if !epoch.bytes().all(|byte| byte.is_ascii_digit()) {
        let garbled = (
            ErrorKind::UnexpectedReturnType,
            "its `config-epoch` is no number",
        );
        return Err(RedisError::from(garbled).into());
    }
    // Older ones have none, and a user may not be allowed to ask.
    let id = next().ok().and_then(|id| redis::from_redis_value(id).ok());
    let place = Place { address, epoch };
    Ok(Told { place, id })
}

/// Whether a Sentinel, or what was taken for one, answers but will not tell until somebody mends something.
fn is_refusal(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Io && !is_not_ready(error)
}

const NO_SENTINELS: &str = "a master is found through at least one Sentinel; give their URLs, as in `redis://10.0.0.1:26379`";
const NO_NAME: &str =
    "the name of the master is empty; it is what `sentinel monitor` calls it, often `mymaster`";
const SOCKET: &str =
    "a Sentinel is reached over TCP; use `redis://host:26379` or `rediss://host:26379`";
const DATABASE: &str = "a Sentinel has no databases; choose that of the master with `database`";
const TWICE: &str =
    "this Sentinel is listed twice, so that its word would count twice; list each once";
const BAD_WITHIN: &str = "`confirm_within` must be from 100 ms to 1 min; 3 s are usual";
const MIXED: &str = "some Sentinels are reached with TLS and some without; use `rediss://` for all or for none, and the master alike";

#[cfg(test)]
mod tests {
    use super::*;

    fn named(urls: &[&str], master: &str) -> Result<Target, NodeUrlError> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let (access, certificates) = (Access::default(), Certificates::default());
        target(&urls, master, CONFIRM_WITHIN, &access, &certificates)
    }

    #[test]
    fn the_name_does_not_depend_on_where_the_master_is() {
        let target = named(&["redis://:pw@S2:26379", "redis://s1:26379"], "mymaster").unwrap();
        assert_eq!(target.name, "sentinel:mymaster");
        assert_eq!(target.address, "sentinel:mymaster@s1:26379,s2:26379");
        assert_eq!(target.secrets, ["pw"]);
    }

    #[test]
    fn what_cannot_be_a_sentinel_says_what_to_do() {
        for (urls, master, word) in [
            (&[][..], "m", "at least one"),
            (&["redis://s"], "", "name of the master"),
            (&["unix:///s"], "m", "over TCP"),
            (&["redis://s/1"], "m", "`database`"),
            (&["s:26379"], "m", "starts with"),
        ] {
            let error = named(urls, master).err().unwrap();
            assert!(error.to_string().contains(word), "{urls:?}: {error}");
        }
        if cfg!(feature = "tls") {
            let error = named(&["redis://s", "rediss://t"], "m").err().unwrap();
            assert!(error.to_string().contains("for all or for none"), "{error}");
        }
    }
}
