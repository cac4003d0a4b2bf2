#include "outcome.h"

#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static void read_all(FILE *file, char *out, size_t size) {
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

void run_child(outcome *o, const char *const *argv, void (*prepare)(const void *ctx),
               const void *ctx) {
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        if (prepare) prepare(ctx);
        execv(argv[0], (char *const *)argv);
        _exit(97);
    }
    int status = 0;
    waitpid(child, &status, 0);
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    read_all(out, o->out, sizeof o->out);
    read_all(err, o->err, sizeof o->err);
}

void set_variable(const char *name, const char *value) {
    value ? setenv(name, value, 1) : unsetenv(name);
}

void relax_sanitizer(void) {
    const char *old = getenv("ASAN_OPTIONS");
    char options[512];
    snprintf(options, sizeof options, "%s:detect_leaks=0:verify_asan_link_order=0", old ? old : "");
    setenv("ASAN_OPTIONS", options, 1);
}

const char *read_file(const char *path) {
    static char text[64 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    read_all(file, text, sizeof text);
    return text;
}

void copy_file(const char *to, const char *from) {
    char command[8192];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

void assert_row(const char *table, const char *label, const char *n_calls) {
    const char *line = strstr(table, label);
    if (!line) fail_msg("no row \"%s\" in\n%s", label, table);
    char count[16] = "";
    sscanf(line + strlen(label), " %15s", count);
    assert_string_equal(count, n_calls);
}

double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

const cJSON *nth(const cJSON *object, const char *list, int i) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(object, list), i);
}

static const cJSON *find_child(const cJSON *row, const char *label) {
    const cJSON *item, *list = cJSON_GetObjectItem(row, "scopes");
    if (!list) list = cJSON_GetObjectItem(row, "children");
    cJSON_ArrayForEach(item, list) {
        if (strcmp(cJSON_GetObjectItem(item, "label")->valuestring, label) == 0) return item;
    }
    return NULL;
}

bool has_child(const cJSON *row, const char *label) { return find_child(row, label) != NULL; }

const cJSON *row_at(const cJSON *row, const char *labels) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", labels);
    for (char *rest = NULL, *label = strtok_r(copy, "/", &rest); label;
         label = strtok_r(NULL, "/", &rest)) {
        row = find_child(row, label);
        if (!row) fail_msg("no row %s of %s", label, labels);
    }
    return row;
}
