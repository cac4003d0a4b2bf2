#include "comma_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

static const char source[] =
    "comment_char %\n"
    "escape_char /\n"
    "LC_NUMERIC\n"
    "decimal_point \"<U002C>\"\n"
    "thousands_sep \"\"\n"
    "grouping -1\n"
    "END LC_NUMERIC\n";

/* The other categories, which the source lacks, are warnings that localedef is forced past. */
bool comma_locale_set(void) {
    char dir[] = "/tmp/knet-locale-XXXXXX", path[64], command[256];
    if (!mkdtemp(dir)) fail_msg("no folder for the locale");
    snprintf(path, sizeof path, "%s/source", dir);
    FILE *file = fopen(path, "w");
    if (!file || fputs(source, file) < 0 || fclose(file) != 0) fail_msg("can't write %s", path);
    snprintf(command, sizeof command, "localedef -c -i %s '%s/comma' >/dev/null 2>&1", path, dir);
    bool is_set = system(command) >= 0 && setenv("LOCPATH", dir, 1) == 0 &&
                  setlocale(LC_NUMERIC, "comma") != NULL;
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
    if (is_set) assert_close(strtod("1,5", NULL), 1.5, 0, 0);
    return is_set;
}
