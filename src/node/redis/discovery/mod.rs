//! Finds the server of a node: at a URL, or where most of its [`witnesses`] say that it is. Witnesses are Sentinels
//! ([`sentinel`]) or the servers of a cluster ([`cluster`]). [`confirmation`] counts their statements.

pub(super) mod asking;
pub(super) mod cluster;
pub(super) mod confirmation;
pub(super) mod sentinel;
pub(super) mod slots;
pub(super) mod witnesses;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ProtocolVersion, RedisConnectionInfo};
use tokio::sync::watch;

use crate::node::redis::access::{Access, Certificates, Rotation, address_of, client, read, shown};
use crate::node::redis::discovery::asking::Reach;
use crate::node::redis::discovery::cluster::Cluster;
use crate::node::redis::discovery::confirmation::{Address, Confirmation};
use crate::node::redis::discovery::sentinel::Sentinels;
use crate::node::redis::discovery::witnesses::{Source, Witnesses};
use crate::settings::error::{ConfigError, ensure, within};
use crate::settings::server::Url;

pub(super) struct Target {
    /// `host:port` in lower case, or the path of a socket.
    pub(super) address: String,
    /// The address, and the database unless it is 0.
    pub(super) name: String,
    pub(super) secrets: Vec<String>,
    /// The user for credentials that name no user.
    pub(super) user: Option<String>,
    pub(super) rotation: Arc<Rotation>,
    pub(super) way: Way,
    /// The prefix of all keys, in a cluster.
    pub(super) tag: Option<String>,
}

pub(super) enum Way {
    Direct(Client),
    Witnessed(Witnesses),
}

impl Way {
    pub(super) const fn witnesses(&self) -> Option<&Witnesses> {
        match self {
            Self::Direct(_) => None,
            Self::Witnessed(witnesses) => Some(witnesses),
        }
    }
}

impl Target {
    pub(super) fn parse(
        url: &str,
        place: &str,
        access: &Access,
        certificates: &Certificates,
    ) -> Result<Self, ConfigError> {
        let (info, tls) = read(url, place, certificates)?;
        let settings = access.apply(info.redis_settings().clone());
        let address = address_of(info.addr());
        let name = match settings.db() {
            0 => address.clone(),
            db => format!("{address}/{db}"),
        };
        let password = settings.password().filter(|password| !password.is_empty());
        let secrets = password.map(str::to_owned).into_iter().collect();
        let user = settings.username().map(str::to_owned);
        let info = info
            // Only RESP3 reports a lost connection without traffic.
            .set_redis_settings(
                settings
                    .set_protocol(ProtocolVersion::RESP3)
                    .set_skip_set_lib_name(),
            )
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self {
            address,
            name,
            secrets,
            user,
            rotation: Rotation::new(access.source.clone()),
            way: Way::Direct(client(info, tls, place, certificates)?),
            tag: None,
        })
    }
}

struct Listed {
    servers: Vec<(Address, RedisConnectionInfo, Client)>,
    tls: bool,
}

impl Listed {
    fn read(
        urls: &[Url],
        (name, what): (&str, &str),
        place: &str,
        certificates: &Certificates,
    ) -> Result<Self, ConfigError> {
        let mut listed: Vec<(Address, RedisConnectionInfo, Client)> = Vec::new();
        let mut kinds = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            let field = within(place, &format!("{name}[{index}]"));
            let refuse = |text: &str| Err(ConfigError::of(field.clone(), format!("{what} {text}")));
            let (info, tls) = read(&url.0, &field, certificates)?;
            let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
                info.addr()
            else {
                return refuse(SOCKET);
            };
            let address = (host.to_ascii_lowercase(), *port);
            if info.redis_settings().db() != 0 {
                return refuse(DATABASE);
            }
            if listed.iter().any(|(other, ..)| *other == address) {
                return refuse(TWICE);
            }
            let settings = info.redis_settings().clone();
            let asking = settings.clone().set_protocol(ProtocolVersion::RESP2);
            let info = info.set_redis_settings(asking.set_skip_set_lib_name());
            listed.push((address, settings, client(info, tls, &field, certificates)?));
            kinds.push(tls);
        }
        let tls = kinds.first().copied().unwrap_or_default();
        if kinds.iter().any(|kind| *kind != tls) {
            return Err(ConfigError::of(within(place, name), MIXED));
        }
        Ok(Self {
            servers: listed,
            tls,
        })
    }

    fn addresses(&self) -> Vec<String> {
        let servers = self.servers.iter();
        let addresses = servers.map(|((host, port), ..)| shown(host, *port));
        addresses.collect()
    }

    fn secrets(&self, access: &Access) -> Vec<String> {
        let servers = self.servers.iter();
        let passwords = servers.filter_map(|(_, settings, _)| settings.password());
        let all = access.password.as_deref().into_iter().chain(passwords);
        all.filter(|secret| !secret.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn reach(
        &self,
        settings: RedisConnectionInfo,
        access: &Access,
        certificates: &Certificates,
        within: Duration,
    ) -> Arc<Reach> {
        let settings = settings
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        Arc::new(Reach {
            settings: access.apply(settings),
            rotation: Rotation::new(access.source.clone()),
            tls: self.tls,
            certificates: certificates.clone(),
            within,
            clock: OnceLock::new(),
        })
    }
}

pub(super) fn behind_sentinels(
    urls: &[Url],
    master: &str,
    confirmed: Duration,
    place: &str,
    access: &Access,
    certificates: &Certificates,
) -> Result<Target, ConfigError> {
    let refuse = |field: &str, text: &str| Err(ConfigError::of(within(place, field), text));
    check_time(confirmed, place)?;
    if master.is_empty() {
        return refuse("master", NO_NAME);
    }
    let listed = Listed::read(urls, ("sentinels", "a Sentinel"), place, certificates)?;
    if listed.servers.is_empty() {
        return refuse("sentinels", NO_SENTINELS);
    }
    let mut addresses = listed.addresses();
    let reach = listed.reach(
        RedisConnectionInfo::default(),
        access,
        certificates,
        confirmed,
    );
    let secrets = listed.secrets(access);
    let clients = listed.servers.into_iter().map(|(.., client)| client);
    let sentinels = Sentinels {
        master: master.to_owned(),
        listed: addresses.iter().cloned().zip(clients).collect(),
    };
    let confirmation = Confirmation::new(sentinels.addresses());
    addresses.sort_unstable();
    Ok(Target {
        address: format!("sentinel:{master}@{}", addresses.join(",")),
        // Without the address of the master, which changes.
        name: format!("sentinel:{master}"),
        secrets,
        user: access.user.clone(),
        rotation: Arc::clone(&reach.rotation),
        way: Way::Witnessed(Witnesses {
            source: Source::Sentinels(sentinels),
            reach,
            confirmation: Arc::new(watch::Sender::new(confirmation)),
        }),
        tag: None,
    })
}

pub(super) fn in_cluster(
    urls: &[Url],
    (name, used): (&str, &[u16]),
    confirmed: Duration,
    place: &str,
    access: &Access,
    certificates: &Certificates,
) -> Result<Vec<Target>, ConfigError> {
    check_time(confirmed, place)?;
    if access.database.is_some_and(|database| database != 0) {
        return Err(ConfigError::of(within(place, "database"), NO_DATABASES));
    }
    let listed = Listed::read(
        urls,
        ("cluster", "a server of a cluster"),
        place,
        certificates,
    )?;
    let Some((_, settings, _)) = listed.servers.first() else {
        return Err(ConfigError::of(within(place, "cluster"), NO_SEEDS));
    };
    let seeds = listed.servers.iter().map(|(address, ..)| address.clone());
    let reach = listed.reach(settings.clone(), access, certificates, confirmed);
    let user = reach.settings.username().map(str::to_owned);
    let cluster = Arc::new(Cluster::new(seeds.collect(), reach, used));
    let target = |slot: &u16| Target {
        address: format!("{name}/slot-{slot}"),
        name: format!("{name}/slot-{slot}"),
        secrets: listed.secrets(access),
        user: user.clone(),
        rotation: Arc::clone(&cluster.reach.rotation),
        way: Way::Witnessed(Witnesses {
            confirmation: cluster.confirmation(*slot),
            reach: Arc::clone(&cluster.reach),
            source: Source::Cluster(Arc::clone(&cluster), *slot),
        }),
        tag: Some(slots::tag(*slot)),
    };
    Ok(used.iter().map(target).collect())
}

fn check_time(confirmed: Duration, place: &str) -> Result<(), ConfigError> {
    ensure(
        (LEAST_WITHIN..=MOST_WITHIN).contains(&confirmed),
        &within(place, "confirm_within"),
        || BAD_WITHIN,
    )
}

const LEAST_WITHIN: Duration = Duration::from_millis(100);

const MOST_WITHIN: Duration = Duration::from_secs(60);

const NO_SENTINELS: &str = "a master is found through at least one Sentinel; give their URLs, as in `redis://10.0.0.1:26379`";

const NO_NAME: &str =
    "the name of the master is empty; it is what `sentinel monitor` calls it, often `mymaster`";

const NO_SEEDS: &str = "a cluster is found through at least one of its servers; give their URLs, as in `redis://10.0.0.1:6379`";

const NO_DATABASES: &str = "a cluster has no databases but 0; leave it out";

const SOCKET: &str = "is reached over TCP; use `redis://host:port` or `rediss://host:port`";

const DATABASE: &str = "has no databases; leave the number out, and choose the database of a Sentinel's master with `database`";

const TWICE: &str = "is listed twice; list each once";

const BAD_WITHIN: &str = "`confirm_within` must be from 100 ms to 1 min; 3 s is usual";

const MIXED: &str = "some are reached with TLS and some without; use `rediss://` for all of them or for none; the master is reached in the same way";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::redis::discovery::witnesses::CONFIRM_WITHIN;

    fn parse(url: &str) -> Result<Target, ConfigError> {
        Target::parse(url, "url", &Access::default(), &Certificates::default())
    }

    #[test]
    fn a_name_is_the_address_without_credentials() {
        for (url, name, address) in [
            ("redis://LOCALHOST", "localhost:6379", "localhost:6379"),
            ("redis://u:p@h:1/3", "h:1/3", "h:1"),
            ("valkey://:p@10.0.0.1:7", "10.0.0.1:7", "10.0.0.1:7"),
            ("redis://[::1]:7/0", "[::1]:7", "[::1]:7"),
            (
                "unix:///run/r.sock?pass=p&db=2",
                "/run/r.sock/2",
                "/run/r.sock",
            ),
            ("redis+unix:///run/r.sock", "/run/r.sock", "/run/r.sock"),
            ("redis://h/?protocol=resp3", "h:6379", "h:6379"),
        ] {
            let target = parse(url).unwrap();
            assert_eq!(target.name, name, "{url}");
            assert_eq!(target.address, address, "{url}");
        }
        let target = parse("redis://:a%40b@h").unwrap();
        assert_eq!(target.secrets, ["a@b"]);
    }

    #[test]
    fn a_wrong_url_says_what_to_do_and_keeps_the_password() {
        for (url, word) in [
            ("", "starts with"),
            ("10.0.0.1", "starts with"),
            ("http://:s3cret@h", "starts with"),
            ("s3cret://h", "starts with"),
            ("redis://", "malformed"),
            ("redis://:s3cret@h:port", "malformed"),
            ("redis://:s3/cret@h", "malformed"),
            ("redis://:s3cret@h/db", "malformed"),
            ("redis://:s3cret@h/-1", "malformed"),
            ("redis://:s3cret@h/?protocol=s3cret", "malformed"),
            ("redis://0.0.0.0", "malformed"),
            ("redis://h?db=3", "malformed"),
            ("redis://h?pass=s3cret", "malformed"),
            ("redis://h/?protocol=resp3&ssl=true", "malformed"),
            ("redis://h/1#s3cret", "malformed"),
            ("unix:///s?password=s3cret", "malformed"),
            ("unix://tmp/s", "malformed"),
            (
                "rediss://h#insecure",
                if cfg!(feature = "tls") {
                    "root_certificate"
                } else {
                    "feature `tls`"
                },
            ),
        ] {
            let error = parse(url).err().unwrap();
            let text = format!("{error} {error:?}");
            assert!(text.contains(word), "{url}: {text}");
            assert!(
                !text.contains("s3cret") && !text.contains("cret@"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_set_beside_the_url_comes_before_it() {
        let access = Access {
            user: None,
            password: Some("p@:/".to_owned()),
            database: Some(7),
            ..Access::default()
        };
        let target = Target::parse(
            "redis://u:old@h/3",
            "url",
            &access,
            &Certificates::default(),
        )
        .unwrap();
        assert_eq!(target.name, "h:6379/7");
        assert_eq!(target.secrets, ["p@:/"]);
    }

    #[test]
    fn certificates_need_a_tls_url() {
        let certificates = Certificates {
            root: Some(b"-----BEGIN CERTIFICATE-----".to_vec()),
            ..Certificates::default()
        };
        let error = Target::parse("redis://h", "url", &Access::default(), &certificates)
            .err()
            .unwrap();
        assert!(error.to_string().contains("rediss://"), "{error:?}");
    }

    fn named(urls: &[&str], master: &str) -> Result<Target, ConfigError> {
        let urls: Vec<Url> = urls.iter().map(|url| Url((*url).to_owned())).collect();
        let (access, certificates) = (Access::default(), Certificates::default());
        behind_sentinels(&urls, master, CONFIRM_WITHIN, "", &access, &certificates)
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
            assert!(error.to_string().contains(word), "{urls:?}: {error:?}");
        }
        if cfg!(feature = "tls") {
            let error = named(&["redis://s", "rediss://t"], "m").err().unwrap();
            assert!(
                error.to_string().contains("for all of them or for none"),
                "{error:?}"
            );
        }
    }
}
