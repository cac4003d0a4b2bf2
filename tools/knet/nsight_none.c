/* In place of nsight.c, where this is built without SQLite. */
#include "nsight.h"

kn_status kn__nsight_read(kn__report *out, const char *path) {
    kn__report_init(out);
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "%s: this program was built without SQLite (Debian: libsqlite3-dev), which "
                   "reads exports of Nsight Systems",
                   path);
}
