//! From a URL to a client that can connect, and to names that are fit to be shown.

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};

use crate::node::redis::error::NodeUrlError;
use crate::node::redis::sentinel::Sentinels;

/// The certificates of a TLS connection, as PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    pub(super) root: Option<Vec<u8>>,
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    const fn is_empty(&self) -> bool {
        self.root.is_none() && self.client.is_none()
    }
}

/// Who we are to the server and what we use of it, where that is not said by the URL.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u32>,
}

impl Access {
    pub(super) fn apply(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
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

/// Reads a URL of any server; tells, too, whether it speaks TLS.
pub(super) fn read(
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

/// Whether there is something behind the `?` that the client passes over. Whoever writes `redis://h?db=3` or
/// `?ssl=true` would have neither, and not be told.
fn says_more(url: &str) -> bool {
    let known: &[&str] = match url.split_once("://") {
        // It is RESP3 whatever that says, and people have it from clients that must be told.
        Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => &["protocol"],
        _ => &["user", "pass", "db", "protocol"],
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let names = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = names.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    url.contains('#') || names.any(|name| !known.contains(&name))
}

/// `host:port` in lower case, or the path of a socket.
pub(super) fn address_of(addr: &ConnectionAddr) -> String {
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

/// What connects to the server at `info`.
#[cfg(feature = "tls")]
pub(super) fn client(
    info: ConnectionInfo,
    tls: bool,
    certificates: &Certificates,
) -> Result<Client, NodeUrlError> {
    if !tls {
        return Client::open(info).map_err(|_| NodeUrlError::new(MALFORMED));
    }
    // The client panics on its first connection if the process has no provider. An error says that the program
    // has chosen one itself, which is as good.
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
pub(super) fn client(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, NodeUrlError> {
        Target::parse(url, &Access::default(), &Certificates::default())
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
        };
        let target = Target::parse("redis://u:old@h/3", &access, &Certificates::default()).unwrap();
        assert_eq!(target.name, "h:6379/7");
        assert_eq!(target.secrets, ["p@:/"]);
    }

    #[test]
    fn certificates_need_a_tls_url() {
        let certificates = Certificates {
            root: Some(b"-----BEGIN CERTIFICATE-----".to_vec()),
            client: None,
        };
        let error = Target::parse("redis://h", &Access::default(), &certificates)
            .err()
            .unwrap();
        assert!(error.to_string().contains("rediss://"), "{error}");
    }
}
