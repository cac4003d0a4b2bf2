#include "nsight.h"

#include <ctype.h>
#include <sqlite3.h>
#include <string.h>

#include "timeline.h"

/* The file that is read, and the first thing that is wrong. */
typedef struct reader {
    sqlite3 *db;
    const char *path;
    kn__timeline *line;
    int n_tables; /* of those below that the file has */
} reader;

/* Adds a row of a query. */
typedef kn_status (*row_fn)(reader *r, sqlite3_stmt *row);

static kn_status fail(const reader *r) {
    if (sqlite3_errcode(r->db) == SQLITE_NOMEM)
        return KN_FAIL(KN_ERR_OOM, "no memory to read %s", r->path);
    return KN_FAIL(KN_ERR_FORMAT, "%s is damaged, or no export of Nsight Systems: %s", r->path,
                   sqlite3_errmsg(r->db));
}

/* Threads and processes are parts of one number: the process in bits 24 to 47. */
static int64_t pid_of(int64_t global) { return global >> 24 & 0xffffff; }
static int64_t tid_of(int64_t global) { return global & 0xffffff; }

static uint64_t number(sqlite3_stmt *row, int column) {
    int64_t value = sqlite3_column_int64(row, column);
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text(sqlite3_stmt *row, int column) {
    const char *found = (const char *)sqlite3_column_text(row, column);
    return found ? found : "(unnamed)";
}

/* Correlation ids count in each process. */
static uint64_t launch_of(uint64_t correlation, int64_t global) {
    return correlation ? (uint64_t)pid_of(global) << 32 | correlation : 0;
}

static kn_status add_range(reader *r, sqlite3_stmt *row) {
    int64_t thread = sqlite3_column_int64(row, 0);
    return kn__timeline_span(r->line,
                             kn__timeline_thread_of(r->line, pid_of(thread), tid_of(thread)),
                             text(row, 3), NULL, number(row, 1), number(row, 2));
}

/* "cudaLaunchKernel_v7000" is of that version of the interface. */
static void without_version(char *out, size_t out_bytes, const char *name) {
    size_t n = strlen(name), end = n;
    while (end > 2 && isdigit((unsigned char)name[end - 1])) end--;
    if (end < n && name[end - 1] == 'v' && name[end - 2] == '_') n = end - 2;
    if (n >= out_bytes) n = out_bytes - 1;
    memcpy(out, name, n);
    out[n] = '\0';
}

static kn_status add_call(reader *r, sqlite3_stmt *row) {
    char name[256];
    int64_t global = sqlite3_column_int64(row, 0);
    uint32_t thread = kn__timeline_thread_of(r->line, pid_of(global), tid_of(global));
    uint64_t id = launch_of(number(row, 4), global);
    without_version(name, sizeof name, text(row, 3));
    KN_TRY(kn__timeline_span(r->line, thread, name, NULL, number(row, 1), number(row, 2)));
    return id ? kn__timeline_launch(r->line, thread, id, number(row, 1)) : KN_OK;
}

static kn_status add_work(reader *r, sqlite3_stmt *row) {
    kn__record record = {.name = text(row, 5),
                         .start_ns = number(row, 1),
                         .end_ns = number(row, 2),
                         .device = (uint32_t)number(row, 3),
                         .stream = (uint32_t)number(row, 4),
                         .id = (uint32_t)number(row, 6),
                         .bytes = number(row, 7),
                         .registers = (uint32_t)number(row, 8),
                         .shared_bytes = (uint32_t)number(row, 9)};
    for (int i = 0; i < 3; i++) {
        record.grid[i] = (uint32_t)number(row, 10 + i);
        record.block[i] = (uint32_t)number(row, 13 + i);
    }
    return kn__timeline_work(r->line, &record,
                             launch_of(number(row, 6), sqlite3_column_int64(row, 0)));
}

static kn_status add_name(reader *r, sqlite3_stmt *row) {
    int64_t global = sqlite3_column_int64(row, 0);
    return kn__timeline_name_thread(
        r->line, kn__timeline_thread_of(r->line, pid_of(global), tid_of(global)), text(row, 1));
}

/* The fields read of each table, in the order of its function's columns. Ranges that were pushed
 * are of kind 59, those that were started of kind 60; one without an end is left out. */
static const struct {
    const char *table, *query;
    row_fn add;
} parts[] = {
    {"NVTX_EVENTS",
     "SELECT globalTid, start, end, coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
     " FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NOT NULL",
     add_range},
    {"CUPTI_ACTIVITY_KIND_RUNTIME",
     "SELECT globalTid, start, end, (SELECT value FROM StringIds WHERE id = nameId), correlationId"
     " FROM CUPTI_ACTIVITY_KIND_RUNTIME",
     add_call},
    {"CUPTI_ACTIVITY_KIND_KERNEL",
     "SELECT globalPid, start, end, deviceId, streamId,"
     " (SELECT value FROM StringIds WHERE id = demangledName), correlationId, 0,"
     " registersPerThread, staticSharedMemory + dynamicSharedMemory, gridX, gridY, gridZ, blockX,"
     " blockY, blockZ FROM CUPTI_ACTIVITY_KIND_KERNEL",
     add_work},
    {"CUPTI_ACTIVITY_KIND_MEMCPY",
     "SELECT globalPid, start, end, deviceId, streamId, '[memcpy ' || CASE copyKind"
     " WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 8 THEN 'DtoD' WHEN 10 THEN 'PtoP'"
     " ELSE 'kind ' || copyKind END || ']', correlationId, bytes"
     " FROM CUPTI_ACTIVITY_KIND_MEMCPY",
     add_work},
    {"CUPTI_ACTIVITY_KIND_MEMSET",
     "SELECT globalPid, start, end, deviceId, streamId, '[memset]', correlationId, bytes"
     " FROM CUPTI_ACTIVITY_KIND_MEMSET",
     add_work},
    {"ThreadNames",
     "SELECT globalTid, (SELECT value FROM StringIds WHERE id = nameId) FROM ThreadNames",
     add_name},
};

static kn_status run_query(reader *r, const char *query, row_fn add) {
    sqlite3_stmt *row = NULL;
    if (sqlite3_prepare_v2(r->db, query, -1, &row, NULL) != SQLITE_OK) return fail(r);
    kn_status status = KN_OK;
    int code;
    while ((code = sqlite3_step(row)) == SQLITE_ROW && status >= 0) status = add(r, row);
    if (status >= 0 && code != SQLITE_DONE) status = fail(r);
    sqlite3_finalize(row);
    return status;
}

static kn_status count_table(reader *r, sqlite3_stmt *row) {
    (void)row;
    r->n_tables++;
    return KN_OK;
}

/* Tables that had nothing to keep are not in the file. */
static kn_status read_part(reader *r, const char *table, const char *query, row_fn add) {
    char exists[160] = "";
    kn__text sql = kn__text_in(exists, sizeof exists);
    kn__text_printf(&sql, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '%s'",
                    table);
    int before = r->n_tables;
    KN_TRY(run_query(r, exists, count_table));
    return r->n_tables > before ? run_query(r, query, add) : KN_OK;
}

static kn_status read_all(reader *r) {
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        KN_TRY(read_part(r, parts[i].table, parts[i].query, parts[i].add));
    }
    if (!r->line->spans.n && !r->line->works.n)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s has no NVTX ranges and no GPU work of Nsight Systems: export it with "
                       "nsys export --type sqlite, of a run with --trace=cuda,nvtx",
                       r->path);
    return kn__timeline_report(r->line);
}

kn_status kn__nsight_read(kn__report *out, const char *path) {
    kn__report_init(out);
    reader r = {.path = path, .line = kn__timeline_make(out)};
    if (!r.line) return KN_FAIL(KN_ERR_OOM, "no memory to read %s", path);
    r.line->source = "nsight";
    kn_status status;
    if (strcmp(path, "-") == 0) {
        status = KN_FAIL(KN_ERR_UNSUPPORTED,
                         "an export of Nsight Systems can't be read from "
                         "standard input: name the file");
    } else if (sqlite3_open_v2(path, &r.db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        status = fail(&r);
    } else {
        status = read_all(&r);
    }
    sqlite3_close(r.db);
    return status;
}
