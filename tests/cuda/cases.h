/* tests/cuda/cases.h: one kernel call on small random tensors, on the emulation or on a GPU.
 *
 * A case owns its tensors. Each is a heap block of exactly its size (AddressSanitizer sees overruns), `shift`
 * elements past a 16-byte boundary, with the values it holds also as doubles. case_run calls the kernel three
 * times from the same contents, in the emulation with three orders of threads, and fails unless all calls give
 * the same bits. Where it runs is the file that is linked: case_run_emu.c or case_run_gpu.c.
 */
#ifndef SF_TESTS_CUDA_CASES_H
#define SF_TESTS_CUDA_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/dtype.h"

enum { CASE_MAX_TENSORS = 12 };

typedef struct {
    const char *name;
    sf_dtype dtype;
    size_t n;
    void *data;     /* of dtype                                                    */
    void *block;    /* what malloc gave                                            */
    void *before;   /* contents before the call                                    */
    double *value;  /* the same contents as doubles, before the call               */
    int scratch;    /* workspace: not compared between orders                      */
} tensor;

typedef struct {
    char what[200]; /* op and shape, for messages */
    tensor tensors[CASE_MAX_TENSORS];
    int n_tensors;
    int shift;
} kase;

kase *case_new(int shift, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Uniform in [-scale, scale], rounded to the type. */
tensor *case_random(kase *c, const char *name, sf_dtype dtype, size_t n, double scale);
/* NaN in every element. */
tensor *case_blank(kase *c, const char *name, sf_dtype dtype, size_t n);
tensor *case_ints(kase *c, const char *name, size_t n, int32_t below); /* uniform in 0..below-1 */
tensor *case_scratch(kase *c, size_t bytes);
void tensor_put(tensor *t, size_t i, double value); /* before case_run */
double tensor_at(const tensor *t, size_t i);        /* current contents */

size_t tensor_bytes(const tensor *t);

/* launch() returns the launcher's code; anything but 0 fails the test. */
void case_run(kase *c, int (*launch)(kase *c, void *args), void *args);

/* Fails unless every |got - want| <= relative * |want| + absolute[i] (or `floor` where absolute is NULL). */
void case_close(const kase *c, const tensor *got, const double *want, double relative, const double *absolute, double floor);
void case_free(kase *c);
long case_count(void); /* run so far in this program */

/* Where cases run. Between begin and end the tensors' data is what the kernel may use; end gives NULL or what went
 * wrong. */
bool case_runner_ready(void); /* false, with a line on stdout, where there is no GPU */
void case_runner_begin(kase *c, int time);
const char *case_runner_end(kase *c);

/* Half a unit in the last place, relative to the number: 2^-p with p significant bits. */
double case_eps(sf_dtype dtype);

#endif
