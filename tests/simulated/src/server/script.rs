//! `EVAL`, `EVALSHA` and `SCRIPT`.

use std::sync::Arc;

use super::commands::{Call, NO_INTEGER};
use super::numbers::integer;
use super::resp::Reply;
use super::{Server, lua};

const NO_SCRIPT: [Reply; 2] = [
    Reply::error("NOSCRIPT No matching script. Please use EVAL."),
    Reply::error("NOSCRIPT No matching script."),
];

pub(super) fn eval(server: &mut Server, call: &Call<'_>) -> Reply {
    let run = |(keys, args)| {
        let hash = learn(server, call.words[1])?;
        Ok(lua::run(server, call, &hash, keys, args))
    };
    keys_and_args(call)
        .and_then(run)
        .unwrap_or_else(|error| error)
}

pub(super) fn evalsha(server: &mut Server, call: &Call<'_>) -> Reply {
    let hash = String::from_utf8_lossy(call.words[1]).to_ascii_lowercase();
    let unknown = server.dialect.pick(&NO_SCRIPT);
    if call.words[1].len() != 40 {
        return unknown;
    }
    match keys_and_args(call) {
        Err(error) => error,
        Ok(_) if !server.scripts.contains_key(&hash) => unknown,
        Ok((keys, args)) => lua::run(server, call, &hash, keys, args),
    }
}

type Words<'a> = &'a [&'a [u8]];

fn keys_and_args<'a>(call: &Call<'a>) -> Result<(Words<'a>, Words<'a>), Reply> {
    let words = &call.words[3..];
    let Some(count) = integer(call.words[2]) else {
        return Err(NO_INTEGER);
    };
    let Ok(count) = usize::try_from(count) else {
        return Err(Reply::error("ERR Number of keys can't be negative"));
    };
    words.split_at_checked(count).ok_or(Reply::error(
        "ERR Number of keys can't be greater than number of args",
    ))
}

/// Keeps a script. Returns its hash.
fn learn(server: &mut Server, text: &[u8]) -> Result<String, Reply> {
    let hash = sha1_smol::Sha1::from(text).digest().to_string();
    if !server.scripts.contains_key(&hash) {
        let text: Arc<[u8]> = text.into();
        lua::compile(&hash, &text).map_err(|why| {
            Reply::failure(format!("ERR Error compiling script (new function): {why}"))
        })?;
        server.scripts.insert(hash.clone(), text);
    }
    Ok(hash)
}

pub(super) fn load(server: &mut Server, call: &Call<'_>) -> Reply {
    learn(server, call.words[2]).map_or_else(|error| error, Reply::bulk)
}

pub(super) fn flush(server: &mut Server, _: &Call<'_>) -> Reply {
    server.forget_scripts();
    Reply::OK
}
