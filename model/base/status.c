#include "model/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sf_status sf_fail_at(const char *file, int line, sf_code code, const char *fmt, ...)
{
    sf_status st = { .code = code, .line = line, .file = file };
    va_list args;
    va_start(args, fmt);
    vsnprintf(st.msg, sizeof st.msg, fmt, args);
    va_end(args);
    return st;
}

sf_status sf_status_prefix(sf_status st, const char *fmt, ...)
{
    char tail[sizeof st.msg];
    va_list args;

    if (st.code == SF_OK)
        return st;
    memcpy(tail, st.msg, sizeof tail);
    va_start(args, fmt);
    int n = vsnprintf(st.msg, sizeof st.msg, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n + 3 < sizeof st.msg)
        snprintf(st.msg + n, sizeof st.msg - (size_t)n, ": %.*s", (int)(sizeof st.msg - (size_t)n - 3), tail);
    return st;
}
