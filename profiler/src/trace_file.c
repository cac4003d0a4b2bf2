#include "trace_file.h"

/* An event takes as many bytes, most take less. */
enum { OUT_BYTES = 1 << 16, EVENT_BYTES = 512 };

/* With the file's end, which always has room. */
static uint64_t bytes_of(const kn__trace_file *f) {
    return f->bytes + f->writer.out.length + KN__TRACE_TAIL_BYTES +
           kn__trace_notes_bytes(f->writer.notes);
}

/* Those of a file that is full had to fit. */
static void read_notes(kn__trace_file *f) {
    if (!f->is_full) f->writer.notes = kn__notes_read(f->notes) ? f->notes : NULL;
}

/* Beyond the bound, or after a failure, the text is dropped: what comes after may build on it. */
void kn__trace_file_flush(kn__trace_file *f) {
    kn__text *out = &f->writer.out;
    if (f->is_full || f->error || out->failed) {
        f->n_skipped += f->n_put;
    } else {
        f->error = kn__kept_file_write(&f->to, out->data, out->length);
        f->bytes += out->length;
    }
    out->length = f->n_put = 0;
}

void kn__trace_file_start(kn__trace_file *f, uint64_t bytes_max) {
    f->bytes = f->n_put = f->n_skipped = 0;
    f->error = 0;
    f->is_full = false;
    f->writer.notes = NULL;
    f->writer.format->start(&f->writer);
    kn__trace_file_flush(f);
    f->bytes_max = bytes_max;
}

/* n events were put after the first `before` bytes of the text. Beyond the bound these bytes are
 * the last ones that are written. */
static void count_put(kn__trace_file *f, size_t before, size_t n) {
    if (bytes_of(f) > f->bytes_max && !f->is_full) {
        f->writer.out.length = before;
        kn__trace_file_flush(f);
        f->is_full = true;
    }
    f->n_put += n;
}

/* How many events are put at once: so many that they fit. Near the bound one, which may not fit.
 * Samples of one moment stay together. */
static size_t batch_of(const kn__trace_file *f, const kn__trace_event *e, size_t n) {
    uint64_t bytes = bytes_of(f), fit = bytes < f->bytes_max ? f->bytes_max - bytes : 0;
    fit /= EVENT_BYTES;
    size_t k = fit < 1 ? 1 : fit < n ? (size_t)fit : n;
    while (k < n && e[k].start == e[k - 1].start && kn__trace_counter_of(&e[k])) k++;
    return k;
}

void kn__trace_file_events(kn__trace_file *f, kn__trace_thread *thread, const kn__trace_event *e,
                           size_t n) {
    read_notes(f);
    for (size_t k; n; e += k, n -= k) {
        size_t before = f->writer.out.length;
        k = f->is_full ? n : batch_of(f, e, n);
        f->writer.format->events(&f->writer, thread, e, k);
        count_put(f, before, k);
    }
    kn__trace_file_flush(f);
}

void kn__trace_file_record(kn__trace_file *f, const kn__record *record, uint32_t launch) {
    size_t before = f->writer.out.length;
    kn__trace_put_record(&f->writer, record, launch);
    count_put(f, before, 1);
    if (f->writer.out.length >= OUT_BYTES) kn__trace_file_flush(f);
}

void kn__trace_file_end(kn__trace_file *f, uint64_t n_skipped) {
    kn__trace_file_flush(f);
    read_notes(f);
    if (bytes_of(f) > f->bytes_max) f->writer.notes = NULL;
    f->is_full = false;
    kn__trace_end(&f->writer, n_skipped);
    kn__trace_file_flush(f);
    kn__text_release(&f->writer.out);
}
