/* sim/trace.h: a step's spans as a Chrome trace (JSON object format with "X" events, times in us),
 * which chrome://tracing and ui.perfetto.dev load. One process per rank, one thread per stream, and
 * a counter of device memory where the outcome has a timed memory line.
 * Source  Trace Event Format, Google.
 */
#ifndef SF_SIM_TRACE_H
#define SF_SIM_TRACE_H

#include "model/base/text.h"
#include "model/program/outcome.h"

void sf_trace_write(const sf_outcome *const *outcomes, size_t n, sf_text *out);

#endif
