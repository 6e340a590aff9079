/* Clocks that a test sets: preloaded into a program, it changes what its clocks show by what stands in the file that
   CLOCKS names, which may change at any time. The raw monotonic clock and those of processor time stay as they are.

   A wall clock can also stand still. The monotonic clock goes on then, but only from one wait for events to the next:
   some servers reckon the time of a command from both. They have to ask for it, which they do where they do not find out
   how fast the processor's counter goes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct settings {
    /* By how many nanoseconds the wall clock is ahead. */
    int64_t ahead;
    /* For how many nanoseconds the clock stood still that does not count suspend. */
    int64_t stood_still;
    /* By how many millionths all clocks run too fast, and since when by the true monotonic clock. */
    int64_t rate;
    int64_t since;
    /* What the wall clock shows if it stands still, in microseconds since 1970; 0 if it goes. */
    int64_t stopped;
};

static const int64_t SECOND = 1000000000;
static volatile struct settings *settings;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCKS");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) {
        return;
    }
    void *page = mmap(NULL, sizeof *settings, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) {
        settings = page;
    }
}

static int true_time(clockid_t clock, struct timespec *now) { return syscall(SYS_clock_gettime, clock, now); }

static int64_t nanos(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

/* How far the clocks are ahead because they run too fast. */
static int64_t gained(void) {
    struct timespec now;
    int64_t rate = settings->rate;
    if (!rate || true_time(CLOCK_MONOTONIC, &now)) {
        return 0;
    }
    return (nanos(&now) - settings->since) / 1000 * rate / 1000;
}

/* The monotonic clock at the last wait for events. */
static struct timespec last;

int epoll_wait(int queue, struct epoll_event *events, int most, int timeout) {
    int count = syscall(SYS_epoll_pwait, queue, events, most, timeout, NULL, 0);
    true_time(CLOCK_MONOTONIC, &last);
    return count;
}

static FILE *open_but_cpuinfo(const char *name, const char *path, const char *mode) {
    FILE *(*open_file)(const char *, const char *) = dlsym(RTLD_NEXT, name);
    return settings && !strcmp(path, "/proc/cpuinfo") ? NULL : open_file(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_but_cpuinfo("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_but_cpuinfo("fopen64", path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = true_time(clock, now);
    if (failed || !settings) {
        return failed;
    }
    int64_t stopped = settings->stopped;
    if (stopped && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec = stopped / 1000000;
        now->tv_nsec = stopped % 1000000 * 1000;
        return 0;
    }
    if (stopped && clock == CLOCK_MONOTONIC && last.tv_sec) {
        *now = last;
    }
    int64_t more;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        more = settings->ahead + gained();
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
        more = gained() - settings->stood_still;
        break;
    case CLOCK_BOOTTIME:
        more = gained();
        break;
    default:
        return 0;
    }
    int64_t shown = nanos(now) + more;
    now->tv_sec = shown / SECOND;
    now->tv_nsec = shown % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *told) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (told) {
        *told = exact.tv_sec;
    }
    return exact.tv_sec;
}
