/* model/desc/job_fields.h: the fields of a JOB, one row each. The reader, the printer, `--help` and
 * the tests read this table; a default lives here and nowhere else.
 */
#ifndef SF_DESC_JOB_FIELDS_H
#define SF_DESC_JOB_FIELDS_H

#include "model/desc/job.h"

typedef enum {
    SF_FIELD_INT,    /* int64_t                                          */
    SF_FIELD_REAL,   /* double                                           */
    SF_FIELD_BOOL,   /* bool                                             */
    SF_FIELD_CHOICE, /* int64_t: index into `choices`                    */
    SF_FIELD_TEXT,   /* const char *                                     */
    SF_FIELD_TRI,    /* int64_t: null -> SF_AUTO, false, true, a number  */
    SF_FIELD_LIST    /* sf_int_list; the default is a list of one        */
} sf_field_type;

/* Who has the field: any of these bits for the job's framework and strategy. */
enum {
    SF_HAS_ALL = 1,
    SF_HAS_PT_DDP = 2, SF_HAS_PT_FSDP = 4, SF_HAS_PT_FSDP2 = 8,
    SF_HAS_DS_ZERO12 = 16, SF_HAS_DS_ZERO3 = 32,
    SF_HAS_OWN_DDP = 64, SF_HAS_OWN_FSDP = 128, SF_HAS_OWN = 256,
    SF_HAS_DS = SF_HAS_DS_ZERO12 | SF_HAS_DS_ZERO3
};

typedef struct {
    const char *path;
    sf_field_type type;
    size_t offset;               /* in sf_job */
    double otherwise;            /* default: number, 0/1, choice index   */
    double least, most;          /* INT and REAL, inclusive              */
    const char *const *choices;  /* NULL-terminated                      */
    unsigned has;
    bool matters;                /* listed as assumed when not stated    */
    const char *help;
} sf_field;

extern const sf_field sf_job_fields[];
extern const size_t sf_job_field_count;

/* The field of that path, or NULL. */
const sf_field *sf_job_field_find(const char *path);

/* The bits of this framework and strategy. */
unsigned sf_job_field_bits(int64_t framework, int64_t strategy);

#endif
