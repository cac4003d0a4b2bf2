/* The values of reports, as JSON or as tables. Text is made under a pool's lock, files are written
 * without: a disk may be slow, and a pipe without a reader. */
#ifndef KN_ALLOC_WRITER_H
#define KN_ALLOC_WRITER_H

#include "text.h"

typedef struct kn__writer {
    kn__text text;
    bool json;            /* lists and counters are written as JSON, not as tables */
    const char *headings; /* of a table, until its first row */
} kn__writer;

kn__writer kn__writer_of(char *buffer, size_t bytes);
/* Its memory does not come from malloc, which may wait for the pool whose lock is held. */
kn__writer kn__writer_paged(bool json);
/* Writes the text to a file and releases the pages; call it with no lock of a pool held. "-" is
 * stderr; paths and files as in file.h; `append` adds to the file. Errors: OOM when the text is not
 * complete, IO; both name the path and the function called. */
KN_MUST_CHECK kn_status kn__writer_save(kn__writer *w, const char *path, bool append,
                                        const char *function);

void kn__write_text(kn__writer *w, const char *text);
void kn__write(kn__writer *w, const char *fmt, ...) KN_PRINTF(2, 3);

/* Each value has a name. In JSON it is a member of the object that is open, or with no name an
 * element of the array; otherwise it is a cell of a table's row. */

typedef enum kn__unit {
    KN__COUNT,
    KN__BYTES,
    KN__NS,     /* in the table, ms */
    KN__KEY,    /* a count, as the first cell */
    KN__HANDLE, /* as the first cell */
} kn__unit;

void kn__add(kn__writer *w, const char *name, kn__unit unit, uint64_t value); /* UINT64_MAX: null */
void kn__add_flag(kn__writer *w, const char *name, bool set);
/* In JSON a byte that is not UTF-8 becomes "\xE9", its value. `width` of the table's first cell. */
void kn__add_text(kn__writer *w, const char *name, int width, const char *text);
/* An array or object of JSON, with the brackets given; an object is a row of the table. */
void kn__open(kn__writer *w, const char *name, const char *bracket);
void kn__close(kn__writer *w, const char *bracket);
/* An array; a table, with headings before its first row. */
void kn__open_list(kn__writer *w, const char *name, const char *headings);

#endif
