/* exec/cuda/mma.cuh: tensor-core tiles: 16-bit operands in shared memory, float accumulators.
 *
 * Tile     rows of D elements (D = 64 or 128), 16-byte pieces stored at piece ^ (row % 8), so that the
 *          eight rows that ldmatrix reads at once lie in different banks.
 * Fragment of mma.sync.m16n8k16 in lane l, g = l / 4, t = l % 4 (PTX ISA, "matrix fragments"):
 *          A: a[0] row g, columns 2t, 2t+1; a[1] row g + 8; a[2], a[3] the same 8 columns further.
 *          B: b[0] rows 2t, 2t+1 of column g; b[1] 8 rows further.
 *          C: c[0], c[1] row g, columns 2t, 2t+1; c[2], c[3] row g + 8.
 *          The accumulators of two neighbouring C tiles are the A fragment of a product over their columns.
 */
#ifndef SF_EXEC_CUDA_MMA_CUH
#define SF_EXEC_CUDA_MMA_CUH

#include "exec/cuda/device.cuh"

static const int MMA_M = 16, MMA_N = 8, MMA_K = 16;

#ifdef __CUDACC__
static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
/* 16 bytes from global to shared memory; zeros where not `valid`. */
static __device__ __forceinline__ void cp_async16(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
/* One float; zero where not `valid`. */
static __device__ __forceinline__ void cp_async4(float *shared, const float *global, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 4 : 0)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
static __device__ __forceinline__ float exp2_fast(float x) /* within 2 units in the last place; denormals are 0 */
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
static inline void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, bf16)
{
    emu_mma_16816(0, d, a, b);
}
static inline void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, f16)
{
    emu_mma_16816(1, d, a, b);
}
static inline void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    emu_ldmatrix_x4(r, row, false);
}
static inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    emu_ldmatrix_x4(r, row, true);
}
static inline void cp_async16(void *shared, const void *global, bool valid)
{
    emu_cp_async(shared, global, 16, valid ? 16 : 0);
}
static inline void cp_async4(float *shared, const float *global, bool valid)
{
    emu_cp_async(shared, global, 4, valid ? 4 : 0);
}
static inline void cp_async_commit()
{
    emu_cp_async_commit();
}
template <int LEFT> static inline void cp_async_wait()
{
    emu_cp_async_wait(LEFT);
}
static inline float exp2_fast(float x)
{
    return exp2f(x);
}
#endif

/* Two floats as neighbours in a register, the first in the low half. */
template <typename T> static __device__ __forceinline__ uint32_t packed(float low, float high)
{
    union {
        T half[2];
        uint32_t both;
    } u = { { from_f32<T>::of(low), from_f32<T>::of(high) } };
    return u.both;
}

/* ---- tiles in shared memory ---- */
template <int D, typename T> static __device__ __forceinline__ T *tile_piece(T *tile, int row, int piece)
{
    return tile + row * D + ((piece ^ (row & 7)) << 3);
}

/* Starts copying ROWS rows of D elements; rows from `valid` on become zeros. Not committed. */
template <int ROWS, int D, int THREADS, typename T>
static __device__ __forceinline__ void tile_copy(T *tile, const T *from, int64_t row_elems, int64_t valid)
{
    const int pieces = D / 8;
#pragma unroll
    for (int i = 0; i < ROWS * pieces / THREADS; i++) {
        int at = i * THREADS + (int)threadIdx.x, row = at / pieces, piece = at % pieces;
        bool inside = row < valid;
        cp_async16(tile_piece<D>(tile, row, piece), from + (inside ? row * row_elems + piece * 8 : 0), inside);
    }
}

/* A fragment: rows row0 .. row0+15, columns 16 step .. 16 step + 15. */
template <int D, typename T> static __device__ __forceinline__ void load_a(uint32_t (&a)[4], T *tile, int row0, int step)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix_x4(a, tile_piece<D>(tile, row0 + lane % 16, 2 * step + lane / 16));
}

/* acc[i][j] += a_i . b_j over D columns: row blocks i of `a` (from row a0, 16 rows each) against row blocks j of
 * `b` (8 rows each): scores of MT * 16 rows against NT * 8 rows. */
template <int D, int MT, int NT, typename T>
static __device__ __forceinline__ void mma_rows_rows(float (&acc)[MT][NT][4], T *a, int a0, T *b)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int step = 0; step < D / MMA_K; step++) {
        uint32_t af[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++)
            load_a<D>(af[i], a, a0 + i * MMA_M, step);
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            uint32_t bf[4]; /* blocks j and j + 1, two halves of the 16 columns each */
            ldmatrix_x4(bf, tile_piece<D>(b, j * MMA_N + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_16816(acc[i][j], af[i], bf, T());
                mma_16816(acc[i][j + 1], af[i], bf + 2, T());
            }
        }
    }
}

/* acc[i][j] += p_i . b: weights p, MT * 16 rows by NT * 8 columns as accumulators, times the NT * 8 rows of `b`;
 * the products are D columns wide. */
template <int D, int MT, int NT, typename T>
static __device__ __forceinline__ void mma_weights_rows(float (&acc)[MT][D / 8][4], const float (&p)[MT][NT][4], T *b)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int step = 0; step < NT / 2; step++) {
        uint32_t af[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            af[i][0] = packed<T>(p[i][2 * step][0], p[i][2 * step][1]);
            af[i][1] = packed<T>(p[i][2 * step][2], p[i][2 * step][3]);
            af[i][2] = packed<T>(p[i][2 * step + 1][0], p[i][2 * step + 1][1]);
            af[i][3] = packed<T>(p[i][2 * step + 1][2], p[i][2 * step + 1][3]);
        }
#pragma unroll
        for (int j = 0; j < D / 8; j += 2) {
            uint32_t bf[4]; /* 16 rows of columns 8j .. 8j+7, then of the next 8 columns */
            ldmatrix_x4_trans(bf, tile_piece<D>(b, step * MMA_K + lane % 16, j + lane / 16));
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_16816(acc[i][j], af[i], bf, T());
                mma_16816(acc[i][j + 1], af[i], bf + 2, T());
            }
        }
    }
}

template <int MT, int NT> static __device__ __forceinline__ void clear(float (&acc)[MT][NT][4])
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[i][j][e] = 0.0f;
}

/* Writes scale(i, e / 2) * acc as rows of D elements, those below `valid` rows only. row0: the warp's first row. */
template <int D, int MT, typename T, typename S>
static __device__ __forceinline__ void store_rows(T *to, int64_t row_elems, int row0, int64_t valid,
                                                  const float (&acc)[MT][D / 8][4], S scale)
{
    int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + i * MMA_M + g + 8 * half;
            float f = scale(i, half);
            if (row < valid)
#pragma unroll
                for (int j = 0; j < D / 8; j++)
                    *reinterpret_cast<uint32_t *>(to + row * row_elems + j * 8 + 2 * t) =
                        packed<T>(f * acc[i][j][2 * half], f * acc[i][j][2 * half + 1]);
        }
}

#endif
