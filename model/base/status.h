/* model/base/status.h: the result of anything that a user, a file, MPI or a GPU can make fail.
 *
 * A status is made once, where the failure happens, with the message a person will read; callers
 * pass it up unchanged or prefix the place. Library code neither prints nor exits. `assert` is for
 * our own bugs only.
 */
#ifndef SF_BASE_STATUS_H
#define SF_BASE_STATUS_H

typedef enum {
    SF_OK,
    SF_EINVAL, /* an impossible job, option or value                  */
    SF_EPARSE, /* a file that does not say what its kind should say   */
    SF_ENOMEM, /* host memory exhausted (not a device out-of-memory)  */
    SF_EIO,    /* a file or pipe could not be read or written         */
    SF_EDEVICE,/* a GPU is absent or failed                           */
    SF_ECOMM,  /* a rank or a link failed                             */
    SF_EUNSUP, /* valid, but this build or version cannot do it       */
    SF_ENUMERIC/* NaN or infinity in a loss                           */
} sf_code;

typedef struct {
    sf_code code;
    int line;         /* where the message was made; for debugging only */
    const char *file;
    char msg[500];    /* one or two sentences: field, value, remedy     */
} sf_status;

sf_status sf_fail_at(const char *file, int line, sf_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same failure with `fmt...: ` put before its message, for a caller that knows the place. */
sf_status sf_status_prefix(sf_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define SF_FAIL(code, ...) sf_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)
#define SF_SUCCESS ((sf_status){ .code = SF_OK })
#define SF_TRY(expr)                                                                               \
    do {                                                                                           \
        sf_status st_ = (expr);                                                                    \
        if (st_.code != SF_OK)                                                                     \
            return st_;                                                                            \
    } while (0)
#define SF_TRY_GOTO(st, expr, label)                                                               \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st).code != SF_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

#endif
