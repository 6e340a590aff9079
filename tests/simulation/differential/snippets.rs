//! Small scripts, one for each way in which a script and its server talk to each other.

use super::words::{Words, texts};

/// They use up to two keys and three arguments.
const SNIPPETS: &[&str] = &[
    "return redis.call('GET', KEYS[1])",
    "return redis.pcall('GET', KEYS[1])",
    "return redis.call('HMGET', KEYS[1], 'f')",
    "return redis.pcall('HMGET', KEYS[1], 'f')",
    "local reply = redis.pcall('HMGET', KEYS[1], 'f')\nreturn reply.err or reply",
    "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "local set = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])\nreturn {set and set.ok or 'taken', redis.call('PTTL', KEYS[1])}",
    "redis.call('SET', KEYS[1], ARGV[1])\nredis.call('SET', KEYS[2], ARGV[2])\nreturn redis.call('MGET', KEYS[1], KEYS[2])",
    "redis.call('DEL', KEYS[1])\nreturn redis.call('SET', KEYS[2], ARGV[1])",
    "redis.call('SET', KEYS[1], 'x', 'PX', 1)\nreturn {redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1])}",
    "return {redis.call('PTTL', KEYS[1]), redis.call('PEXPIRETIME', KEYS[1])}",
    "return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    "return redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) or 77.5)",
    "return redis.call('HSET', KEYS[1], 'f', tonumber(ARGV[2]) or 0.1)",
    "redis.call('DEL', KEYS[1])\nredis.call('HSET', KEYS[1], 'a', 1e17, 'b', 2^53, 'c', -1.5, 'd', 1e300, 'e', 1/0, 'f', 1e-7, 'g', 123456.789)\nreturn redis.call('HMGET', KEYS[1], 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')",
    "return redis.call('HDEL', KEYS[1], 'a', 'b', 'b')",
    "return {1, 2, nil, 4}",
    "return {1, 2, false, true, 'x', {3, {'y'}}}",
    "return {}",
    "return nil",
    "return",
    "return true",
    "return false",
    "return 3.99",
    "return -3.99",
    "return 1e300",
    "return -1/0",
    "return 2^53 + 1",
    "return 'text'",
    "return {ok = 'fine'}",
    "return {err = 'MY bad'}",
    "return {err = 'nocode'}",
    "return redis.error_reply('MY bad')",
    "return redis.error_reply('-MY bad')",
    "return redis.error_reply('nocode')",
    "return {redis.error_reply('MY bad'), {ok = 'fine'}}",
    "local function deep()\n  redis.call('NOSUCH')\nend\n\ndeep()",
    "local function deep()\n  return 1 + nil\nend\n\ndeep()",
    "return 1 + ARGV[1]",
    "return ARGV[1] < 1",
    "return #KEYS .. ':' .. #ARGV",
    "return KEYS[1] .. nil",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.call('NOSUCH', 'x')",
    "return redis.pcall('NOSUCH', 'x')",
    "return redis.call('GET')",
    "return redis.pcall('GET', 'a', 'b')",
    "return redis.call('GET', {})",
    "return redis.pcall('GET', true)",
    "return redis.call('SET', 'x')",
    "return redis.call('HSET', KEYS[1], 'f')",
    "return redis.call('SUBSCRIBE', 'x')",
    "return redis.pcall('CLIENT', 'ID')",
    "return redis.pcall('CLIENT', 'NOSUCH')",
    "return redis.pcall('SCRIPT', 'LOAD', 'return 1')",
    "return redis.pcall('EVAL', 'return 1', 0)",
    "return redis.call('PING')",
    "return redis.call('ECHO', ARGV[1])",
    "return redis.call('TIME')",
    "return redis.call('TYPE', KEYS[1])",
    "return string.match(redis.call('INFO', 'replication'), 'role:(%a+)')",
    "return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')",
    "return string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')",
    "return {redis.call('PUBLISH', 'free:k1', ARGV[1]), redis.call('PUBLISH', 'free:k2', 7)}",
    "return redis.sha1hex(ARGV[1])",
    "return redis.sha1hex('')",
    "return string.format('%.0f %.14g', 9007199254740993, 1e15)",
    "return tostring(1e15) .. tostring(2^63) .. tostring(0.1)",
    "return {tonumber('0x10'), tonumber(' 5 '), tonumber('1e2'), tonumber('') or 'none', tonumber('5x') or 'none'}",
    "return table.concat({unpack(ARGV)}, ',')",
    "return table.remove(KEYS) .. #KEYS",
    "return math.floor(-1.5) .. math.max(1, 2, -3) .. math.huge",
    "this is no script",
    "return (",
    "if true then return 1",
];

/// A call of one.
pub(super) fn call(words: &mut Words) -> Vec<Vec<u8>> {
    let mut call = texts(&["EVAL", words.pick(SNIPPETS), "2"]);
    call.extend(words.fill("<key> <key> <value> <span> <moment>"));
    if words.chance(5) {
        call.truncate(6);
    }
    if words.chance(3) {
        let place = 1 + words.dice.below(call.len() - 1);
        call[place] = words.span();
    }
    call
}
