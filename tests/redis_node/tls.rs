//! TLS, with an authority made on the spot.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::sentinel::Sentinel;
use crate::support::server::cannot;
use crate::*;

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
    start(RedisNode::new(url).root_certificate(root))
}

/// Waits until the node is down or refused.
async fn fails(node: &LiveNode) {
    let failed = || matches!(node.state(), NodeState::Down(_) | NodeState::Refused(_));
    eventually("down or refused", failed).await;
}

#[tokio::test]
async fn a_server_of_the_given_authority_is_taken_and_no_other() {
    let authority = authority();
    let plain = Server::start(Kind::Redis, &[]);
    // A plain server takes the handshake for an unfinished command and waits.
    fails(&trusting(&at_plain(&plain), &authority.root)).await;

    let Some(server) = server_of(&authority, None).await else {
        return;
    };
    let url = server.url();
    let node = trusting(&url, &authority.root);
    up_again(&node).await;
    assert!(!format!("{node:?}").contains("CERTIFICATE"));
    fails(&started(&url.replace("rediss", "redis"))).await;
    for node in [trusting(&url, &self::authority().root), started(&url)] {
        let error = refusal(&node).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(error.to_string().contains("root_certificate"), "{error}");
    }
    // That name is not in the certificate.
    let url = url.replace("localhost", "127.0.0.1");
    let error = refusal(&trusting(&url, &authority.root)).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn a_master_behind_a_sentinel_is_reached_with_tls() {
    let authority = authority();
    let Some(server) = server_of(&authority, Some(&authority.root)).await else {
        return;
    };
    let anonymous = trusting(&server.url(), &authority.root);
    fails(&anonymous).await;
    let [certificate, key, root] = ["certificate", "key", "root"].map(|name| server.file(name));
    let sentinel = Sentinel::start_tls(Kind::Redis, &server, &certificate, &key, &root);
    let node = RedisNode::sentinel([sentinel.url()], "mymaster").root_certificate(authority.root);
    let node = node.client_certificate(authority.certificate, authority.key);
    up_again(&start(node)).await;
}

#[test]
fn certificates_that_are_none_are_an_error_at_once() {
    let node = || RedisNode::new("rediss://localhost");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (node, reason) in [
        (node().root_certificate("not PEM"), "PEM"),
        (node().root_certificate(broken), "certificate"),
        (node().client_certificate("not PEM", "not PEM"), "PEM"),
    ] {
        let error = node.build().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
