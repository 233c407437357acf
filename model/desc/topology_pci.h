/* model/desc/topology_pci.h: what PCI classes and device numbers tell; not for users of topologies.
 *
 * An `id` is vendor, device, subsystem vendor and subsystem device, 16 bits each, vendor highest.
 * Source  classes: PCI Code and ID Assignment; devices: the PCI ID repository; switches of two levels
 *         and the classes of NVLink's far ends: NCCL 2.30 src/graph/topo.cc.
 */
#ifndef SF_DESC_TOPOLOGY_PCI_H
#define SF_DESC_TOPOLOGY_PCI_H

#include "model/desc/topology_build.h"

enum { SF_PCI_NVSWITCH = 0x068000, SF_PCI_NVLINK_CPU = 0x068001 };

/* GPU, NIC, PCIe switch, NVSwitch, or PCI_DEVICE for anything else. `class` has three bytes. */
sf_topo_kind sf_pci_kind(unsigned long class);

sf_topo_net sf_pci_net(unsigned long class, unsigned long long id);

/* The GPU's name in model/desc/data/gpus.csv, "" if it is not known by number. */
const char *sf_pci_model(unsigned long long id);

/* Bridge `inner` directly below `outer` is the second level of the same Broadcom switch, which shows
 * itself as two levels but passes the full rate between all its ports. */
bool sf_pci_one_switch(unsigned long long outer, unsigned long long inner);

#endif
