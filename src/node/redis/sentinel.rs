//! Where the master is at this time: the Sentinels know.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError,
};
use tokio::time::{sleep, timeout};

use super::connection::{Core, Setback, random};
use super::error::{NodeUrlError, is_not_ready, server_text};
use super::info::Info;
use super::link::Link;
use super::url::{Access, Certificates, Target, Way, address_of, client, read};
use crate::node::{NodeError, NodeErrorKind};
use crate::protocol::backoff::jitter;

/// How often the Sentinels are asked whether the master is another by now, more or less by half.
const LOOK: Duration = Duration::from_secs(1);

/// The Sentinels that watch one master, and how to get to that.
pub(super) struct Sentinels {
    master: String,
    /// Each with its address.
    sentinels: Vec<(String, Client)>,
    // Who is asked first the next time: a Sentinel may be cut off and tell of a master that was.
    next: AtomicUsize,
    settings: RedisConnectionInfo,
    tls: bool,
    certificates: Certificates,
}

/// The node that is whatever server the Sentinels at `urls` call `master`.
pub(super) fn target(
    urls: &[String],
    master: &str,
    access: &Access,
    certificates: &Certificates,
) -> Result<Target, NodeUrlError> {
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
            sentinels,
            next: AtomicUsize::new(0),
            settings: access.apply(settings),
            tls,
            certificates: certificates.clone(),
        }),
    })
}

impl Sentinels {
    /// Makes connections to the server that is the master now.
    ///
    /// The Sentinels are asked in turn, none of them for longer than its share of `limit`.
    pub(super) async fn master(
        &self,
        limit: Duration,
        clean: impl Fn(&str) -> String,
    ) -> Result<Client, Setback> {
        let count = self.sentinels.len();
        let share = limit / u32::try_from(count + 1).unwrap_or(u32::MAX);
        let first = self.next.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let from_first = self.sentinels.iter().cycle().skip(first).take(count);
        let mut reasons = Vec::new();
        let mut answered = true;
        for (address, sentinel) in from_first {
            let reason = match timeout(share, ask(sentinel, &self.master)).await {
                Ok(Ok(Some((host, port)))) => return self.client(host, port),
                Ok(Ok(None)) => "does not know it".to_owned(),
                Ok(Err(error)) => {
                    answered &= is_refusal(&error);
                    clean(&match error.kind() {
                        ErrorKind::Server(_) | ErrorKind::Extension => server_text(&error),
                        _ => error.to_string(),
                    })
                }
                Err(_) => {
                    answered = false;
                    format!("did not answer within {share:?}")
                }
            };
            reasons.push(format!("{address}: {reason}"));
        }
        let (master, reasons) = (&self.master, reasons.join("; "));
        Err(if answered {
            Setback::Refused(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "no Sentinel tells where the master `{master}` is; check its name, and that the URLs are those of Sentinels, with their credentials: {reasons}"
                ),
            ))
        } else {
            Setback::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                format!("no Sentinel tells where the master `{master}` is: {reasons}"),
            ))
        })
    }

    /// Where most of the Sentinels say that the master is.
    async fn most(&self, limit: Duration) -> Option<(String, u16)> {
        let count = self.sentinels.len();
        let share = limit / u32::try_from(count).unwrap_or(u32::MAX);
        let mut answers = Vec::new();
        for (_, sentinel) in &self.sentinels {
            if let Ok(Ok(Some(answer))) = timeout(share, ask(sentinel, &self.master)).await {
                answers.push(answer);
            }
        }
        agreed(&answers, count).cloned()
    }

    fn client(&self, host: String, port: u16) -> Result<Client, Setback> {
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
    /// Waits until most Sentinels name another server as the master, and that takes itself for it.
    ///
    /// A master that is cut off from its Sentinels goes on as if nothing had happened, with us if we still reach it.
    /// One Sentinel alone may be cut off itself. The first lane looks for all of them.
    pub(super) async fn replaced(&self, lane: usize, link: &Link) {
        let (Way::Sentinels(sentinels), 0) = (&self.target.way, lane) else {
            return std::future::pending().await;
        };
        let limit = self.connect_timeout;
        let mut known = None;
        loop {
            sleep(LOOK / 2 + jitter(random(), LOOK)).await;
            let named = sentinels.most(limit).await;
            if named.is_none() || named == known {
                continue;
            }
            let Some((host, port)) = named.clone() else {
                continue;
            };
            let Ok(client) = sentinels.client(host, port) else {
                continue;
            };
            match timeout(limit, info_of(&client)).await {
                Ok(Ok(info)) if info.run_id() == link.info().run_id() => known = named,
                // It may be on its way to become the master.
                Ok(Ok(info)) if !info.is_replica() => return,
                _ => {}
            }
        }
    }
}

/// What the server at the end of `client` says of itself.
async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Info::parse(&text))
}

/// What more than half of `count` Sentinels answered alike.
fn agreed(answers: &[(String, u16)], count: usize) -> Option<&(String, u16)> {
    let votes = |answer: &(String, u16)| answers.iter().filter(|other| *other == answer).count();
    answers.iter().find(|answer| votes(answer) > count / 2)
}

async fn connection(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Asks one Sentinel where the master is; `None` if it knows none of that name.
async fn ask(sentinel: &Client, master: &str) -> Result<Option<(String, u16)>, RedisError> {
    let mut connection = connection(sentinel).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    question.query_async(&mut connection).await
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
const MIXED: &str = "some Sentinels are reached with TLS and some without; use `rediss://` for all or for none, and the master alike";

#[cfg(test)]
mod tests {
    use super::*;

    fn named(urls: &[&str], master: &str) -> Result<Target, NodeUrlError> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        target(&urls, master, &Access::default(), &Certificates::default())
    }

    #[test]
    fn the_name_does_not_depend_on_where_the_master_is() {
        let target = named(&["redis://:pw@S2:26379", "redis://s1:26379"], "mymaster").unwrap();
        assert_eq!(target.name, "sentinel:mymaster");
        assert_eq!(target.address, "sentinel:mymaster@s1:26379,s2:26379");
        assert_eq!(target.secrets, ["pw"]);
    }

    #[test]
    fn half_of_the_sentinels_are_not_most() {
        let answers = [1, 2, 2].map(|port| ("h".to_owned(), port));
        assert_eq!(agreed(&answers, 3), Some(&answers[1]));
        assert_eq!(agreed(&answers, 4), None);
        assert_eq!(agreed(&answers[..1], 1), Some(&answers[0]));
        assert_eq!(agreed(&[], 1), None);
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
