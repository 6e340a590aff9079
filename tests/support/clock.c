/* A wall clock that a test can step or set: preloaded into a server, it adds the seconds that stand in the file named by
   CLOCK_OFFSET to the real time. If microseconds since 1970 stand behind them, that is the time, and it stands still.
   The monotonic clock goes on as it does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
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

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
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
