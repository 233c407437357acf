/* model/base/dtype.h: element types of tensors.
 *
 * Source  sizes: IEEE 754 binary16/32/64, bfloat16 (8-bit exponent, 7-bit fraction).
 */
#ifndef SF_BASE_DTYPE_H
#define SF_BASE_DTYPE_H

#include <stdint.h>

/*     id    name    bytes */
#define SF_DTYPES(X)                                                                               \
    X(F32, "f32", 4)                                                                               \
    X(BF16, "bf16", 2)                                                                             \
    X(F16, "f16", 2)                                                                               \
    X(F64, "f64", 8)                                                                               \
    X(I32, "i32", 4)                                                                               \
    X(I64, "i64", 8)                                                                               \
    X(U8, "u8", 1)                                                                                 \
    X(F8, "f8", 1)

#define SF_AS_ENUM(id, name, bytes) SF_##id,
typedef enum { SF_DTYPES(SF_AS_ENUM) SF_DTYPE_COUNT } sf_dtype;
#undef SF_AS_ENUM

uint64_t sf_dtype_bytes(sf_dtype dtype);
const char *sf_dtype_name(sf_dtype dtype);

#endif
