/* reports/shardfit.c: the command `shardfit`: finds the named command and runs it. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "model/base/text.h"
#include "reports/commands.h"

typedef struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

#define AS_ROW(id, name, summary) { name, summary, sf_cmd_##id },
static const command commands[] = { SF_COMMANDS(AS_ROW) };
#undef AS_ROW
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

int sf_cmd_code(sf_status st)
{
    switch (st.code) {
    case SF_OK: return SF_EXIT_DONE;
    case SF_ECOMM:
    case SF_ENUMERIC: return SF_EXIT_RUN_FAILED;
    default: return SF_EXIT_BAD_INPUT;
    }
}

int sf_cmd_fail(sf_status st)
{
    fprintf(stderr, "shardfit: %s\n", st.msg);
    return sf_cmd_code(st);
}

int sf_cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("shardfit %s\n", SF_VERSION);
    return SF_EXIT_DONE;
}

static void print_help(FILE *to)
{
    fprintf(to, "Usage: shardfit COMMAND [OPTION...]\n\n"
                "Which parallel strategy fits your hardware, how fast it will be, what bounds it, and is that true?\n\n"
                "Commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-11s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`shardfit COMMAND --help` tells the options of a command.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return SF_EXIT_BAD_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return SF_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0)
        return sf_cmd_version(argc, argv);
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            char name[64];
            snprintf(name, sizeof name, "shardfit %s", commands[i].name);
            argv[1] = name; /* as usage lines print it */
            argp_err_exit_status = SF_EXIT_BAD_INPUT;
            return commands[i].run(argc - 1, argv + 1);
        }

    const char *names[COMMAND_COUNT];
    sf_arena arena = { 0 };
    for (int i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    fprintf(stderr, "shardfit: unknown command '%s'; did you mean %s?\n", argv[1],
            sf_str_nearest(argv[1], names, COMMAND_COUNT, &arena));
    sf_arena_free(&arena);
    return SF_EXIT_BAD_INPUT;
}
