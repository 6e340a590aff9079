import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The Java peers of the benchmarks: Redisson's RLock, RReadWriteLock, RSemaphore and RPermitExpirableSemaphore on the
 * first node, its MultiLock and its RedLock on all of them. See ../README.md for what it is told and what it answers.
 */
public final class Peer {
    private final String library;
    private final long ttl;
    private final int limit;
    private final List<RedissonClient> clients = new ArrayList<>();

    private record Turn(long asked, long began, long ended, long released) {}

    private Peer(String library, String[] urls, long ttl, int limit) {
        this.library = library;
        this.ttl = ttl;
        this.limit = limit;
        for (String url : urls) {
            Config config = new Config();
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(4);
            clients.add(Redisson.create(config));
            if (!library.equals("redisson-multilock") && !library.equals("redisson-redlock")) {
                break;
            }
        }
    }

    private RLock lock(String key) {
        RLock[] locks = clients.stream().map(client -> client.getLock(key)).toArray(RLock[]::new);
        return switch (library) {
            case "redisson-rlock" -> locks[0];
            case "redisson-read" -> clients.get(0).getReadWriteLock(key).readLock();
            case "redisson-write" -> clients.get(0).getReadWriteLock(key).writeLock();
            case "redisson-multilock" -> new RedissonMultiLock(locks);
            case "redisson-redlock" -> new RedissonRedLock(locks);
            default -> throw new IllegalArgumentException(library);
        };
    }

    /** How to give back what was acquired; nothing if the wait of so many ns is over before. */
    private Runnable acquire(String key, long wait) throws InterruptedException {
        switch (library) {
            case "redisson-semaphore" -> {
                RSemaphore semaphore = clients.get(0).getSemaphore(key);
                // Before each acquire, as its documentation has it.
                semaphore.trySetPermits(limit);
                return semaphore.tryAcquire(Duration.ofNanos(wait)) ? semaphore::release : null;
            }
            case "redisson-permits" -> {
                RPermitExpirableSemaphore semaphore = clients.get(0).getPermitExpirableSemaphore(key);
                semaphore.trySetPermits(limit);
                long millis = wait / 1_000_000;
                String permit = semaphore.tryAcquire(millis, ttl, TimeUnit.MILLISECONDS);
                return permit == null ? null : () -> semaphore.release(permit);
            }
            default -> {
                RLock lock = lock(key);
                return lock.tryLock(wait, ttl * 1_000_000, TimeUnit.NANOSECONDS) ? lock::unlock : null;
            }
        }
    }

    /** One section; nothing if its wait is over at `end`. */
    private Turn section(String key, long work, long end) throws InterruptedException {
        long asked = System.nanoTime();
        Runnable release = acquire(key, end - asked);
        if (release == null) {
            return null;
        }
        long began = System.nanoTime();
        while (System.nanoTime() < began + work) {
            Thread.onSpinWait();
        }
        long ended = System.nanoTime();
        release.run();
        return new Turn(asked, began, ended, System.nanoTime());
    }

    private void task(String key, long work, long end, List<Turn> turns, List<String> failures) {
        while (System.nanoTime() < end) {
            try {
                Turn turn = section(key, work, end + 5_000_000_000L);
                if (turn != null) {
                    turns.add(turn);
                } else {
                    failures.add("still waiting");
                }
            } catch (Exception error) {
                failures.add(error.toString().replace('\n', ' '));
            }
        }
    }

    public static void main(String[] words) throws Exception {
        Peer peer = new Peer(words[0], words[1].split(","), Long.parseLong(words[5]), Integer.parseInt(words[7]));
        String key = words[2];
        int tasks = Integer.parseInt(words[4]);
        long work = Long.parseLong(words[6]) * 1_000;
        String warm = key + ":warm:" + ProcessHandle.current().pid();
        // The compiler warms up, too.
        for (int turn = 0; turn < 500; turn++) {
            peer.section(warm, 0, System.nanoTime() + 10_000_000_000L);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        String[] times = input.readLine().split(" ");
        long end = Long.parseLong(times[1]);
        Thread watch = new Thread(() -> {
            try {
                while (input.readLine() != null) {}
            } catch (Exception gone) {
                // Nobody is left to talk to.
            }
            Runtime.getRuntime().halt(0);
        });
        watch.setDaemon(true);
        watch.start();
        TimeUnit.NANOSECONDS.sleep(Long.parseLong(times[0]) - System.nanoTime());
        List<Thread> threads = new ArrayList<>();
        List<List<Turn>> turns = new ArrayList<>();
        List<List<String>> failures = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            String own = words[3].equals("each") ? key + ":" + task : key;
            List<Turn> mine = new ArrayList<>();
            List<String> wrong = new ArrayList<>();
            turns.add(mine);
            failures.add(wrong);
            Thread thread = new Thread(() -> peer.task(own, work, end, mine, wrong));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        StringBuilder said = new StringBuilder();
        for (List<Turn> mine : turns) {
            for (Turn t : mine) {
                said.append("turn ").append(t.asked).append(' ').append(t.began).append(' ').append(t.ended)
                    .append(' ').append(t.released).append('\n');
            }
        }
        for (List<String> wrong : failures) {
            for (String failure : wrong) {
                said.append("failure ").append(failure).append('\n');
            }
        }
        PrintStream output = System.out;
        output.print(said.append("done\n"));
        output.flush();
        Runtime.getRuntime().halt(0);
    }
}
