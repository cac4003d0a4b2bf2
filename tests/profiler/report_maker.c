#include "report_maker.h"

#include "test.h"

static const kn__row *find_under(const kn__row *parent, const char *path) {
    size_t length = strcspn(path, "/");
    for (const kn__row *row = parent->first; row; row = row->next) {
        if (strlen(row->label) != length || memcmp(row->label, path, length) != 0) continue;
        return path[length] ? find_under(row, path + length + 1) : row;
    }
    return NULL;
}

const kn__row *find_row(const kn__report *report, const char *path) {
    return find_under(&report->root, path);
}

kn__row *add_row(kn__report *report, kn__row *parent, const char *label, uint64_t n_calls,
                 uint64_t time_ns, uint64_t alloc_bytes) {
    kn__row *row = kn__report_row(report, parent ? parent : &report->root, label);
    assert_non_null(row);
    row->n_calls += n_calls;
    row->time_ns += time_ns;
    row->alloc_bytes += alloc_bytes;
    row->n_allocs += alloc_bytes > 0;
    return row;
}

void take_report(kn__report *out) {
    uint64_t now = kn__clock_now();
    assert_ok(kn__report_take(out, now, kn__clock_tick_ns()));
}
