//! The files for local nodes against each other and against the guide.

use super::ops;

/// The rule of the guide, from its first right on.
fn rights() -> String {
    let guide = include_str!("../../src/docs/several_servers.md");
    let rule = guide.lines().find(|line| line.starts_with("ACL SETUSER"));
    let (_, rights) = rule.unwrap().split_once(">PASSWORD ").unwrap();
    rights.to_owned()
}

/// Nobody can log in as the default user; but servers read their append-only files with its rights.
#[test]
fn the_user_has_the_rights_of_the_guide_and_there_is_no_other() {
    let expected = format!(
        "user default off ~* &* +@all\nuser locks on >change-me {}\n",
        rights()
    );
    assert_eq!(ops("users.acl"), expected);
}

/// Both start servers with the same arguments, at the same ports, with the same user.
#[test]
fn the_compose_file_starts_what_the_script_starts() {
    let (compose, script) = (ops("compose.yml"), ops("nodes.sh"));
    for words in [
        "--save \"\"",
        "--appendonly yes",
        "--maxmemory-policy noeviction",
        "--aclfile",
        "users.acl",
        "change-me",
        "7001",
        "7002",
        "7003",
        "7004",
        "7005",
    ] {
        assert!(compose.contains(words), "compose.yml lacks {words}");
        assert!(script.contains(words), "nodes.sh lacks {words}");
    }
    let ports = |text: &str| text.matches("127.0.0.1:700").count();
    assert_eq!(ports(&compose), 7, "five services, and two in the text");
}
