/* tests/reports/draw_fake.c: writes a report of made-up outcomes, to look at. Usage: draw_fake DIR [predicted] */
#include <stdio.h>

#include "tests/reports/fake.h"

int main(int argc, char **argv)
{
    sf_arena arena = { 0 };
    sf_report report;
    const char *note;
    if (argc < 2)
        return 2;
    sf_fake_report(argc < 3, &arena, &report);
    sf_status st = sf_report_write(&report, argv[1], &arena, &note);
    if (st.code != SF_OK)
        fprintf(stderr, "%s\n", st.msg);
    sf_arena_free(&arena);
    return st.code != SF_OK;
}
