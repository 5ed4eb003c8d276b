/*
 * The kernel fed with damaged input under the address and the undefined behaviour sanitizer (`test_kernel.py`).
 *
 * The kernel's source is part of this program, and every array is allocated to the byte as `kernel.py` allocates it: what
 * is read or written outside ends the program. Usage: kernel_sanitized ROUNDS RECORDS DOCUMENT; the files are damaged
 * anew in every round, from a seed that is always the same.
 */

#include "../../spark_sink/kernel.c"

#include <stdio.h>
#include <stdlib.h>

#define RECORD_BYTES_MIN 7 /* as in columns.py */
#define RECORDS 6 /* in the file */
#define SPANS 3
#define DOCUMENTS 3

static uint64_t state = 88172645463325252u;

static uint64_t pick(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

static void *room(int64_t size) {
    void *found = malloc((size_t)size);
    if (!found && size) abort();
    return found;
}

static uint8_t *file(const char *path, int64_t *size) {
    FILE *from = fopen(path, "rb");
    if (!from || fseek(from, 0, SEEK_END)) exit(2);
    *size = ftell(from);
    rewind(from);
    uint8_t *data = room(*size);
    if (fread(data, 1, (size_t)*size, from) != (size_t)*size) exit(2);
    fclose(from);
    return data;
}

/* A copy of part of `seed` with a few bytes changed, moved or gone. */
static uint8_t *damaged(const uint8_t *seed, int64_t seed_size, int64_t *size) {
    static const uint8_t odd[] = "\0\1\2\x0E\x7F\x80\xBF\xC2\xE0\xED\xF4\xFF\"\\{}[]:,u0e-. \n";
    *size = pick(4) ? seed_size : (int64_t)pick((uint64_t)seed_size + 1);
    uint8_t *data = room(*size);
    memcpy(data, seed, (size_t)*size);
    for (uint64_t left = *size ? pick(5) : 0; left > 0; left--) {
        uint64_t at = pick((uint64_t)*size), length = pick((uint64_t)*size - at) % 32, from;
        switch (pick(5)) {
            case 0: data[at] ^= (uint8_t)(1 << pick(8)); break;
            case 1: data[at] = odd[pick(sizeof odd - 1)]; break;
            case 2: memset(data + at, data[at] | (pick(2) ? 0x80 : 0), length); break;
            case 3: memset(data + at, odd[pick(sizeof odd - 1)], length); break;
            default:
                from = pick((uint64_t)*size - length);
                memmove(data + at, data + from, length);
        }
    }
    return data;
}

static int64_t scan(const uint8_t *seed, int64_t seed_size) {
    int64_t size, counted = 0, cut[SPANS + 1];
    uint8_t *data = damaged(seed, seed_size, &size);
    span spans[SPANS];
    uint64_t many = 1 + pick(SPANS);
    cut[0] = 0;
    for (uint64_t i = 1; i < many; i++) cut[i] = cut[i - 1] + (int64_t)pick((uint64_t)(size - cut[i - 1] + 1));
    cut[many] = size;
    for (uint64_t i = 0; i < many; i++) {
        int64_t most = (cut[i + 1] - cut[i]) / RECORD_BYTES_MIN;
        int64_t count = pick(2) ? most : (int64_t)pick((uint64_t)most + 1);
        if (many == 1 && pick(2)) count = most < RECORDS ? most : RECORDS;
        int64_t base = pick(3) ? 100 : (int64_t)state;
        spans[i] = (span){cut[i], cut[i + 1], count, base, (int64_t)state, 5, (int64_t)pick(2)};
        counted += count;
    }
    int64_t words = counted * 8, edges = (counted + 1) * 4, bits = counted / 8 + 1, nulls[2];
    columns out = {room(words), room(words), room(counted * 4), room(words), room(words), room(edges), room(edges),
                   calloc(1, (size_t)bits), calloc(1, (size_t)bits), NULL, NULL};
    if (pick(2)) out.rest_at = room(words), out.rest_end = room(words);
    int64_t first = pick(2) ? INT64_MIN : 105, last = pick(2) ? INT64_MAX : 110;
    int64_t rows = tidemill_scan(data, spans, (int64_t)many, first, last, &out, nulls);
    if (rows >= 0) {
        uint8_t *keys = room(out.key_edge[rows]), *values = room(out.value_edge[rows]);
        tidemill_gather(data, out.key_at, out.key_edge, rows, keys);
        tidemill_gather(data, out.value_at, out.value_edge, rows, values);
        free(keys), free(values);
    }
    free(out.offset), free(out.timestamp), free(out.kind), free(out.key_at), free(out.value_at), free(out.key_edge);
    free(out.value_edge), free(out.key_bits), free(out.value_bits), free(out.rest_at), free(out.rest_end), free(data);
    return rows >= 0;
}

static int64_t project(const uint8_t *seed, int64_t seed_size) {
    static const int64_t name_edge[] = {0, 2, 8, 13, 14};
    int64_t size;
    uint8_t *data = damaged(seed, seed_size, &size);
    int64_t count = 1 + (int64_t)pick(DOCUMENTS);
    int32_t *edge = room((count + 1) * 4), *out_edge = room((count + 1) * 4);
    edge[0] = 0;
    for (int64_t i = 1; i < count; i++) edge[i] = pick(2) ? edge[i - 1] : (int32_t)pick((uint64_t)size + 1);
    for (int64_t i = 1; i < count; i++) edge[i] = edge[i] < edge[i - 1] ? edge[i - 1] : edge[i];
    edge[count] = (int32_t)size;
    int64_t from = pick(3) ? count - 1 : 0; /* a slice begins anywhere */
    int64_t bytes = edge[count] - edge[from] + count - from;
    uint8_t *out = room(bytes), *names = room(14);
    int64_t name_count = 3 + (int64_t)pick(2); /* with all four nothing is left out: no byte of room is to spare */
    memcpy(names, "opbeforeafterx", 14);
    int64_t written = tidemill_project(data, edge + from, count - from, names, name_edge, name_count, out, out_edge);
    if (written > bytes) abort();
    free(data), free(edge), free(out_edge), free(out), free(names);
    return written >= 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int64_t records_size, document_size, read = 0, reduced = 0, rounds = atoll(argv[1]);
    uint8_t *records = file(argv[2], &records_size), *document = file(argv[3], &document_size);
    for (int64_t i = 0; i < rounds; i++) {
        read += scan(records, records_size);
        reduced += project(document, document_size);
    }
    free(records), free(document);
    printf("%lld %lld %lld\n", (long long)rounds, (long long)read, (long long)reduced);
    return 0;
}
