#include "model/desc/topology_nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { NVML_OK = 0, MOST_GPUS = 256 };

typedef struct nvml_device *nvml_device;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvml_pci;

/* Functions of libnvidia-ml.so.1. Those marked 0 are missing in old drivers and are done without. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(1, init, "nvmlInit_v2", (void))                                                              \
    X(1, shutdown, "nvmlShutdown", (void))                                                         \
    X(1, count, "nvmlDeviceGetCount_v2", (unsigned *))                                             \
    X(1, handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_device *))                       \
    X(1, name, "nvmlDeviceGetName", (nvml_device, char *, unsigned))                               \
    X(1, pci, "nvmlDeviceGetPciInfo_v3", (nvml_device, nvml_pci *))                                \
    X(0, capability, "nvmlDeviceGetCudaComputeCapability", (nvml_device, int *, int *))            \
    X(0, generation, "nvmlDeviceGetMaxPcieLinkGeneration", (nvml_device, unsigned *))              \
    X(0, width, "nvmlDeviceGetMaxPcieLinkWidth", (nvml_device, unsigned *))                        \
    X(0, link_state, "nvmlDeviceGetNvLinkState", (nvml_device, unsigned, unsigned *))              \
    X(0, link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvml_device, unsigned, int *))         \
    X(0, link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvml_device, unsigned, nvml_pci *))

typedef struct {
#define AS_MEMBER(needed, member, symbol, args) int(*member) args;
    NVML_FUNCTIONS(AS_MEMBER)
#undef AS_MEMBER
} nvml;

static const char *load(void *library, nvml *lib)
{
    const char *missing = NULL;
#define AS_LOAD(needed, member, symbol, args)                                                      \
    *(void **)&lib->member = dlsym(library, symbol);                                               \
    if (needed && lib->member == NULL)                                                             \
        missing = symbol;
    NVML_FUNCTIONS(AS_LOAD)
#undef AS_LOAD
    return missing;
}

static const char *busid_of(const nvml_pci *pci, sf_arena *arena)
{
    return sf_arena_printf(arena, "%04x:%02x:%02x.0", pci->domain, pci->bus, pci->device);
}

static void read_links(const nvml *lib, nvml_device device, sf_arena *arena, sf_nvml_gpu *gpu)
{
    for (unsigned link = 0; lib->link_state != NULL && link < SF_NVML_MOST_LINKS; link++) {
        unsigned active = 0;
        int type = 255;
        nvml_pci far = { .domain = 0 };
        if (lib->link_state(device, link, &active) != NVML_OK || active == 0)
            continue;
        int at = gpu->link_count++;
        gpu->links[at].far = SF_NVML_TO_SWITCH;
        gpu->links[at].busid = "";
        if (lib->link_type != NULL && lib->link_type(device, link, &type) == NVML_OK)
            gpu->links[at].far = type == 0 ? SF_NVML_TO_GPU : type == 2 ? SF_NVML_TO_SWITCH : SF_NVML_TO_OTHER;
        if (lib->link_pci != NULL && lib->link_pci(device, link, &far) == NVML_OK)
            gpu->links[at].busid = busid_of(&far, arena);
    }
}

static bool read_gpu(const nvml *lib, unsigned index, sf_arena *arena, sf_nvml_gpu *gpu)
{
    nvml_device device;
    nvml_pci pci = { .domain = 0 };
    char name[96] = "";
    int major = 0, minor = 0;
    unsigned generation = 0, width = 0;
    if (lib->handle(index, &device) != NVML_OK || lib->pci(device, &pci) != NVML_OK)
        return false;
    lib->name(device, name, sizeof name);
    name[sizeof name - 1] = '\0';
    gpu->name = sf_topo_plain(arena, name);
    gpu->busid = busid_of(&pci, arena);
    if (lib->capability != NULL && lib->capability(device, &major, &minor) == NVML_OK)
        gpu->sm = major * 10 + minor;
    if (lib->generation != NULL && lib->generation(device, &generation) == NVML_OK)
        gpu->pcie_generation = (int)generation;
    if (lib->width != NULL && lib->width(device, &width) == NVML_OK)
        gpu->pcie_lanes = (int)width;
    read_links(lib, device, arena, gpu);
    return true;
}

sf_status sf_nvml_gpus(sf_arena *arena, sf_nvml_gpu **out, int *count, const char **why_none)
{
    sf_status st = SF_SUCCESS;
    nvml lib;
    unsigned present = 0;
    const char *file = getenv("SHARDFIT_NVML"), *missing;
    if (file == NULL || file[0] == '\0')
        file = "libnvidia-ml.so.1";
    *out = NULL;
    *count = 0;
    *why_none = "";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        *why_none = "no NVIDIA driver library (libnvidia-ml.so.1)";
        return SF_SUCCESS;
    }
    if ((missing = load(library, &lib)) != NULL) {
        st = SF_FAIL(SF_EDEVICE, "%s has no %s: the driver is older than this program can use", file, missing);
        goto close;
    }
    int code = lib.init();
    if (code != NVML_OK) {
        *why_none = sf_arena_printf(arena, "the NVIDIA driver does not answer (NVML error %d)", code);
        goto close;
    }
    if (lib.count(&present) != NVML_OK || present == 0) {
        *why_none = "the NVIDIA driver knows no GPU";
        goto shut;
    }
    present = present > MOST_GPUS ? MOST_GPUS : present;
    *out = SF_NEW_ARRAY(arena, sf_nvml_gpu, present);
    for (unsigned i = 0; i < present; i++)
        if (read_gpu(&lib, i, arena, &(*out)[*count]))
            (*count)++;
shut:
    lib.shutdown();
close:
    dlclose(library);
    return st;
}
