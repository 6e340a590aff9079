//! A service as providers call it serverless: a Redis Cluster that shows itself as one server with all slots, at the
//! service's own address. Here it is a real server in cluster mode, whose users may do little, and a proxy in front of it
//! that allows a script only the keys that it declares.

use std::collections::HashMap;
use std::fs;

use sha1_smol::Sha1;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::eventually;
use super::fake::{command, hide};
use super::resp::Raw;
use super::server::{Kind, Server};

/// The service's own users have no `PUBLISH`, `SUBSCRIBE`, `WAIT`, `CONFIG` nor `CLIENT`, and the names of one namespace.
const USER: &str = "ACL SETUSER locks on >pw ~{*}lk:* ~{*}lk!* resetchannels &{*}lk!free:* &{*}lk!idem!free:* &{*}lk!permit!free:* +@all -@admin -@dangerous +info +cluster|nodes +cluster|slots +cluster|shards -wait -client -publish -subscribe -psubscribe";

/// What a service that hides its identity leaves out of `INFO`.
const HIDDEN: [&str; 8] = [
    "run_id",
    "master_replid",
    "second_repl_offset",
    "evicted_keys",
    "used_memory",
    "maxmemory:",
    "aof_enabled",
    "server_time_usec",
];

/// Stands before each script. What is wrong is in the server's log, too: a script may get over an error.
const PRELUDE: &str = "
local real, declared = redis, {}
for _, key in ipairs(KEYS) do
  declared[key] = true
end
local function refused(...)
  if hides and string.upper((...)) == 'INFO' then
    return {err = 'ERR This Redis command is not allowed from script'}
  end
  for _, key in ipairs(real.pcall('COMMAND', 'GETKEYS', ...)) do
    if not declared[key] then
      real.log(real.LOG_WARNING, 'undeclared: ' .. key)
      return {err = 'ERR Script attempted to access a key that it does not declare'}
    end
  end
end
local redis = setmetatable({
  call = function(...)
    local refusal = refused(...)
    if refusal then
      error(refusal)
    end
    return real.call(...)
  end,
  pcall = function(...)
    return refused(...) or real.pcall(...)
  end,
}, {__index = real})
";

/// A running service. It ends with this value.
#[derive(Debug)]
pub struct Serverless {
    /// The server behind it, for what tests ask past the service.
    pub server: Server,
    port: u16,
    _task: JoinSet<()>,
}

impl Serverless {
    /// Starts one, and waits until it serves. If it `hides` its identity, `INFO` has few fields, and scripts have no
    /// `INFO`.
    pub async fn start(kind: Kind, hides: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let announced = port.to_string();
        let args = [
            "--cluster-enabled",
            "yes",
            "--cluster-announce-ip",
            "127.0.0.1",
            "--cluster-announce-port",
            &announced,
        ];
        let server = Server::start(kind, &args);
        assert_eq!(server.run("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
        assert_eq!(server.run(USER), "OK");
        let serves = || server.run("CLUSTER INFO").contains("cluster_state:ok");
        eventually("the cluster serves", serves).await;
        let (target, mut task) = (server.port(), JoinSet::new());
        task.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                served.spawn(ask(from_client, to_server, hides));
                served.spawn(answer(from_server, to_client, hides));
            }
        });
        Self {
            server,
            port,
            _task: task,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://locks:pw@127.0.0.1:{}", self.port)
    }

    /// A connection of the service's user.
    pub fn raw(&self) -> Raw {
        let mut raw = self.server.raw();
        assert_eq!(raw.command(&["AUTH", "locks", "pw"]).unwrap(), "OK");
        raw
    }

    /// The keys that scripts asked for and had not declared.
    pub fn undeclared(&self) -> Vec<String> {
        let log = fs::read_to_string(self.server.file("log")).unwrap();
        let keys = log
            .lines()
            .filter_map(|line| line.split_once("undeclared: "));
        keys.map(|(_, key)| key.to_owned()).collect()
    }
}

fn hash_of(script: &[u8]) -> String {
    Sha1::from(script).digest().to_string()
}

/// Passes commands on, with the prelude before each script.
async fn ask(from: OwnedReadHalf, mut to: OwnedWriteHalf, hides: bool) {
    let mut from = BufReader::new(from);
    // A script that was not loaded on this connection is unknown, as where another server of the service has it.
    let mut hashes: HashMap<Vec<u8>, String> = HashMap::new();
    while let Some(mut words) = command(&mut from).await {
        match &mut *words {
            [script, load, text] if *script == b"SCRIPT" && *load == b"LOAD" => {
                let known = hash_of(text).into_bytes();
                let mut checked = format!("local hides = {hides}{PRELUDE}").into_bytes();
                checked.append(text);
                hashes.insert(known, hash_of(&checked));
                *text = checked;
            }
            [evalsha, hash, ..] if *evalsha == b"EVALSHA" => {
                if let Some(checked) = hashes.get(hash) {
                    *hash = checked.clone().into_bytes();
                }
            }
            _ => {}
        }
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            message.extend(format!("${}\r\n", word.len()).bytes());
            message.extend(word);
            message.extend(b"\r\n");
        }
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, hides: bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let text = &mut buffer[..count];
        for word in HIDDEN.iter().filter(|_| hides) {
            hide(text, word.as_bytes());
        }
        if to.write_all(text).await.is_err() {
            return;
        }
    }
}
