/* The page through which another program, `knet top`, asks a timed program for its report.
 *
 * It is a memfd of the timed program, of the name KN__LIVE_NAME; a reader of the same user opens it
 * through /proc/PID/fd. A reader adds one to `asked` and wakes the program's thread, which writes a
 * report as JSON behind the page and then sets `answered`. Without a request the thread sleeps.
 * The file's size never changes, and its pages take memory only once they are written. */
#ifndef KN_REPORT_LIVE_PAGE_H
#define KN_REPORT_LIVE_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define KN__LIVE_NAME "knet-live"
enum { KN__LIVE_VERSION = 2, KN__LIVE_TEXT_AT = 4096, KN__LIVE_BYTES = 64 << 20 };
static const char kn__live_magic[8] = {'K', 'N', 'E', 'T', 'L', 'I', 'V', 'E'};

typedef struct kn__live_page {
    char magic[8];
    _Atomic(uint32_t) version;         /* written last: the page is whole */
    uint32_t pid;                      /* a child of fork() has its parent's page */
    _Atomic(uint32_t) thread;          /* the one that answers; 0: it has not run yet */
    _Atomic(uint32_t) asked;           /* a futex, as the next */
    _Atomic(uint32_t) answered;        /* the value of `asked` that the report answers */
    _Atomic(uint32_t) ended;           /* no answer comes any more */
    _Atomic(uint32_t) version_of_text; /* odd while the text is being written */
    _Atomic(uint64_t) length;          /* of the text; 0: no memory for it, or no room here */
} kn__live_page;

#endif
