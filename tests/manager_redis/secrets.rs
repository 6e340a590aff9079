//! Passwords and owner tokens stand in no text that anyone may log.

use std::fmt::Debug;

use crate::*;

const PASSWORD: &str = "s3cret-right";

#[track_caller]
fn assert_kept(what: &dyn Debug, display: &str, secrets: &[&str]) {
    let text = format!("{display} {what:?} {what:#?}");
    for secret in secrets {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn no_text_holds_a_password_or_a_token() {
    let mut servers = Server::start_many_with(Kind::Redis, 3, &["--requirepass", PASSWORD]);
    let urls = || servers.iter().map(|s| s.url_as("default", PASSWORD));
    let secrets = [PASSWORD];
    let builder = LockManager::builder()
        .bootstrap(true)
        .redis(urls())
        .namespace("")
        .instance("till-3");
    assert_kept(&builder, "", &secrets);
    let locks = builder.connect().await.unwrap();
    assert_kept(&locks, "", &secrets);
    assert_kept(&locks.snapshot().nodes, "", &secrets);

    let guard = locks.acquire("order:1").await.unwrap();
    // From a server, as an operator would see it: at least two of three hold it by now.
    let values = servers.iter().map(|s| {
        let mut raw = s.raw();
        raw.command(&["AUTH", PASSWORD]).unwrap();
        raw.command(&["GET", "order:1"]).unwrap()
    });
    let token = values.max_by_key(String::len).unwrap();
    let digits = token.strip_suffix(":till-3").unwrap();
    assert_eq!(digits.len(), 40);
    let secrets = [PASSWORD, digits];
    assert_kept(&guard, "", &secrets);
    assert_kept(&guard.handle(), "", &secrets);
    assert_kept(guard.lease(), "", &secrets);
    assert_kept(&guard.lost(), "", &secrets);
    let busy = locks.try_acquire("order:1").await.unwrap_err();
    assert_kept(&busy, &busy.to_string(), &secrets);
    let patient = locks.with_max_wait(5 * MS);
    let late = patient.acquire("order:1").await.unwrap_err();
    assert_kept(&late, &late.to_string(), &secrets);

    // Dead in the middle of a command, then down, then back with another password.
    servers.iter().for_each(Server::freeze);
    let attempt = tokio::spawn({
        let locks = locks.clone();
        async move { locks.try_acquire("order:2").await }
    });
    tokio::task::yield_now().await;
    servers.iter_mut().for_each(Server::kill);
    let broken = attempt.await.unwrap().unwrap_err();
    assert_kept(&broken, &broken.to_string(), &secrets);
    let unconfirmed = guard.release().await.unwrap_err();
    assert_kept(&unconfirmed, &unconfirmed.to_string(), &secrets);
    let down = locks.try_acquire("order:2").await.unwrap_err();
    assert_kept(&down, &down.to_string(), &secrets);
    assert_kept(&locks, "", &secrets);

    let urls = servers.iter().map(|s| s.url_as("default", PASSWORD));
    let builder = LockManager::builder().bootstrap(true).redis(urls);
    let error = builder.connect_timeout(50 * MS).connect().await;
    let error = error.unwrap_err();
    assert_kept(&error, &error.to_string(), &secrets);
}
