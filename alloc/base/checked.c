#include "checked.h"

#include "file.h"
#include "text.h"

/* Locks may be held, and the heap may be broken: on the stack, in one write. */
void kn__assert_failed(const char *condition, const char *file, int line, const char *function) {
    char buffer[512];
    kn__text text = kn__text_in(buffer, sizeof buffer);
    kn__text_printf(&text, "%s:%d: %s: assertion failed: %s\n", file, line, function, condition);
    (void)kn__stderr_write(text.data, text.length);
    __builtin_trap();
}
