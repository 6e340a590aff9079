//! URLs, certificates and credentials of servers.
//!
//! We do not use the client's `StreamingCredentialsProvider`, because it gives up after one failed `AUTH`.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::seam;
#[cfg(not(feature = "tls"))]
use crate::settings::error::ensure;
use crate::settings::error::{ConfigError, within};
use crate::settings::server::{Credentials, CredentialsSource, NodeSettings, TlsSettings};
#[cfg(feature = "tls")]
use crate::settings::server::{Pem, is_pem};

/// The user, password and database that replace those in a server's URL.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u32>,
    /// The callback, which replaces the user and the password.
    pub(super) source: Option<CredentialsSource>,
}

impl Access {
    /// Uses the credentials in the node's settings; otherwise those in its URL; otherwise those of all nodes.
    pub(super) fn of(
        node: &NodeSettings,
        place: &str,
        all: &NodeSettings,
    ) -> Result<Self, ConfigError> {
        // Ignore a malformed URL here, because `read` refuses it.
        let url = node.url.as_ref();
        let url = url.and_then(|url| url.0.as_str().into_connection_info().ok());
        let url = url.as_ref().map(|info| info.redis_settings());
        let has_user = url.is_some_and(|url| url.username().is_some());
        let has_password = url.is_some_and(|url| url.password().is_some());
        let own = password(node, place)?;
        Ok(Self {
            user: match &node.user {
                None if !has_user => all.user.clone(),
                own => own.clone(),
            },
            password: match own {
                None if !has_password => password(all, "")?,
                own => own,
            },
            database: node.database,
            source: node
                .credentials
                .as_ref()
                .or(all.credentials.as_ref())
                .cloned(),
        })
    }

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

fn password(node: &NodeSettings, place: &str) -> Result<Option<String>, ConfigError> {
    let refuse = |field, text: &str| Err(ConfigError::of(within(place, field), text));
    match (&node.password, &node.password_file) {
        (Some(_), Some(_)) => refuse("password_file", PASSWORD_TOO),
        (Some(password), None) if password.0.is_empty() => refuse("password", EMPTY_PASSWORD),
        (password, None) => Ok(password.as_ref().map(|password| password.0.clone())),
        (None, Some(file)) => {
            let text = fs::read_to_string(file).map_err(|error| {
                let text =
                    format!("the file cannot be read: {error}; give the path of a text file");
                ConfigError::of(within(place, "password_file"), text)
            })?;
            match text.trim_end_matches(['\r', '\n']) {
                "" => refuse("password_file", NO_PASSWORD),
                text => Ok(Some(text.to_owned())),
            }
        }
    }
}

const PASSWORD_TOO: &str = "is given in addition to `password`; leave out one of them";
const EMPTY_PASSWORD: &str = "is empty; leave it out if the server needs no password";
const NO_PASSWORD: &str = "the file is empty; it must hold the password and nothing else";

#[derive(Clone, Default)]
pub(super) struct Certificates {
    pub(super) root: Option<Vec<u8>>,
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
    #[cfg(feature = "tls")]
    pub(super) place: String,
}

impl Certificates {
    #[cfg(feature = "tls")]
    pub(super) fn read(tls: &TlsSettings, place: &str) -> Result<Self, ConfigError> {
        let refuse = |field, text: &str| Err(ConfigError::of(within(place, field), text));
        let read = |field: &str, text: &str, label: &str| {
            let pem = match is_pem(text) {
                true => text.as_bytes().to_vec(),
                false => fs::read(text).map_err(|error| {
                    let text =
                        format!("the file cannot be read: {error}; give its path, or the PEM text");
                    ConfigError::of(within(place, field), text)
                })?,
            };
            match String::from_utf8_lossy(&pem).contains(label) {
                true => Ok(pem),
                false => Err(ConfigError::of(within(place, field), NOT_PEM)),
            }
        };
        let certificate = |field: &str, text: &Pem| read(field, &text.0, "BEGIN CERTIFICATE-----");
        let root = tls.root_certificate.as_ref();
        let root = root.map(|root| certificate("root_certificate", root));
        let root = root.transpose()?;
        let client = match (&tls.client_certificate, &tls.client_key) {
            (Some(chain), Some(key)) => Some((
                certificate("client_certificate", chain)?,
                read("client_key", &key.0, "PRIVATE KEY-----")?,
            )),
            (None, None) => None,
            (Some(_), None) => return refuse("client_key", NO_KEY),
            (None, Some(_)) => return refuse("client_certificate", NO_CERTIFICATE),
        };
        Ok(Self {
            root,
            client,
            place: place.to_owned(),
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn read(tls: &TlsSettings, place: &str) -> Result<Self, ConfigError> {
        ensure(tls.is_empty(), place, || CERTIFICATES_ARE_OFF)?;
        Ok(Self::default())
    }

    const fn is_empty(&self) -> bool {
        self.root.is_none() && self.client.is_none()
    }
}

#[cfg(feature = "tls")]
const NO_KEY: &str = "is missing: the certificate of a client needs its private key";
#[cfg(feature = "tls")]
const NO_CERTIFICATE: &str = "is missing: a private key needs the certificate that it belongs to";
#[cfg(not(feature = "tls"))]
const CERTIFICATES_ARE_OFF: &str =
    "certificates need the feature `tls` of `tower-redlock`; enable it in Cargo.toml";

/// Reads a URL. Also returns whether it uses TLS. Errors never contain the URL, because it may contain a password.
pub(super) fn read(
    url: &str,
    place: &str,
    certificates: &Certificates,
) -> Result<(ConnectionInfo, bool), ConfigError> {
    let refuse = |text: &str| Err(ConfigError::of(place, text));
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let tls = match scheme {
        Some("rediss" | "valkeys") => true,
        Some("redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix") => false,
        _ => return refuse(UNKNOWN_SCHEME),
    };
    if tls && cfg!(not(feature = "tls")) {
        return refuse(TLS_IS_OFF);
    }
    if !tls && !certificates.is_empty() {
        return refuse(CERTIFICATES_WITHOUT_TLS);
    }
    if url.contains("#insecure") {
        return refuse(INSECURE);
    }
    // Do not pass on the client's error, because it can quote parts of the URL.
    match url.into_connection_info() {
        Ok(info) if !has_unknown_parts(url) && info.redis_settings().db() >= 0 => Ok((info, tls)),
        _ => refuse(MALFORMED),
    }
}

/// Whether the URL has a part that the client ignores, for example `redis://h?db=3`.
fn has_unknown_parts(url: &str) -> bool {
    let known: &[&str] = match url.split_once("://") {
        // Allow `protocol`, because URLs for other clients have it. We always use RESP3.
        Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => &["protocol"],
        _ => &["user", "pass", "db", "protocol"],
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let names = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = names.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    url.contains('#') || names.any(|name| !known.contains(&name))
}

pub(super) fn address_of(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            shown(&host.to_ascii_lowercase(), *port)
        }
        other => other.to_string(),
    }
}

pub(super) fn shown(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

pub(super) fn client(
    info: ConnectionInfo,
    tls: bool,
    place: &str,
    certificates: &Certificates,
) -> Result<Client, ConfigError> {
    #[cfg(feature = "tls")]
    if tls {
        return tls_client(info, certificates);
    }
    let _ = (tls, certificates);
    Client::open(info).map_err(|_| ConfigError::of(place, MALFORMED))
}

#[cfg(feature = "tls")]
fn tls_client(info: ConnectionInfo, certificates: &Certificates) -> Result<Client, ConfigError> {
    // The client panics on its first connection if the process has no provider. Ignore the error, which means that the
    // program has chosen a provider itself.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Certificates {
        root,
        client,
        place,
    } = certificates.clone();
    let certificates = redis::TlsCertificates {
        client_tls: client.map(|(client_cert, client_key)| redis::ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: root,
    };
    Client::build_with_tls(info, certificates).map_err(|_| ConfigError::of(place, BAD_CERTIFICATES))
}

const UNKNOWN_SCHEME: &str = "a node URL starts with `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` (TLS) or `unix://`, as in `redis://10.0.0.1:6379`";
const MALFORMED: &str = "the node URL is malformed; it must read `redis://[[user]:password@]host[:port][/database]` or `unix:///path[?user=..&pass=..&db=..]`, with special characters in user and password percent-encoded (`@` is `%40`, `/` is `%2F`)";
const TLS_IS_OFF: &str =
    "a `rediss://` URL needs the feature `tls` of `tower-redlock`; enable it in Cargo.toml";
const CERTIFICATES_WITHOUT_TLS: &str =
    "certificates were given for a node without TLS; use a `rediss://` URL";
const INSECURE: &str = "`#insecure` would accept any server as a node and is not supported; give the certificate of your authority with `root_certificate`";
#[cfg(feature = "tls")]
const NOT_PEM: &str =
    "is not in PEM form (`-----BEGIN CERTIFICATE-----`, for a key `-----BEGIN PRIVATE KEY-----`)";
#[cfg(feature = "tls")]
const BAD_CERTIFICATES: &str = "the certificates cannot be used; check that the root, the client certificate and the key are complete PEM texts";

/// Credentials that change, from a callback.
#[derive(Default)]
pub(super) struct Rotation {
    source: Option<CredentialsSource>,
    // The latest credentials first. Earlier ones are kept because their passwords must not appear in logs or errors.
    known: Mutex<Vec<Credentials>>,
    // Whether a renewal has failed, and no connection has authenticated since.
    is_stale: AtomicBool,
    // The runtime that runs the callback. Set when the node starts.
    calls: OnceLock<Handle>,
}

/// A running callback. Dropping it aborts the callback.
struct Call(JoinHandle<()>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Rotation {
    pub(super) fn new(source: Option<CredentialsSource>) -> Arc<Self> {
        Arc::new(Self {
            source,
            ..Self::default()
        })
    }

    pub(super) fn begin(&self, calls: Handle) {
        let _ = self.calls.set(calls);
    }

    pub(super) fn set_stale(&self, is_stale: bool) -> bool {
        self.is_stale.swap(is_stale, Ordering::Relaxed) != is_stale
    }

    fn known(&self) -> MutexGuard<'_, Vec<Credentials>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn ask(&self) -> Result<Option<(Credentials, Option<Instant>)>, String> {
        let Some(CredentialsSource(source)) = self.source.clone() else {
            return Ok(None);
        };
        let asked = Instant::now();
        // Run the callback on the program's runtime, because it can block a thread or spawn tasks. A panic ends only this
        // task.
        let (answer, answered) = oneshot::channel();
        let call = async move {
            // Ignore the error, because the caller may have gone.
            let _ = answer.send((source.0)().await);
        };
        let _call = Call(match self.calls.get() {
            Some(calls) => seam::spawn_on(calls, call),
            None => seam::spawn(call),
        });
        let credentials = match timeout(LONGEST_CALL, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(PANICKED.to_owned())),
            Err(_) => Err(format!(
                "the callback did not return within {LONGEST_CALL:?}"
            )),
        }?;
        let valid = credentials.valid_for;
        let again = valid.and_then(|valid| asked.checked_add((valid / 4 * 3).max(SOONEST)));
        let mut known = self.known();
        known.retain(|other| other.password != credentials.password);
        known.insert(0, credentials.clone());
        known.truncate(REMEMBERED);
        drop(known);
        Ok(Some((credentials, again)))
    }

    pub(super) fn apply(&self, client: Client) -> Client {
        let known = self.known();
        let Some(credentials) = known.first() else {
            return client;
        };
        let info = client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone();
        settings = settings.set_password(&credentials.password);
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
        // This cannot fail, because only the credentials differ from those of the open `client`.
        Client::open(info.set_redis_settings(settings)).unwrap_or(client)
    }

    pub(super) fn secrets(&self) -> Vec<String> {
        let known = self.known();
        let secrets = known.iter().map(|known| known.password.clone());
        secrets.filter(|secret| !secret.is_empty()).collect()
    }
}

const PANICKED: &str = "the callback panicked";
const LONGEST_CALL: Duration = Duration::from_secs(10);
pub(super) const SOONEST: Duration = Duration::from_millis(100);
const REMEMBERED: usize = 64;
