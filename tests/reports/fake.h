/* tests/reports/fake.h: outcomes as a small model's runs give them, for tests of what shows them.
 *
 * Four layers on two ranks; times and bytes follow simple rules per strategy, and the measured side
 * differs from the predicted one by a few percent in time and by nothing in bytes.
 */
#ifndef SF_TESTS_FAKE_H
#define SF_TESTS_FAKE_H

#include "reports/report.h"

/* strategy: dp, ddp, fsdp, zero1, zero2, zero3. */
void sf_fake_outcome(const char *strategy, bool measured, sf_arena *arena, sf_outcome *out);

/* The six strategies, joined. `measured` false: predictions only. */
void sf_fake_report(bool measured, sf_arena *arena, sf_report *out);

#endif
