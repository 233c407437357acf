/* model/desc/topology_rates.h: data rates of links, from their generation.
 *
 * Units   bytes per second in one direction, before any protocol overhead above the line code.
 * Source  model/desc/data/links.csv (rows "NVLink", "PCIe x16"; a test compares), constants of
 *         NCCL 2.30 src/graph/topo.h where said. 0 = generation not known.
 */
#ifndef SF_DESC_TOPOLOGY_RATES_H
#define SF_DESC_TOPOLOGY_RATES_H

/* One NVLink of generation 1..6: 20, 25, 25, 25, 50, 50 GB/s. */
double sf_nvlink_Bps(int generation);

/* PCIe generation 1..7 with so many lanes. */
double sf_pcie_Bps(int generation, int lanes);

/* "16 GT/s", "32.0 GT/s PCIe", "8 GT/s PCIe/s": the generation; 0 for "" or what is no PCIe rate. */
int sf_pcie_generation_of_speed(const char *gigatransfers);

/* NVLink generation that GPUs of a compute capability (* 10) have; 0: none or unknown. Ampere 8.6
 * has a slower third generation (14.0625 GB/s a link), see sf_nvlink_Bps_of_sm. */
int sf_nvlink_generation_of_sm(int sm);
double sf_nvlink_Bps_of_sm(int sm);

/* One xGMI link between two AMD GPUs, by gfx number (908, 910 = 90a, 942, 950); 0 unknown. */
double sf_xgmi_Bps(int gfx);

/* GB/s that NCCL reckons with between two sockets; 0 where it knows none. */
double sf_smp_Bps_of_nccl(const char *arch, const char *vendor, int family, int model);

#endif
