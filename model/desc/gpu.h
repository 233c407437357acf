/* model/desc/gpu.h: what a GPU can do, from the catalogue (data/gpus.csv, every figure with its source).
 *
 * Units   FLOP/s dense, bytes, bytes per second; 0 where the catalogue does not say.
 * Names   as in the catalogue, as nvidia-smi prints them, or as people write them ("A100-80GB",
 *         "4090"): words are compared, not letters; vendor words, case and punctuation do not matter.
 *         What is not said is taken as SXM before PCIe. A name that still fits several cards of
 *         different memory is an error that lists them.
 */
#ifndef SF_DESC_GPU_H
#define SF_DESC_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/arena.h"
#include "model/base/status.h"

typedef struct {
    const char *name, *smi_name, *vendor, *arch;
    double compute_capability;          /* 8.0, 9.0 ...                                    */
    double fp32_flops, tf32_flops, fp16_flops, bf16_flops, fp8_flops;
    uint64_t memory_bytes;              /* as sold: mem_gb * 1e9                            */
    uint64_t usable_bytes;              /* as nvidia-smi totals it                          */
    double memory_Bps;
    int sm_count;
    uint64_t l2_bytes;
    int nvlink_gen, nvlink_links;
    double nvlink_Bps;                  /* per direction, all links                         */
    int pcie_gen, pcie_lanes;
    double tdp_w;
    bool is_host;                       /* "host": this machine under our own executor      */
} sf_gpu;

/* memory_gb_hint: the card's memory where the caller knows it (an evidence row), else 0. */
sf_status sf_gpu_find(const char *name, double memory_gb_hint, sf_arena *arena, sf_gpu *out);

#endif
