// The Node peers of the benchmarks: node-redlock and the RedlockSemaphore of redis-semaphore, as their own documentation
// says to use them. See ../README.md for what they are told and what they answer.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import { RedlockSemaphore } from "redis-semaphore";
import redlock from "redlock";

const Redlock = redlock.default ?? redlock;
const now = () => process.hrtime.bigint();
const [library, urls, key, mode, tasks, ttl, work, limit] = process.argv.slice(2);
const clients = urls.split(",").map((url) => new Redis(url));
// Without an end of the tries, which it has a setting for: whoever wants a lock waits for it.
const locks = new Redlock(clients, { retryCount: -1 });
locks.on("error", () => {});
const length = BigInt(work) * 1000n;

async function acquire(key) {
  if (library === "node-redlock") return locks.acquire([key], Number(ttl));
  const options = { lockTimeout: Number(ttl), acquireTimeout: 60000 };
  const semaphore = new RedlockSemaphore(clients, key, Number(limit), options);
  await semaphore.acquire();
  return semaphore;
}

async function section(key, length) {
  const asked = now();
  const lock = await acquire(key);
  const began = now();
  while (now() < began + length);
  const ended = now();
  await lock.release().catch(() => {});
  return [asked, began, ended, now()];
}

const turns = [];
const failures = [];

async function task(number, end) {
  const own = mode === "each" ? `${key}:${number}` : key;
  while (now() < end) {
    try {
      turns.push(await section(own, length));
    } catch (error) {
      failures.push(String(error).replaceAll("\n", " "));
    }
  }
}

await section(`${key}:warm:${process.pid}`, 0n);
const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(0));
lines.once("line", async (line) => {
  const [start, end] = line.split(" ").map(BigInt);
  await new Promise((go) => setTimeout(go, Number((start - now()) / 1000000n)));
  const over = new Promise((stop) => setTimeout(stop, Number((end - now()) / 1000000n) + 5000));
  const all = Array.from({ length: Number(tasks) }, (_, number) => task(number, end));
  // Who still waits then without a turn says so: its wait has no end of its own.
  await Promise.race([Promise.all(all), over.then(() => failures.push("still waiting"))]);
  const said = turns.map((turn) => `turn ${turn.join(" ")}\n`);
  said.push(...failures.map((failure) => `failure ${failure}\n`), "done\n");
  process.stdout.write(said.join(""));
});
console.log("ready");
