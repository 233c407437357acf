/* reports/process.h: runs another program and waits for it.
 *
 * The child gets this process's environment; its stdout and stderr go to files or stay ours.
 * Errors  SF_EUNSUP: there is no such program; SF_EIO: it could not be started or its files not opened.
 *         How the child ended is a result, not an error.
 */
#ifndef SF_REPORTS_PROCESS_H
#define SF_REPORTS_PROCESS_H

#include "model/base/status.h"

typedef struct {
    const char *const *argv;  /* NULL-terminated; argv[0] is looked up in PATH                */
    const char *directory;    /* to run in; NULL: here                                        */
    const char *stdout_path;  /* NULL: ours                                                   */
    const char *stderr_path;  /* NULL: ours; equal to stdout_path: both in one file           */
    double timeout_s;         /* after this the child's process group is killed; 0: never     */
} sf_process;

typedef struct {
    int exit_code;   /* -1 if a signal ended it */
    int signal;      /* 0 if none               */
    int timed_out;   /* killed after timeout_s  */
} sf_process_end;

sf_status sf_process_run(const sf_process *process, sf_process_end *out);

#endif
