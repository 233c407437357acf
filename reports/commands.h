/* reports/commands.h: the commands of the program `shardfit`, one row each.
 *
 * A command parses its own options (argp), prints its answer to stdout and its complaints to
 * stderr, and returns the documented exit code (SF_EXIT_*). Adding one is a file cmd_NAME.c and a
 * row here; `shardfit --help` and the tests read this list.
 */
#ifndef SF_REPORTS_COMMANDS_H
#define SF_REPORTS_COMMANDS_H

#include "model/base/status.h"

enum {
    SF_EXIT_DONE = 0,
    SF_EXIT_NO = 1,        /* the answer is no: does not fit, errors above the bar */
    SF_EXIT_BAD_INPUT = 2, /* the input is wrong; the message says where           */
    SF_EXIT_RUN_FAILED = 3 /* a real run failed                                     */
};

/*    id         name        one line for --help */
#define SF_COMMANDS(X)                                                                             \
    X(predict, "predict", "memory, communication and time of a job; fits or not, and why")         \
    X(plan, "plan", "which strategy and configuration is best on given GPUs, and why not the others") \
    X(program, "program", "print the step program of a job")                                       \
    X(model, "model", "what was understood of a model: parameters, tensors, FLOPs")                \
    X(run, "run", "really train a job and measure it")                                             \
    X(compare, "compare", "the same job under every strategy, side by side")                       \
    X(validate, "validate", "predict, run, compare: tables, plots and a page")                     \
    X(collective, "collective", "time and bandwidth of a collective over message sizes, as nccl-tests prints them") \
    X(calibrate, "calibrate", "measure this machine into a profile")                               \
    X(selftest, "selftest", "is what runs here right? every op and strategy on every device")      \
    X(topo, "topo", "show what was understood of a topology")                                      \
    X(evidence, "evidence", "predict published runs and report the errors by source")              \
    X(config, "config", "show what was understood of a DeepSpeed, accelerate, torchtitan or NeoX configuration") \
    X(version, "version", "print the version and what this build can do")

#define SF_DECLARE_COMMAND(id, name, summary) int sf_cmd_##id(int argc, char **argv);
SF_COMMANDS(SF_DECLARE_COMMAND)
#undef SF_DECLARE_COMMAND

/* Prints "shardfit: MESSAGE" to stderr and gives the exit code that the status stands for. */
int sf_cmd_fail(sf_status st);
int sf_cmd_code(sf_status st); /* only the code */

#endif
