//! Users and passwords that change while nodes are in use, on real servers.

use std::io::Error;
use std::sync::Mutex;

use tower_redlock::node::Credentials;

use crate::support::nodes::listening;
use crate::support::sentinel::Sentinel;
use crate::*;

const MS: Duration = Duration::from_millis(1);

/// For the callback, which is the program's: a panic in it is no reason to give up a server for good.
const PANIC: &str = "panic";

/// What the callback gives now, and how often it was asked.
#[derive(Clone)]
struct Vault(Arc<Mutex<(Result<Credentials, String>, usize)>>);

impl Vault {
    fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Mutex::new((Ok(credentials), 0))))
    }

    fn set(&self, credentials: Result<Credentials, String>) {
        self.0.lock().unwrap().0 = credentials;
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }

    async fn get(self) -> Result<Credentials, Error> {
        let given = {
            let mut vault = self.0.lock().unwrap();
            vault.1 += 1;
            vault.0.clone()
        };
        given.map_err(|text| {
            assert_ne!(text, PANIC, "meant to be");
            Error::other(text)
        })
    }

    /// A started node at `url` with these credentials.
    fn node(&self, url: &str) -> LiveNode {
        let vault = self.clone();
        start(RedisNode::new(url).credentials(move || vault.clone().get()))
    }
}

fn of(user: &str, password: &str) -> Credentials {
    Credentials::password(password).user(user)
}

/// A server with users `a` and `b`, whose passwords are `a-s3cret` and `b-s3cret`, and no other.
fn server(kind: Kind) -> Server {
    let server = Server::start(kind, &[]);
    for user in ["a", "b"] {
        server.run(&format!("ACL SETUSER {user} on >{user}-s3cret ~* &* +@all"));
    }
    server
}

#[tokio::test]
async fn each_connection_is_made_with_the_password_of_that_moment() {
    for kind in Kind::ALL {
        let server = server(kind);
        let vault = Vault::new(of("a", "a-s3cret"));
        let node = vault.node(&server.url());
        settled(&node).await.unwrap();
        assert_eq!(vault.asked(), 2, "for each connection");
        node.acquire(acquire("k", 1)).await.unwrap();
        server.run("ACL SETUSER a resetpass >new-s3cret");
        vault.set(Ok(of("a", "new-s3cret")));
        server.run("CLIENT KILL USER a");
        let is_back = || vault.asked() >= 4 && node.state() == NodeState::Up;
        eventually("it is back", is_back).await;
        node.release(release("k", 1)).await.unwrap();
    }
}

#[tokio::test]
async fn running_connections_authenticate_anew_before_their_credentials_end() {
    for kind in Kind::ALL {
        let server = server(kind);
        let vault = Vault::new(of("a", "a-s3cret").valid_for(300 * MS));
        let node = vault.node(&server.url());
        settled(&node).await.unwrap();
        let (receiver, _listening) = listening(&node, &key("k")).await;
        let names = ["tower-redlock", "tower-redlock-notices"];
        let before = names.map(|name| connections_named(&server, name));
        assert!(before.iter().all(|found| found[0].1 == "a"), "{before:?}");
        vault.set(Ok(of("b", "b-s3cret").valid_for(300 * MS)));
        eventually("all are another user's", || {
            let now = names.map(|name| connections_named(&server, name));
            now.iter().flatten().all(|(_, user)| user == "b")
        })
        .await;
        // That ends what is still this user's.
        server.run("ACL DELUSER a");
        node.acquire(acquire("k", 1)).await.unwrap();
        node.release(release("k", 1)).await.unwrap();
        eventually("it still listens", || receiver.notices().released == 1).await;
        for (name, before) in names.iter().zip(before) {
            assert_eq!(
                connections_named(&server, name)[0].0,
                before[0].0,
                "the same"
            );
        }
    }
}

#[tokio::test]
async fn credentials_that_cannot_be_renewed_leave_the_connection_as_it_is() {
    let server = server(Kind::Redis);
    let short = |credentials: Credentials| credentials.valid_for(200 * MS);
    let vault = Vault::new(short(of("a", "a-s3cret")));
    let node = vault.node(&server.url());
    settled(&node).await.unwrap();
    let before = connections(&server);
    for failing in [
        Err("the vault is sealed".to_owned()),
        Err(PANIC.to_owned()),
        Ok(short(of("a", "wr0ng"))),
    ] {
        vault.set(failing);
        let asked = vault.asked();
        eventually("it was asked again", || vault.asked() > asked + 1).await;
        assert_eq!(node.state(), NodeState::Up);
        node.acquire(acquire("k", 1)).await.unwrap();
        node.release(release("k", 1)).await.unwrap();
    }
    vault.set(Ok(of("b", "b-s3cret")));
    eventually("it works again", || {
        let same = before.iter().map(|(id, _)| (id.clone(), "b".to_owned()));
        connections(&server).into_iter().eq(same)
    })
    .await;
    let asked = vault.asked();
    tokio::time::sleep(300 * MS).await;
    assert_eq!(vault.asked(), asked, "these do not end");
}

#[tokio::test]
async fn without_credentials_a_node_is_down_and_with_wrong_ones_refused_and_no_text_has_them() {
    let server = server(Kind::Redis);
    server.run("ACL SETUSER default off");
    let vault = Vault::new(of("a", "wr0ng-s3cret"));
    let node = vault.node(&server.url());
    let error = refusal(&node).await;
    assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
    assert!(error.to_string().contains("it refused the credentials"));
    // As some services do, which repeat what they were sent.
    vault.set(Err("no such token: wr0ng-s3cret".to_owned()));
    down(&node, "no credentials: no such token").await;
    let NodeState::Down(error) = node.state() else {
        panic!("{:?}", node.state());
    };
    assert_eq!(error.kind(), NodeErrorKind::Unavailable);
    vault.set(Ok(of("a", "a-s3cret")));
    eventually("it is up", || node.state() == NodeState::Up).await;
    let credentials = of("a", "a-s3cret").valid_for(MS);
    let builder = RedisNode::new("redis://h").credentials(|| Vault::new(of("a", "a-s3cret")).get());
    for text in [
        format!("{error} {error:?} {node:?} {credentials:?}"),
        format!("{builder:?} {:?}", builder.clone().build().unwrap()),
    ] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

/// Each connection may have a token of its own, and any of them may be in use.
#[tokio::test]
async fn the_token_of_no_connection_is_shown() {
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER locks on nopass ~* &* +@all");
    let vault = Vault::new(of("locks", "none"));
    let asked = vault.clone();
    let callback = move || {
        let number = asked.asked();
        let got = asked.clone().get();
        async move {
            let own = |_| of("locks", &format!("signed-{number}-s3cret"));
            got.await.map(own)
        }
    };
    let node = RedisNode::new(&server.url()).connections(4);
    let node = ready(node.credentials(callback)).await;
    eventually("all have one", || vault.asked() >= 4).await;
    vault.set(Err("token signed-0-s3cret was revoked".to_owned()));
    server.run("CLIENT KILL USER locks");
    let state = || format!("{:?}", node.state());
    eventually("it is down", || state().contains("was revoked")).await;
    let text = state();
    assert!(!text.contains("s3cret"), "{text}");
}

/// A service that signs tokens is far away, compared with a server.
#[tokio::test]
async fn a_callback_may_take_longer_than_an_attempt_to_connect() {
    let server = server(Kind::Redis);
    let slow = || async {
        tokio::time::sleep(400 * MS).await;
        Ok::<_, Error>(of("a", "a-s3cret"))
    };
    let node = RedisNode::new(&server.url()).connect_timeout(300 * MS);
    let _node = ready(node.credentials(slow)).await;
    assert_eq!(connections(&server)[0].1, "a");
}

#[tokio::test]
async fn the_master_that_sentinels_name_gets_them_and_the_user_of_the_node_if_they_have_none() {
    let master = server(Kind::Redis);
    let sentinel = Sentinel::start(Kind::Redis, &master, 0);
    let node = RedisNode::sentinel([sentinel.url()], "mymaster").user("b");
    let vault = Vault::new(Credentials::password("b-s3cret").valid_for(200 * MS));
    let node = ready(node.credentials(move || vault.clone().get())).await;
    assert_eq!(connections(&master)[0].1, "b");
    // Also once they were renewed.
    tokio::time::sleep(300 * MS).await;
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(connections(&master)[0].1, "b");
}
