/* exec/provenance.h: where and with what something was measured, so that a figure can be judged later. */
#ifndef SF_EXEC_PROVENANCE_H
#define SF_EXEC_PROVENANCE_H

#include <jansson.h>

/* {"date", "host", "cpu", "cores", "memory_bytes", "load": [1, 5, 15 min], "kernel", "versions": {...}}: as
 * of now. New reference. */
json_t *sf_provenance(void);

#endif
