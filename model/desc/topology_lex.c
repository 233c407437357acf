#define _GNU_SOURCE /* memmem */
#include "model/desc/topology_lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* ---- cleaning ---- */

/* Length of a terminal's escape sequence at p, also where the escape character itself was lost
 * ("[4m"); 0 if there is none. */
static size_t escape_length(const char *p, const char *end)
{
    const char *q = p;
    if (*q == '\x1b') {
        q++;
        if (q < end && *q == ']') { /* operating system command: to BEL or ESC \ */
            while (q < end && *q != '\a' && *q != '\x1b')
                q++;
            return (size_t)(q - p) + (q < end && *q == '\a');
        }
        if (q == end || *q != '[')
            return q < end && (*q == '(' || *q == ')') && q + 1 < end ? 3 : (size_t)(q - p) + (q < end);
        q++;
        while (q < end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x40)
            q++;
        return (size_t)(q - p) + (q < end);
    }
    if (*q != '[')
        return 0;
    q++;
    while (q < end && (digit(*q) || *q == ';'))
        q++;
    return q < end && *q == 'm' && (q > p + 1 || q + 1 == end || !letter(q[1])) ? (size_t)(q - p) + 1 : 0;
}

/* A character of several bytes that stands for a blank, a bar or nothing. */
static size_t odd_character(const char *p, const char *end, char *replacement)
{
    static const struct {
        const char *bytes;
        char means;
    } odd[] = {
        { "\xc2\xa0", ' ' },     { "\xe3\x80\x80", ' ' },  { "\xe2\x80\x82", ' ' }, { "\xe2\x80\x83", ' ' },
        { "\xe2\x80\x89", ' ' }, { "\xe2\x80\xaf", ' ' },  { "\xef\xbb\xbf", 0 },   { "\xe2\x80\x8b", 0 },
        { "\xe2\x80\x8c", 0 },   { "\xe2\x80\x8d", 0 },    { "\xe2\x80\x93", '-' }, { "\xe2\x80\x94", '-' },
        { "\xe2\x88\x92", '-' }, { "&nbsp;", ' ' },        { "&#124;", '|' },       { "&emsp;", ' ' },
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        size_t n = strlen(odd[i].bytes);
        if ((size_t)(end - p) >= n && memcmp(p, odd[i].bytes, n) == 0) {
            *replacement = odd[i].means;
            return n;
        }
    }
    if (end - p >= 3 && (unsigned char)p[0] == 0xe2 && ((unsigned char)p[1] == 0x94 || (unsigned char)p[1] == 0x95)) {
        *replacement = (unsigned char)p[1] == 0x94 && (unsigned char)p[2] == 0x80 ? '-' : '|'; /* box drawing */
        return 3;
    }
    return 0;
}

/* <td>, </tr>, <br/> and the like: a cell's end is a bar. */
static size_t markup_length(const char *p, const char *end, char *replacement)
{
    static const char *const tags[] = { "td", "th", "tr", "table", "tbody", "thead", "pre", "code", "br", "p", "span", "b" };
    const char *q = p + 1;
    bool closes = q < end && *q == '/';
    if (closes)
        q++;
    const char *name = q;
    while (q < end && letter(*q))
        q++;
    size_t n = (size_t)(q - name);
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (strlen(tags[i]) != n || strncmp(tags[i], name, n) != 0)
            continue;
        while (q < end && *q != '>' && q - p < 200)
            q++;
        if (q == end || *q != '>')
            return 0;
        *replacement = name[0] == 't' && n == 2 && name[1] != 'r' && !closes ? '|' : ' ';
        return (size_t)(q - p) + 1;
    }
    return 0;
}

static char *clean_line(const char *p, const char *end, bool escaped, sf_arena *arena)
{
    char *out = sf_arena_alloc(arena, (size_t)(end - p) + 1), *o = out;
    while (p < end) {
        char replacement = 0;
        size_t n = escape_length(p, end);
        if (n == 0) {
            n = odd_character(p, end, &replacement);
            if (n == 0 && *p == '<')
                n = markup_length(p, end, &replacement);
            if (n == 0 && escaped && end - p >= 2 && p[0] == '\\' && p[1] == 't') {
                n = 2;
                replacement = '\t';
            }
        }
        if (n > 0) {
            if (replacement != 0)
                *o++ = replacement;
            p += n;
        } else {
            if (*p == '\f' || *p == '\v')
                *o++ = ' ';
            else if (*p != '\r' && *p != '*' && *p != '`' && *p != '\0')
                *o++ = (char)((unsigned char)*p > 0x7e || ((unsigned char)*p < 0x20 && *p != '\t') ? '?' : *p);
            p++;
        }
    }
    while (o > out && (o[-1] == ' ' || o[-1] == '\t'))
        o--;
    *o = '\0';
    return out;
}

static bool contains(const char *text, size_t len, const char *part)
{
    return memmem(text, len, part, strlen(part)) != NULL;
}

size_t sf_lex_lines(const char *text, size_t len, sf_arena *arena, sf_line **out)
{
    size_t count = 0, cap = 0;
    int number = 1;
    bool escaped = contains(text, len, "\\tGPU") || contains(text, len, "\\nGPU") || contains(text, len, "\\n|");
    const char *p = text, *end = text + len;
    *out = NULL;
    while (p < end) {
        const char *q = p;
        bool real = true;
        while (q < end && *q != '\n') {
            if (escaped && *q == '\\' && q + 1 < end && q[1] == 'n') {
                real = false;
                break;
            }
            if (*q == '\r' && q + 1 < end && q[1] != '\n' && q[1] != '\r') /* old Macintosh line end */
                break;
            q++;
        }
        SF_PUSH(arena, *out, count, cap) = (sf_line){ clean_line(p, q, escaped, arena), number };
        number += q < end && *q == '\n';
        p = q + (real ? 1 : 2);
    }
    return count;
}

/* ---- words for paths ---- */

#define PATH(word, path) { word, { SF_PATH_##path, SF_PATH_UNKNOWN, 0 }, SF_TOPO_LINK_PCIE, false }
#define DIRECT(word, link) { word, { SF_PATH_NVLINK, SF_PATH_UNKNOWN, 0 }, SF_TOPO_LINK_##link, false }
static const sf_cell_word known_words[] = {
    PATH("X", SELF), PATH("x", SELF), PATH("SELF", SELF), PATH("PIX", PIX), PATH("PXB", PXB), PATH("PHB", PHB), PATH("NODE", NODE),
    PATH("SYS", SYS),
    PATH("SOC", SYS), /* name of SYS before driver 384 */
    DIRECT("XGMI", XGMI), DIRECT("MX", GPU_LINK), DIRECT("HCCS", GPU_LINK),
    { "PCIE", { SF_PATH_UNKNOWN, SF_PATH_UNKNOWN, 0 }, SF_TOPO_LINK_PCIE, true },
};

static const sf_cell_word *find_word(const sf_cell_word *words, size_t count, const char *word, size_t n)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, word, n) == 0)
            return &words[i];
    return NULL;
}

/* What a legend's sentence means; its word then stands for that. */
static bool word_of_meaning(const char *meaning, sf_cell_word *word)
{
    static const struct {
        const char *says;
        unsigned char path;
    } phrases[] = { /* in this order: the sentence for SYS mentions PCIe too */
        { "Self", SF_PATH_SELF },         { "SMP", SF_PATH_SYS },           { "socket", SF_PATH_SYS },
        { "PCIe Host Bridges", SF_PATH_NODE }, { "ost Bridge", SF_PATH_PHB }, { "ost bridge", SF_PATH_PHB },
        { "multiple PCIe", SF_PATH_PXB }, { "single PCIe", SF_PATH_PIX },   { "PCIe switch", SF_PATH_PIX },
        { "Link", SF_PATH_NVLINK },       { "HCCS", SF_PATH_NVLINK },       { "XGMI", SF_PATH_NVLINK },
    };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++) {
        if (strstr(meaning, phrases[i].says) == NULL)
            continue;
        word->cell = (sf_topo_cell){ phrases[i].path, SF_PATH_UNKNOWN, 0 };
        word->link = phrases[i].path == SF_PATH_NVLINK ? SF_TOPO_LINK_GPU_LINK : SF_TOPO_LINK_PCIE;
        return true;
    }
    return false;
}

size_t sf_lex_legend(const sf_line *lines, size_t count, sf_arena *arena, sf_cell_word **out)
{
    size_t words = 0, cap = 0;
    *out = NULL;
    for (size_t i = 0; i < sizeof known_words / sizeof known_words[0]; i++)
        SF_PUSH(arena, *out, words, cap) = known_words[i];
    for (size_t i = 0; i < count && words < 64; i++) {
        const char *p = lines[i].text;
        while (*p == ' ' || *p == '\t' || *p == '|' || *p == '>' || *p == '#')
            p++;
        const char *word = p;
        while ((*p >= 'A' && *p <= 'Z') || *p == '_')
            p++;
        size_t n = (size_t)(p - word);
        while (*p == ' ' || *p == '\t')
            p++;
        sf_cell_word fresh = { 0 };
        if (n == 0 || n > 12 || *p != '=' || find_word(*out, words, word, n) != NULL || !word_of_meaning(p + 1, &fresh))
            continue;
        fresh.word = sf_arena_strndup(arena, word, n);
        SF_PUSH(arena, *out, words, cap) = fresh;
    }
    return words;
}

/* ---- words ---- */

static const char *const device_words[] = { "GPU", "NIC", "NPU", "MLU", "DCU", "HCU", "GCD" };
static const struct {
    const char *word;
    sf_head_word head;
} head_words[] = { { "CPU", SF_HEAD_CPU }, { "NUMA", SF_HEAD_NUMA }, { "Node", SF_HEAD_NODE }, { "GPU", SF_HEAD_GPU },
                   { "Affinity", SF_HEAD_AFFINITY }, { "ID", SF_HEAD_ID } };

bool sf_lex_is_busid(const char *text)
{
    size_t domain = strspn(text, "0123456789abcdefABCDEF");
    if (domain < 4 || domain > 8 || text[domain] != ':')
        return false;
    const char *p = text + domain + 1;
    return isxdigit((unsigned char)p[0]) && isxdigit((unsigned char)p[1]) && p[2] == ':' &&
           isxdigit((unsigned char)p[3]) && isxdigit((unsigned char)p[4]) && p[5] == '.' && p[6] >= '0' &&
           p[6] <= '7' && p[7] == '\0';
}

bool sf_lex_is_gpu(const char *device)
{
    for (size_t i = 0; i < sizeof device_words / sizeof device_words[0]; i++)
        if (i != 1 && sf_str_starts(device, device_words[i]) && digit(device[3]))
            return true;
    return sf_lex_is_busid(device);
}

static bool looks_like_name(const char *w, size_t n)
{
    bool has_digit = false;
    if (n == 0 || n > 60)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!letter(w[i]) && !digit(w[i]) && strchr("_-.:", w[i]) == NULL)
            return false;
        has_digit = has_digit || digit(w[i]);
    }
    return has_digit && w[n - 1] != ':' && w[n - 1] != '.' && letter(w[0]);
}

/* One word's first part: its length and token, 0 if the word is not made of known parts. */
static size_t take_part(const char *p, const char *end, const sf_cell_word *words, size_t word_count,
                        const bool nv_counts[100], sf_tok *tok)
{
    size_t left = (size_t)(end - p), best = 0;
    for (size_t i = 0; i < sizeof device_words / sizeof device_words[0]; i++) {
        if (left <= 3 || strncmp(p, device_words[i], 3) != 0 || !digit(p[3]))
            continue;
        size_t n = 4;
        while (n < left && n < 8 && digit(p[n]))
            n++;
        tok->kind = SF_TOK_DEVICE;
        return n;
    }
    for (size_t i = 0; i < word_count; i++) { /* longest: XGMI before X */
        size_t n = strlen(words[i].word);
        if (n <= best || n > left || strncmp(p, words[i].word, n) != 0)
            continue;
        best = n;
        tok->kind = SF_TOK_CELL;
        tok->cell = words[i].cell;
        tok->link = words[i].link;
        tok->pcie_only = words[i].pcie_only;
    }
    if (best > 0)
        return best;
    if (left > 2 && p[0] == 'N' && p[1] == 'V' && digit(p[2])) {
        size_t digits = left > 3 && digit(p[3]) ? 2 : 1;
        tok->loose = left > 2 + digits && (digit(p[2 + digits]) || (digits == 2 && strchr("-,", p[4]) != NULL));
        if (tok->loose && digits == 2 && !nv_counts[(p[2] - '0') * 10 + p[3] - '0'] && nv_counts[p[2] - '0'])
            digits = 1;
        tok->kind = SF_TOK_CELL;
        tok->link = SF_TOPO_LINK_NVLINK;
        tok->cell = (sf_topo_cell){ SF_PATH_NVLINK, SF_PATH_UNKNOWN,
                                    (short)(digits == 2 ? (p[2] - '0') * 10 + p[3] - '0' : p[2] - '0') };
        return 2 + digits;
    }
    for (size_t i = 0; i < sizeof head_words / sizeof head_words[0]; i++) {
        size_t n = strlen(head_words[i].word);
        if (n <= left && strncmp(p, head_words[i].word, n) == 0) {
            tok->kind = SF_TOK_HEAD;
            tok->head = head_words[i].head;
            return n;
        }
    }
    tok->kind = SF_TOK_VALUE;
    if (left >= 3 && strncmp(p, "N/A", 3) == 0)
        return 3;
    size_t n = left >= 2 && p[0] == '-' && digit(p[1]); /* NUMA node -1 */
    while (n < left && (digit(p[n]) || (n > 0 && (p[n] == '-' || p[n] == ','))))
        n++;
    return n;
}

/* NV1 at the end of a line where others say NV12 is an NV12 that was cut. */
static void doubt_last(sf_tok *tok, const bool nv_counts[100])
{
    int links = tok->cell.links;
    if (tok->kind != SF_TOK_CELL || links < 1 || links > 9)
        return;
    for (int k = 0; k < 10; k++)
        if (nv_counts[links * 10 + k])
            tok->cell = (sf_topo_cell){ SF_PATH_UNKNOWN, SF_PATH_UNKNOWN, 0 };
}

size_t sf_lex_line(const char *line, const sf_cell_word *words, size_t word_count, const bool nv_counts[100],
                   sf_arena *arena, sf_tok **out)
{
    size_t count = 0, cap = 0;
    int field = 0;
    *out = NULL;
    for (const char *p = line; *p != '\0';) {
        if (*p == '\t' || *p == '|' || *p == ' ' || *p == '"' || *p == '\'' || *p == ';') {
            field += *p == '\t' || *p == '|';
            p++;
            continue;
        }
        const char *end = p + strcspn(p, " \t|\"';");
        size_t before = count;
        bool whole = true;
        for (const char *q = p; q < end && whole;) {
            sf_tok tok = { .column = (int)(q - line), .field = field };
            size_t n = take_part(q, end, words, word_count, nv_counts, &tok);
            if (n == 0) {
                whole = false;
                break;
            }
            tok.text = sf_arena_strndup(arena, q, n);
            SF_PUSH(arena, *out, count, cap) = tok;
            q += n;
        }
        if (!whole) {
            count = before;
            sf_tok tok = { .kind = SF_TOK_OTHER, .column = (int)(p - line), .field = field };
            tok.text = sf_arena_strndup(arena, p, (size_t)(end - p));
            if (looks_like_name(p, (size_t)(end - p)) || sf_lex_is_busid(tok.text))
                tok.kind = SF_TOK_NAME;
            SF_PUSH(arena, *out, count, cap) = tok;
        }
        p = end;
    }
    if (count > 0)
        doubt_last(&(*out)[count - 1], nv_counts);
    return count;
}
