#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef enum when { AUTO, ALWAYS, NEVER } when;

const char *const kn__color_words[] = {
    [AUTO] = "auto", [ALWAYS] = "always", [NEVER] = "never", NULL};
static when color_when = AUTO;

void kn__color_set(const char *word) {
    for (int i = 0; kn__color_words[i]; i++) {
        if (strcmp(word, kn__color_words[i]) == 0) color_when = (when)i;
    }
}

bool kn__color_on(FILE *out) {
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if (color_when != AUTO) return color_when == ALWAYS;
    if ((none && *none) || !term || !*term || strcmp(term, "dumb") == 0) return false;
    return out && isatty(fileno(out));
}

const char *kn__style_text(kn__style style, bool color) {
    static const char *const texts[] = {
        [KN__STYLE_PLAIN] = "\033[0m",  [KN__STYLE_BOLD] = "\033[1m",
        [KN__STYLE_DIM] = "\033[2m",    [KN__STYLE_RED] = "\033[31m",
        [KN__STYLE_GREEN] = "\033[32m", [KN__STYLE_YELLOW] = "\033[33m"};
    return color ? texts[style] : "";
}

int kn__terminal_width(void) {
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Without a controlling terminal there is no background. */
bool kn__terminal_in_background(int fd) {
    pid_t foreground = tcgetpgrp(fd);
    return foreground > 0 && foreground != getpgrp();
}
