#include "profile.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "nsight.h"
#include "read.h"
#include "text.h"

static kn_status read_bytes(kn__text *out, kn__input *in) {
    for (;;) {
        const unsigned char *bytes;
        size_t n;
        KN_TRY(kn__input_peek(&bytes, &n, in, sizeof in->buffer));
        if (n == 0) return KN_OK;
        if (out->length + n > KN__READ_BYTES_MAX)
            return KN_FAIL(KN_ERR_FORMAT, "%s is larger than any profile: more than %d MiB",
                           in->name, KN__READ_BYTES_MAX >> 20);
        kn__text_add(out, (const char *)bytes, n);
        if (out->failed) return KN_FAIL(KN_ERR_OOM, "no memory to read %s", in->name);
        KN_TRY(kn__input_read(in, NULL, n));
    }
}

/* By its first bytes; the file itself is read by SQLite. */
static kn_status read_any(kn__report *out, kn__text *text, kn__input *in, const char *path) {
    const unsigned char *bytes;
    size_t n;
    KN_TRY(kn__input_peek(&bytes, &n, in, sizeof KN__NSIGHT_MAGIC));
    if (n >= sizeof KN__NSIGHT_MAGIC &&
        memcmp(bytes, KN__NSIGHT_MAGIC, sizeof KN__NSIGHT_MAGIC) == 0)
        return kn__nsight_read(out, path);
    KN_TRY(read_bytes(text, in));
    return kn__report_parse(out, in->name, text->data ? text->data : "", text->length);
}

kn_status kn__profile_read(kn__report *out, const char *path) {
    kn__text text = {0};
    kn__report_init(out);
    kn__input *in = malloc(sizeof *in);
    if (!in) return KN_FAIL(KN_ERR_OOM, "no memory to read %s", kn__input_name(path));
    kn_status status = kn__input_open(in, path);
    if (status == KN_OK) status = read_any(out, &text, in, path);
    kn__text_release(&text);
    kn__input_close(in);
    free(in);
    return status;
}

kn_status kn__profile_parse(kn__report *out, const char *name, const char *text, size_t n) {
    return kn__report_parse(out, name, text, n);
}
