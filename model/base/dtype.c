#include "model/base/dtype.h"

#define AS_BYTES(id, name, bytes) bytes,
static const uint64_t dtype_bytes[SF_DTYPE_COUNT] = { SF_DTYPES(AS_BYTES) };
#undef AS_BYTES
#define AS_NAME(id, name, bytes) name,
static const char *const dtype_names[SF_DTYPE_COUNT] = { SF_DTYPES(AS_NAME) };
#undef AS_NAME

uint64_t sf_dtype_bytes(sf_dtype dtype)
{
    return dtype_bytes[dtype];
}

const char *sf_dtype_name(sf_dtype dtype)
{
    return dtype_names[dtype];
}
