//! From a [`NodeConfig`] to a [`RedisNode`].

use std::fs;
use std::path::Path;

use redis::IntoConnectionInfo as _;

use super::LockConfig;
#[cfg(feature = "tls")]
use super::node::is_pem;
use super::node::{NodeConfig, TlsConfig};
use super::secret::Secret;
use crate::manager::ConfigError;
use crate::node::redis::{NodeUrlError, RedisNode, RedisNodeBuilder};

/// Makes the node at `path` of a configuration, with the credentials and certificates for all nodes in `shared`.
pub(super) fn build(
    node: &NodeConfig,
    path: &str,
    shared: &LockConfig,
) -> Result<RedisNode, ConfigError> {
    let mut builder = credentials(begin(node, path)?, node, path, shared)?;
    if let Some(name) = &node.name {
        if name.is_empty() {
            return Err(refuse(
                path,
                "name",
                "is empty; leave it out for host and port",
            ));
        }
        builder = builder.name(name);
    }
    macro_rules! set {
        ($($setting:ident)*) => {
            $(if let Some(value) = node.$setting {
                builder = builder.$setting(value);
            })*
        };
    }
    set! { database connect_timeout require within connections confirm_within }
    builder = builder.expect_replicas(node.expect_replicas);
    builder = builder.accept_eviction(node.accept_eviction);
    // The certificates, and their path in the configuration.
    let (tls, place) = match node.tls.is_empty() {
        true => (&shared.tls, "tls".to_owned()),
        false => (&node.tls, format!("{path}.tls")),
    };
    if !tls.is_empty() {
        builder = certificates(builder, tls, &place)?;
    }
    builder
        .build()
        .map_err(|error| explain(&error, path, &place))
}

/// A builder with the address of the server.
fn begin(node: &NodeConfig, path: &str) -> Result<RedisNodeBuilder, ConfigError> {
    match (&node.url, &node.master) {
        (Some(_), Some(_)) => Err(refuse(path, "master", URL_TOO)),
        (Some(_), None) if !node.sentinels.is_empty() => Err(refuse(path, "sentinels", URL_TOO)),
        (Some(url), None) => Ok(RedisNode::builder(url)),
        (None, Some(master)) => Ok(RedisNode::sentinel(&node.sentinels, master)),
        (None, None) if node.sentinels.is_empty() => Err(refuse(path, "url", NOWHERE)),
        (None, None) => Err(refuse(path, "master", NO_MASTER)),
    }
}

/// The node's own user and password come first, then those in its URL, then those of all nodes.
fn credentials(
    mut builder: RedisNodeBuilder,
    node: &NodeConfig,
    path: &str,
    shared: &LockConfig,
) -> Result<RedisNodeBuilder, ConfigError> {
    // A malformed URL is refused when the node is built.
    let url = node.url.as_deref();
    let url = url.and_then(|url| url.into_connection_info().ok());
    let url = url.as_ref().map(|info| info.redis_settings());
    let has_user = url.is_some_and(|url| url.username().is_some());
    let shared_user = shared.user.as_ref().filter(|_| !has_user);
    if let Some(user) = node.user.as_ref().or(shared_user) {
        builder = builder.user(user);
    }
    let password = match password(node.password.as_ref(), node.password_file.as_deref(), path)? {
        None if url.is_none_or(|url| url.password().is_none()) => password(
            shared.password.as_ref(),
            shared.password_file.as_deref(),
            "",
        )?,
        own => own,
    };
    Ok(match password {
        Some(password) => builder.password(password.expose()),
        None => builder,
    })
}

/// The password at `path`, given itself or by its file.
fn password(
    password: Option<&Secret>,
    file: Option<&Path>,
    path: &str,
) -> Result<Option<Secret>, ConfigError> {
    let Some(file) = file else {
        return match password {
            Some(password) if password.expose().is_empty() => {
                Err(refuse(path, "password", EMPTY_PASSWORD))
            }
            password => Ok(password.cloned()),
        };
    };
    if password.is_some() {
        return Err(refuse(path, "password_file", PASSWORD_TOO));
    }
    let text = fs::read_to_string(file).map_err(|error| {
        let reason = format!("the file cannot be read: {error}; give the path of a text file");
        refuse(path, "password_file", &reason)
    })?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(refuse(path, "password_file", NO_PASSWORD)),
        text => Ok(Some(text.into())),
    }
}

fn refuse(path: &str, field: &str, reason: &str) -> ConfigError {
    let place = match path {
        "" => field.to_owned(),
        _ => format!("{path}.{field}"),
    };
    ConfigError::of(place, reason)
}

/// Adds the field to the node's own error.
fn explain(error: &NodeUrlError, path: &str, tls: &str) -> ConfigError {
    let field = match error.about() {
        (about, Some(index)) => format!("{path}.{about}[{index}]"),
        (about, None) => match about.strip_prefix("tls") {
            Some(certificate) => format!("{tls}{certificate}"),
            None => format!("{path}.{about}"),
        },
    };
    ConfigError::of(field, error.to_string())
}

#[cfg(feature = "tls")]
fn certificates(
    mut builder: RedisNodeBuilder,
    tls: &TlsConfig,
    place: &str,
) -> Result<RedisNodeBuilder, ConfigError> {
    let read = |field: &str, text: &str| {
        if is_pem(text) {
            return Ok(text.as_bytes().to_vec());
        }
        fs::read(text).map_err(|error| {
            let reason =
                format!("the file cannot be read: {error}; give its path, or the PEM text");
            refuse(place, field, &reason)
        })
    };
    if let Some(root) = &tls.root_certificate {
        builder = builder.root_certificate(read("root_certificate", root)?);
    }
    match (&tls.client_certificate, &tls.client_key) {
        (Some(certificate), Some(key)) => Ok(builder.client_certificate(
            read("client_certificate", certificate)?,
            read("client_key", key.expose())?,
        )),
        (None, None) => Ok(builder),
        (Some(_), None) => Err(refuse(place, "client_key", NO_KEY)),
        (None, Some(_)) => Err(refuse(place, "client_certificate", NO_CERTIFICATE)),
    }
}

#[cfg(not(feature = "tls"))]
fn certificates(
    _builder: RedisNodeBuilder,
    _tls: &TlsConfig,
    place: &str,
) -> Result<RedisNodeBuilder, ConfigError> {
    Err(ConfigError::of(place, TLS_IS_OFF))
}

const URL_TOO: &str =
    "is for nodes that Sentinels know, and this one has a `url`; leave out one of them";
const NOWHERE: &str = "is missing; give a URL, or `sentinels` and `master`; environment variables for nodes replace the whole list of a file";
const PASSWORD_TOO: &str = "is given beside `password`; leave out one of them";
const EMPTY_PASSWORD: &str = "is empty; leave it out if the server asks for none";
const NO_PASSWORD: &str = "the file is empty; it must hold the password and nothing else";
const NO_MASTER: &str = "is missing: by which name do the Sentinels know the server?";
#[cfg(feature = "tls")]
const NO_KEY: &str = "is missing: the certificate of a client needs its private key";
#[cfg(feature = "tls")]
const NO_CERTIFICATE: &str = "is missing: a private key needs the certificate that it belongs to";
#[cfg(not(feature = "tls"))]
const TLS_IS_OFF: &str =
    "certificates need the feature `tls` of `tower-redlock`; enable it in Cargo.toml";
