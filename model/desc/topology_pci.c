#include "model/desc/topology_pci.h"

/* without the last byte of the class, and without the last two */
enum { BRIDGE = 0x0604, INFINIBAND_OLD = 0x0c06, INFINIBAND = 0x0207, ETHERNET = 0x0200, NETWORK = 0x02, DISPLAY = 0x03,
       ACCELERATOR = 0x12 /* AMD Instinct */ };
enum { CX8_DIRECT = 0x080100 }; /* ConnectX-8's data path, a bridge to NCCL */

sf_topo_kind sf_pci_kind(unsigned long class)
{
    if (class >> 8 == BRIDGE || class == CX8_DIRECT)
        return SF_TOPO_PCI_SWITCH;
    if (class == SF_PCI_NVSWITCH)
        return SF_TOPO_NVSWITCH;
    if (class >> 16 == DISPLAY || class >> 16 == ACCELERATOR)
        return SF_TOPO_GPU;
    return class >> 16 == NETWORK || class >> 8 == INFINIBAND_OLD ? SF_TOPO_NIC : SF_TOPO_PCI_DEVICE;
}

sf_topo_net sf_pci_net(unsigned long class, unsigned long long id)
{
    if (id >> 32 >= 0x1d0fefa0u && id >> 32 <= 0x1d0fefafu)
        return SF_NET_EFA;
    return class >> 8 == INFINIBAND ? SF_NET_IB : class >> 8 == ETHERNET ? SF_NET_ETHERNET : SF_NET_UNKNOWN;
}

const char *sf_pci_model(unsigned long long id)
{
    static const struct {
        unsigned id;
        const char *model;
    } known[] = {
        { 0x10de15f8, "P100 PCIe 16GB" }, { 0x10de15f9, "P100 SXM2" },      { 0x10de1db1, "V100 SXM2 16GB" },
        { 0x10de1db4, "V100 PCIe 16GB" }, { 0x10de1db5, "V100 SXM2 32GB" }, { 0x10de1db6, "V100 PCIe 32GB" },
        { 0x10de1db8, "V100 SXM3 32GB" }, { 0x10de1df6, "V100S PCIe 32GB" }, { 0x10de1eb8, "T4" },
        { 0x10de20b0, "A100 SXM4 40GB" }, { 0x10de20b2, "A100 SXM4 80GB" }, { 0x10de20b5, "A100 PCIe 80GB" },
        { 0x10de20b7, "A30" },            { 0x10de20f1, "A100 PCIe 40GB" }, { 0x10de2204, "RTX 3090" },
        { 0x10de2230, "RTX A6000" },      { 0x10de2235, "A40" },            { 0x10de2237, "A10G" },
        { 0x10de2322, "H800 PCIe" },      { 0x10de2324, "H800 SXM5" },      { 0x10de2330, "H100 SXM5" },
        { 0x10de2331, "H100 PCIe" },      { 0x10de2684, "RTX 4090" },       { 0x10de27b8, "L4" },
        { 0x1002738c, "MI100" },          { 0x1002740f, "MI210" },          { 0x100274a1, "MI300X" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].id == id >> 32)
            return known[i].model;
    return "";
}

static bool broadcom(unsigned long long id, int level)
{
    id &= 0xfffffffffffff000ull; /* NCCL: getBcmGen */
    return id == 0x1000c0101000a000ull || id == (0x1000c03010000000ull | ((unsigned long long)level << 12));
}

bool sf_pci_one_switch(unsigned long long outer, unsigned long long inner)
{
    return broadcom(outer, 0) && broadcom(inner, 1) && outer >> 32 == inner >> 32;
}
