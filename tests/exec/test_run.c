/* `shardfit run`, as a user calls it: results, bad input, bad luck. Run as `test_run PROGRAM [mpi]`; with mpi the
 * tests that start several ranks. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardfit-run-XXXXXX";
static char *program;
static char complaints[8192]; /* stderr of the last command */

#define JOB "{\"model\": {\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_positions\": 64, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2}, " \
            "\"cluster\": {\"gpus_per_node\": 1}, \"strategy\": {\"name\": \"single\"}, " \
            "\"train\": {\"micro_batch\": 2, \"seq_len\": 32, \"precision\": \"fp32\", \"steps\": 4}}"

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void read_complaints(void)
{
    FILE *f = fopen(in_folder("stderr"), "r");
    size_t n = f != NULL ? fread(complaints, 1, sizeof complaints - 1, f) : 0;
    complaints[n] = '\0';
    if (f != NULL)
        fclose(f);
}

/* The exit code of `PREFIX shardfit run JOB ARGUMENTS`. */
static int run(const char *prefix, const char *arguments)
{
    char command[2000];
    snprintf(command, sizeof command, "cd %s && %s %s run job.json %s >stdout 2>stderr", folder, prefix, program, arguments);
    int status = system(command);
    read_complaints();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void assert_complaint(const char *text)
{
    if (strstr(complaints, text) == NULL)
        fail_msg("'%s' lacks '%s'", complaints, text);
}

static json_t *outcome(const char *name)
{
    json_t *json = json_load_file(in_folder(name), 0, NULL);
    assert_non_null(json);
    return json;
}

static size_t losses(const json_t *json)
{
    return json_array_size(json_object_get(json, "losses"));
}

/* ---- one rank ---- */

static void a_run_writes_what_it_measured(void **state)
{
    (void)state;
    assert_int_equal(run("", "-o out.json"), 0);
    json_t *o = outcome("out.json");
    assert_string_equal(json_string_value(json_object_get(o, "kind")), "measured");
    assert_true(json_is_true(json_object_get(o, "fits")));
    assert_int_equal(losses(o), 4);
    assert_true(json_number_value(json_object_get(json_object_get(o, "time"), "step_s")) > 0);
    assert_true(json_integer_value(json_object_get(json_object_get(o, "memory"), "peak_allocated_bytes")) > 0);
    assert_non_null(json_object_get(json_object_get(o, "provenance"), "cpu"));
    assert_null(json_object_get(o, "ended_early"));
    json_decref(o);
}

static void a_device_that_is_too_small_is_the_answer_no(void **state)
{
    (void)state;
    assert_int_equal(run("", "--device-memory 0.0005 -o small.json"), 1); /* 512 KiB */
    json_t *o = outcome("small.json");
    assert_true(json_is_false(json_object_get(o, "fits")));
    assert_non_null(strstr(json_string_value(json_object_get(o, "verdict")), "does not fit: "));
    json_decref(o);
}

static void a_loss_that_is_no_number_ends_the_run_and_keeps_what_was_measured(void **state)
{
    (void)state;
    assert_int_equal(run("", "--set train.lr=1e6 --steps 50 -o nan.json"), 3);
    assert_complaint("the loss of step ");
    assert_complaint("measured until then: nan.json");
    json_t *o = outcome("nan.json");
    assert_true(losses(o) >= 1);
    assert_non_null(json_object_get(o, "ended_early"));
    json_decref(o);
}

static void bad_input_is_found_before_anything_runs(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *arguments, *message;
    } cases[] = {
        { "", "-o /proc/nothing/out.json", "/proc/nothing" },
        { "", "-o .", "it is a directory; name a file" },
        { "", "--framework pytorch --gpu 'A100 SXM4 80GB'", "framework pytorch can be predicted, not run" },
        { "CUDA_VISIBLE_DEVICES=", "--gpu 'A100 SXM4 80GB'", "cluster.gpu A100 SXM4 80GB: " }, /* no GPU, or no CUDA in this build */
        { "", "--data nowhere.bin", "cannot open the training data 'nowhere.bin'" },
        { "", "--set model.vocab_size=100 --data job.json", "text needs a vocabulary of at least 256" },
        { "", "--poison maybe", "--poison is planned or spread, not 'maybe'" },
        { "", "--steps 0", "train.steps" },
        { "", "--model llama-2-70b --seq-len 128", "of host memory and" }, /* 69e9 parameters of 16 B */
        { "", "--set train.seq_len=65", "seq_len" },
        { "OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0", "--strategy ddp --gpus 2", "the job has 2 ranks" },
        { "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0", "--strategy dp --gpus 2", "start it without mpirun" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = run(cases[i].prefix, cases[i].arguments);
        if (code != 2)
            fail_msg("%s: exit code %d, '%s'", cases[i].arguments, code, complaints);
        assert_complaint(cases[i].message);
    }
}

static void the_devices_of_dp_are_threads_and_train_like_one_rank_of_twice_the_batch(void **state)
{
    (void)state;
    assert_int_equal(run("", "--micro-batch 4 -o one.json"), 0);
    assert_int_equal(run("", "--strategy dp --gpus 2 -o dp.json"), 0);
    json_t *a = outcome("one.json"), *b = outcome("dp.json");
    for (size_t i = 0; i < 4; i++) { /* f32 sums over other groups of tokens: 1e-7 * a few thousand terms */
        double x = json_number_value(json_array_get(json_object_get(a, "losses"), i));
        double y = json_number_value(json_array_get(json_object_get(b, "losses"), i));
        assert_true(x - y < 1e-4 && y - x < 1e-4);
    }
    json_decref(a);
    json_decref(b);
}

/* ---- several ranks ---- */

static void strategies_train_to_the_same_bits_and_again_when_repeated(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ddp", "ddp", "fsdp", "zero1", "zero2", "zero3", "dp" };
    json_t *first = NULL;
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "--gpus 2 --poison planned --strategy %s -o s.json", strategies[i]);
        if (run("", arguments) != 0)
            fail_msg("%s: %s", strategies[i], complaints);
        json_t *o = outcome("s.json"), *now = json_incref(json_object_get(o, "losses"));
        json_decref(o);
        if (first == NULL)
            first = now;
        else if (!json_equal(first, now))
            fail_msg("%s gives other losses", strategies[i]);
        if (first != now)
            json_decref(now);
    }
    json_decref(first);
}

/* zero2 and zero3 reduce in every micro-step, so only the others add up in the same order. */
static void accumulated_gradients_are_the_same_bits_too(void **state)
{
    (void)state;
    assert_int_equal(run("", "--gpus 2 --grad-accum 3 --poison spread --strategy ddp -o a.json"), 0);
    assert_int_equal(run("", "--gpus 2 --grad-accum 3 --poison spread --strategy fsdp -o b.json"), 0);
    json_t *a = outcome("a.json"), *b = outcome("b.json");
    assert_true(json_equal(json_object_get(a, "losses"), json_object_get(b, "losses")));
    json_decref(a);
    json_decref(b);
}

static void messages_and_shared_memory_give_the_same_bits(void **state)
{
    (void)state;
    assert_int_equal(run("", "--gpus 2 --strategy fsdp --transport messages -o m.json"), 0);
    assert_int_equal(run("", "--gpus 2 --strategy fsdp --transport shared -o s.json"), 0);
    json_t *a = outcome("m.json"), *b = outcome("s.json");
    assert_true(json_equal(json_object_get(a, "losses"), json_object_get(b, "losses")));
    json_decref(a);
    json_decref(b);
}

static void a_device_that_is_too_small_ends_all_ranks_cleanly(void **state)
{
    (void)state;
    static const char *const transports[] = { "shared", "messages" };
    for (int i = 0; i < 2; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "--gpus 3 --strategy zero2 --device-memory 0.0006 --transport %s -o small.json", transports[i]);
        assert_int_equal(run("", arguments), 1);
        json_t *o = outcome("small.json");
        assert_true(json_is_false(json_object_get(o, "fits")));
        json_decref(o);
    }
}

static int times_told(const char *text)
{
    int n = 0;
    for (const char *at = complaints; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static void what_all_ranks_find_wrong_is_told_once(void **state)
{
    (void)state;
    assert_int_equal(run("", "--gpus 3 --strategy ddp --model llama-2-70b --seq-len 128"), 2);
    assert_int_equal(times_told("of host memory and"), 1);
    assert_int_equal(run("mpirun -q --allow-run-as-root --oversubscribe -np 3", "--gpus 2 --strategy ddp"), 2);
    assert_int_equal(times_told("the job has 2 ranks (cluster.gpus_per_node times cluster.nodes) and 3 were started"), 1);
    assert_int_equal(run("", "--gpus 2 --strategy ddp --set train.lr=1e6 --steps 50 -o nan.json"), 3);
    assert_int_equal(times_told("the loss of step "), 1);
}

/* ---- ranks that die ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Starts a run that would take hours; gives its process. */
static pid_t start_long_run(const char *out)
{
    unlink(in_folder("stderr"));
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) != 0 || freopen("stderr", "w", stderr) == NULL || freopen("stdout", "w", stdout) == NULL)
            _exit(9);
        execl(program, program, "run", "job.json", "--gpus", "2", "--strategy", "ddp", "--steps", "100000000", "--progress", "-o", out,
              (char *)NULL);
        _exit(9);
    }
    return pid;
}

/* A rank of the run: a process with the output's name on its command line whose parent is not the test. */
static pid_t find_rank(const char *out, pid_t parent, int number)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0;
    while (proc != NULL && found == 0 && (entry = readdir(proc)) != NULL) {
        char path[300], text[4096];
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0 || pid == parent)
            continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
        int fd = open(path, O_RDONLY);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        if (fd >= 0)
            close(fd);
        if (n <= 0 || strstr(text, "mpirun") != NULL) /* its own first word */
            continue;
        for (ssize_t i = 0; i < n - 1; i++)
            if (text[i] == '\0')
                text[i] = ' ';
        text[n] = '\0';
        if (strstr(text, out) != NULL && number-- == 0)
            found = pid;
    }
    if (proc != NULL)
        closedir(proc);
    return found;
}

static int wait_for(pid_t pid, double limit_s)
{
    double end = now_s() + limit_s;
    int status;
    while (now_s() < end) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
        usleep(20000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

/* Until some steps are done. */
static void settle(void)
{
    for (int i = 0; i < 3000; i++) {
        read_complaints();
        if (strstr(complaints, "step 3 of") != NULL)
            return;
        usleep(20000);
    }
    fail_msg("the run does not come to its third step: %s", complaints);
}

static void assert_saved(const char *out)
{
    json_t *o = outcome(out);
    assert_true(losses(o) >= 1);
    assert_non_null(json_object_get(o, "ended_early"));
    json_decref(o);
}

static void a_killed_rank_ends_the_others_within_ten_seconds_and_what_was_measured_is_saved(void **state)
{
    (void)state;
    for (int number = 0; number < 2; number++) {
        pid_t pid = start_long_run("killed.json");
        settle();
        pid_t rank = find_rank("killed.json", pid, number);
        assert_true(rank > 0);
        kill(rank, SIGKILL);
        assert_int_equal(wait_for(pid, 10), 3);
        assert_int_equal(find_rank("killed.json", 0, 0), 0); /* nobody is left */
        assert_saved("killed.json");
        unlink(in_folder("killed.json"));
    }
}

static void a_run_that_is_told_to_end_saves_and_ends(void **state)
{
    (void)state;
    pid_t pid = start_long_run("term.json");
    settle();
    kill(pid, SIGTERM);
    assert_int_equal(wait_for(pid, 10), 3);
    assert_saved("term.json");
}

/* ---- */

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    FILE *f = fopen(in_folder("job.json"), "w");
    if (f == NULL)
        return -1;
    fputs(JOB, f);
    return fclose(f);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(a_run_writes_what_it_measured),
        cmocka_unit_test(a_device_that_is_too_small_is_the_answer_no),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run_and_keeps_what_was_measured),
        cmocka_unit_test(bad_input_is_found_before_anything_runs),
        cmocka_unit_test(the_devices_of_dp_are_threads_and_train_like_one_rank_of_twice_the_batch),
    };
    const struct CMUnitTest together[] = {
        cmocka_unit_test(strategies_train_to_the_same_bits_and_again_when_repeated),
        cmocka_unit_test(accumulated_gradients_are_the_same_bits_too),
        cmocka_unit_test(messages_and_shared_memory_give_the_same_bits),
        cmocka_unit_test(a_device_that_is_too_small_ends_all_ranks_cleanly),
        cmocka_unit_test(what_all_ranks_find_wrong_is_told_once),
        cmocka_unit_test(a_killed_rank_ends_the_others_within_ten_seconds_and_what_was_measured_is_saved),
        cmocka_unit_test(a_run_that_is_told_to_end_saves_and_ends),
    };
    if (argc < 2)
        return 77;
    program = realpath(argv[1], NULL); /* commands run in another folder */
    if (program == NULL)
        return 1;
    return argc > 2 ? cmocka_run_group_tests(together, make_folder, remove_folder)
                    : cmocka_run_group_tests(alone, make_folder, remove_folder);
}
