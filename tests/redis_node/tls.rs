//! TLS, with an authority made on the spot.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tower_redlock::node::{AcquireReply, Node, NodeErrorKind, NodeState};
use tower_redlock::node::{LiveNode, RedisNode};

use crate::support::eventually;
use crate::support::nodes::{acquire, context, refusal, settled, started};
use crate::support::sentinel::Sentinel;
use crate::support::server::{Kind, Server, cannot};

/// An authority and a certificate of it, for localhost.
struct Authority {
    root: String,
    certificate: String,
    key: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    // Two certificates of one name would look like one that signed itself.
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Authority {
        root,
        certificate,
        key: key.serialize_pem(),
    }
}

/// A server with this certificate, which asks its clients for certificates of `clients`. `None` if servers are built
/// without TLS: then it is shown that one can be reached in plain text alone.
async fn server_of(authority: &Authority, clients: Option<&str>) -> Option<Server> {
    // It lacks a certificate, and says so. Others do not know the setting, or end at it.
    let asked = Server::start(Kind::Redis, &[]);
    let answer = asked.raw().command(&["CONFIG", "SET", "tls-port", "1"]);
    if answer.is_ok_and(|answer| answer.contains("TLS configuration")) {
        let (certificate, key) = (&authority.certificate, &authority.key);
        return Some(Server::start_tls(Kind::Redis, certificate, key, clients));
    }
    cannot("TLS");
    let plain = Server::start(Kind::Redis, &[]);
    fails(&trusting(&at_plain(&plain), &authority.root)).await;
    settled(&started(&plain.url())).await.unwrap();
    None
}

/// The URL of a server without TLS as if it had it.
fn at_plain(server: &Server) -> String {
    let url = server.url();
    url.replace("redis://127.0.0.1", "rediss://localhost")
}

fn trusting(url: &str, root: &str) -> LiveNode {
    let node = RedisNode::new(url).root_certificate(root).build().unwrap();
    node.start(context());
    node
}

/// Waits until the node is down or refused.
async fn fails(node: &LiveNode) {
    let failed = || matches!(node.state(), NodeState::Down(_) | NodeState::Refused(_));
    eventually("down or refused", failed).await;
}

#[tokio::test]
async fn a_server_of_the_given_authority_is_taken() {
    let authority = authority();
    let Some(server) = server_of(&authority, None).await else {
        return;
    };
    let node = trusting(&server.url(), &authority.root);
    settled(&node).await.unwrap();
    let granted = node.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
    assert!(!format!("{node:?}").contains("CERTIFICATE"));
}

#[tokio::test]
async fn a_master_behind_a_sentinel_is_reached_with_tls() {
    let authority = authority();
    let Some(server) = server_of(&authority, Some(&authority.root)).await else {
        return;
    };
    let [certificate, key, root] = ["certificate", "key", "root"].map(|name| server.file(name));
    let sentinel = Sentinel::start_tls(Kind::Redis, &server, &certificate, &key, &root);
    let chain = (authority.certificate, authority.key);
    let node = RedisNode::sentinel([sentinel.url()], "mymaster")
        .root_certificate(authority.root)
        .client_certificate(chain.0, chain.1)
        .build()
        .unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    let granted = node.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
}

#[tokio::test]
async fn we_show_our_own_certificate() {
    let authority = authority();
    let Some(server) = server_of(&authority, Some(&authority.root)).await else {
        return;
    };
    let anonymous = trusting(&server.url(), &authority.root);
    fails(&anonymous).await;
    let node = RedisNode::new(&server.url())
        .root_certificate(authority.root)
        .client_certificate(authority.certificate, authority.key)
        .build()
        .unwrap();
    node.start(context());
    settled(&node).await.unwrap();
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let Some(server) = server_of(&authority(), None).await else {
        return;
    };
    for node in [
        trusting(&server.url(), &authority().root),
        started(&server.url()),
    ] {
        let error = refusal(&node).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(error.to_string().contains("root_certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_in_the_certificate_is_refused() {
    let authority = authority();
    let Some(server) = server_of(&authority, None).await else {
        return;
    };
    let url = server.url().replace("localhost", "127.0.0.1");
    let error = refusal(&trusting(&url, &authority.root)).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn tls_and_plain_text_do_not_mix() {
    let authority = authority();
    let plain = Server::start(Kind::Redis, &[]);
    // A plain server takes the handshake for an unfinished command and waits.
    fails(&trusting(&at_plain(&plain), &authority.root)).await;

    let Some(server) = server_of(&authority, None).await else {
        return;
    };
    fails(&started(&server.url().replace("rediss", "redis"))).await;
}

#[test]
fn certificates_that_are_none_are_an_error_at_once() {
    let of = |root: &str| {
        let built = RedisNode::new("rediss://localhost")
            .root_certificate(root)
            .build();
        built.unwrap_err().to_string()
    };
    assert!(of("not PEM").contains("PEM"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(of(broken).contains("certificate"));
    let error = RedisNode::new("rediss://localhost")
        .client_certificate("not PEM", "not PEM")
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("PEM"));
}
