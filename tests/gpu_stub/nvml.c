/* A stand-in for the driver's libnvidia-ml.so.1: what nvidia-ml-py asks, answered from a text file.

   GPU_STUB_FIGURES names the file, and GPU_STUB_SECOND that of a second GPU, if there is one. It is read again at each call, so a test changes it (by rename) under a running
   program. Lines: `total MIB`, `reserved MIB`, `uuid TEXT`, `driver TEXT`, `index N` (of the GPU; 0),
   `init CODE` (so does every start of NVML), `fails CODE` (so does every call about the GPU), `lost` (the same with 15), `unlistable` (the driver names no process),
   `after N` (`fails` and `init` hold from the call after the N-th on, counted from when N changed),
   `process PID G|C MIB|none [NAME]` (in both lists, if it has a line of each kind, and then it holds the larger),
   `unlisted MIB` (held, and in neither list). Without a file there is no driver.
   Each file in GPU_STUB_FIGURES.d is named by the id of a living process and holds the MiB that it computes with. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024ULL * 1024ULL)
#define CARDS 2
#define MANY 256
#define NOT_AVAILABLE (~0ULL)

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

typedef struct {
    unsigned pid;
    char kind, name[128];
    double mib; /* below 0: not told */
} line_t;

typedef struct {
    double total, reserved, unlisted;
    char uuid[96], driver[80];
    int code, init, unlistable, count, after;
    unsigned index;
    line_t lines[MANY];
} figures_t;

static int lives(unsigned pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

static void add_line(figures_t *figures, unsigned pid, char kind, double mib, const char *name) {
    if (figures->count == MANY) return;
    line_t *line = &figures->lines[figures->count++];
    line->pid = pid, line->kind = kind, line->mib = mib;
    snprintf(line->name, sizeof line->name, "%s", name);
}

static void read_folder(figures_t *figures, const char *figures_path) {
    char path[4096];
    snprintf(path, sizeof path, "%s.d", figures_path);
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        unsigned pid;
        double mib;
        char end;
        if (sscanf(entry->d_name, "%u%c", &pid, &end) != 1 || !lives(pid)) continue;
        snprintf(path, sizeof path, "%s.d/%s", figures_path, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%lf", &mib) == 1) add_line(figures, pid, 'C', mib, "");
        fclose(file);
    }
    closedir(folder);
}

static void read_line(figures_t *figures, const char *text) {
    unsigned pid;
    char kind, amount[32], name[128] = "";
    if (!strncmp(text, "lost", 4)) figures->code = GPU_IS_LOST;
    if (!strncmp(text, "unlistable", 10)) figures->unlistable = 1;
    (void)!sscanf(text, "fails %d", &figures->code);
    (void)!sscanf(text, "init %d", &figures->init);
    (void)!sscanf(text, "after %d", &figures->after);
    (void)!sscanf(text, "index %u", &figures->index);
    if (sscanf(text, "process %u %c %31s %127[^\n]", &pid, &kind, amount, name) >= 3)
        add_line(figures, pid, kind, strcmp(amount, "none") ? atof(amount) : -1, name);
    (void)!sscanf(text, "total %lf", &figures->total);
    (void)!sscanf(text, "reserved %lf", &figures->reserved);
    (void)!sscanf(text, "unlisted %lf", &figures->unlisted);
    (void)!sscanf(text, "uuid %95s", figures->uuid);
    (void)!sscanf(text, "driver %79s", figures->driver);
}

static const char *figures_path(int card) { return getenv(card ? "GPU_STUB_SECOND" : "GPU_STUB_FIGURES"); }

static void count_call(figures_t *figures) {
    static int after, calls;
    if (figures->after != after) after = figures->after, calls = 0;
    if (after && ++calls <= after) figures->code = figures->init = 0;
}

static int read_figures(int card, figures_t *figures) {
    const char *path = figures_path(card);
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(figures, 0, sizeof *figures);
    if (!file) return DRIVER_NOT_LOADED;
    for (char text[512]; fgets(text, sizeof text, file);) read_line(figures, text);
    fclose(file);
    read_folder(figures, path);
    if (!card) count_call(figures);
    return SUCCESS;
}

static int gone[CARDS]; /* a lost GPU stays lost until NVML is initialised again */

static int read_card(int card, figures_t *figures) {
    int code = read_figures(card, figures);
    if (code == SUCCESS && figures->code == GPU_IS_LOST) gone[card] = 1;
    if (code == SUCCESS && gone[card]) return GPU_IS_LOST;
    return code == SUCCESS ? figures->code : code;
}

/* A handle is the card's number here, and one more: none is NULL. */
static int read_device(void *device, figures_t *figures) { return read_card((int)(intptr_t)device - 1, figures); }

/* Finds the card of a UUID, else of an index; what ails the first card is told where none is found. */
static int find(const char *uuid, unsigned index, int missing, void **device) {
    figures_t figures;
    *device = NULL;
    for (int card = 0; card < CARDS; card++) {
        int code = read_card(card, &figures);
        if (!figures.uuid[0] || (uuid ? strcmp(uuid, figures.uuid) : index != figures.index)) continue;
        if (code == SUCCESS) *device = (void *)(intptr_t)(card + 1);
        return code;
    }
    int code = read_card(0, &figures);
    return code ? code : missing;
}

static double used(const figures_t *figures) {
    double sum = figures->unlisted;
    for (int i = 0; i < figures->count; i++) {
        const line_t *line = &figures->lines[i];
        int counts = line->mib > 0;
        for (int j = 0; j < figures->count && counts; j++) { /* a process in both lists holds the larger, once */
            const line_t *other = &figures->lines[j];
            if (other->pid == line->pid && (other->mib > line->mib || (other->mib == line->mib && j < i))) counts = 0;
        }
        if (counts) sum += line->mib;
    }
    return sum;
}

static memory_v2_t memory(const figures_t *figures) {
    memory_v2_t memory = {0};
    double available = figures->total - figures->reserved - used(figures);
    memory.total = (unsigned long long)(figures->total * MIB);
    memory.reserved = (unsigned long long)(figures->reserved * MIB);
    memory.free = available > 0 ? (unsigned long long)(available * MIB) : 0;
    memory.used = memory.total - memory.reserved - memory.free;
    return memory;
}

static int list(void *device, char kind, unsigned *count, process_t *processes) {
    figures_t figures;
    int code = read_device(device, &figures);
    unsigned found = 0, room = *count;
    if (code == SUCCESS && figures.unlistable) code = NOT_SUPPORTED;
    for (int i = 0; i < figures.count && code == SUCCESS; i++) {
        const line_t *line = &figures.lines[i];
        if (line->kind != kind) continue;
        if (found < room && processes)
            processes[found] = (process_t){line->pid, line->mib < 0 ? NOT_AVAILABLE : (unsigned long long)(line->mib * MIB), ~0u, ~0u};
        found++;
    }
    *count = found;
    return code == SUCCESS && found > room ? INSUFFICIENT_SIZE : code;
}

static int copy(char *to, unsigned room, const char *from) {
    if (strlen(from) >= room) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    figures_t figures;
    int code = read_figures(0, &figures);
    memset(gone, 0, sizeof gone);
    return (void)flags, code ? code : figures.init;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "stub's error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned room) {
    figures_t figures;
    int code = read_figures(0, &figures);
    return code ? code : copy(version, room, figures.driver);
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room) {
    figures_t figures;
    for (int card = 0; card < CARDS; card++) {
        int code = read_figures(card, &figures);
        if (code && !card) return code;
        for (int i = 0; i < figures.count; i++)
            if (figures.lines[i].pid == pid && figures.lines[i].name[0]) return copy(name, room, figures.lines[i].name);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    figures_t figures;
    *count = 0;
    for (int card = 0; card < CARDS; card++)
        if (read_figures(card, &figures) == SUCCESS && figures.index >= *count) *count = figures.index + 1;
    return read_figures(0, &figures);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    return find(NULL, index, INVALID_ARGUMENT, device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    return find(uuid, 0, NOT_FOUND, device);
}

int nvmlDeviceGetIndex(void *device, unsigned *index) {
    figures_t figures;
    int code = read_device(device, &figures);
    return *index = figures.index, code;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned room) {
    figures_t figures;
    int code = read_device(device, &figures);
    return code ? code : copy(uuid, room, figures.uuid);
}

int nvmlDeviceGetName(void *device, char *name, unsigned room) {
    figures_t figures;
    int code = read_device(device, &figures);
    return code ? code : copy(name, room, "Stub");
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *to) {
    figures_t figures;
    int code = read_device(device, &figures);
    unsigned version = to->version;
    *to = memory(&figures);
    to->version = version;
    return code;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *to) {
    figures_t figures;
    int code = read_device(device, &figures);
    memory_v2_t all = memory(&figures);
    *to = (memory_t){all.total, all.free, all.total - all.free};
    return code;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_t *processes) {
    return list(device, 'G', count, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *processes) {
    return list(device, 'C', count, processes);
}
