#include "model/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

sf_short sf_bytes_text(uint64_t bytes)
{
    sf_short s;
    if (bytes >= SF_GIB)
        snprintf(s.text, sizeof s.text, "%.2f GiB", (double)bytes / (double)SF_GIB);
    else if (bytes >= SF_MIB)
        snprintf(s.text, sizeof s.text, "%.1f MiB", (double)bytes / (double)SF_MIB);
    else if (bytes >= SF_KIB)
        snprintf(s.text, sizeof s.text, "%.1f KiB", (double)bytes / (double)SF_KIB);
    else
        snprintf(s.text, sizeof s.text, "%llu B", (unsigned long long)bytes);
    return s;
}

sf_short sf_seconds_text(double seconds)
{
    sf_short s;
    double size = fabs(seconds);
    if (size >= 1.0 || size == 0.0)
        snprintf(s.text, sizeof s.text, "%.3g s", seconds);
    else if (size >= 1e-3)
        snprintf(s.text, sizeof s.text, "%.3g ms", seconds * 1e3);
    else
        snprintf(s.text, sizeof s.text, "%.3g us", seconds * 1e6);
    if (size >= 1000.0)
        snprintf(s.text, sizeof s.text, "%.0f s", seconds);
    return s;
}

sf_short sf_count_text(double count)
{
    sf_short s;
    if (count >= 1e12)
        snprintf(s.text, sizeof s.text, "%.2f T", count / 1e12);
    else if (count >= 1e9)
        snprintf(s.text, sizeof s.text, "%.2f B", count / 1e9);
    else if (count >= 1e6)
        snprintf(s.text, sizeof s.text, "%.1f M", count / 1e6);
    else if (count >= 1e4)
        snprintf(s.text, sizeof s.text, "%.1f K", count / 1e3);
    else
        snprintf(s.text, sizeof s.text, "%.0f", count);
    return s;
}

sf_status sf_bytes_parse(const char *text, uint64_t *out)
{
    static const char letters[] = "KMGTP";
    char *end;
    double value = strtod(text, &end);
    double scale = 1;

    if (end == text || !(value >= 0) || !isfinite(value))
        return SF_FAIL(SF_EINVAL, "'%s' is not a size; write for example 512MiB, 16G or 80GB", text);
    while (isspace((unsigned char)*end))
        end++;
    for (int i = 0; letters[i] != '\0'; i++) {
        if (toupper((unsigned char)*end) != letters[i])
            continue;
        const char *unit = end + 1;
        if (*unit == '\0' || strcasecmp(unit, "iB") == 0)
            scale = pow(1024, i + 1);
        else if (strcasecmp(unit, "B") == 0)
            scale = pow(1000, i + 1);
        else
            return SF_FAIL(SF_EINVAL, "'%s' has the unknown unit '%s'; known are KiB MiB GiB TiB, KB MB GB TB, K M G T", text, end);
        end += 1 + (unit[0] == '\0' ? 0 : unit[1] == '\0' ? 1 : 2);
        break;
    }
    if (*end == 'B' && end[1] == '\0')
        end++;
    if (*end != '\0')
        return SF_FAIL(SF_EINVAL, "'%s' has the unknown unit '%s'; known are KiB MiB GiB TiB, KB MB GB TB, K M G T", text, end);
    if (value * scale >= 1.8e19)
        return SF_FAIL(SF_EINVAL, "'%s' is larger than 16 EiB", text);
    *out = (uint64_t)(value * scale + 0.5);
    return SF_SUCCESS;
}
