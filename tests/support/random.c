/* A system that has no random bytes for one thing: preloaded into a process, it refuses to give exactly DENIED of them
   at a time. Whatever asks for another number of bytes is served, as the standard library is for its hash maps. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t getrandom(void *bytes, size_t count, unsigned int flags) {
    if (count == DENIED) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_getrandom, bytes, count, flags);
}
