/* exec/cuda/elementwise.cu: sums, casts, activations, the embedding lookup, AdamW: one thread per pack. */
#include "exec/cuda/device.cuh"

/* ---- add, accumulate, cast, scale, fill ---- */
namespace
{
template <typename T> struct add_each {
    const T *a, *b;
    T *out;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float x[K], y[K];
        load(x, a + i);
        load(y, b + i);
#pragma unroll
        for (int k = 0; k < K; k++)
            x[k] += y[k];
        store(out + i, x);
    }
};

struct accumulate_each {
    const void *src;
    void *dst;
    sf_dtype src_dtype, dst_dtype;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float x[K];
        load_any(x, src, i, src_dtype);
        add_any(dst, i, dst_dtype, x);
    }
};

struct cast_each {
    const void *src;
    void *dst;
    sf_dtype src_dtype, dst_dtype;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float x[K];
        load_any(x, src, i, src_dtype);
        store_any(dst, i, dst_dtype, x);
    }
};

struct scale_each {
    void *x;
    sf_dtype dtype;
    float factor;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float v[K];
        load_any(v, x, i, dtype);
#pragma unroll
        for (int k = 0; k < K; k++)
            v[k] *= factor;
        store_any(x, i, dtype, v);
    }
};

struct fill_each {
    void *x;
    sf_dtype dtype;
    float value;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float v[K];
#pragma unroll
        for (int k = 0; k < K; k++)
            v[k] = value;
        store_any(x, i, dtype, v);
    }
};
} // namespace

extern "C" int sf_cuda_add(sf_cuda_stream stream, sf_dtype dt, size_t n, const void *a, const void *b, void *out)
{
    bool aligned = sf_aligned(a) && sf_aligned(b) && sf_aligned(out);
    SF_WITH_TYPE(dt, {
        add_each<T> f = { (const T *)a, (const T *)b, (T *)out };
        return sf_launch_each(stream, f, n, aligned);
    });
}

extern "C" int sf_cuda_accumulate(sf_cuda_stream stream, sf_dtype src_dt, sf_dtype dst_dt, size_t n, const void *src,
                                  void *dst)
{
    if (!sf_float_dtype(src_dt) || !sf_float_dtype(dst_dt))
        return cudaErrorInvalidValue;
    accumulate_each f = { src, dst, src_dt, dst_dt };
    return sf_launch_each(stream, f, n, sf_aligned(src) && sf_aligned(dst));
}

extern "C" int sf_cuda_cast(sf_cuda_stream stream, sf_dtype from, sf_dtype to, size_t n, const void *src, void *dst)
{
    if (!sf_float_dtype(from) || !sf_float_dtype(to))
        return cudaErrorInvalidValue;
    cast_each f = { src, dst, from, to };
    return sf_launch_each(stream, f, n, sf_aligned(src) && sf_aligned(dst));
}

extern "C" int sf_cuda_scale(sf_cuda_stream stream, sf_dtype dt, size_t n, float factor, void *x)
{
    if (!sf_float_dtype(dt))
        return cudaErrorInvalidValue;
    scale_each f = { x, dt, factor };
    return sf_launch_each(stream, f, n, sf_aligned(x));
}

extern "C" int sf_cuda_fill(sf_cuda_stream stream, sf_dtype dt, size_t n, float value, void *x)
{
    if (!sf_float_dtype(dt))
        return cudaErrorInvalidValue;
    fill_each f = { x, dt, value };
    return sf_launch_each(stream, f, n, sf_aligned(x));
}

/* ---- embedding lookup ---- */
namespace
{
template <typename T> struct embed_each {
    const int32_t *tokens;
    const void *wte, *wpe;
    T *x;
    sf_dtype param_dtype;
    size_t n, seq;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        size_t row = i / n, col = i % n;
        float v[K], p[K];
        load_any(v, wte, (size_t)tokens[row] * n + col, param_dtype);
        if (wpe != NULL) {
            load_any(p, wpe, row % seq * n + col, param_dtype);
#pragma unroll
            for (int k = 0; k < K; k++)
                v[k] += p[k];
        }
        store(x + i, v);
    }
};
} // namespace

extern "C" int sf_cuda_embed_fwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, size_t rows, size_t seq_len,
                                 size_t hidden, const int32_t *tokens, const void *wte, const void *wpe, void *out)
{
    bool aligned = hidden % PACK == 0 && sf_aligned(wte) && sf_aligned(wpe) && sf_aligned(out);
    if (!sf_float_dtype(param_dt) || seq_len == 0)
        return cudaErrorInvalidValue;
    SF_WITH_TYPE(dt, {
        embed_each<T> f = { tokens, wte, wpe, (T *)out, param_dt, hidden, seq_len };
        return sf_launch_each(stream, f, rows * hidden, aligned);
    });
}

/* ---- activations: value and derivative of each kind ---- */
namespace
{
/* Hendrycks and Gimpel 2016: the tanh form of GELU, and x times the normal distribution function. */
const float SQRT_2_OVER_PI = 0.7978845608028654f, CUBIC = 0.044715f, SQRT_HALF = 0.7071067811865476f,
            INV_SQRT_2PI = 0.3989422804014327f;

struct gelu_tanh {
    static __device__ __forceinline__ float value(float x)
    {
        return 0.5f * x * (1.0f + tanhf(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
    }
    static __device__ __forceinline__ float slope(float x)
    {
        float t = tanhf(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    }
};
struct gelu_erf {
    static __device__ __forceinline__ float value(float x) { return 0.5f * x * (1.0f + erff(x * SQRT_HALF)); }
    static __device__ __forceinline__ float slope(float x)
    {
        return 0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2PI * __expf(-0.5f * x * x);
    }
};
struct relu {
    static __device__ __forceinline__ float value(float x) { return x > 0.0f ? x : 0.0f; }
    static __device__ __forceinline__ float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};

template <typename T, typename A> struct act_each {
    const T *in;
    T *out;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float x[K];
        load(x, in + i);
#pragma unroll
        for (int k = 0; k < K; k++)
            x[k] = A::value(x[k]);
        store(out + i, x);
    }
};
template <typename T, typename A> struct act_bwd_each {
    const T *dy, *in;
    T *dx;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float x[K], d[K];
        load(x, in + i);
        load(d, dy + i);
#pragma unroll
        for (int k = 0; k < K; k++)
            d[k] *= A::slope(x[k]);
        store(dx + i, d);
    }
};

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}
template <typename T> struct swiglu_each {
    const T *in;
    T *out;
    size_t n;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        size_t gate_at = i + i / n * n; /* row * 2n + col */
        float gate[K], up[K];
        load(gate, in + gate_at);
        load(up, in + gate_at + n);
#pragma unroll
        for (int k = 0; k < K; k++)
            up[k] *= gate[k] * sigmoid(gate[k]);
        store(out + i, up);
    }
};
template <typename T> struct swiglu_bwd_each {
    const T *dy, *in;
    T *dx;
    size_t n;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        size_t gate_at = i + i / n * n;
        float gate[K], up[K], d[K], d_gate[K];
        load(gate, in + gate_at);
        load(up, in + gate_at + n);
        load(d, dy + i);
#pragma unroll
        for (int k = 0; k < K; k++) {
            float s = sigmoid(gate[k]);
            d_gate[k] = d[k] * up[k] * s * (1.0f + gate[k] * (1.0f - s));
            d[k] *= gate[k] * s;
        }
        store(dx + gate_at, d_gate);
        store(dx + gate_at + n, d);
    }
};

template <typename T, typename A> int act(sf_cuda_stream stream, const void *in, void *out, size_t n, bool aligned)
{
    act_each<T, A> f = { (const T *)in, (T *)out };
    return sf_launch_each(stream, f, n, aligned);
}
template <typename T, typename A>
int act_bwd(sf_cuda_stream stream, const void *dy, const void *in, void *dx, size_t n, bool aligned)
{
    act_bwd_each<T, A> f = { (const T *)dy, (const T *)in, (T *)dx };
    return sf_launch_each(stream, f, n, aligned);
}
} // namespace

extern "C" int sf_cuda_act_fwd(sf_cuda_stream stream, sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *in,
                               void *out)
{
    bool aligned = sf_aligned(in) && sf_aligned(out);
    size_t elems = rows * ffn;
    SF_WITH_TYPE(dt, {
        switch (kind) {
        case SF_OP_ACT_GELU_TANH: return act<T, gelu_tanh>(stream, in, out, elems, aligned);
        case SF_OP_ACT_GELU_ERF: return act<T, gelu_erf>(stream, in, out, elems, aligned);
        case SF_OP_ACT_RELU: return act<T, relu>(stream, in, out, elems, aligned);
        case SF_OP_ACT_SWIGLU: {
            swiglu_each<T> f = { (const T *)in, (T *)out, ffn };
            return sf_launch_each(stream, f, elems, aligned && ffn % PACK == 0);
        }
        }
    });
    return cudaErrorInvalidValue;
}

extern "C" int sf_cuda_act_bwd(sf_cuda_stream stream, sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn,
                               const void *dout, const void *in, void *din)
{
    bool aligned = sf_aligned(dout) && sf_aligned(in) && sf_aligned(din);
    size_t elems = rows * ffn;
    SF_WITH_TYPE(dt, {
        switch (kind) {
        case SF_OP_ACT_GELU_TANH: return act_bwd<T, gelu_tanh>(stream, dout, in, din, elems, aligned);
        case SF_OP_ACT_GELU_ERF: return act_bwd<T, gelu_erf>(stream, dout, in, din, elems, aligned);
        case SF_OP_ACT_RELU: return act_bwd<T, relu>(stream, dout, in, din, elems, aligned);
        case SF_OP_ACT_SWIGLU: {
            swiglu_bwd_each<T> f = { (const T *)dout, (const T *)in, (T *)din, ffn };
            return sf_launch_each(stream, f, elems, aligned && ffn % PACK == 0);
        }
        }
    });
    return cudaErrorInvalidValue;
}

/* ---- AdamW: Loshchilov and Hutter 2019, with PyTorch's order of operations ---- */
namespace
{
struct adamw_each {
    const void *grad;
    float *master, *m, *v;
    void *param;
    const double *sum_squares;
    sf_dtype grad_dtype, param_dtype;
    float keep;                            /* 1 - lr * weight_decay                              */
    float beta1, rest1, beta2, rest2, eps; /* rest: 1 - beta, rounded once                       */
    float lr_corrected, inv_sqrt_bias2;    /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)    */
    sf_cuda_adamw_step step;

    __device__ __forceinline__ float factor() const
    {
        if (sum_squares == NULL || !(step.max_norm > 0.0))
            return (float)step.grad_scale;
        float norm = (float)(sqrt(*sum_squares) * step.grad_scale);
        return (float)step.grad_scale * fminf(1.0f, (float)step.max_norm / (norm + 1e-6f));
    }
    __device__ __forceinline__ bool decays(uint64_t i) const
    {
        int flips = 0, beyond = step.n_decay_flips; /* how many flips are at or before i */
        while (flips < beyond) {
            int mid = (flips + beyond) / 2;
            if (step.decay_flips[mid] <= i)
                flips = mid + 1;
            else
                beyond = mid;
        }
        return (step.decay_first != 0) != (flips % 2 != 0);
    }
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float g[K], w[K], m1[K], m2[K], f = factor();
        load_any(g, grad, i, grad_dtype);
        load(w, master + i);
        load(m1, m + i);
        load(m2, v + i);
#pragma unroll
        for (int k = 0; k < K; k++) {
            g[k] *= f;
            if (decays(i + (size_t)k))
                w[k] *= keep;
            m1[k] = beta1 * m1[k] + rest1 * g[k];
            m2[k] = beta2 * m2[k] + rest2 * g[k] * g[k];
            w[k] -= lr_corrected * m1[k] / (sqrtf(m2[k]) * inv_sqrt_bias2 + eps);
        }
        store(master + i, w);
        store(m + i, m1);
        store(v + i, m2);
        if (param != NULL)
            store_any(param, i, param_dtype, w);
    }
};
} // namespace

extern "C" int sf_cuda_adamw(sf_cuda_stream stream, const sf_cuda_adamw_step *step, size_t n, sf_dtype grad_dt,
                             const void *grad, const double *sum_squares, float *master, float *m, float *v,
                             sf_dtype param_dt, void *param)
{
    bool aligned = sf_aligned(grad) && sf_aligned(master) && sf_aligned(m) && sf_aligned(v) && sf_aligned(param);
    if (!sf_float_dtype(grad_dt) || (param != NULL && !sf_float_dtype(param_dt)) || step->step < 1 ||
        step->n_decay_flips < 0 || step->n_decay_flips > SF_CUDA_MAX_DECAY_FLIPS)
        return cudaErrorInvalidValue;
    adamw_each f = { grad, master, m, v, param, sum_squares, grad_dt, param_dt, 0, 0, 0, 0, 0, 0, 0, 0, *step };
    f.keep = (float)(1.0 - step->lr * step->weight_decay);
    f.beta1 = (float)step->beta1;
    f.rest1 = (float)(1.0 - step->beta1);
    f.beta2 = (float)step->beta2;
    f.rest2 = (float)(1.0 - step->beta2);
    f.eps = (float)step->eps;
    f.lr_corrected = (float)(step->lr / (1.0 - pow(step->beta1, (double)step->step)));
    f.inv_sqrt_bias2 = (float)(1.0 / sqrt(1.0 - pow(step->beta2, (double)step->step)));
    return sf_launch_each(stream, f, n, aligned);
}
