// A stand-in for the CUDA driver (libcuda.so.1): counts memory, has none. Its figures are those of the NVML stub, in the
// text file that GPU_STUB_FIGURES names (nvml.c describes it), and `context MIB`, what a context takes (300). A process that uses this library keeps what it holds, context included, in the file GPU_STUB_FIGURES.d/PID.
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { BLOCKS = 65536, MANY = 256 };
static const double MIB = 1048576.0;

static size_t sizes[BLOCKS];  // by address; the first isn't used: no address is 0
static double allocated_mib, context_mib;
static int contexts;

static void folder(char *path, size_t size) { snprintf(path, size, "%s.d", getenv("GPU_STUB_FIGURES")); }

// Held while somebody counts and then takes; the folder itself is what is locked, so no file of another name lies in it.
static int lock(void) {
    char path[4096];
    folder(path, sizeof path);
    mkdir(path, 0777);
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    flock(descriptor, LOCK_EX);
    return descriptor;
}

// One write of fixed width to one place: a reader never sees half a number.
static void publish(void) {
    char path[4200], line[32];
    folder(path, sizeof path);
    snprintf(path + strlen(path), 64, "/%d", (int)getpid());
    int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int length = snprintf(line, sizeof line, "%16.3f\n", allocated_mib + (contexts ? context_mib : 0.0));
    if (pwrite(descriptor, line, length, 0) != length) abort();
    close(descriptor);
}

// A dead process holds nothing, nor does one whose parent hasn't asked for its end yet.
static int lives(int pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

static double held_by_users_mib(void) {
    char path[4200], line[64];
    double sum = 0.0, held;
    folder(path, sizeof path);
    size_t end = strlen(path);
    DIR *users = opendir(path);
    for (struct dirent *user; users && (user = readdir(users));) {
        int pid = atoi(user->d_name);
        if (pid <= 0 || !lives(pid)) continue;
        snprintf(path + end, sizeof path - end, "/%d", pid);
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof line, file) && sscanf(line, "%lf", &held) == 1) sum += held;
        if (file) fclose(file);
    }
    if (users) closedir(users);
    return sum;
}

// Reads the figures; returns 0 if there is no GPU that works.
static int read_figures(double *total, double *free_mib) {
    char line[512];
    double used = held_by_users_mib(), mib;
    FILE *file = getenv("GPU_STUB_FIGURES") ? fopen(getenv("GPU_STUB_FIGURES"), "r") : NULL;
    int works = file != NULL, code, pid, count = 0, pids[MANY];
    double most[MANY];
    *total = 0.0;
    if (!contexts) context_mib = 300.0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "process %d %*c %lf", &pid, &mib) == 2) {  // in both lists it holds the larger, once
            int earlier = 0;
            while (earlier < count && pids[earlier] != pid) earlier++;
            if (earlier == count && count < MANY) pids[count] = pid, most[count++] = 0.0;
            if (earlier < count && mib > most[earlier]) used += mib - most[earlier], most[earlier] = mib;
        }
        if (sscanf(line, "reserved %lf", &mib) == 1 || sscanf(line, "unlisted %lf", &mib) == 1) used += mib;
        if (!contexts) (void)!sscanf(line, "context %lf", &context_mib);
        if (sscanf(line, "fails %d", &code) == 1 || strncmp(line, "lost", 4) == 0) works = 0;
        (void)!sscanf(line, "total %lf", total);
    }
    if (file) fclose(file);
    *free_mib = used < *total ? *total - used : 0.0;
    return works;
}

// Takes its time, as the driver does: whoever watches sees the library before there is a context.
int cuInit(unsigned flags) {
    double total, free_mib;
    (void)flags;
    usleep(100000);
    return read_figures(&total, &free_mib) ? SUCCESS : NO_DEVICE;
}

int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }

int cuDeviceGet(int *device, int ordinal) { return ordinal ? INVALID_DEVICE : (*device = 0, SUCCESS); }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    double total, free_mib;
    (void)device;
    int locked = lock(), result = read_figures(&total, &free_mib) ? SUCCESS : NO_DEVICE;
    if (result == SUCCESS && !contexts && context_mib > free_mib) result = OUT_OF_MEMORY;
    if (result == SUCCESS) {
        contexts++;
        *context = &contexts;
        publish();
    }
    close(locked);
    return result;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (!contexts) return INVALID_CONTEXT;
    int locked = lock();
    if (--contexts == 0) {
        allocated_mib = 0.0;
        memset(sizes, 0, sizeof sizes);
    }
    publish();
    close(locked);
    return SUCCESS;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags;
    return cuDevicePrimaryCtxRetain(context, device);
}

int cuCtxDestroy_v2(void *context) {
    (void)context;
    return cuDevicePrimaryCtxRelease_v2(0);
}

int cuCtxSetCurrent(void *context) { return context == &contexts ? SUCCESS : INVALID_CONTEXT; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    double total, free_mib;
    if (!contexts) return INVALID_CONTEXT;
    if (!read_figures(&total, &free_mib)) return NO_DEVICE;
    *free_bytes = (size_t)(free_mib * MIB);
    *total_bytes = (size_t)(total * MIB);
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    double total, free_mib;
    if (!contexts) return INVALID_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    int locked = lock(), result = read_figures(&total, &free_mib) ? SUCCESS : NO_DEVICE, block = 1;
    while (block < BLOCKS && sizes[block]) block++;
    if (result == SUCCESS && (bytes / MIB > free_mib || block == BLOCKS)) result = OUT_OF_MEMORY;
    if (result == SUCCESS) {
        sizes[block] = bytes;
        allocated_mib += bytes / MIB;
        *address = (uint64_t)block;
        publish();
    }
    close(locked);
    return result;
}

int cuMemFree_v2(uint64_t address) {
    if (address == 0 || address >= BLOCKS || !sizes[address]) return INVALID_VALUE;
    int locked = lock();
    allocated_mib -= sizes[address] / MIB;
    sizes[address] = 0;
    publish();
    close(locked);
    return SUCCESS;
}
