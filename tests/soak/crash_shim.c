/* Preloaded: strikes at the n-th call that changes a file below a folder. It ends the process before the call, or after
   half of that write; or has the disk full from there on, after half of that write; or has that one call fail with EIO.

   crash_arm(folder, n, mode) begins to count from 0; n < 0 only counts. crash_point() is one more point, for what is
   stored through a mapping. crash_count() returns how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BEFORE, TORN, FULL, BROKEN };
static char folder[4096];
static long at = -1, counted = 0;
static int armed = 0, mode = BEFORE;

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

void crash_arm(const char *below, long n, int kind) {
    snprintf(folder, sizeof folder, "%s", below);
    at = n, counted = 0, mode = kind, armed = 1;
}
long crash_count(void) { armed = 0; return counted; }

static void end(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
static int hit(void) {
    long here = counted++;
    return at >= 0 && (mode == FULL ? here >= at : here == at);
}
/* Return the error with which a call that is hit fails, or 0 where it goes on. */
static int fault(int takes_room) {
    if (mode <= TORN) end();
    return mode == BROKEN ? EIO : takes_room ? ENOSPC : 0;
}
void crash_point(void) { if (armed && hit() && mode <= TORN) end(); }

static int below(const char *path) { return strncmp(path, folder, strlen(folder)) == 0; }
static int is_ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}
static int names_ours(int dir, const char *path) {
    if (path[0] == '/') return below(path);
    char here[4096];
    return dir == AT_FDCWD ? getcwd(here, sizeof here) && below(here) : is_ours(dir);
}
static int failed(int ours, int takes_room) { return armed && ours && hit() ? fault(takes_room) : 0; }
static int half_first(void) { return mode == TORN || (mode == FULL && counted - 1 == at); }

#define WRITE(name, types, half, words) \
    ssize_t name types { \
        REAL(ssize_t, name, UNPACK types); \
        if (armed && is_ours(fd) && hit()) { \
            if (half_first()) { ssize_t done = real half; if (mode == FULL && done > 0) return done; } \
            errno = fault(1); \
            return -1; \
        } \
        return real words; \
    }
#define UNPACK(...) __VA_ARGS__
WRITE(write, (int fd, const void *data, size_t size), (fd, data, size / 2), (fd, data, size))
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t to), (fd, data, size / 2, to), (fd, data, size, to))
WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, (count + 1) / 2), (fd, parts, count))

static int creates(int flags) { return flags & (O_CREAT | O_TRUNC); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        int error = creates(flags) ? failed(names_ours(AT_FDCWD, path), 1) : 0; \
        if (error) { errno = error; return -1; } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        int error = creates(flags) ? failed(names_ours(dir, path), 1) : 0; \
        if (error) { errno = error; return -1; } \
        return real(dir, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define ONE(name, types, ours, takes_room, words) \
    int name types { \
        REAL(int, name, UNPACK types); \
        int error = failed(ours, takes_room); \
        if (error) { errno = error; return -1; } \
        return real words; \
    }
#define ALLOCATE(name, types, words) \
    int name types { REAL(int, name, UNPACK types); int error = failed(is_ours(fd), 1); return error ? error : real words; }
ONE(fsync, (int fd), is_ours(fd), 0, (fd))
ONE(fdatasync, (int fd), is_ours(fd), 0, (fd))
ONE(ftruncate, (int fd, off_t size), is_ours(fd), 0, (fd, size))
ONE(ftruncate64, (int fd, off64_t size), is_ours(fd), 0, (fd, size))
ALLOCATE(posix_fallocate, (int fd, off_t from, off_t size), (fd, from, size))
ALLOCATE(posix_fallocate64, (int fd, off64_t from, off64_t size), (fd, from, size))
ONE(rename, (const char *from, const char *to), names_ours(AT_FDCWD, from), 0, (from, to))
ONE(renameat, (int a, const char *from, int b, const char *to), names_ours(a, from), 0, (a, from, b, to))
ONE(unlink, (const char *path), names_ours(AT_FDCWD, path), 0, (path))
ONE(unlinkat, (int dir, const char *path, int flags), names_ours(dir, path), 0, (dir, path, flags))
ONE(mkdir, (const char *path, mode_t rights), names_ours(AT_FDCWD, path), 1, (path, rights))
ONE(rmdir, (const char *path), names_ours(AT_FDCWD, path), 0, (path))
