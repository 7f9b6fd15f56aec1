// A stand-in for NVIDIA's Vulkan driver (libGLX_nvidia.so.0): one card that can be listed and opened, and nothing else. Written
// against the interface between loader and driver (Khronos, LoaderDriverInterface.md, version 5), without a C library,
// so that what is built here also loads in a container of another release.
#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, INTERFACE = 5, API_1_3 = 1 << 22 | 3 << 12, NVIDIA = 0x10de, DISCRETE = 2, NAME_AT = 20, MANY = 64 };
static const uintptr_t MAGIC = 0x01CDC0DE;
typedef void (*Function)(void);
typedef struct { uintptr_t magic; } Handle;  // the loader writes its own table there

typedef struct { Handle own, card; } Instance;

static Instance instances[MANY];  // each with a card of its own, as a driver makes them
static size_t made_so_far;

static int same(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

static int create_instance(const void *info, const void *allocator, Handle **made) {
    (void)info, (void)allocator;
    Instance *next = &instances[made_so_far++ % MANY];
    next->own.magic = next->card.magic = MAGIC;
    return *made = &next->own, SUCCESS;
}

static int create_device(Handle *of, const void *info, const void *allocator, Handle **made) {
    static Handle devices[MANY];
    static size_t opened;
    (void)of, (void)info, (void)allocator;
    *made = &devices[opened++ % MANY];
    return (*made)->magic = MAGIC, SUCCESS;
}

static int enumerate_version(uint32_t *version) { return *version = API_1_3, SUCCESS; }

static int enumerate_cards(Instance *of, uint32_t *count, Handle **cards) {
    if (cards != NULL && *count > 0) cards[0] = &of->card;
    return *count = 1, SUCCESS;
}

static void properties(Handle *of, uint32_t *told) {
    (void)of;
    static const char name[] = "NVIDIA stand-in";
    told[0] = API_1_3, told[2] = NVIDIA, told[4] = DISCRETE;
    for (size_t at = 0; at < sizeof name; at++) ((char *)told)[NAME_AT + at] = name[at];
}

static void properties2(Handle *of, char *told) { properties(of, (uint32_t *)(told + 16)); }

static int no_extensions(const void *of, const char *layer, uint32_t *count, void *told) {
    (void)of, (void)layer, (void)told;
    return *count = 0, SUCCESS;
}

static int no_instance_extensions(const char *layer, uint32_t *count, void *told) {
    return no_extensions(NULL, layer, count, told);
}

static int nothing(void) { return SUCCESS; }

Function vk_icdGetInstanceProcAddr(void *of, const char *name);

Function vk_icdGetInstanceProcAddr(void *of, const char *name) {
    (void)of;
    static const struct { const char *name; Function function; } known[] = {
        {"vkCreateInstance", (Function)create_instance},
        {"vkCreateDevice", (Function)create_device},
        {"vkGetDeviceProcAddr", (Function)vk_icdGetInstanceProcAddr},
        {"vkEnumerateInstanceVersion", (Function)enumerate_version},
        {"vkEnumerateInstanceExtensionProperties", (Function)no_instance_extensions},
        {"vkEnumerateDeviceExtensionProperties", (Function)no_extensions},
        {"vkEnumeratePhysicalDevices", (Function)enumerate_cards},
        {"vkGetPhysicalDeviceProperties", (Function)properties},
        {"vkGetPhysicalDeviceProperties2", (Function)properties2},
        {"vkGetPhysicalDeviceProperties2KHR", (Function)properties2},
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (same(name, known[at].name)) return known[at].function;
    return (Function)nothing;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    if (*version > INTERFACE) *version = INTERFACE;
    return SUCCESS;
}
