#define _GNU_SOURCE /* pipe2 */
#include "reports/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 20000000 };

static bool redirect(const char *path, int fd)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return file >= 0 && dup2(file, fd) >= 0;
}

typedef struct {
    int why;     /* errno                                        */
    bool exec;   /* the program itself could not be started      */
} failure;

/* In the child: only async-signal-safe calls. */
static failure become(const sf_process *p)
{
    bool one_file = p->stdout_path != NULL && p->stderr_path != NULL && strcmp(p->stdout_path, p->stderr_path) == 0;
    if (p->stdout_path != NULL && !redirect(p->stdout_path, STDOUT_FILENO))
        return (failure){ errno, false };
    if (one_file ? dup2(STDOUT_FILENO, STDERR_FILENO) < 0 : p->stderr_path != NULL && !redirect(p->stderr_path, STDERR_FILENO))
        return (failure){ errno, false };
    if (p->directory != NULL && chdir(p->directory) != 0)
        return (failure){ errno, false };
    execvp(p->argv[0], (char *const *)(uintptr_t)p->argv);
    return (failure){ errno, true };
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int wait_for(pid_t child, double timeout_s, sf_process_end *out)
{
    int status = 0;
    double end = now_s() + timeout_s;
    for (;;) {
        pid_t got = waitpid(child, &status, timeout_s > 0 && !out->timed_out ? WNOHANG : 0);
        if (got == child)
            return status;
        if (got < 0 && errno != EINTR)
            return 0;
        if (got == 0 && now_s() > end) {
            out->timed_out = 1;
            kill(-child, SIGKILL);
        } else if (got == 0) {
            nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
        }
    }
}

sf_status sf_process_run(const sf_process *p, sf_process_end *out)
{
    int broken[2];
    failure failed = { 0 };
    *out = (sf_process_end){ 0 };
    if (pipe2(broken, O_CLOEXEC) != 0)
        return SF_FAIL(SF_EIO, "cannot start '%s': %s", p->argv[0], strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        int why = errno;
        close(broken[0]);
        close(broken[1]);
        return SF_FAIL(SF_EIO, "cannot start '%s': %s", p->argv[0], strerror(why));
    }
    if (child == 0) {
        if (p->timeout_s > 0)
            setpgid(0, 0); /* so that the timeout reaches its children too */
        failed = become(p);
        ssize_t n = write(broken[1], &failed, sizeof failed);
        _exit(n < 0 ? 126 : 127);
    }
    close(broken[1]);
    ssize_t told = read(broken[0], &failed, sizeof failed); /* ends empty at exec: the pipe closes */
    close(broken[0]);
    int status = wait_for(child, p->timeout_s, out);
    if (told == (ssize_t)sizeof failed)
        return SF_FAIL(failed.exec && failed.why == ENOENT ? SF_EUNSUP : SF_EIO, "cannot run '%s': %s", p->argv[0], strerror(failed.why));
    out->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return SF_SUCCESS;
}
