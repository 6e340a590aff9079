//! Where a node is and how to get there: one address, or the master that Sentinels name.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::redis::confirmation::{Address, Board, Place};
use crate::node::redis::connect_failure::ConnectFailure;
use crate::node::redis::error::NodeUrlError;
use crate::node::redis::sentinel::Sentinels;
use crate::node::redis::shared::Shared;
use crate::node::redis::url::{Access, Certificates, address_of, client, read};
use crate::node::{NodeContext, NodeError, NodeErrorKind};

/// Where a node is and how to get there.
pub(super) struct Target {
    /// `host:port` in lower case, or the path of a socket: the same for two URLs of one address.
    pub(super) address: String,
    /// The address and, unless it is 0, the database.
    pub(super) name: String,
    /// What must not be seen in any text.
    pub(super) secrets: Vec<String>,
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
    /// Those that tell where the server is, if any do.
    pub(super) const fn sentinels(&self) -> Option<&Sentinels> {
        match self {
            Self::Direct(_) => None,
            Self::Sentinels(sentinels) => Some(sentinels),
        }
    }
}

impl Target {
    /// Reads `url`.
    pub(super) fn parse(
        url: &str,
        access: &Access,
        certificates: &Certificates,
    ) -> Result<Self, NodeUrlError> {
        let (info, tls) = read(url, certificates)?;
        let settings = access.apply(info.redis_settings().clone());
        let address = address_of(info.addr());
        let name = match settings.db() {
            0 => address.clone(),
            db => format!("{address}/{db}"),
        };
        let password = settings.password().filter(|password| !password.is_empty());
        let secrets = password.map(str::to_owned).into_iter().collect();
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
            way: Way::Direct(client(info, tls, certificates)?),
        })
    }
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
