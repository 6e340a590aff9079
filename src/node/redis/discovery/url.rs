use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::node::redis::error::NodeUrlError;

/// The certificates of a TLS connection, as PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) root: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    const fn is_empty(&self) -> bool {
        self.root.is_none() && self.client.is_none()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
}

impl Access {
    pub(crate) fn apply(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        match self.database {
            Some(database) => settings.set_db(i64::from(database)),
            None => settings,
        }
    }
}

pub(crate) fn read(
    url: &str,
    certificates: &Certificates,
) -> Result<(ConnectionInfo, bool), NodeUrlError> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let tls = match scheme {
        Some("rediss" | "valkeys") => true,
        Some("redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix") => false,
        _ => return Err(NodeUrlError::new(UNKNOWN_SCHEME)),
    };
    if tls && cfg!(not(feature = "tls")) {
        return Err(NodeUrlError::new(TLS_IS_OFF));
    }
    if !tls && !certificates.is_empty() {
        return Err(NodeUrlError::new(CERTIFICATES_WITHOUT_TLS));
    }
    if url.contains("#insecure") {
        return Err(NodeUrlError::new(INSECURE));
    }
    if says_more(url) {
        return Err(NodeUrlError::new(MALFORMED));
    }
    // The client's own error may quote parts of the URL, so it is not passed on.
    let info = url
        .into_connection_info()
        .map_err(|_| NodeUrlError::new(MALFORMED))?;
    if info.redis_settings().db() < 0 {
        return Err(NodeUrlError::new(MALFORMED));
    }
    Ok((info, tls))
}

/// Whether text that the client ignores stands behind the `?`: `redis://h?db=3` must not silently have no effect.
fn says_more(url: &str) -> bool {
    let known: &[&str] = match url.split_once("://") {
        // We use RESP3 whatever it says, and URLs written for other clients have it.
        Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => &["protocol"],
        _ => &["user", "pass", "db", "protocol"],
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let names = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = names.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    url.contains('#') || names.any(|name| !known.contains(&name))
}

/// `host:port` in lower case, or the path of a socket.
pub(crate) fn address_of(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let host = host.to_ascii_lowercase();
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        other => other.to_string(),
    }
}

#[cfg(feature = "tls")]
pub(crate) fn client(
    info: ConnectionInfo,
    tls: bool,
    certificates: &Certificates,
) -> Result<Client, NodeUrlError> {
    if !tls {
        return Client::open(info).map_err(|_| NodeUrlError::new(MALFORMED));
    }
    // The client panics on its first connection if the process has no provider. An error means that the program has
    // chosen one itself, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let is_pem = |pem: &[u8], label: &[u8]| pem.windows(label.len()).any(|part| part == label);
    let certificate = b"-----BEGIN CERTIFICATE-----";
    if let Some(root) = &certificates.root
        && !is_pem(root, certificate)
    {
        return Err(NodeUrlError::of("tls.root_certificate", BAD_ROOT));
    }
    if let Some((chain, key)) = &certificates.client
        && !(is_pem(chain, certificate) && is_pem(key, b"PRIVATE KEY-----"))
    {
        return Err(NodeUrlError::of("tls.client_certificate", BAD_CLIENT));
    }
    let certificates = redis::TlsCertificates {
        client_tls: certificates
            .client
            .clone()
            .map(|(client_cert, client_key)| redis::ClientTlsConfig {
                client_cert,
                client_key,
            }),
        root_cert: certificates.root.clone(),
    };
    Client::build_with_tls(info, certificates)
        .map_err(|_| NodeUrlError::of("tls", BAD_CERTIFICATES))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn client(
    info: ConnectionInfo,
    _tls: bool,
    _certificates: &Certificates,
) -> Result<Client, NodeUrlError> {
    Client::open(info).map_err(|_| NodeUrlError::new(MALFORMED))
}

const UNKNOWN_SCHEME: &str = "a node URL starts with `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` (TLS) or `unix://`, as in `redis://10.0.0.1:6379`";
const MALFORMED: &str = "the node URL is malformed; it must read `redis://[[user]:password@]host[:port][/database]` or `unix:///path[?user=..&pass=..&db=..]`, with special characters in user and password percent-encoded (`@` is `%40`, `/` is `%2F`)";
const TLS_IS_OFF: &str =
    "a `rediss://` URL needs the feature `tls` of `tower-redlock`; enable it in Cargo.toml";
const CERTIFICATES_WITHOUT_TLS: &str =
    "certificates were given for a node without TLS; use a `rediss://` URL";
const INSECURE: &str = "`#insecure` would accept any server as a node and is not supported; give the certificate of your authority with `root_certificate`";
#[cfg(feature = "tls")]
const BAD_ROOT: &str = "the root certificate is not in PEM form (`-----BEGIN CERTIFICATE-----`)";
#[cfg(feature = "tls")]
const BAD_CLIENT: &str = "the client certificate or its key is not in PEM form";
#[cfg(feature = "tls")]
const BAD_CERTIFICATES: &str = "the certificates cannot be used; check that root, client certificate and key are PEM and whole";
