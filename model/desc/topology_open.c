/* What kind of source is it? And if it is none: what it is instead. */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/desc/topology_build.h"

/* Texts that people take for a topology. Patterns are looked for in order. */
static const struct {
    const char *pattern, *is;
} look_alikes[] = {
    { "= Chipset not supported", "it is the peer-to-peer matrix of `nvidia-smi topo -p2p`: whether peer access works, not by which path; run `nvidia-smi topo -m`" },
    { "Unidirectional P2P=", "it is the output of p2pBandwidthLatencyTest, a measurement; run `nvidia-smi topo -m`" },
    { "P2P Connectivity Matrix", "it is the output of p2pBandwidthLatencyTest, a measurement; run `nvidia-smi topo -m`" },
    { "Bandwidth Matrix (GB/s)", "it is a table of measured bandwidths; run `nvidia-smi topo -m`" },
    { "nvidia_smi_log", "it is `nvidia-smi -q -x`, which does not tell how GPUs are joined; run `nvidia-smi topo -m`" },
    { "NVSMI LOG", "it is `nvidia-smi -q`, which does not tell how GPUs are joined; run `nvidia-smi topo -m`" },
    { "NVIDIA-SMI has failed", "it is an error message of nvidia-smi: no driver was running" },
    { "Failed to initialize NVML", "it is an error message of nvidia-smi: driver and library do not match, or no driver" },
    { "No devices were found", "it is an error message of nvidia-smi: there was no GPU" },
    { "command not found", "it is an error message of the shell: nvidia-smi was not there" },
    { "GPUDirect topology is not supported", "it is an error message of nvidia-smi" },
    { "Link 0:", "it is `nvidia-smi nvlink`, the state of each link but not its other end; run `nvidia-smi topo -m`" },
    { "| NVIDIA-SMI", "it is plain `nvidia-smi`, which does not tell how GPUs are joined; run `nvidia-smi topo -m`" },
    { "NCCL INFO", "it is an NCCL log; set NCCL_TOPO_DUMP_FILE=FILE to get the topology as XML" },
    { "CA type:", "it is ibstat; run `nvidia-smi topo -m`" },
    { "hca_id:", "it is ibv_devinfo; run `nvidia-smi topo -m`" },
    { "algbw", "it is an nccl-tests log; run `nvidia-smi topo -m`" },
    { "available:", "it looks like numactl; run `nvidia-smi topo -m`" },
    { "Thread(s) per core", "it is lscpu; run `nvidia-smi topo -m`" },
    { "PCI bridge:", "it is lspci; run `nvidia-smi topo -m`" },
    { "Machine (", "it is lstopo's text; run `nvidia-smi topo -m`" },
    { "no device has", "it is an error message" },
};

static bool find(const char *text, size_t len, const char *pattern)
{
    return text != NULL && memmem(text, len, pattern, strlen(pattern)) != NULL;
}

static bool has_peer_cells(const char *text, size_t len)
{
    return find(text, len, "GPU0") && (find(text, len, "CNS") || find(text, len, "TNS") || find(text, len, "GNS") ||
                                       find(text, len, " OK ") || find(text, len, "\tOK"));
}

static sf_status refuse(const char *text, size_t len, const char *name, sf_status why)
{
    for (size_t i = 0; i < sizeof look_alikes / sizeof look_alikes[0]; i++)
        if (find(text, len, look_alikes[i].pattern))
            return SF_FAIL(SF_EPARSE, "'%s' is not a topology: %s", name, look_alikes[i].is);
    if (has_peer_cells(text, len))
        return SF_FAIL(SF_EPARSE, "'%s' is not a topology: %s", name, look_alikes[0].is);
    if (find(text, len, "= Self") || find(text, len, "Legend:"))
        return SF_FAIL(SF_EPARSE, "'%s' holds the legend of a topology but no row of the matrix; the paste is cut", name);
    if (find(text, len, "CPU Affinity"))
        return SF_FAIL(SF_EPARSE, "'%s' holds the header of a topology but no row of the matrix; the paste is cut", name);
    return why;
}

/* Windows PowerShell writes UTF-16 when `nvidia-smi topo -m > FILE` is typed. */
static char *from_utf16(const char *text, size_t *len, sf_arena *arena)
{
    bool little = (unsigned char)text[0] == 0xff;
    char *out = sf_arena_alloc(arena, *len / 2 + 1);
    size_t n = 0;
    for (size_t i = 2; i + 1 < *len; i += 2) {
        unsigned char low = (unsigned char)text[i + (little ? 0 : 1)], high = (unsigned char)text[i + (little ? 1 : 0)];
        out[n++] = high == 0 && low < 0x80 ? (char)low : ' ';
    }
    *len = n;
    return out;
}

static sf_status parse_xml(const char *text, size_t len, int first_line, const char *name, sf_arena *arena, sf_topology **out)
{
    if (find(text, len, "<graphs"))
        return SF_FAIL(SF_EPARSE, "'%s' is NCCL's graph file (NCCL_GRAPH_DUMP_FILE): the rings and trees it chose; give its topology file "
                       "(NCCL_TOPO_DUMP_FILE)", name);
    if (find(text, len, "<nvidia_smi_log"))
        return refuse(text, len, name, SF_SUCCESS);
    if (find(text, len, "<topology") && !find(text, len, "<system"))
        return SF_FAIL(SF_EPARSE, "'%s' is hwloc's XML (lstopo): it does not tell how GPUs are joined; give NCCL's topology file "
                       "(NCCL_TOPO_DUMP_FILE) or `nvidia-smi topo -m`", name);
    return sf_topology_read_xml(text, len, first_line, name, arena, out);
}

static bool is_markup(const char *p, const char *end)
{
    static const char *const html[] = { "<!doctype html", "<html", "<pre", "<table", "<code", "<body", "<div", "<p>", "<tr", "<td", "<tbody", "<thead" };
    for (size_t i = 0; i < sizeof html / sizeof html[0]; i++)
        if ((size_t)(end - p) >= strlen(html[i]) && strncasecmp(p, html[i], strlen(html[i])) == 0)
            return true;
    return false;
}

/* The GPU that the caller names, else the one that the source names. */
static void apply_model(sf_topology *t, const sf_gpu *gpu, sf_arena *arena)
{
    sf_gpu found;
    const char *model = sf_topology_gpu_model(t);
    if (gpu == NULL && model[0] != '\0' && sf_gpu_find(model, 0, arena, &found).code == SF_OK)
        gpu = &found;
    if (gpu != NULL)
        sf_topology_apply_gpu(t, gpu, arena);
}

sf_status sf_topology_parse(const char *text, size_t len, const char *name, const sf_gpu *gpu, sf_arena *arena,
                            sf_topology **out)
{
    sf_status st;
    if (len > SF_TOPO_MOST_BYTES)
        return SF_FAIL(SF_EPARSE, "'%s' has %zu bytes; a topology has at most %d", name, len, SF_TOPO_MOST_BYTES);
    if (len >= 2 && (((unsigned char)text[0] == 0xff && (unsigned char)text[1] == 0xfe) ||
                     ((unsigned char)text[0] == 0xfe && (unsigned char)text[1] == 0xff)))
        text = from_utf16(text, &len, arena);
    const char *p = text, *end = text + len;
    int first_line = 1;
    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    for (; p < end && *p != '\0' && strchr(" \t\r\n\f\v", *p) != NULL; p++)
        first_line += *p == '\n';
    if (p == end)
        return SF_FAIL(SF_EPARSE, "'%s' is empty", name);
    if (memchr(text, '\0', len) != NULL)
        return SF_FAIL(SF_EPARSE, "'%s' is not text: byte %zu is zero", name, (size_t)((const char *)memchr(text, '\0', len) - text) + 1);
    if (*p == '<' && !is_markup(p, end)) {
        st = parse_xml(p, (size_t)(end - p), first_line, name, arena, out);
    } else if (*p == '{' || *p == '[') {
        st = sf_topology_read_json(text, len, name, arena, out);
        if (st.code == SF_EPARSE) { /* a matrix as a string in a report, or behind a bracketed time */
            sf_status pasted = sf_topology_read_smi(text, len, name, gpu, arena, out);
            st = pasted.code == SF_OK ? pasted : *p == '[' ? refuse(text, len, name, st) : st;
        }
    } else {
        st = sf_topology_read_smi(text, len, name, gpu, arena, out);
        if (st.code == SF_EPARSE) {
            const char *line_end = memchr(p, '\n', (size_t)(end - p));
            size_t n = (size_t)((line_end == NULL ? end : line_end) - p);
            sf_status synthetic = SF_FAIL(SF_EPARSE, "no");
            const char *rest = p + n;
            while (rest < end && (*rest == ' ' || *rest == '\t' || *rest == '\r' || *rest == '\n'))
                rest++;
            if (*p >= '1' && *p <= '9' && n < 400 && rest == end)
                synthetic = sf_topology_synthetic(sf_arena_strndup(arena, p, n), gpu, arena, out);
            st = synthetic.code == SF_OK ? synthetic : refuse(text, len, name, st);
        }
    }
    if (st.code == SF_OK)
        apply_model(*out, gpu, arena);
    return st;
}

static sf_status read_stdin(sf_arena *arena, char **out, size_t *len)
{
    return sf_status_prefix(sf_file_read("/dev/stdin", SF_TOPO_MOST_BYTES, arena, out, len), "standard input");
}

sf_status sf_topology_open(const char *what, const sf_gpu *gpu, sf_arena *arena, sf_topology **out)
{
    char *text;
    size_t len;
    struct stat info;
    if (strcmp(what, "live") == 0) {
        SF_TRY(sf_topology_live(arena, out));
        apply_model(*out, gpu, arena);
        return SF_SUCCESS;
    }
    if (strcmp(what, "-") == 0) {
        SF_TRY(read_stdin(arena, &text, &len));
        return sf_topology_parse(text, len, "standard input", gpu, arena, out);
    }
    if (stat(what, &info) != 0) {
        int why = errno;
        if (what[0] >= '0' && what[0] <= '9')
            return sf_topology_synthetic(what, gpu, arena, out);
        return SF_FAIL(SF_EIO, "cannot open '%s': %s; give a file, '-', 'live' or a description such as '8xH100-SXM5-80GB nvswitch'", what,
                       strerror(why));
    }
    SF_TRY(sf_file_read(what, SF_TOPO_MOST_BYTES, arena, &text, &len));
    return sf_topology_parse(text, len, what, gpu, arena, out);
}
