//! What needs no servers: arguments, settings, help and completion.

use std::fs;

use crate::support::server::new_dir;
use crate::{ended, redlock, words};

#[tokio::test]
async fn a_wrong_argument_is_a_usage_error() {
    let many: Vec<Vec<&str>> = [
        "no-such-command",
        "who",
        "who k --odd",
        "release k",
        "run k",
        "run k --wait soon -- true",
        // `humantime` panics at this sum, and takes an M for a month.
        "run k --wait 18446744073709551615s1000ms -- true",
        "wait --timeout 1M",
        "list --limit many",
    ]
    .map(words)
    .into();
    let special = [
        vec![],
        vec!["nodes", "retire", "", "--yes"],
        vec!["who", "a\nb", "--redis", "redis://127.0.0.1:1"],
    ];
    for arguments in many.into_iter().chain(special) {
        let ended = ended(redlock(&arguments)).await.with(64);
        assert!(ended.out.is_empty() && !ended.err.is_empty(), "{ended:?}");
    }
    ended(redlock(&["release", "k"])).await.complains("--force");
}

#[tokio::test]
async fn a_wrong_setting_is_told_without_its_value() {
    let dir = new_dir();
    let file = dir.join("locks.toml");
    let path = file.to_str().unwrap();
    for (text, reason) in [
        ("ttl = 10", "ttl"),
        ("password = \"geheim\"\nnodes = 5", "nodes"),
        ("password = geheim", "locks.toml"),
        ("", "there is no node"),
        ("memory = 5", "name the servers"),
    ] {
        fs::write(&file, text).unwrap();
        let ended = ended(redlock(&["status", "--config", path])).await.with(78);
        ended.complains(reason).hides("geheim");
    }
    fs::remove_dir_all(&dir).unwrap();
    ended(redlock(&["status", "--config", path])).await.with(78);
    let mut command = redlock(&["status", "--redis", "redis://127.0.0.1:1"]);
    command.env("REDLOCK_TTL", "never");
    ended(command).await.with(78).complains("REDLOCK_TTL");
}

/// An example, and what an operator must know of the nodes before the command is run.
#[tokio::test]
async fn each_command_has_help_with_an_example_and_says_what_it_does_to_the_nodes() {
    for (command, text) in [
        (
            "status ",
            "It writes only what each process writes when it connects",
        ),
        (
            "wait ",
            "it begins the quarantine of a node that may have forgotten locks",
        ),
        ("bootstrap ", "all processes were stopped"),
        ("nodes adopt ", "First stop all processes"),
        ("who ", ""),
        ("list ", "+scan"),
        ("release ", "Only fencing tokens can reject such writes"),
        ("run ", "the command gets SIGTERM"),
        ("acl ", ""),
        ("completion ", ""),
        ("", ""),
    ] {
        let help = ended(redlock(&words(&format!("{command}--help"))))
            .await
            .with(0)
            .out;
        let first = command.split(' ').find(|word| !word.is_empty());
        let example = format!("Example:\n  redlock {}", first.unwrap_or("status"));
        let is_shown = help.contains(&example) || help.contains("&& redlock wait");
        assert!(is_shown, "{command}: {help}");
        let said: Vec<&str> = help.split_whitespace().collect();
        assert!(said.join(" ").contains(text), "{command}: {help}");
    }
}

/// One source: the rule that connecting checks is the one of the guide, and the one that is printed.
#[tokio::test]
async fn the_rule_that_is_printed_is_that_of_the_guide() {
    let guide = include_str!("../../src/docs/several_servers.md");
    let rule = guide.lines().find(|line| line.starts_with("ACL SETUSER"));
    let rule = rule.unwrap();
    let acl = async |line, variables: &[(&str, &str)]| {
        let mut command = redlock(&words(line));
        command.envs(variables.iter().copied());
        ended(command).await.with(0).out
    };
    assert_eq!(acl("acl --redis redis://h", &[]).await, format!("{rule}\n"));
    let three = "acl --redis redis://a --redis redis://b/2 --redis redis://u:hunter2@c";
    let shown = acl(three, &[("REDLOCK_NAMESPACE", "shop")]).await;
    let rule = rule.replace("lk", "shop");
    let expected = format!(
        "# a:6379\n{rule}\n# b:6379/2\n{rule} +select\n# c:6379\n{}\n",
        rule.replace("SETUSER locks", "SETUSER u")
    );
    assert_eq!(shown, expected);

    let cluster = [("REDLOCK_NODES_0_CLUSTER", "redis://h")];
    let shown = acl("acl", &cluster).await;
    let (_, further) = shown.split_once("+info +ping ").unwrap();
    assert!(
        guide.contains(&format!("`{}`", further.trim_end())),
        "{shown}"
    );
    assert!(shown.contains(" ~{*}lk:* ~{*}lk!* ") && shown.contains(" &{*}lk!permit!free:* "));
}

#[tokio::test]
async fn a_shell_gets_its_completion() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = ended(redlock(&["completion", shell])).await.with(0);
        for word in ["redlock", "adopt", "release", "--force"] {
            let word = word.trim_start_matches(if shell == "fish" { "--" } else { "" });
            assert!(ended.out.contains(word), "{shell}: {word}");
        }
    }
    ended(redlock(&["completion", "abacus"])).await.with(64);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let mut completion = redlock(&["completion", "bash"]);
    completion.stdout(fs::File::create("/dev/full").unwrap());
    let child = completion.spawn().unwrap();
    let ended = crate::told(child.wait_with_output().unwrap());
    ended.with(74).complains("cannot write the output");
}
