//! The scripts, and the hashes by which they are run.

use std::sync::OnceLock;

use redis::Cmd;

/// One script: its text, and the hash it is run by. A line `-- use name` stands for one of [`FUNCTIONS`]. It stands
/// where the function is needed, because every run defines it again, which costs as much as a good part of a call.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: OnceLock<String>,
}

const FUNCTIONS: [(&str, &str); 6] = [
    // The first two use the one after them, or the last.
    ("-- use take\n", include_str!("lua/take.lua")),
    ("-- use next_token\n", include_str!("lua/next_token.lua")),
    ("-- use identity\n", include_str!("lua/identity.lua")),
    ("-- use is_told\n", include_str!("lua/is_told.lua")),
    ("-- use refused\n", include_str!("lua/refused.lua")),
    ("-- use counted\n", include_str!("lua/counted.lua")),
];

pub(super) static ACQUIRE: Script = Script::of(include_str!("lua/acquire.lua"));
pub(super) static EXTEND: Script = Script::of(include_str!("lua/extend.lua"));
pub(super) static RELEASE: Script = Script::of(include_str!("lua/release.lua"));
pub(super) static RAISE: Script = Script::of(include_str!("lua/raise.lua"));
pub(super) static CHECK_IN: Script = Script::of(include_str!("lua/check_in.lua"));
pub(super) static PROMOTE: Script = Script::of(include_str!("lua/promote.lua"));
pub(super) static RECALL: Script = Script::of(include_str!("lua/recall.lua"));
pub(super) static COMPLETE: Script = Script::of(include_str!("lua/complete.lua"));
pub(super) static EVICTIONS: Script = Script::of(include_str!("lua/evictions.lua"));

pub(super) static ALL: [&Script; 9] = [
    &ACQUIRE, &EXTEND, &RELEASE, &RAISE, &CHECK_IN, &PROMOTE, &RECALL, &COMPLETE, &EVICTIONS,
];

impl Script {
    const fn of(source: &'static str) -> Self {
        Self {
            source,
            hash: OnceLock::new(),
        }
    }

    fn text(&self) -> String {
        let with = |text: String, (line, function): &(&str, &str)| text.replace(line, function);
        FUNCTIONS.iter().fold(self.source.to_owned(), with)
    }

    fn hash(&self) -> &str {
        let hash = || redis::Script::new(&self.text()).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }

    pub(super) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.text());
        cmd
    }

    pub(super) fn run(&self, keys: usize, capacity: usize) -> Cmd {
        self.run_with(keys, capacity, 0)
    }

    pub(super) fn run_with(&self, keys: usize, capacity: usize, room: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(3 + capacity, 64 + 40 * capacity + room);
        cmd.arg("EVALSHA").arg(self.hash()).arg(keys);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::FencingToken;

    /// Only this crate says how many keys a lock has. But a script that does not end stops the whole server.
    #[test]
    fn an_extend_ends_however_many_keys_a_lock_is_said_to_have() {
        let server = "redis = {call = function() return {} end, pcall = function() return {} end,
            sha1hex = function() return '' end, error_reply = function(text) return {err = text} end}
            KEYS, ARGV = {'marker', 'key', 'counter', 'tombstone'}, ";
        for (count, right) in [
            ("1", true),
            ("-1", false),
            ("-2", false),
            ("-0.5", false),
            ("0", false),
            ("nan", false),
            ("", false),
        ] {
            let lua = mlua::Lua::new();
            let steps = mlua::HookTriggers::new().every_nth_instruction(100_000);
            lua.set_hook(steps, |_, _| Err(mlua::Error::runtime("no end")))
                .unwrap();
            let args = format!("{{'', '{count}', '1000', '', '', '', 'token'}}\n");
            let reply = lua.load(server.to_owned() + &args + &EXTEND.text());
            let reply: mlua::Table = reply.eval().unwrap();
            let error: Option<String> = reply.get("err").unwrap();
            assert_eq!(error.is_none(), right, "{count}: {error:?}");
        }
    }

    #[test]
    fn the_scripts_know_how_long_a_digest_is() {
        let config = crate::node::ClusterConfig::new("");
        assert_eq!(config.digest.len(), 40);
    }

    #[test]
    fn the_scripts_know_the_last_usable_fencing_token() {
        let last = format!("'{}'", FencingToken::LAST_COUNTED);
        assert!(include_str!("lua/counted.lua").contains(&last), "{last}");
        assert!(include_str!("lua/next_token.lua").contains(&last), "{last}");
    }
}
