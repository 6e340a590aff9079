/* A wall clock that a test can step or set: preloaded into a server, it adds the seconds that stand in the file named by
   CLOCK_OFFSET to the real time. If microseconds since 1970 stand behind them, that is the time, and it stands still.
   The monotonic clock goes on as it does, but while the wall clock stands still only from one wait for events to the
   next: some servers reckon the time of a command from both. They have to ask for it, which they do where they do not
   find out how fast the processor's counter goes. */
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

/* The seconds, then the microseconds. */
static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) {
        return;
    }
    void *page = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) {
        offset = page;
    }
}

static int64_t ahead(void) { return offset ? offset[0] : 0; }

/* 0 if the clock goes. */
static int64_t stopped(void) { return offset ? offset[1] : 0; }

/* The monotonic clock at the last wait for events. */
static struct timespec last;

int epoll_wait(int queue, struct epoll_event *events, int most, int timeout) {
    int count = syscall(SYS_epoll_pwait, queue, events, most, timeout, NULL, 0);
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &last);
    return count;
}

static FILE *open_but_cpuinfo(const char *name, const char *path, const char *mode) {
    FILE *(*open_file)(const char *, const char *) = dlsym(RTLD_NEXT, name);
    return offset && !strcmp(path, "/proc/cpuinfo") ? NULL : open_file(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_but_cpuinfo("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_but_cpuinfo("fopen64", path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_MONOTONIC && stopped() && last.tv_sec) {
        *now = last;
    }
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t micros = stopped();
        if (micros) {
            now->tv_sec = micros / 1000000;
            now->tv_nsec = micros % 1000000 * 1000;
        } else {
            now->tv_sec += ahead();
        }
    }
    return failed;
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
