"""The Python peers of the benchmarks: pottery and redlock-py, as their own documentation says to use them. See
../README.md for what they are told and what they answer."""

import logging
import os
import sys
import threading
import time

import redis

now = time.monotonic_ns


class Pottery:
    """Its keys are those that it is given, behind `redlock:`."""

    def __init__(self, urls, ttl):
        from pottery import Redlock

        self.lock, self.ttl = Redlock, ttl / 1000
        self.masters = {redis.Redis.from_url(url) for url in urls}

    def acquire(self, key, end):
        lock = self.lock(key=key, masters=self.masters, auto_release_time=self.ttl)
        # It blocks until it has the lock, with an end for the whole only if it is given one.
        left = max(0.1, (end - now()) / 1e9) if end else -1
        return lock if lock.acquire(timeout=left) else None

    def release(self, lock):
        lock.release()


class RedlockPy:
    def __init__(self, urls, ttl):
        from redlock import Redlock

        self.locks, self.ttl = Redlock(urls), ttl

    def acquire(self, key, end):
        # Where its three tries are used up, they begin anew: whoever wants a lock waits for it.
        while not (lock := self.locks.lock(key, self.ttl)):
            if end and now() > end:
                return None
        return lock

    def release(self, lock):
        self.locks.unlock(lock)


def section(locks, key, work, end):
    asked = now()
    lock = locks.acquire(key, end)
    if not lock:
        return None
    began = now()
    while now() < began + work:
        pass
    ended = now()
    locks.release(lock)
    return asked, began, ended, now()


def task(locks, key, work, end, turns, failures):
    while now() < end:
        try:
            turn = section(locks, key, work, end + 5_000_000_000)
            turns.append(turn) if turn else failures.append("still waiting")
        except Exception as error:  # What a library raises is its failure, and is told.
            failures.append(repr(error).replace("\n", " "))


def main():
    logging.disable()
    library, urls, key, mode, tasks, ttl, work = sys.argv[1:8]
    kind = {"pottery": Pottery, "redlock-py": RedlockPy}[library]
    locks = kind(urls.split(","), int(ttl))
    section(locks, f"{key}:warm:{os.getpid()}", 0, None)
    print("ready", flush=True)
    start, end = map(int, sys.stdin.readline().split())

    def watch():
        sys.stdin.read()
        os._exit(0)

    time.sleep(max(0, start - now()) / 1e9)
    turns, failures = [], []
    keys = [f"{key}:{number}" if mode == "each" else key for number in range(int(tasks))]
    threads = [
        threading.Thread(target=task, args=(locks, key, int(work) * 1000, end, turns, failures), daemon=True)
        for key in keys
    ]
    threading.Thread(target=watch, daemon=True).start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn in turns:
        print("turn", *turn)
    for failure in failures:
        print("failure", failure)
    print("done", flush=True)


main()
