/* A stand-in for libnvidia-ml.so.1: two GPUs at 0000:1a:00.0 and 0000:3b:00.0 with four NVLinks between
 * them and two to an NVSwitch. Only what the reader asks for. FAKE_NVML=broken: the driver fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} pci;

static unsigned devices[2] = { 0, 1 };
static const unsigned buses[2] = { 0x1a, 0x3b };

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned length);
int nvmlDeviceGetPciInfo_v3(void *device, pci *out);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci *out);

int nvmlInit_v2(void)
{
    const char *how = getenv("FAKE_NVML");
    return how != NULL && strcmp(how, "broken") == 0 ? 9 : 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    (void)device;
    snprintf(name, length, "NVIDIA A100-SXM4-80GB");
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, pci *out)
{
    memset(out, 0, sizeof *out);
    out->bus = buses[*(unsigned *)device];
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 8;
    *minor = 0;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out)
{
    (void)device;
    *out = 4;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out)
{
    (void)device;
    *out = 16;
    return 0;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    (void)device;
    *active = link < 6; /* 6 to 11 are there but not wired */
    return link < 12 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    (void)device;
    *type = link < 4 ? 0 : 2;
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci *out)
{
    memset(out, 0, sizeof *out);
    out->bus = link < 4 ? buses[1 - *(unsigned *)device] : 0xc4;
    return 0;
}
