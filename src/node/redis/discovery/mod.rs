//! Where a node is and how to get there: at the address of a URL, or where most Sentinels say that the master is.
//!
//! [`sentinel`] asks each Sentinel again and again, and makes a way to the master of what they say, with the time until
//! which that counts; [`confirmation`] counts what they said.

pub(super) mod confirmation;
pub(super) mod sentinel;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ProtocolVersion, RedisConnectionInfo};
use tokio::sync::watch;

use crate::node::redis::access::{Access, Certificates, Rotation, address_of, client, read};
use crate::node::redis::discovery::confirmation::Confirmation;
use crate::node::redis::discovery::sentinel::Sentinels;
use crate::settings::error::{ConfigError, within};
use crate::settings::server::Url;

pub(super) struct Target {
    /// `host:port` in lower case, or the path of a socket: the same for two URLs of one address.
    pub(super) address: String,
    /// The address and, unless it is 0, the database.
    pub(super) name: String,
    /// What must not be seen in any text.
    pub(super) secrets: Vec<String>,
    /// The user for credentials without one, if any.
    pub(super) user: Option<String>,
    pub(super) rotation: Arc<Rotation>,
    pub(super) way: Way,
}

/// How connections are made.
pub(super) enum Way {
    /// To one address.
    Direct(Client),
    /// To where the master is.
    Sentinels(Sentinels),
}

impl Way {
    pub(super) const fn sentinels(&self) -> Option<&Sentinels> {
        match self {
            Self::Direct(_) => None,
            Self::Sentinels(sentinels) => Some(sentinels),
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
            // Only RESP3 tells of a lost connection without traffic.
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
        })
    }
}

pub(super) fn target(
    urls: &[Url],
    master: &str,
    confirmed: Duration,
    place: &str,
    access: &Access,
    certificates: &Certificates,
) -> Result<Target, ConfigError> {
    let refuse = |field: &str, text: &str| Err(ConfigError::of(within(place, field), text));
    if !(LEAST_WITHIN..=MOST_WITHIN).contains(&confirmed) {
        return refuse("confirm_within", BAD_WITHIN);
    }
    if master.is_empty() {
        return refuse("master", NO_NAME);
    }
    let mut sentinels = Vec::new();
    let mut secrets: Vec<String> = access.password.clone().into_iter().collect();
    let mut kinds = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        let field = format!("sentinels[{index}]");
        let here = within(place, &field);
        let (info, tls) = read(&url.0, &here, certificates)?;
        if !matches!(
            info.addr(),
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. }
        ) {
            return refuse(&field, SOCKET);
        }
        let settings = info.redis_settings().clone();
        if settings.db() != 0 {
            return refuse(&field, DATABASE);
        }
        secrets.extend(settings.password().map(str::to_owned));
        let address = address_of(info.addr());
        if sentinels.iter().any(|(other, _)| *other == address) {
            return refuse(&field, TWICE);
        }
        let info = info.set_redis_settings(
            settings
                .set_protocol(ProtocolVersion::RESP2)
                .set_skip_set_lib_name(),
        );
        sentinels.push((address, client(info, tls, &here, certificates)?));
        kinds.push(tls);
    }
    let Some(tls) = kinds.first().copied() else {
        return refuse("sentinels", NO_SENTINELS);
    };
    if kinds.iter().any(|kind| *kind != tls) {
        return refuse("sentinels", MIXED);
    }
    let mut addresses: Vec<&str> = sentinels.iter().map(|(address, _)| &**address).collect();
    addresses.sort_unstable();
    let rotation = Rotation::new(access.source.clone());
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
        user: access.user.clone(),
        rotation: Arc::clone(&rotation),
        way: Way::Sentinels(Sentinels {
            rotation,
            master: master.to_owned(),
            confirmation: watch::Sender::new(Confirmation::new(sentinels.len())),
            sentinels,
            settings: access.apply(settings),
            tls,
            certificates: certificates.clone(),
            within: confirmed,
            clock: OnceLock::new(),
        }),
    })
}

/// For how long it may count.
const LEAST_WITHIN: Duration = Duration::from_millis(100);

const MOST_WITHIN: Duration = Duration::from_secs(60);

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
    use crate::node::redis::discovery::sentinel::CONFIRM_WITHIN;

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
        target(&urls, master, CONFIRM_WITHIN, "", &access, &certificates)
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
                error.to_string().contains("for all or for none"),
                "{error:?}"
            );
        }
    }
}
