//! Where the master is at this time: the Sentinels know.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError,
};
use tokio::time::timeout;

use super::connection::Setback;
use super::error::{NodeUrlError, is_not_ready, server_text};
use super::url::{Access, Certificates, Target, Way, address_of, client, read};
use crate::node::{NodeError, NodeErrorKind};

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
        return Err(NodeUrlError::new(NO_NAME));
    }
    let mut sentinels = Vec::new();
    let mut secrets: Vec<String> = access.password.clone().into_iter().collect();
    let mut kinds = Vec::new();
    for url in urls {
        let (info, tls) = read(url, certificates)?;
        if !matches!(
            info.addr(),
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. }
        ) {
            return Err(NodeUrlError::new(SOCKET));
        }
        let settings = info.redis_settings().clone();
        if settings.db() != 0 {
            return Err(NodeUrlError::new(DATABASE));
        }
        secrets.extend(settings.password().map(str::to_owned));
        let address = address_of(info.addr());
        let info = info.set_redis_settings(
            settings
                .set_protocol(ProtocolVersion::RESP2)
                .set_skip_set_lib_name(),
        );
        sentinels.push((address, client(info, tls, certificates)?));
        kinds.push(tls);
    }
    let Some(tls) = kinds.first().copied() else {
        return Err(NodeUrlError::new(NO_SENTINELS));
    };
    if kinds.iter().any(|kind| *kind != tls) {
        return Err(NodeUrlError::new(MIXED));
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

/// Asks one Sentinel where the master is; `None` if it knows none of that name.
async fn ask(sentinel: &Client, master: &str) -> Result<Option<(String, u16)>, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let mut connection = sentinel
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
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
