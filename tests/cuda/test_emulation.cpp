/* The emulation itself: kernels with known mistakes must be caught, and the matrix instructions must do what
 * their fragment layout says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "exec/cuda/mma.cuh"

/* ---- kernels ---- */

/* Thread i reads what thread i + 1 wrote, with or without a barrier in between. */
static void neighbour_kernel(float *out, bool barrier)
{
    SF_SHARED(float, shared, 64);
    shared[threadIdx.x] = (float)threadIdx.x;
    if (barrier)
        __syncthreads();
    out[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}
static void overrun_kernel()
{
    SF_SHARED(float, shared, 64);
    shared[threadIdx.x + 1] = 0.0f;
}
static void half_at_barrier_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
}
static void two_barriers_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
static void split_warp_kernel(float *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
static void misaligned_kernel(const float *in, float *out)
{
    float v[PACK];
    load(v, in + 1);
    out[0] = v[0];
}
/* What thread 0 sees of an asynchronous copy before and after it waits. */
static void async_kernel(const float *in, float *out)
{
    SF_SHARED(float, shared, 4);
    if (threadIdx.x == 0) {
        cp_async4(shared, in, true);
        cp_async4(shared + 1, in, false);
        cp_async_commit();
        out[0] = shared[0];
        cp_async_wait<0>();
        out[1] = shared[0];
        out[2] = shared[1];
    }
}
static void shuffles_kernel(int *out)
{
    int lane = (int)threadIdx.x;
    out[lane] = __shfl_sync(0xffffffffu, lane, 5);
    out[32 + lane] = __shfl_xor_sync(0xffffffffu, lane, 3);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, lane, 2);
    out[96 + lane] = __shfl_up_sync(0xffffffffu, lane, 4, 8);
    out[128 + lane] = (int)__ballot_sync(0xffffffffu, lane % 2);
}
/* c (32,16) = a (32,64) b (16,64)^T, and d (32,64) = c b, both by one warp, through tiles. */
template <typename T> static void mma_kernel(const T *a, const T *b, float *c, T *d)
{
    SF_SHARED_DYNAMIC(shared);
    T *a_tile = (T *)shared, *b_tile = a_tile + 32 * 64;
    float acc[2][2][4], wide[2][8][4];
    int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    tile_copy<32, 64, 32>(a_tile, a, 64, 32);
    tile_copy<16, 64, 32>(b_tile, b, 64, 16);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    clear(acc);
    mma_rows_rows<64>(acc, a_tile, 0, b_tile);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int e = 0; e < 4; e++)
                c[(i * 16 + g + 8 * (e / 2)) * 16 + j * 8 + 2 * t + e % 2] = acc[i][j][e];
    clear(wide);
    mma_weights_rows<64>(wide, acc, b_tile);
    store_rows<64>(d, 64, 0, 31, wide, [](int, int) { return 1.0f; }); /* the last row is outside */
}

/* ---- tests ---- */
static void run_neighbour(float *out, bool barrier, unsigned order)
{
    emu_order(order);
    SF_LAUNCH(neighbour_kernel, 1, 64, 0, (cudaStream_t)NULL, out, barrier);
    emu_order(0);
}

static void a_missing_barrier_changes_the_result_with_the_order_of_threads(void **)
{
    float up[64], down[64];
    run_neighbour(up, true, 0);
    run_neighbour(down, true, 1);
    assert_memory_equal(up, down, sizeof up);
    run_neighbour(up, false, 0);
    run_neighbour(down, false, 1);
    assert_memory_not_equal(up, down, sizeof up);
    assert_true(up[0] != up[0]); /* NaN: read before it was written */
}

/* Runs f in a child and returns whether it ended itself. */
static bool dies(void (*f)())
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(0);
        f();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
alignas(16) static float numbers[64];

static void mistakes_end_the_program(void **)
{
    assert_false(dies([] { run_neighbour(numbers, true, 0); }));
    assert_true(dies([] { SF_LAUNCH(overrun_kernel, 1, 64, 0, (cudaStream_t)NULL); }));
    assert_true(dies([] { SF_LAUNCH(half_at_barrier_kernel, 1, 64, 0, (cudaStream_t)NULL); }));
    assert_true(dies([] { SF_LAUNCH(two_barriers_kernel, 1, 64, 0, (cudaStream_t)NULL); }));
    assert_true(dies([] { SF_LAUNCH(split_warp_kernel, 1, 32, 0, (cudaStream_t)NULL, numbers); }));
    assert_true(dies([] { SF_LAUNCH(misaligned_kernel, 1, 1, 0, (cudaStream_t)NULL, (const float *)numbers, numbers + 16); }));
}

static void launch_limits_are_errors(void **)
{
    SF_LAUNCH(half_at_barrier_kernel, 1, 1025, 0, (cudaStream_t)NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    SF_LAUNCH(half_at_barrier_kernel, dim3(1, 65536), 32, 0, (cudaStream_t)NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    SF_LAUNCH(half_at_barrier_kernel, 1, 32, 48 * 1024 + 1, (cudaStream_t)NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaFuncSetAttribute(half_at_barrier_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 49 * 1024), 0);
    SF_LAUNCH(half_at_barrier_kernel, 1, 32, 48 * 1024 + 1, (cudaStream_t)NULL);
    assert_int_equal(cudaGetLastError(), 0);
    assert_int_not_equal(cudaFuncSetAttribute(half_at_barrier_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024), 0);
}

static void an_asynchronous_copy_is_nan_until_it_is_waited_for(void **)
{
    float in = 2.5f, out[3] = { 0 };
    SF_LAUNCH(async_kernel, 1, 32, 0, (cudaStream_t)NULL, &in, out);
    assert_true(out[0] != out[0]);
    assert_true(out[1] == 2.5f);
    assert_true(out[2] == 0.0f);
}

static void shuffles_move_between_lanes(void **)
{
    int out[160];
    SF_LAUNCH(shuffles_kernel, 1, 32, 0, (cudaStream_t)NULL, out);
    for (int lane = 0; lane < 32; lane++) {
        assert_int_equal(out[lane], 5);
        assert_int_equal(out[32 + lane], lane ^ 3);
        assert_int_equal(out[64 + lane], lane + 2 < 32 ? lane + 2 : lane);
        assert_int_equal(out[96 + lane], lane % 8 >= 4 ? lane - 4 : lane);
        assert_int_equal((unsigned)out[128 + lane], 0xaaaaaaaau);
    }
}

/* Small integers are exact in 16 bits, and so are their sums of products in float. */
template <typename T> static void matrix_products()
{
    enum { M = 32, N = 16, K = 64, BYTES = (M + N) * K * 2 };
    T a[M * K], b[N * K], d[M * K];
    float c[M * N];
    chunk16<T> aligned_a[M * K / 8], aligned_b[N * K / 8];
    unsigned seed = 7;
    auto digit = [&] { seed = seed * 1664525u + 1013904223u; return (float)((int)(seed >> 16) % 3 - 1); };
    for (T &x : a)
        x = from_f32<T>::of(digit());
    for (T &x : b)
        x = from_f32<T>::of(digit());
    memcpy(aligned_a, a, sizeof a);
    memcpy(aligned_b, b, sizeof b);
    for (T &x : d)
        x = from_f32<T>::of(-7.0f);
    SF_LAUNCH(mma_kernel<T>, 1, 32, BYTES, (cudaStream_t)NULL, (const T *)aligned_a, (const T *)aligned_b, c, d);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float want = 0.0f;
            for (int k = 0; k < K; k++)
                want += to_f32(a[i * K + k]) * to_f32(b[j * K + k]);
            assert_true(c[i * N + j] == want);
        }
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) {
            float want = 0.0f;
            for (int j = 0; j < N; j++)
                want += c[i * N + j] * to_f32(b[j * K + k]);
            assert_true(to_f32(d[i * K + k]) == (i < M - 1 ? want : -7.0f));
        }
}
static void tiles_multiply_as_matrices(void **)
{
    matrix_products<bf16>();
    matrix_products<f16>();
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_changes_the_result_with_the_order_of_threads),
        cmocka_unit_test(mistakes_end_the_program),
        cmocka_unit_test(launch_limits_are_errors),
        cmocka_unit_test(an_asynchronous_copy_is_nan_until_it_is_waited_for),
        cmocka_unit_test(shuffles_move_between_lanes),
        cmocka_unit_test(tiles_multiply_as_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
