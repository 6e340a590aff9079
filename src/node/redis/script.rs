//! The scripts: their pieces, and the hashes by which they are run.

#[cfg(not(tower_redlock_simulation))]
use std::convert::identity as patched;
use std::sync::OnceLock;

use redis::Cmd;

#[cfg(tower_redlock_simulation)]
use crate::node::redis::patches::patched;

/// One script: its text and the hash it is run by.
///
/// It consists of pieces that run one after the other and share their variables; a first line sets the variables that
/// the pieces use. Pieces instead of functions, because every run defines the functions again, which takes a good part
/// of a short run.
#[derive(Debug)]
pub(super) struct Script {
    pieces: &'static [&'static str],
    hash: OnceLock<String>,
}

const IDENTITY: &str = include_str!("lua/identity.lua");
const STANDING: &str = include_str!("lua/standing.lua");
const IS_TOLD: &str = include_str!("lua/is_told.lua");
const REFUSE: &str = include_str!("lua/refuse.lua");
const LESS: &str = include_str!("lua/less.lua");
const COUNTED: &str = include_str!("lua/counted.lua");
const MARKED: &str = include_str!("lua/marked.lua");
const BORROWED: &str = "local borrowers, loans = table.remove(KEYS), table.remove(KEYS)\n";
const NOW: &str = include_str!("lua/now.lua");
const TOLD: &str = "local digest, told = string.sub(standing, 1, 40), string.sub(standing, 42)\n";
const QUICK: &str = include_str!("lua/quick.lua");
const RECKON: &str = include_str!("lua/reckon.lua");
const QUICK_GRANT: &str = include_str!("lua/quick_grant.lua");
const VOTE: &str = include_str!("lua/vote.lua");
const RECORD: &str = include_str!("lua/record.lua");
const TAKE: &str = include_str!("lua/acquire.lua");
const GIVE_BACK: &str = include_str!("lua/release.lua");

pub(super) static ACQUIRE: Script = Script::of(&[
    "local marker, standing = KEYS[1], ARGV[3]\n",
    QUICK,
    include_str!("lua/quick_count.lua"),
    RECKON,
    QUICK_GRANT,
    include_str!("lua/quick_granted.lua"),
    TOLD,
    IDENTITY,
    STANDING,
    REFUSE,
    LESS,
    COUNTED,
    MARKED,
    TAKE,
    VOTE,
    include_str!("lua/granted.lua"),
]);
pub(super) static EXTEND: Script = Script::of(&[
    "local marker, told, digest = KEYS[1], ARGV[1], ARGV[2]\n",
    IDENTITY,
    STANDING,
    LESS,
    COUNTED,
    MARKED,
    include_str!("lua/extend.lua"),
]);
pub(super) static RELEASE_ONE: Script = Script::of(&[include_str!("lua/release_one.lua")]);
pub(super) static RELEASE: Script = Script::of(&[GIVE_BACK, include_str!("lua/released.lua")]);
pub(super) static RELEASE_LENT: Script = Script::of(&[
    BORROWED,
    include_str!("lua/lent.lua"),
    GIVE_BACK,
    include_str!("lua/released.lua"),
]);
pub(super) static END_CLAIM: Script = Script::of(&[include_str!("lua/end_claim.lua")]);
pub(super) static RAISE: Script = Script::of(&[
    "local marker, told, digest = KEYS[1], ARGV[4], ARGV[5]\n",
    IDENTITY,
    STANDING,
    REFUSE,
    LESS,
    COUNTED,
    MARKED,
    include_str!("lua/raise.lua"),
]);
pub(super) static VERIFY: Script = Script::of(&[
    "local marker, told, digest = KEYS[1], ARGV[1], ARGV[2]\n",
    IDENTITY,
    STANDING,
    REFUSE,
    BORROWED,
    include_str!("lua/verify.lua"),
]);
pub(super) static CHECK_IN: Script = Script::of(&[
    "local told = ARGV[1]\n",
    IDENTITY,
    IS_TOLD,
    include_str!("lua/check_in.lua"),
]);
pub(super) static PROMOTE: Script = Script::of(&[
    "local told = ARGV[1]\n",
    IDENTITY,
    IS_TOLD,
    LESS,
    COUNTED,
    include_str!("lua/promote.lua"),
]);

pub(super) static RECALL: Script = Script::of(&[
    "local marker, standing, record = KEYS[1], ARGV[3], table.remove(KEYS)\n",
    QUICK,
    include_str!("lua/quick_recall.lua"),
    RECKON,
    include_str!("lua/quick_note.lua"),
    QUICK_GRANT,
    include_str!("lua/quick_promise.lua"),
    TOLD,
    IDENTITY,
    STANDING,
    REFUSE,
    LESS,
    NOW,
    RECORD,
    include_str!("lua/recall.lua"),
    COUNTED,
    MARKED,
    TAKE,
    VOTE,
    include_str!("lua/promise.lua"),
]);
pub(super) static COMPLETE: Script = Script::of(&[
    "local marker, standing, record, counter = KEYS[1], ARGV[4], table.remove(KEYS), table.remove(KEYS)\n",
    include_str!("lua/quick_complete.lua"),
    // Not as a function, and what it defines is not defined in the usual case.
    "if not done then\n",
    TOLD,
    IDENTITY,
    STANDING,
    LESS,
    COUNTED,
    RECORD,
    include_str!("lua/complete.lua"),
    "end\n",
    GIVE_BACK,
    include_str!("lua/completed.lua"),
]);

pub(super) static EVICTIONS: Script = Script::of(&[include_str!("lua/evictions.lua")]);

/// All of them.
pub(super) static ALL: [&Script; 13] = [
    &ACQUIRE,
    &EXTEND,
    &RELEASE_ONE,
    &RELEASE,
    &RELEASE_LENT,
    &RAISE,
    &VERIFY,
    &END_CLAIM,
    &CHECK_IN,
    &PROMOTE,
    &RECALL,
    &COMPLETE,
    &EVICTIONS,
];

impl Script {
    const fn of(pieces: &'static [&'static str]) -> Self {
        Self {
            pieces,
            hash: OnceLock::new(),
        }
    }

    fn text(&self) -> String {
        patched(self.pieces.concat())
    }

    fn hash(&self) -> &str {
        let hash = || redis::Script::new(&self.text()).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }

    /// The command that makes the script known to the server.
    pub(super) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.text());
        cmd
    }

    /// The start of a run over `keys` keys; keys and arguments are to be added.
    pub(super) fn run(&self, keys: usize, capacity: usize) -> Cmd {
        self.run_with(keys, capacity, 0)
    }

    /// The same, with room for so many bytes more than keys and arguments usually have.
    pub(super) fn run_with(&self, keys: usize, capacity: usize, room: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(3 + capacity, 64 + 40 * capacity + room);
        cmd.arg("EVALSHA").arg(self.hash()).arg(keys);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::redis::patches::PATCHES;
    use crate::token::FencingToken;

    #[test]
    fn every_defect_of_a_script_has_one_place_in_it() {
        let scripts = ALL.map(|script| script.pieces.concat());
        for (mutant, right, _) in PATCHES {
            let places = scripts.iter().map(|script| script.matches(right).count());
            assert_eq!(places.max(), Some(1), "{mutant:?}: {right}");
        }
    }

    /// Only this crate says how many keys a lock has. But a script that does not end stops the whole server.
    #[test]
    fn an_extend_ends_however_many_keys_a_lock_is_said_to_have() {
        let server = "redis = {call = function() return {} end, pcall = function() return {} end,
            sha1hex = function() return '' end, error_reply = function(text) return {err = text} end}
            KEYS, ARGV = {'marker', 'key', 'counter'}, ";
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
            let args = format!("{{'', '', '{count}', '1000', '', '', '', 'token'}}\n");
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
        assert!(COUNTED.contains(&last), "{last}");
    }
}
