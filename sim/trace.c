#include "sim/trace.h"

/* Names of ours and of programs: letters, digits, dots; quotes and backslashes never occur, but a
 * label is checked all the same. */
static void add_name(sf_text *out, const char *text)
{
    for (; text != NULL && *text != '\0'; text++)
        if (*text != '"' && *text != '\\' && (unsigned char)*text >= ' ')
            sf_text_append(out, text, 1);
}

static void add_metadata(sf_text *out, const sf_outcome *o, size_t pid)
{
    sf_text_add(out, "%s{\"ph\":\"M\",\"pid\":%zu,\"name\":\"process_name\",\"args\":{\"name\":\"", pid == 0 ? "" : ",\n", pid);
    add_name(out, o->strategy);
    sf_text_add(out, " (%s)\"}}", o->kind);
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        sf_text_add(out, ",\n{\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", pid, s,
                    sf_stream_name((sf_stream)s));
}

void sf_trace_write(const sf_outcome *const *outcomes, size_t n, sf_text *out)
{
    sf_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t i = 0; i < n; i++) {
        const sf_outcome *o = outcomes[i];
        add_metadata(out, o, i);
        for (size_t k = 0; k < o->n_spans; k++) {
            const sf_span_time *s = &o->spans[k];
            sf_text_add(out, ",\n{\"ph\":\"X\",\"pid\":%zu,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"", i, (int)s->stream, s->start_s * 1e6,
                        (s->end_s - s->start_s) * 1e6);
            add_name(out, sf_op_name(s->type));
            if (s->label != NULL) {
                sf_text_add(out, " ");
                add_name(out, s->label);
            }
            sf_text_add(out, "\",\"cat\":\"%s\",\"args\":{\"layer\":%d,\"micro\":%d,\"op\":%llu}}", sf_phase_name(s->phase), s->layer, s->micro,
                        (unsigned long long)s->seq);
        }
        for (size_t k = 0; k < o->n_memory_line; k++)
            if (o->memory_line[k].time_s >= 0)
                sf_text_add(out, ",\n{\"ph\":\"C\",\"pid\":%zu,\"ts\":%.3f,\"name\":\"device memory\",\"args\":{\"MiB\":%.3f}}", i,
                            o->memory_line[k].time_s * 1e6, (double)o->memory_line[k].bytes / 1048576.0);
    }
    sf_text_add(out, "\n]}\n");
}
