#include "inspect/writer.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "c_locale.h"
#include "file.h"
#include "units.h"

kn__writer kn__writer_of(char *buffer, size_t bytes) {
    return (kn__writer){.text = kn__text_in(buffer, bytes)};
}

kn__writer kn__writer_paged(bool json) {
    return (kn__writer){.text.room = KN__TEXT_PAGES, .json = json};
}

void kn__write_text(kn__writer *w, const char *text) { kn__text_puts(&w->text, text); }

void kn__write(kn__writer *w, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    locale_t before = kn__c_locale_enter();
    vsnprintf(text, sizeof text, fmt, args);
    kn__c_locale_leave(before);
    va_end(args);
    kn__text_puts(&w->text, text);
}

/* In JSON: the comma before it and its name. */
static bool begin_value(kn__writer *w, const char *name) {
    char last = w->text.length ? w->text.data[w->text.length - 1] : '\n';
    if (!w->json) return false;
    if (last != '{' && last != '[' && last != '\n') kn__write_text(w, ",");
    if (name) kn__write(w, "\"%s\":", name);
    return true;
}

void kn__add(kn__writer *w, const char *name, kn__unit unit, uint64_t value) {
    static const char *const cells[] = {
        [KN__COUNT] = " %12llu", [KN__KEY] = "  %-18llu", [KN__HANDLE] = "  0x%-16llx"};
    if (begin_value(w, name)) {
        kn__write(w, value == UINT64_MAX ? "null" : "%llu", (unsigned long long)value);
    } else if (unit == KN__BYTES) {
        kn__write(w, " %12s", kn__bytes_text((double)value).text);
    } else if (unit == KN__NS) {
        kn__write(w, " %12.3f", (double)value / 1e6);
    } else {
        kn__write(w, cells[unit], (unsigned long long)value);
    }
}

void kn__add_flag(kn__writer *w, const char *name, bool set) {
    if (begin_value(w, name)) {
        kn__write_text(w, set ? "true" : "false");
    } else if (set) {
        kn__write(w, "  %s", name);
    }
}

void kn__add_text(kn__writer *w, const char *name, int width, const char *text) {
    if (begin_value(w, name)) {
        kn__text_json(&w->text, text);
    } else {
        kn__write_text(w, "  ");
        kn__text_repeat(&w->text, " ", width - kn__text_shown(&w->text, text, INT_MAX));
    }
}

void kn__open(kn__writer *w, const char *name, const char *bracket) {
    if (begin_value(w, name)) {
        kn__write_text(w, bracket);
    } else if (*bracket == '{' && w->headings) {
        kn__write_text(w, w->headings);
        w->headings = NULL;
    }
}

void kn__open_list(kn__writer *w, const char *name, const char *headings) {
    w->headings = headings;
    kn__open(w, name, "[");
}

void kn__close(kn__writer *w, const char *bracket) {
    kn__write_text(w, w->json ? bracket : *bracket == '}' ? "\n" : "");
}

/* Returns 0 or an errno. */
static int save(const kn__text *text, const char *path, bool append) {
    char target[KN__PATH_EXPANDED_BYTES];
    if (strcmp(path, "-") == 0) return kn__stderr_write(text->data, text->length);
    if (!kn__path_expand(target, sizeof target, path)) return ENAMETOOLONG;
    return append ? kn__file_append(target, text->data, text->length)
                  : kn__file_write(target, text->data, text->length);
}

kn_status kn__writer_save(kn__writer *w, const char *path, bool append, const char *function) {
    if (!path || !*path) {
        kn__text_release(&w->text);
        return KN_FAIL(KN_ERR_INVALID, "%s: the path is %s", function, path ? "empty" : "NULL");
    }
    bool cut = w->text.failed;
    int error = cut ? ENOMEM : save(&w->text, path, append);
    kn__text_release(&w->text);
    if (!error) return KN_OK;
    return KN_FAIL(cut ? KN_ERR_OOM : KN_ERR_IO, "%s: cannot write %.1000s: %s", function, path,
                   strerror(error));
}
