/*
 * The loops of the record reader and of the change reader that Python is too slow for.
 *
 * Plain C without Python's headers, called through ctypes (`kernel.py`): one library serves every version of Python, and
 * it is built where a C compiler is found. Where there is none, `rows.py` and `envelope.py` do the same with NumPy and
 * Arrow; one test suite holds for both.
 *
 * Every position is compared with the end of what was given before it is read, whatever the bytes say. A function that
 * returns a negative number has found its input malformed; its outputs mean nothing then.
 */

#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LENGTH_BYTES_MAX 5  /* of a record's own length */
#define VARINT_BYTES_MAX 10 /* of any other: 64 bits, seven a byte */

/* The crc of this file, so that a library of other source is not used. */
EXPORT uint32_t tidemill_source(void) { return SOURCE_CRC; }

/* Read an unsigned varint of at most `most` bytes; returns the position behind it, -1 when it does not end in time. */
static inline int64_t varint(const uint8_t *data, int64_t at, int64_t end, int most, uint64_t *value) {
    if (at < end && data[at] < 0x80) {
        *value = data[at];
        return at + 1;
    }
    uint64_t found = 0;
    for (int i = 0; i < most; i++) {
        if (at >= end) return -1;
        uint8_t byte = data[at++];
        found |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            *value = found;
            return at;
        }
    }
    return -1;
}

static inline int64_t signed_of(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

static inline int64_t zigzag(const uint8_t *data, int64_t at, int64_t end, int64_t *value) {
    uint64_t raw = 0;
    at = varint(data, at, end, VARINT_BYTES_MAX, &raw);
    *value = signed_of(raw);
    return at;
}

/* The records of one batch; the rows of the `spans` array that Python gives. */
typedef struct {
    int64_t start, end, count, base_offset, base_timestamp;
    int64_t append_time; /* where `kind` is 1 */
    int64_t kind;
} span;

/* What becomes of the records that were asked for; every array has room for all of them and one more. */
typedef struct {
    int64_t *offset, *timestamp;
    int32_t *kind;
    int64_t *key_at, *value_at;      /* where they lie */
    int32_t *key_edge, *value_edge;  /* Arrow's offsets */
    uint8_t *key_bits, *value_bits;  /* Arrow's validity, all zero when it comes in */
    int64_t *rest_at, *rest_end;     /* the record's headers */
} columns;

/*
 * Find the records of every span and what lies where. Returns how many have `first <= offset < last`, or -1 when a record
 * does not end where it says or the records do not end where their span does. `nulls` gets the number of null keys and
 * of null values.
 */
EXPORT int64_t tidemill_scan(const uint8_t *data, const span *spans, int64_t span_count, int64_t first, int64_t last,
                             const columns *out, int64_t *nulls) {
    int64_t row = 0, key_size = 0, value_size = 0, null_keys = 0, null_values = 0;
    out->key_edge[0] = out->value_edge[0] = 0;
    for (int64_t s = 0; s < span_count; s++) {
        const span *here = spans + s;
        int64_t at = here->start;
        for (int64_t i = 0; i < here->count; i++) {
            uint64_t raw;
            at = varint(data, at, here->end, LENGTH_BYTES_MAX, &raw);
            if (at < 0) return -1;
            int64_t length = signed_of(raw);
            if (length < 1 || length > here->end - at) return -1;
            int64_t end = at + length, next = at + 1; /* behind the attributes */
            int64_t timestamp, offset, key, value;
            if ((next = zigzag(data, next, end, &timestamp)) < 0) return -1;
            if ((next = zigzag(data, next, end, &offset)) < 0) return -1;
            if ((next = zigzag(data, next, end, &key)) < 0) return -1;
            if (key < -1 || key > end - next) return -1;
            int64_t key_at = next;
            next += key > 0 ? key : 0;
            if ((next = zigzag(data, next, end, &value)) < 0) return -1;
            if (value < -1 || next >= end || value >= end - next) return -1; /* the number of headers follows */
            at = end;
            offset = (int64_t)((uint64_t)offset + (uint64_t)here->base_offset);
            if (offset < first || offset >= last) continue;
            out->offset[row] = offset;
            out->timestamp[row] =
                here->kind ? here->append_time : (int64_t)((uint64_t)timestamp + (uint64_t)here->base_timestamp);
            out->kind[row] = (int32_t)here->kind;
            out->key_at[row] = key_at;
            out->value_at[row] = next;
            if (key < 0) {
                null_keys++;
            } else {
                out->key_bits[row >> 3] |= (uint8_t)(1 << (row & 7));
                key_size += key;
            }
            if (value < 0) {
                null_values++;
            } else {
                out->value_bits[row >> 3] |= (uint8_t)(1 << (row & 7));
                value_size += value;
            }
            if (out->rest_at) {
                out->rest_at[row] = next + (value > 0 ? value : 0);
                out->rest_end[row] = end;
            }
            row++;
            if (key_size > INT32_MAX || value_size > INT32_MAX) return -1; /* Python gives less than that at a time */
            out->key_edge[row] = (int32_t)key_size;
            out->value_edge[row] = (int32_t)value_size;
        }
        if (at != here->end) return -1;
    }
    nulls[0] = null_keys;
    nulls[1] = null_values;
    return row;
}

/* Copy `count` pieces, which `tidemill_scan` found, one behind the other. */
EXPORT void tidemill_gather(const uint8_t *data, const int64_t *at, const int32_t *edge, int64_t count, uint8_t *out) {
    for (int64_t i = 0; i < count; i++) memcpy(out + edge[i], data + at[i], (size_t)(edge[i + 1] - edge[i]));
}

/* -- JSON: documents reduced to a few of their members */

#define DEPTH_MAX 200 /* of nesting; deeper documents are left to the general reader */
#define EXPONENT_DIGITS_MAX 2 /* a number with more may have no finite value, which the general reader refuses */

static inline int64_t blanks(const uint8_t *data, int64_t at, int64_t end) {
    while (at < end && (data[at] == ' ' || data[at] == '\n' || data[at] == '\r' || data[at] == '\t')) at++;
    return at;
}

/* Four hexadecimal digits; -1 when they are not. */
static int32_t hex4(const uint8_t *data, int64_t at, int64_t end) {
    int32_t value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = data[at + i], lower = c | 0x20;
        if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f') value = value * 16 + (lower - 'a' + 10);
        else return -1;
    }
    return value;
}

/* The position behind an escape whose backslash is before `at`. */
static int64_t escape_end(const uint8_t *data, int64_t at, int64_t end) {
    if (at >= end) return -1;
    if (data[at] != 'u') return data[at] && strchr("\"\\/bfnrt", data[at]) ? at + 1 : -1;
    int32_t code = hex4(data, at + 1, end);
    at += 5;
    if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF)) return -1;
    if (code < 0xD800 || code > 0xDBFF) return at;
    if (end - at < 6 || data[at] != '\\' || data[at + 1] != 'u') return -1;
    code = hex4(data, at + 2, end);
    return code >= 0xDC00 && code <= 0xDFFF ? at + 6 : -1;
}

/* The position behind the character of several bytes at `at`, -1 when it is no UTF-8. */
static int64_t character_end(const uint8_t *data, int64_t at, int64_t end) {
    uint8_t lead = data[at];
    int more = lead < 0xC2 || lead > 0xF4 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (!more || end - at <= more) return -1;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;  /* below lie forms that are too long */
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF; /* above lie surrogates and what Unicode lacks */
    if (data[at + 1] < low || data[at + 1] > high) return -1;
    for (int i = 2; i <= more; i++)
        if ((data[at + i] & 0xC0) != 0x80) return -1;
    return at + more + 1;
}

/* The position behind a string whose opening quote is before `at`; `plain` becomes 0 where it holds an escape. */
static int64_t string_end(const uint8_t *data, int64_t at, int64_t end, int *plain) {
    while (at < end) {
        uint8_t c = data[at++];
        if (c == '"') return at;
        if (c < 0x20) return -1;
        if (c == '\\') {
            *plain = 0;
            if ((at = escape_end(data, at, end)) < 0) return -1;
        } else if (c >= 0x80 && (at = character_end(data, at - 1, end)) < 0) {
            return -1;
        }
    }
    return -1;
}

static inline int64_t digits(const uint8_t *data, int64_t at, int64_t end) {
    int64_t from = at;
    while (at < end && data[at] >= '0' && data[at] <= '9') at++;
    return at > from ? at : -1;
}

static int64_t number_end(const uint8_t *data, int64_t at, int64_t end) {
    if (data[at] == '-') at++;
    int64_t from = at;
    if ((at = digits(data, at, end)) < 0 || (data[from] == '0' && at > from + 1)) return -1;
    if (at < end && data[at] == '.' && (at = digits(data, at + 1, end)) < 0) return -1;
    if (at < end && (data[at] == 'e' || data[at] == 'E')) {
        at++;
        if (at < end && (data[at] == '+' || data[at] == '-')) at++;
        from = at;
        if ((at = digits(data, at, end)) > from + EXPONENT_DIGITS_MAX) return -1;
    }
    return at;
}

static inline int64_t word_end(const uint8_t *data, int64_t at, int64_t end, const char *word, int64_t size) {
    return end - at >= size && memcmp(data + at, word, (size_t)size) == 0 ? at + size : -1;
}

/* The position behind the JSON value at `at`, -1 when there is none. */
static int64_t value_end(const uint8_t *data, int64_t at, int64_t end, int depth) {
    int plain;
    if (at >= end) return -1;
    uint8_t c = data[at];
    if (c == '"') return string_end(data, at + 1, end, &plain);
    if (c == 't') return word_end(data, at, end, "true", 4);
    if (c == 'f') return word_end(data, at, end, "false", 5);
    if (c == 'n') return word_end(data, at, end, "null", 4);
    if (c != '{' && c != '[') return c == '-' || (c >= '0' && c <= '9') ? number_end(data, at, end) : -1;
    if (depth >= DEPTH_MAX) return -1;
    uint8_t close = c == '{' ? '}' : ']';
    at = blanks(data, at + 1, end);
    if (at < end && data[at] == close) return at + 1;
    for (;;) {
        if (close == '}') {
            if (at >= end || data[at] != '"' || (at = string_end(data, at + 1, end, &plain)) < 0) return -1;
            at = blanks(data, at, end);
            if (at >= end || data[at] != ':') return -1;
            at = blanks(data, at + 1, end);
        }
        if ((at = value_end(data, at, end, depth + 1)) < 0) return -1;
        at = blanks(data, at, end);
        if (at >= end) return -1;
        if (data[at] == close) return at + 1;
        if (data[at] != ',') return -1;
        at = blanks(data, at + 1, end);
    }
}

/* Which of the names `data[at:end]` is, -1 for none of them; `names` lie one behind the other, `name_edge` cuts them. */
static inline int named(const uint8_t *data, int64_t at, int64_t end, const uint8_t *names, const int64_t *name_edge,
                        int64_t name_count) {
    for (int i = 0; i < name_count; i++)
        if (name_edge[i + 1] - name_edge[i] == end - at &&
            memcmp(data + at, names + name_edge[i], (size_t)(end - at)) == 0)
            return i;
    return -1;
}

/* Write the named members of the object in `data[at:end]`, and a line feed, to `out`; returns what was written or -1. */
static int64_t project_one(const uint8_t *data, int64_t at, int64_t end, const uint8_t *names, const int64_t *name_edge,
                           int64_t name_count, uint8_t *out) {
    int64_t written = 0;
    uint64_t seen = 0;
    at = blanks(data, at, end);
    if (at >= end || data[at] != '{') return -1;
    out[written++] = '{';
    at = blanks(data, at + 1, end);
    int empty = at < end && data[at] == '}';
    if (empty) at++;
    while (!empty) {
        int plain = 1;
        if (at >= end || data[at] != '"') return -1;
        int64_t name_at = at, name_end;
        if ((at = string_end(data, at + 1, end, &plain)) < 0 || !plain) return -1; /* "op" may be one of them */
        name_end = at;
        at = blanks(data, at, end);
        if (at >= end || data[at] != ':') return -1;
        int64_t value_at = blanks(data, at + 1, end);
        if ((at = value_end(data, value_at, end, 1)) < 0) return -1;
        int name = named(data, name_at + 1, name_end - 1, names, name_edge, name_count);
        if (name >= 0) {
            if (seen >> name & 1) return -1;
            if (seen) out[written++] = ',';
            seen |= (uint64_t)1 << name;
            memcpy(out + written, data + name_at, (size_t)(name_end - name_at));
            written += name_end - name_at;
            out[written++] = ':';
            memcpy(out + written, data + value_at, (size_t)(at - value_at));
            written += at - value_at;
        }
        at = blanks(data, at, end);
        if (at >= end) return -1;
        if (data[at] == '}') {
            at++;
            break;
        }
        if (data[at] != ',') return -1;
        at = blanks(data, at + 1, end);
    }
    if (blanks(data, at, end) != end) return -1;
    out[written++] = '}';
    out[written++] = '\n';
    return written;
}

/*
 * Reduce `count` documents to the members with the given names (64 at most), each followed by a line feed. `out` has a
 * byte of room for every byte of the documents and one for each document: nothing is added but the line feeds. Returns
 * what was written; -1 when a document is no JSON object, has a member twice or one whose name is written with escapes,
 * is nested deeper than the general reader follows, or holds a number that it may find too large.
 */
EXPORT int64_t tidemill_project(const uint8_t *data, const int32_t *edge, int64_t count, const uint8_t *names,
                                const int64_t *name_edge, int64_t name_count, uint8_t *out, int32_t *out_edge) {
    int64_t written = 0;
    out_edge[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t more = project_one(data, edge[i], edge[i + 1], names, name_edge, name_count, out + written);
        if (more < 0 || (written += more) > INT32_MAX) return -1;
        out_edge[i + 1] = (int32_t)written;
    }
    return written;
}
