#define _GNU_SOURCE
#include "exec/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/comm.h"

enum { MAX_ARGS = 128 };

static volatile sig_atomic_t child_pid, passed_on;

static void pass_on(int sig)
{
    passed_on = 1;
    if (child_pid > 0)
        kill((pid_t)child_pid, sig);
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];

    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)len, path, program);
        if (access(file, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

/* Ranks may outnumber cores, and root (containers) may run them. */
static void set_environment(void)
{
    static const char *const on[] = { "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe",
                                      "OMPI_MCA_mpi_yield_when_idle" };

    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        setenv(on[i], "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0); /* a rank is one core */
    setenv("OMP_NUM_THREADS", "1", 0);
}

static int code_of(int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 3)
        return WEXITSTATUS(status);
    return 3;
}

static sf_status wait_for_child(pid_t pid, int *exit_code)
{
    struct sigaction pass = { .sa_handler = pass_on }, old_term, old_int;
    int status;

    passed_on = 0;
    child_pid = (sig_atomic_t)pid;
    sigaction(SIGTERM, &pass, &old_term);
    sigaction(SIGINT, &pass, &old_int);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return SF_FAIL(SF_ECOMM, "cannot wait for mpirun: %s", strerror(errno));
    child_pid = 0;
    sigaction(SIGTERM, &old_term, NULL);
    sigaction(SIGINT, &old_int, NULL);
    *exit_code = passed_on ? 3 : code_of(status);
    return SF_SUCCESS;
}

sf_status sf_launch(int ranks, char *const args[], int *exit_code)
{
    char *argv[MAX_ARGS] = { "mpirun", "-q", "-np" };
    char number[16], self[4096];
    int n = 3;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    if (sf_comm_mpi_version() == NULL)
        return SF_FAIL(SF_EUNSUP, "%d ranks need MPI, and this shardfit was built without it; build with -Dmpi=enabled (Debian packages "
                                  "libopenmpi-dev and openmpi-bin)", ranks);
    if (!in_path("mpirun"))
        return SF_FAIL(SF_EUNSUP, "%d ranks need mpirun, which is not in PATH; install the Debian package openmpi-bin", ranks);
    if (len <= 0)
        return SF_FAIL(SF_EIO, "cannot find this program's own file: %s", strerror(errno));
    self[len] = '\0';
    snprintf(number, sizeof number, "%d", ranks);
    argv[n++] = number;
    argv[n++] = self;
    for (int i = 0; args[i] != NULL; i++) {
        if (n + 1 >= MAX_ARGS)
            return SF_FAIL(SF_EINVAL, "more than %d arguments", MAX_ARGS);
        argv[n++] = args[i];
    }
    set_environment();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return SF_FAIL(SF_ENOMEM, "cannot start mpirun: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* not to outlive a killed parent */
        execvp(argv[0], argv);
        _exit(3);
    }
    return wait_for_child(pid, exit_code);
}
