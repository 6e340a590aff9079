//! Runs scripts, by the Lua that servers have.
//!
//! There is one interpreter for each thread, and it compiles each script once, whichever servers run it. A script gets
//! the server by functions that live as long as the run.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{
    BorrowedBytes, Error, Function, Lua, LuaOptions, LuaString, StdLib, Table, Value, Variadic,
};

use super::clients::ScriptRun;
use super::commands::Call;
use super::numbers::{exact, shortest, truncated};
use super::resp::Reply;
use super::{Flavor, Server};

/// The name of every script, in messages and places.
const SOURCE: &str = "@user_script";

/// What scripts find beside Lua's own functions. It gets them with functions of ours, and returns a function that runs
/// a script.
const SANDBOX: &str = r"
local restore, explain = ...
local pcall, xpcall, type, error, tostring = pcall, xpcall, type, error, tostring

-- Errors of ours are no tables while they are under way.
local function checked(ok, ...)
  if ok or type((...)) ~= 'userdata' then
    return ok, ...
  end
  return false, restore((...))
end
function _G.pcall(...)
  return checked(pcall(...))
end
_G.xpcall, _G.print, _G.dofile, _G.loadfile = nil, nil, nil, nil

KEYS, ARGV = {}, {}
setmetatable(_G, {
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable \'' .. tostring(name) .. '\'', 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

return function(script)
  return xpcall(script, explain)
end
";

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().unwrap();
}

/// Lua with what servers add to it.
struct Interpreter {
    lua: Lua,
    globals: Table,
    redis: Table,
    run: Function,
    compiled: RefCell<HashMap<String, Function>>,
    err: LuaString,
    ok: LuaString,
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
            Ok((true, value)) => interpreter.reply(&value),
            Ok((false, why)) => interpreter.failure(&why, hash, server.settings.flavor),
            Err(error) => {
                let text = format!("ERR Error running script {hash}, {error}");
                Reply::Error(Cow::Owned(text.into_bytes()))
            }
        }
    })
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
        let (err, ok) = (lua.create_string("err")?, lua.create_string("ok")?);
        let redis = lua.create_table()?;
        let hash =
            |_: &Lua, text: BorrowedBytes| Ok(sha1_smol::Sha1::from(&*text).digest().to_string());
        redis.raw_set("sha1hex", lua.create_function(hash)?)?;
        let status = |lua: &Lua, text: LuaString| {
            let table = lua.create_table()?;
            table.raw_set("ok", text)?;
            Ok(table)
        };
        redis.raw_set("status_reply", lua.create_function(status)?)?;
        let error = |lua: &Lua, text: BorrowedBytes| {
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(coded(&text))?)?;
            Ok(table)
        };
        redis.raw_set("error_reply", lua.create_function(error)?)?;
        let globals = lua.globals();
        globals.raw_set("redis", &redis)?;
        let run = lua
            .load(SANDBOX)
            .set_name("=sandbox")
            .call((lua.create_function(restore)?, lua.create_function(explain)?))?;
        Ok(Self {
            lua,
            globals,
            redis,
            run,
            compiled: RefCell::default(),
            err,
            ok,
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
        let (connection, base) = (call.connection, call.base);
        let run = RefCell::new((server, ScriptRun::default()));
        let flavor = run.borrow().0.settings.flavor;
        let answer = |words: &[Value]| {
            let words: Option<Vec<Word>> =
                words.iter().map(|word| Word::of(word, flavor)).collect();
            let Some(words) = words else {
                return Reply::error(
                    "ERR Lua redis lib command arguments must be strings or integers",
                );
            };
            let words: Vec<&[u8]> = words.iter().map(Deref::deref).collect();
            let call = Call {
                words: &words,
                connection,
                base,
            };
            let (server, run) = &mut *run.borrow_mut();
            server.answer_script(&call, run)
        };
        self.lua.scope(|scope| {
            let call = |_: &Lua, words: Variadic<Value>| match no_words(&words, "call") {
                Some(error) => Err(Error::external(Raised(error))),
                None => match answer(&words) {
                    Reply::Error(text) => Err(Error::external(Raised(coded(&text)))),
                    reply => self.value(reply),
                },
            };
            let pcall = |_: &Lua, words: Variadic<Value>| match no_words(&words, "pcall") {
                Some(error) => self.error(&error),
                None => self.value(answer(&words)),
            };
            self.redis.raw_set("call", scope.create_function(call)?)?;
            self.redis.raw_set("pcall", scope.create_function(pcall)?)?;
            self.run.call(script)
        })
    }

    fn error(&self, text: &[u8]) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(&self.err, self.lua.create_string(text)?)?;
        Ok(Value::Table(table))
    }

    /// A reply as scripts see it.
    fn value(&self, reply: Reply) -> mlua::Result<Value> {
        Ok(match reply {
            #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
            Reply::Int(number) => Value::Number(number as f64),
            Reply::Bulk(text) | Reply::Verbatim(text) => {
                Value::String(self.lua.create_string(text)?)
            }
            Reply::Nil | Reply::NilArray => Value::Boolean(false),
            Reply::Status(text) => {
                let table = self.lua.create_table()?;
                table.raw_set(&self.ok, self.lua.create_string(&text)?)?;
                Value::Table(table)
            }
            Reply::Error(text) => self.error(&coded(&text))?,
            Reply::Array(items) | Reply::Push(items) | Reply::Many(items) => self.values(items)?,
            Reply::Map(pairs) => {
                let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                self.values(items.collect())?
            }
        })
    }

    fn values(&self, items: Vec<Reply>) -> mlua::Result<Value> {
        let items: mlua::Result<Vec<Value>> =
            items.into_iter().map(|item| self.value(item)).collect();
        Ok(Value::Table(self.lua.create_sequence_from(items?)?))
    }

    /// What a script returned, as a reply.
    fn reply(&self, value: &Value) -> Reply {
        match value {
            Value::String(text) => Reply::bulk(text.as_bytes()),
            Value::Integer(number) => Reply::Int(*number),
            Value::Number(number) => Reply::Int(truncated(*number)),
            Value::Boolean(true) => Reply::Int(1),
            Value::Table(table) => self.table_reply(table),
            _ => Reply::Nil,
        }
    }

    /// A table is an error, a status, or a list, which ends at its first nil.
    fn table_reply(&self, table: &Table) -> Reply {
        let text = |name: &LuaString| match table.raw_get(name) {
            Ok(Value::String(text)) => Some(Cow::Owned(text.as_bytes().to_vec())),
            _ => None,
        };
        if let Some(error) = text(&self.err) {
            return Reply::Error(error);
        }
        if let Some(status) = text(&self.ok) {
            return Reply::Status(status);
        }
        let items = (1..).map_while(|index| match table.raw_get(index) {
            Ok(Value::Nil) | Err(_) => None,
            Ok(item) => Some(self.reply(&item)),
        });
        Reply::Array(items.collect())
    }

    /// The reply for an error that ended a script, of which [`explain`] made a table.
    fn failure(&self, why: &Value, hash: &str, flavor: Flavor) -> Reply {
        let Value::Table(table) = why else {
            return Reply::error("ERR the script failed without an error");
        };
        let mut text = match table.raw_get(&self.err) {
            Ok(Value::String(text)) => text.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        if let Ok(Value::Integer(line)) = table.raw_get("line") {
            let script = flavor.pick(&[format!("{hash}, "), String::new()]);
            text.extend_from_slice(format!(" script: {script}on {SOURCE}:{line}.").as_bytes());
        }
        Reply::Error(Cow::Owned(text))
    }
}

/// Turns an error of ours into the table that scripts see.
fn restore(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let Value::Error(raised) = &error else {
        return Ok(error);
    };
    let text = match raised.downcast_ref::<Raised>() {
        Some(Raised(text)) => text.clone(),
        None => format!("ERR {raised}").into_bytes(),
    };
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Turns whatever ended a script into a table with the text and the line of the script. Lua calls it where the error
/// was raised.
fn explain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match restore(lua, error)? {
        Value::Table(table) => table,
        other => {
            let mut text = b"ERR ".to_vec();
            match &other {
                Value::String(string) => text.extend_from_slice(&string.as_bytes()),
                other => text.extend_from_slice(other.to_string()?.as_bytes()),
            }
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    table.raw_set("line", line(lua))?;
    Ok(Value::Table(table))
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

/// An error with a code before its text: `ERR`, unless its first word is one.
fn coded(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    if text.contains(&b' ') {
        text.to_vec()
    } else {
        [b"ERR ", text].concat()
    }
}

fn no_words(words: &[Value], name: &str) -> Option<Vec<u8>> {
    let text = || format!("ERR Please specify at least one argument for this redis.{name}() call");
    words.is_empty().then(|| text().into_bytes())
}

/// An argument of a command.
enum Word {
    Text(BorrowedBytes),
    Number(String),
}

impl Word {
    fn of(value: &Value, flavor: Flavor) -> Option<Self> {
        let digits = flavor.pick(&[exact as fn(f64) -> String, shortest]);
        match value {
            Value::String(text) => Some(Self::Text(text.as_bytes())),
            #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
            Value::Integer(number) => Some(Self::Number(digits(*number as f64))),
            Value::Number(number) => Some(Self::Number(digits(*number))),
            _ => None,
        }
    }
}

impl Deref for Word {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(text) => text.as_bytes(),
        }
    }
}
