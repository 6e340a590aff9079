//! The ACL rights that a user needs.

use redis::{Cmd, RedisError, Value};

use crate::namespace::Namespace;
use crate::node::commands::script::{Script, text};
use crate::node::redis::discovery::Way;
use crate::node::redis::discovery::witnesses::Source;
use crate::node::redis::error::{is_missing_right, server_text};
use crate::node::redis::link::Link;
use crate::node::{NodeError, NodeErrorKind};

pub(super) static RIGHTS: Script = Script::of(include_str!("rights.lua"));

/// A call for each command of our scripts. Servers check rights before arguments, and these arguments change nothing.
const READS: [&str; 5] = ["get KEY", "mget KEY", "pttl KEY", "hmget KEY f", "time"];
const WRITES: [&str; 5] = [
    "set KEY v PX 0",
    "del KEY",
    "pexpire KEY never",
    "hset KEY f v odd",
    "hdel KEY f",
];

/// For notices of releases. Locks also work without these rights.
const NOTICES: [&str; 3] = ["publish", "subscribe", "unsubscribe"];
const IN_CLUSTERS: [&str; 3] = ["spublish", "ssubscribe", "sunsubscribe"];

fn calls(reads_only: bool) -> impl Iterator<Item = &'static str> {
    let writes = WRITES.iter().filter(move |_| !reads_only);
    READS.iter().chain(writes).copied()
}

fn command(call: &'static str) -> &'static str {
    call.split(' ').next().unwrap_or_default()
}

/// Asks whether the user has the rights for this namespace, which contains the node's tag.
pub(super) fn question(namespace: &Namespace, reads_only: bool) -> Cmd {
    let mut cmd = RIGHTS.run(2, 12);
    cmd.arg([&*namespace.start(), "rights"].concat())
        .arg([namespace.root(), "!rights"].concat());
    for call in calls(reads_only) {
        cmd.arg(call);
    }
    cmd
}

/// Refuses the server if the reply to the [`question`] shows a missing right. Other errors are left to later commands.
pub(super) fn judge(
    namespace: &Namespace,
    reads_only: bool,
    reply: Result<Value, RedisError>,
) -> Result<(), NodeError> {
    let missing: Vec<&str> = match reply {
        Ok(Value::Array(errors)) => {
            let is_missing = |error: &Value| matches!(error, Value::BulkString(error) if is_missing_right(&text(error)));
            let tried = calls(reads_only).map(command).zip(errors);
            let missing = tried.filter(|(_, error)| is_missing(error));
            missing.map(|(command, _)| command).collect()
        }
        Err(error) if server_text(&error).contains("to access") => {
            return Err(refused("use the keys of locks", &keys(namespace)));
        }
        Err(error) if is_missing_right(&server_text(&error)) => vec!["evalsha"],
        _ => Vec::new(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join("`, `").to_uppercase();
    Err(refused(&format!("run `{names}`"), &granted(&missing)))
}

fn refused(act: &str, rights: &str) -> NodeError {
    NodeError::new(
        NodeErrorKind::Misconfigured,
        format!(
            "its ACL user may not {act}; add `{rights}` to the user's rule (`docs::several_servers`, \"The rights\")"
        ),
    )
}

fn keys(namespace: &Namespace) -> String {
    format!("~{}* ~{}!*", namespace.start(), namespace.root())
}

fn granted(commands: &[&str]) -> String {
    format!("+{}", commands.join(" +"))
}

/// The ACL rules for the node's servers and its Sentinels, each with the place where it belongs.
pub(super) fn rules(link: &Link, namespace: &Namespace, reads_only: bool) -> Vec<(String, String)> {
    let (settings, sentinels) = match &link.target.way {
        Way::Direct(client) => (client.get_connection_info().redis_settings(), None),
        Way::Witnessed(witnesses) => match &witnesses.source {
            Source::Sentinels(sentinels) => (&witnesses.reach.settings, Some(sentinels)),
            Source::Cluster(..) => (&witnesses.reach.settings, None),
        },
    };
    let in_cluster = link.target.tag.is_some();
    let namespace = match in_cluster {
        true => namespace.tagged("{*}"),
        false => namespace.clone(),
    };
    let channels: String = ["", "!idem", "!permit"]
        .iter()
        .filter(|_| !reads_only)
        .map(|kind| format!(" &{}{kind}!free:*", namespace.root()))
        .collect();
    let mut commands = vec!["evalsha", "script|load"];
    commands.extend(calls(reads_only).map(command));
    match reads_only {
        true => commands.push("scan"),
        false => commands.extend(NOTICES),
    }
    commands.extend(["info", "ping"]);
    commands.extend(link.replicas.as_ref().map(|_| "wait"));
    commands.extend((settings.db() != 0).then_some("select"));
    if in_cluster {
        commands.push("cluster|nodes");
        commands.extend(IN_CLUSTERS.iter().filter(|_| !reads_only));
    }
    let (keys, commands) = (keys(&namespace), granted(&commands));
    let rights = format!("{keys} resetchannels{channels} -@all {commands}");
    let mut rules = vec![(link.name.clone(), rule(settings.username(), &rights))];
    if let Some((_, client)) = sentinels.and_then(|sentinels| sentinels.listed.first()) {
        let user = client.get_connection_info().redis_settings().username();
        let place = format!("the Sentinels of {}", link.name);
        rules.push((place, rule(user, "-@all +sentinel")));
    }
    rules
}

fn rule(user: Option<&str>, rights: &str) -> String {
    let user = user.unwrap_or("locks");
    format!("ACL SETUSER {user} reset on >PASSWORD {rights}")
}
