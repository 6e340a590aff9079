//! Runs scripts, by the Lua that servers have.
//!
//! There is one interpreter for each thread, and it compiles each script once, whichever servers run it. A script gets
//! the server by functions that live as long as the run.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{BorrowedBytes, Error, Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use super::commands::Call;
use super::numbers::{shortest, truncated};
use super::resp::Reply;
use super::{Dialect, Server};

/// The name of every script, in messages and places.
const SOURCE: &str = "@user_script";

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().unwrap();
}

/// Lua with what servers add to it.
struct Interpreter {
    lua: Lua,
    globals: Table,
    redis: Table,
    /// Lua's own.
    xpcall: Function,
    format: Function,
    explain: Function,
    compiled: RefCell<HashMap<String, Function>>,
}

/// The error of a command, on its way through a script.
#[derive(Debug)]
struct Raised(Vec<u8>);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl std::error::Error for Raised {}

/// Compiles a script, or says why it cannot be compiled.
pub(super) fn compile(hash: &str, text: &[u8]) -> Result<(), String> {
    INTERPRETER.with(|interpreter| match interpreter.compile(hash, text) {
        Ok(_) => Ok(()),
        Err(Error::SyntaxError { message, .. }) => Err(message),
        Err(other) => Err(other.to_string()),
    })
}

/// Runs the script that the server knows by that hash.
pub(super) fn run(
    server: &mut Server,
    call: &Call<'_>,
    hash: &str,
    keys: &[&[u8]],
    args: &[&[u8]],
) -> Reply {
    let text = Arc::clone(&server.scripts[hash]);
    INTERPRETER.with(|interpreter| {
        let ran = interpreter.compile(hash, &text).and_then(|script| {
            let lua = &interpreter.lua;
            interpreter.globals.raw_set("KEYS", list(lua, keys)?)?;
            interpreter.globals.raw_set("ARGV", list(lua, args)?)?;
            interpreter.run(&script, server, call)
        });
        match ran {
            Ok((true, value)) => reply_of(&value),
            Ok((false, why)) => failure(&why, hash, server.dialect),
            Err(error) => Reply::failure(format!("ERR Error running script {hash}, {error}")),
        }
    })
}

/// A table with one text.
fn table(lua: &Lua, name: &str, text: impl AsRef<[u8]>) -> mlua::Result<Table> {
    lua.create_table_from([(name, lua.create_string(text)?)])
}

/// The text of that name in a table.
fn text_in(table: &Table, name: &str) -> Option<Vec<u8>> {
    match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

/// A table of strings.
fn list(lua: &Lua, items: &[&[u8]]) -> mlua::Result<Table> {
    let strings = items.iter().map(|item| lua.create_string(item));
    lua.create_sequence_from(strings.collect::<mlua::Result<Vec<_>>>()?)
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let redis = lua.create_table()?;
        let hash =
            |_: &Lua, text: BorrowedBytes| Ok(sha1_smol::Sha1::from(&*text).digest().to_string());
        redis.raw_set("sha1hex", lua.create_function(hash)?)?;
        let globals = lua.globals();
        globals.raw_set("redis", &redis)?;
        Ok(Self {
            xpcall: globals.raw_get("xpcall")?,
            format: globals.raw_get::<Table>("string")?.raw_get("format")?,
            explain: lua.create_function(explain)?,
            lua,
            globals,
            redis,
            compiled: RefCell::default(),
        })
    }

    /// The function of a script.
    fn compile(&self, hash: &str, text: &[u8]) -> mlua::Result<Function> {
        if let Some(known) = self.compiled.borrow().get(hash) {
            return Ok(known.clone());
        }
        let chunk = self.lua.load(text).set_name(SOURCE);
        let function = chunk.set_mode(ChunkMode::Text).into_function()?;
        let mut compiled = self.compiled.borrow_mut();
        compiled.insert(hash.to_owned(), function.clone());
        Ok(function)
    }

    /// Runs a function for a call on a server. Returns whether it came to its end, and what it returned, or the error.
    fn run(
        &self,
        script: &Function,
        server: &mut Server,
        call: &Call<'_>,
    ) -> mlua::Result<(bool, Value)> {
        let connection = call.connection;
        let run = RefCell::new((server, false));
        let dialect = run.borrow().0.dialect;
        let answer = |lua: &Lua, words: &[Value]| {
            let answered = if words.is_empty() {
                Err(dialect.pick_of_three(&NO_WORDS))
            } else {
                let words = words.iter().map(|value| self.word(value, dialect));
                match words.collect::<Option<Vec<_>>>() {
                    None => Err(dialect.pick_of_three(&NO_TEXT)),
                    Some(words) => {
                        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                        let call = Call {
                            words: &words,
                            connection,
                        };
                        let (server, wrote) = &mut *run.borrow_mut();
                        server.answer_script(&call, wrote)
                    }
                }
            };
            answered.unwrap_or_else(|refusal| located(lua, refusal, dialect))
        };
        self.lua.scope(|scope| {
            let call = |lua: &Lua, words: Variadic<Value>| match answer(lua, &words) {
                Reply::Error(text) => Err(Error::external(Raised(coded(&text, dialect)))),
                reply => self.value(reply, dialect),
            };
            let pcall =
                |lua: &Lua, words: Variadic<Value>| self.value(answer(lua, &words), dialect);
            self.redis.raw_set("call", scope.create_function(call)?)?;
            self.redis.raw_set("pcall", scope.create_function(pcall)?)?;
            let error = |lua: &Lua, text: BorrowedBytes| table(lua, "err", coded(&text, dialect));
            let error = scope.create_function(error)?;
            self.redis.raw_set("error_reply", error)?;
            self.xpcall.call((script, &self.explain))
        })
    }

    /// An argument of a command.
    fn word(&self, value: &Value, dialect: Dialect) -> Option<Vec<u8>> {
        let number = match value {
            Value::String(text) => return Some(text.as_bytes().to_vec()),
            #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
            Value::Integer(number) => *number as f64,
            Value::Number(number) => *number,
            _ => return None,
        };
        if dialect > Dialect::Redis70 {
            return Some(shortest(number).into_bytes());
        }
        let text: mlua::LuaString = self.format.call(("%.17g", number)).ok()?;
        Some(text.as_bytes().to_vec())
    }

    /// A reply as scripts see it.
    fn value(&self, reply: Reply, dialect: Dialect) -> mlua::Result<Value> {
        Ok(match reply {
            #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
            Reply::Int(number) => Value::Number(number as f64),
            Reply::Bulk(text) | Reply::Verbatim(text) => {
                Value::String(self.lua.create_string(text)?)
            }
            Reply::Nil | Reply::NilArray => Value::Boolean(false),
            Reply::Status(text) => Value::Table(table(&self.lua, "ok", text)?),
            Reply::Error(text) => Value::Table(table(&self.lua, "err", coded(&text, dialect))?),
            Reply::Array(items) | Reply::Push(items) | Reply::Many(items) => {
                self.values(items, dialect)?
            }
            Reply::Map(pairs) => {
                let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                self.values(items.collect(), dialect)?
            }
        })
    }

    fn values(&self, items: Vec<Reply>, dialect: Dialect) -> mlua::Result<Value> {
        let items = items.into_iter().map(|item| self.value(item, dialect));
        let items: Vec<Value> = items.collect::<mlua::Result<_>>()?;
        Ok(Value::Table(self.lua.create_sequence_from(items)?))
    }
}

/// What a script returned, as a reply.
fn reply_of(value: &Value) -> Reply {
    match value {
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => table_reply(table),
        _ => Reply::Nil,
    }
}

/// A table is an error, a status, or a list, which ends at its first nil.
fn table_reply(table: &Table) -> Reply {
    if let Some(error) = text_in(table, "err") {
        return Reply::failure(error.strip_suffix(b"\r\n").unwrap_or(&error));
    }
    if let Some(status) = text_in(table, "ok") {
        return Reply::Status(Cow::Owned(status));
    }
    let items = (1..).map_while(|index| match table.raw_get(index) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(reply_of(&item)),
    });
    Reply::Array(items.collect())
}

/// The reply for an error that ended a script, of which [`explain`] made a table.
fn failure(why: &Value, hash: &str, dialect: Dialect) -> Reply {
    let Value::Table(table) = why else {
        return Reply::error("ERR the script failed without an error");
    };
    let place = match table.raw_get("line") {
        Ok(Value::Integer(line)) => format!("{SOURCE}:{line}"),
        _ => String::new(),
    };
    if dialect == Dialect::Redis62 {
        let text = text_in(table, "text").unwrap_or_default();
        let text = text.strip_suffix(b"\r\n").unwrap_or(&text);
        let begin = format!("ERR Error running script (call to f_{hash}): {place}: ");
        return Reply::failure([begin.as_bytes(), text].concat());
    }
    let mut error = text_in(table, "err").unwrap_or_default();
    if !place.is_empty() {
        let script = match dialect {
            Dialect::Valkey91 => String::new(),
            _ => format!("{hash}, "),
        };
        error.extend_from_slice(format!(" script: {script}on {place}.").as_bytes());
    }
    Reply::failure(error)
}

/// Turns whatever ended a script into a table with the text and the line of the script. Lua calls it where the error
/// was raised.
fn explain(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let (code, text): (&[u8], _) = match &error {
        Value::Error(raised) => match raised.downcast_ref::<Raised>() {
            Some(Raised(text)) => (b"", text.clone()),
            None => (b"", format!("ERR {raised}").into_bytes()),
        },
        Value::String(text) => (b"ERR ", text.as_bytes().to_vec()),
        other => (b"ERR ", other.to_string()?.into_bytes()),
    };
    let table = table(lua, "err", [code, &text].concat())?;
    table.raw_set("text", lua.create_string(text)?)?;
    table.raw_set("line", line(lua))?;
    Ok(table)
}

/// The line of the script that is being run.
fn line(lua: &Lua) -> Option<usize> {
    let mut level = 1;
    loop {
        let found = lua.inspect_stack(level, |frame| {
            let ours = frame.source().source.is_some_and(|source| source == SOURCE);
            ours.then(|| frame.current_line())
        })?;
        if let Some(line) = found {
            return line;
        }
        level += 1;
    }
}

/// The refusal of a command with the place of its call, in Redis 6.2.
fn located(lua: &Lua, refusal: Reply, dialect: Dialect) -> Reply {
    match (refusal, line(lua)) {
        (Reply::Error(text), Some(line)) if dialect == Dialect::Redis62 => {
            let place = format!("{SOURCE}: {line}: ");
            Reply::failure([place.as_bytes(), &text].concat())
        }
        (refusal, _) => refusal,
    }
}

/// An error with a code before its text: `ERR`, unless its first word is one. Redis 6.2 adds none.
fn coded(text: &[u8], dialect: Dialect) -> Vec<u8> {
    if dialect == Dialect::Redis62 {
        return text.to_vec();
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    if text.contains(&b' ') {
        text.to_vec()
    } else {
        [b"ERR ", text].concat()
    }
}

const NO_WORDS: [Reply; 3] = [
    Reply::error("Please specify at least one argument for redis.call()"),
    Reply::error("ERR Please specify at least one argument for this redis lib call"),
    Reply::error("ERR Please specify at least one argument for this call"),
];

const NO_TEXT: [Reply; 3] = [
    Reply::error("Lua redis() command arguments must be strings or integers"),
    Reply::error("ERR Lua redis lib command arguments must be strings or integers"),
    Reply::error("ERR Command arguments must be strings or integers"),
];
