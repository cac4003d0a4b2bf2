/* The file of a trace: its text, written up to a bound. */
#ifndef KN_PROFILER_TRACE_FILE_H
#define KN_PROFILER_TRACE_FILE_H

#include "kept_file.h"
#include "run_info.h"
#include "trace_format.h"

typedef struct kn__trace_file {
    kn__trace_writer writer; /* format, clock and pid are the caller's */
    kn__kept_file to;
    int error;    /* errno of the first write that failed */
    bool is_full; /* the bound was reached: only the end of the file is written */
    uint64_t bytes, bytes_max;
    uint64_t n_put, n_skipped;   /* events: in the writer's text, and not in the file */
    char notes[KN__NOTES_BYTES]; /* of the run, as they were last read */
} kn__trace_file;

/* Begins the file `to`. The head of a trace is written whatever the bound. */
void kn__trace_file_start(kn__trace_file *f, uint64_t bytes_max);
/* Adds events of a thread, or a piece of GPU work; of these those that fit. */
void kn__trace_file_events(kn__trace_file *f, kn__trace_thread *thread, const kn__trace_event *e,
                           size_t n);
void kn__trace_file_record(kn__trace_file *f, const kn__record *record, uint32_t launch);
/* Writes the events added so far. */
void kn__trace_file_flush(kn__trace_file *f);
/* Writes the end, with the run's notes, if there is room, and the number of all events that the
 * file lacks, and frees the text; the file stays open. */
void kn__trace_file_end(kn__trace_file *f, uint64_t n_skipped);

#endif
