/* oneDNN 2.x (its threads are OpenMP's). A primitive is made per call: after the first of a shape
 * oneDNN finds it in its own cache. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include "exec/host/ops.h"
#include "exec/host/ops_gemm.h"

bool sf_gemm_bf16_is_native(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

void sf_host_gemm_threads(int threads)
{
    openblas_set_num_threads(threads);
    omp_set_num_threads(threads);
}

static bool ok(dnnl_status_t status)
{
    return status == dnnl_success;
}

/* A (rows, cols) matrix, stored transposed if `trans`, its stored rows ld long. */
static bool describe(dnnl_memory_desc_t *desc, dnnl_data_type_t type, size_t rows, size_t cols, bool trans, size_t ld)
{
    const dnnl_dims_t dims = { (dnnl_dim_t)rows, (dnnl_dim_t)cols };
    const dnnl_dims_t strides = { trans ? 1 : (dnnl_dim_t)ld, trans ? (dnnl_dim_t)ld : 1 };
    return ok(dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides));
}

bool sf_gemm_dnnl(const sf_gemm *g)
{
    const dnnl_data_type_t type = g->dt == SF_F32 ? dnnl_f32 : dnnl_bf16;
    dnnl_memory_desc_t desc[4]; /* a, b, bias, c */
    dnnl_engine_t engine = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t memory[4] = { NULL };
    void *const data[4] = { (void *)g->a, (void *)g->b, (void *)g->bias, g->c };
    static const int names[4] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST };
    dnnl_exec_arg_t args[4];
    int n_args = 0;

    bool done = describe(&desc[0], type, g->m, g->k, g->trans_a, g->lda) &&
                describe(&desc[1], type, g->k, g->n, g->trans_b, g->ldb) &&
                describe(&desc[2], type, 1, g->n, false, g->n) && describe(&desc[3], type, g->m, g->n, false, g->ldc) &&
                ok(dnnl_engine_create(&engine, dnnl_cpu, 0)) &&
                ok(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags)) &&
                ok(dnnl_primitive_attr_create(&attr)) && ok(dnnl_post_ops_create(&post)) &&
                (!g->accumulate || ok(dnnl_post_ops_append_sum(post, 1.0f))) &&
                ok(dnnl_primitive_attr_set_post_ops(attr, post)) &&
                ok(dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], g->bias != NULL ? &desc[2] : NULL, &desc[3])) &&
                ok(dnnl_primitive_desc_create(&primitive_desc, &matmul, attr, engine, NULL)) &&
                ok(dnnl_primitive_create(&primitive, primitive_desc));
    for (int i = 0; i < 4 && done; i++) {
        if (data[i] == NULL)
            continue;
        done = ok(dnnl_memory_create(&memory[i], &desc[i], engine, data[i]));
        args[n_args++] = (dnnl_exec_arg_t){ names[i], memory[i] };
    }
    done = done && ok(dnnl_primitive_execute(primitive, stream, n_args, args)) && ok(dnnl_stream_wait(stream));

    for (int i = 0; i < 4; i++)
        dnnl_memory_destroy(memory[i]);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(primitive_desc);
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return done;
}
