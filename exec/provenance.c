#define _GNU_SOURCE /* getloadavg */
#include "exec/provenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cblas.h>

#include "exec/comm.h"
#include "exec/host/block.h"
#include "exec/host/ops.h"

/* "model name" of /proc/cpuinfo (x86), else what uname calls the machine. */
static json_t *cpu_name(const struct utsname *system)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    json_t *name = NULL;

    while (f != NULL && name == NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        name = json_string(colon[1] == ' ' ? colon + 2 : colon + 1);
    }
    if (f != NULL)
        fclose(f);
    return name != NULL ? name : json_string(system->machine);
}

static json_t *versions(void)
{
    sf_host_ops ops;
    json_t *o = json_object();

    sf_host_ops_init(&ops);
    json_object_set_new(o, "shardfit", json_string(SF_VERSION));
    json_object_set_new(o, "kernels", json_string(ops.name));
    json_object_set_new(o, "openblas", json_string(openblas_get_config()));
    if (sf_comm_mpi_version() != NULL)
        json_object_set_new(o, "mpi", json_string(sf_comm_mpi_version()));
    json_object_set_new(o, "compiler", json_string("gcc " __VERSION__));
    return o;
}

json_t *sf_provenance(void)
{
    struct utsname system;
    double load[3] = { -1, -1, -1 };
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    json_t *o = json_object();

    uname(&system);
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_object_set_new(o, "date", json_string(date));
    json_object_set_new(o, "host", json_string(system.nodename));
    json_object_set_new(o, "cpu", cpu_name(&system));
    json_object_set_new(o, "cores", json_integer(sf_host_cores()));
    json_object_set_new(o, "memory_bytes", json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)));
    if (getloadavg(load, 3) == 3)
        json_object_set_new(o, "load", json_pack("[f,f,f]", load[0], load[1], load[2]));
    json_object_set_new(o, "kernel", json_sprintf("%s %s", system.sysname, system.release));
    json_object_set_new(o, "versions", versions());
    return o;
}
