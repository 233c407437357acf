#include "model/desc/topology_rates.h"

#include <stdlib.h>
#include <string.h>

double sf_nvlink_Bps(int generation)
{
    /* links.csv, rows NVLink 1..6: gbs_per_dir_spec / links */
    static const double per_link[] = { 0, 80e9 / 4, 150e9 / 6, 300e9 / 12, 450e9 / 18, 900e9 / 18, 1800e9 / 36 };
    return generation < 1 || generation > 6 ? 0 : per_link[generation];
}

double sf_pcie_Bps(int generation, int lanes)
{
    /* links.csv, rows PCIe: lane rate in GT/s; 8b/10b for 1 and 2, 128b/130b for 3 to 5, and for 6
     * and 7 the 242 of 256 bytes of a flit that carry data */
    static const double lane_Bps[] = { 0, 2.5e9 / 8 * 8 / 10, 5e9 / 8 * 8 / 10, 8e9 / 8 * 128 / 130,
                                       16e9 / 8 * 128 / 130, 32e9 / 8 * 128 / 130, 64e9 / 8 * 242 / 256,
                                       128e9 / 8 * 242 / 256 };
    return generation < 1 || generation > 7 || lanes < 1 ? 0 : lane_Bps[generation] * lanes;
}

int sf_pcie_generation_of_speed(const char *gigatransfers)
{
    char *end;
    double rate = strtod(gigatransfers, &end);
    if (end == gigatransfers || strncmp(end, " GT/s", 5) != 0)
        return 0;
    for (int generation = 1; generation <= 7; generation++) {
        double of_generation = generation == 1 ? 2.5 : generation == 2 ? 5 : (double)(8 << (generation - 3));
        if (rate > of_generation * 0.99 && rate < of_generation * 1.01)
            return generation;
    }
    return 0;
}

int sf_nvlink_generation_of_sm(int sm)
{
    if (sm >= 120)
        return 0; /* gpus.csv: Blackwell 12.x has no NVLink */
    return sm >= 100 ? 5 : sm >= 90 ? 4 : sm == 89 || sm == 87 ? 0 : sm >= 80 ? 3 : sm >= 70 ? 2 : sm == 60 ? 1 : 0;
}

double sf_nvlink_Bps_of_sm(int sm)
{
    if (sm == 86)
        return 56.25e9 / 4; /* links.csv "NVLink bridge pair A40 / A6000 / 3090" */
    return sf_nvlink_Bps(sf_nvlink_generation_of_sm(sm));
}

double sf_xgmi_Bps(int gfx)
{
    switch (gfx) { /* links.csv, rows xGMI */
    case 908: return 138e9 / 3;         /* MI100 */
    case 910: return 350e9 / 7;         /* MI200 (NCCL files of AMD write 910 for 90a) */
    case 940: case 941: case 942: return 448e9 / 7; /* MI300 */
    case 950: return 535.5e9 / 7;       /* MI350 */
    default: return 0;
    }
}

double sf_smp_Bps_of_nccl(const char *arch, const char *vendor, int family, int model)
{
    /* NCCL 2.30 src/graph/topo.h (P9_BW, ARM_BW, *_QPI_BW, AMD_BW, ZPI_BW) and ncclTopoAddCpu */
    if (strcmp(arch, "ppc64") == 0)
        return 32e9;
    if (strcmp(arch, "arm64") == 0)
        return 6e9;
    if (strcmp(arch, "x86_64") != 0)
        return 0;
    if (strcmp(vendor, "GenuineIntel") == 0)
        return family != 6 ? 6e9 : model >= 0xcf ? 40e9 : model >= 0x8f ? 22e9 : model >= 0x55 ? 10e9 : 6e9;
    if (strcmp(vendor, "AuthenticAMD") == 0)
        return 16e9;
    if (strcmp(vendor, "CentaurHauls") == 0 || strcmp(vendor, "  Shanghai  ") == 0)
        return family == 7 && model == 0x5b ? 9e9 : 6e9;
    return 0;
}
