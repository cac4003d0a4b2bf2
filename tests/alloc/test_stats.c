/* Counters by name: one list makes the struct, the table and the JSON. And the files of reports. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <knet/observer.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool_fixture.h"

static const char *const NAMES[] = {
#define X(name, row, column, unit, text) #name,
    KN_POOL_STATS_LIST(X)
#undef X
};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

static void slurp(char *text, size_t bytes, const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
    remove(path);
}

/* A pool with something of everything. */
static fixture make(void) {
    fixture f = fixture_make(256 * MiB, false, &(kn_pool_options){.name = "a \"pool\""});
    kn_stream s = new_stream(&f);
    kn_tag_push("inputs");
    void *a = must_alloc(f.pool, 3 * MiB, s), *b = must_alloc(f.pool, 100, s), *none = NULL;
    kn_tag_pop();
    assert_ok(kn_block_use(f.pool, a, NULL));
    assert_ok(kn_free(f.pool, a));
    assert_int_equal(kn_alloc(&none, f.pool, GiB, s), KN_ERR_OOM);
    assert_int_equal(kn_free(f.pool, &none), KN_ERR_INVALID);
    (void)must_alloc(f.pool, 7 * MiB, NULL);
    (void)b;
    return f;
}

static void every_counter_is_read_by_its_name(void **state) {
    (void)state;
    fixture f = make();
    kn_pool_stats s = stats_of(f.pool);
    for (int i = 0; i < N_NAMES; i++) {
        uint64_t value = UINT64_MAX, want;
        assert_ok(kn_pool_stat(&value, f.pool, NAMES[i]));
        memcpy(&want, (char *)&s + (size_t)i * sizeof want, sizeof want);
        assert_int_equal(value, want);
    }
    assert_true(s.live_bytes && s.live_bytes_max && s.n_ooms == 1 && s.n_misuses == 1);
    uint64_t value = 77;
    assert_fails(kn_pool_stat(&value, f.pool, "live"), KN_ERR_INVALID,
                 "no counter is named \"live\"");
    assert_int_equal(value, 77);
    kn_pool_destroy(f.pool);
}

static void json_has_every_counter_class_stream_rung_and_tag(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX.json", text[32768];
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    fixture f = make();
    assert_ok(kn_pool_print(f.pool, path));
    slurp(text, sizeof text, path);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "pool")->valuestring, "a \"pool\"");
    for (int i = 0; i < N_NAMES; i++) {
        uint64_t value = 0;
        assert_ok(kn_pool_stat(&value, f.pool, NAMES[i]));
        const cJSON *item = cJSON_GetObjectItem(root, NAMES[i]);
        assert_true(cJSON_IsNumber(item) && item->valuedouble == (double)value);
    }
    const cJSON *class = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "classes"), 0);
    assert_int_equal(cJSON_GetObjectItem(class, "live")->valueint, 1);
    const cJSON *tag = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "tags"), 0);
    assert_string_equal(cJSON_GetObjectItem(tag, "name")->valuestring, "inputs");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "streams")), 2);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "ladder")), 11);
    assert_int_equal(cJSON_GetObjectItem(root, "graph_bytes")->valueint, 0);
    assert_int_equal(cJSON_GetObjectItem(root, "backing_bytes")->valueint, 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "soft_limit_bytes")));
    cJSON_Delete(root);
    kn_pool_destroy(f.pool);
}

static void names_send_no_control_characters_to_the_terminal(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX", text[32768];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    kn_device *device;
    kn_pool *pool;
    void *p;
    assert_ok(kn_device_find(&device, "sim"));
    assert_ok(kn_pool_create(&pool, device, &(kn_pool_options){.name = "a\x1b]0;b\a\nc"}));
    {
        KN_TAG("tag\x1b[31m\nx");
        assert_ok(kn_alloc(&p, pool, 5000, NULL));
    }
    assert_ok(kn_pool_print(pool, path));
    slurp(text, sizeof text, path);
    assert_null(strpbrk(text, "\x1b\a"));
    assert_non_null(strstr(text, "pool a?]0;b??c on sim"));
    assert_non_null(strstr(text, "  tag?[31m?x         ")); /* padded to the column */
    assert_ok(kn_free(pool, p));
    kn_pool_destroy(pool);
}

static void table_has_a_row_for_each(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX", text[32768];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    fixture f = make();
    assert_ok(kn_pool_print(f.pool, path));
    slurp(text, sizeof text, path);
    static const char *const ROWS[] = {
#define X(name, row, column, unit, text) "\n  " row " ",
        KN_POOL_STATS_LIST(X)
#undef X
            "pool a \"pool\" on sim",
        "\n  slots of ",
        "\n  256 ",
        "\n  stream ",
        "\n  0x10 ",
        "\n  ladder ",
        "\n  tag ",
        "\n  inputs ",
        "\n  free "};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (!strstr(text, ROWS[i])) fail_msg("no \"%s\" in\n%s", ROWS[i], text);
    }
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (end - line > 80) fail_msg("wider than 80 columns: %.*s", (int)(end - line), line);
    }
    assert_fails(kn_pool_print(f.pool, "/none/such"), KN_ERR_IO,
                 "kn_pool_print: cannot write /none/such");
    for (int i = 0; i < 2100; i++) memcpy(text + 2 * i, "./", 2);
    strcpy(text + 4200, "stats");
    assert_fails(kn_pool_print(f.pool, text), KN_ERR_IO, "File name too long");
    kn_pool_destroy(f.pool);
}

/* --- lists --- */

static uint32_t owner_of(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)stream;
    return (uint32_t)(size >> 12);
}

static bool name_of(uint32_t owner, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "layer %u", owner);
    return true;
}

static const kn_observer OBSERVER = {.on_alloc = owner_of, .owner_name = name_of};

static int occurrences(const char *text, const char *piece) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, piece)); at++) n++;
    return n;
}

static char text_of_json[1 << 18];

static cJSON *json_of(kn_status (*write_fn)(kn_pool *, const char *), kn_pool *pool) {
    char path[] = "/tmp/knet_stats_XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(write_fn(pool, path));
    slurp(text_of_json, sizeof text_of_json, path);
    cJSON *root = cJSON_Parse(text_of_json);
    if (!root) fail_msg("no JSON: %s", text_of_json);
    return root;
}

static int length_of(const cJSON *root, const char *name) {
    return cJSON_GetArraySize(cJSON_GetObjectItem(root, name));
}

/* 70 owners, each larger than the one before; the first 40 have a tag. */
static fixture make_owned(void) {
    fixture f = fixture_make(256 * MiB, false, NULL);
    assert_ok(kn_observer_attach(&OBSERVER));
    for (size_t i = 1; i <= 70; i++) {
        char tag[16] = "";
        if (i <= 40) snprintf(tag, sizeof tag, "tag %zu", i);
        KN_TAG(tag);
        (void)must_alloc(f.pool, i << 12, NULL);
    }
    return f;
}

static void the_largest_owners_and_tags_are_listed(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX", text[1 << 15];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    fixture f = make_owned();
    assert_ok(kn_pool_print(f.pool, path));
    slurp(text, sizeof text, path);
    assert_int_equal(occurrences(text, "\n  layer "), 8);
    assert_int_equal(occurrences(text, "\n  held by "), 1);
    cJSON *root = json_of(kn_pool_print, f.pool);
    assert_int_equal(length_of(root, "held_by"), 64);
    assert_int_equal(length_of(root, "tags"), 32);
    double last = 1e9;
    const cJSON *owner;
    cJSON_ArrayForEach(owner, cJSON_GetObjectItem(root, "held_by")) {
        double bytes = cJSON_GetObjectItem(owner, "bytes")->valuedouble;
        assert_true(bytes < last);
        last = bytes;
    }
    cJSON_Delete(root);
    assert_ok(kn_observer_attach(NULL));
    kn_pool_destroy(f.pool);
}

static void a_failed_allocation_names_the_eight_largest(void **state) {
    (void)state;
    fixture f = make_owned();
    void *none = NULL;
    cJSON *root = json_of(kn_pool_snapshot, f.pool);
    assert_null(cJSON_GetObjectItem(root, "last_oom"));
    assert_int_equal(occurrences(text_of_json, "\"owner\":\"layer "), 70); /* blocks and slots */
    assert_int_equal(occurrences(text_of_json, "\"tag\":\"tag "), 40);
    cJSON_Delete(root);
    assert_int_equal(kn_alloc(&none, f.pool, GiB, NULL), KN_ERR_OOM);
    assert_int_equal(occurrences(kn_last_error()->message, "layer "), 8);
    assert_int_equal(occurrences(kn_last_error()->message, "tag "), 8);
    root = json_of(kn_pool_oom_json, f.pool);
    assert_int_equal(length_of(root, "held_by"), 8);
    assert_int_equal(length_of(root, "tags"), 8);
    cJSON_Delete(root);
    root = json_of(kn_pool_snapshot, f.pool);
    assert_int_equal(length_of(cJSON_GetObjectItem(root, "last_oom"), "held_by"), 8);
    cJSON_Delete(root);
    assert_ok(kn_observer_attach(NULL));
    kn_pool_destroy(f.pool);
}

static void streams_that_ended_are_not_listed(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 1 * MiB, s), *b = must_alloc(f.pool, 1 * MiB, t);
    assert_ok(kn_free(f.pool, a));
    kn_stream_destroy(f.device, s);
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_trim(f.pool, 0));
    cJSON *root = json_of(kn_pool_print, f.pool);
    assert_int_equal(length_of(root, "streams"), 1);
    assert_true(cJSON_GetObjectItem(root, "shared_free_bytes")->valuedouble > 0);
    cJSON_Delete(root);
    kn_stream_destroy(f.device, t);
    root = json_of(kn_pool_print, f.pool); /* its block is live */
    const cJSON *stream = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "streams"), 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(stream, "retired")));
    cJSON_Delete(root);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* The program chooses names; they may be cut within a character. Bytes that are not UTF-8 are
 * replaced. */
static void names_of_any_bytes_are_valid_json(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX.json", text[32768], name[80] = "";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < 26; i++) strcat(name, "\xe2\x82\xac"); /* 78 bytes of euro signs: 63 fit */
    fixture f = fixture_make(16 * MiB, false, &(kn_pool_options){.name = "\xff\"\\\n\xc3("});
    KN_TAG(name + 1); /* begins and ends within a character */
    void *none = NULL;
    (void)must_alloc(f.pool, 1000, NULL);
    (void)must_alloc(f.pool, 1 * MiB, NULL);
    assert_int_equal(kn_alloc(&none, f.pool, GiB, NULL), KN_ERR_OOM);
    kn_status (*const writers[])(kn_pool *, const char *) = {kn_pool_print, kn_pool_snapshot,
                                                             kn_pool_oom_json};
    for (int i = 0; i < 3; i++) {
        assert_ok(writers[i](f.pool, path));
        slurp(text, sizeof text, path);
        cJSON *root = cJSON_Parse(text);
        assert_non_null(root);
        const char *read = cJSON_GetObjectItem(root, "pool")->valuestring;
        assert_string_equal(read, "\\xFF\"\\\n\\xC3(");
        assert_non_null(strstr(text, "\"\\\\x82\\\\xAC\xe2\x82\xac\xe2"));
        assert_non_null(strstr(text, "\xac\\\\xE2\""));
        cJSON_Delete(root);
    }
    kn_pool_destroy(f.pool);
}

/* --- files --- */

static kn_status (*const WRITERS[])(kn_pool *, const char *) = {kn_pool_print, kn_pool_print,
                                                                kn_pool_snapshot, kn_pool_oom_json};
static const char *const FILES[] = {"table", "stats.json", "snapshot", "oom"};
enum { N_WRITERS = 4 };

/* A pool whose reports are all longer than a page. */
static fixture make_large(void) {
    fixture f = fixture_make(256 * MiB, false, NULL);
    void *none = NULL;
    for (int i = 0; i < 70; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "a_tag_with_a_rather_long_name_of_its_own_%06d", i);
        KN_TAG(tag);
        (void)must_alloc(f.pool, 512 + 256 * (size_t)i, new_stream(&f));
        (void)must_alloc(f.pool, 100 * KiB, NULL);
    }
    assert_int_equal(kn_alloc(&none, f.pool, GiB, NULL), KN_ERR_OOM);
    return f;
}

typedef struct report {
    kn_pool *pool;
    kn_status (*write_fn)(kn_pool *pool, const char *path);
    const char *path;
    kn_status status;
    atomic_bool returned;
} report;

static void *write_report(void *ctx) {
    report *r = ctx;
    r->status = r->write_fn(r->pool, r->path);
    atomic_store(&r->returned, true);
    return NULL;
}

static bool is_whole(const char *text, const char *name) {
    if (strcmp(name, "table") == 0) return strstr(text, "\n  0x10 ") && strstr(text, "\n  tag ");
    cJSON *root = cJSON_Parse(text);
    cJSON_Delete(root);
    return root != NULL;
}

static void on_signal(int number) { (void)number; }

static void interrupt(pthread_t thread) {
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    for (int i = 0; i < 200; i++) {
        pthread_kill(thread, SIGUSR1);
        sched_yield();
    }
}

/* The file is a pipe of one page, which stays full until the allocation has returned. Signals do
 * not end the report. */
static void allocation_returns_while_a_report_is_written(void **state) {
    (void)state;
    static char text[1 << 18];
    char dir[] = "/tmp/knet_stats_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    fixture f = make_large();
    for (int i = 0; i < N_WRITERS; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
        int full = open(path, O_RDWR), n = 1;
        assert_true(full >= 0 && fcntl(full, F_SETPIPE_SZ, 4096) == 4096);
        report r = {.pool = f.pool, .write_fn = WRITERS[i], .path = path};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_report, &r), 0);
        assert_int_equal(read(full, text, 1), 1); /* it is being written */
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 3 * MiB, NULL)));
        interrupt(thread);
        assert_false(atomic_load(&r.returned));
        int fd = open(path, O_RDONLY);
        close(full);
        for (ssize_t more; (more = read(fd, text + n, sizeof text - 1 - (size_t)n)) > 0;) {
            n += (int)more;
        }
        close(fd);
        text[n] = '\0';
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(r.status, KN_OK);
        if (n <= 4097 || !is_whole(text, FILES[i])) fail_msg("%s: %d: %s", FILES[i], n, text);
        remove(path);
    }
    rmdir(dir);
    kn_pool_destroy(f.pool);
}

static void assert_file(const char *path, const char *want) {
    char text[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, want);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int n_files(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void a_full_disk_leaves_the_older_report(void **state) {
    (void)state;
    char dir[] = "/tmp/knet_stats_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    fixture f = make_large();
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < N_WRITERS; i++) {
        struct rlimit all, some;
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        write_file(path, "older");
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
        some = (struct rlimit){.rlim_cur = 1000, .rlim_max = all.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
        kn_status status = WRITERS[i](f.pool, path);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
        assert_int_equal(status, KN_ERR_IO);
        assert_non_null(strstr(kn_last_error()->message, ": File too large"));
        assert_non_null(strstr(kn_last_error()->message, path));
        assert_file(path, "older");
        assert_int_equal(n_files(dir), 1);
        remove(path);
    }
    signal(SIGXFSZ, SIG_DFL);
    rmdir(dir);
    kn_pool_destroy(f.pool);
}

/* The new file has the mode of the older one, which other users may not be allowed to read. */
static void a_report_replaces_an_older_one_atomically(void **state) {
    (void)state;
    char dir[] = "/tmp/knet_stats_XXXXXX", path[64], link[96], text[1 << 15];
    struct stat before, after;
    assert_non_null(mkdtemp(dir));
    fixture f = make();
    snprintf(path, sizeof path, "%s/stats.json", dir);
    snprintf(link, sizeof link, "%s.%d.tmp", path, (int)gettid());
    write_file(link, "a killed process left this");
    write_file(path, "older");
    assert_int_equal(chmod(path, 0640), 0);
    int old = open(path, O_RDONLY);
    assert_ok(kn_pool_print(f.pool, path));
    assert_int_equal(read(old, text, sizeof text), 5); /* the older one, as a reader has it */
    close(old);
    snprintf(link, sizeof link, "%s/link.json", dir);
    assert_true(stat(path, &before) == 0 && (before.st_mode & 0777) == 0640);
    assert_int_equal(symlink(path, link), 0);
    assert_ok(kn_pool_print(f.pool, link)); /* through a link: the file itself */
    assert_true(lstat(link, &after) == 0 && S_ISLNK(after.st_mode));
    assert_true(stat(path, &after) == 0 && after.st_size == before.st_size);
    assert_int_equal(after.st_mode & 0777, 0640);
    assert_int_equal(n_files(dir), 2);
    remove(link);
    slurp(text, sizeof text, path);
    assert_true(is_whole(text, "stats.json"));
    rmdir(dir);
    kn_pool_destroy(f.pool);
}

static size_t memory_in_use(void) {
    size_t n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_true(file && fscanf(file, "%zu", &n_pages) == 1);
    fclose(file);
    return n_pages * (size_t)getpagesize();
}

static void a_report_releases_its_memory(void **state) {
    (void)state;
    fixture f = make_large();
    assert_ok(kn_pool_snapshot(f.pool, "/dev/null"));
    size_t before = memory_in_use();
    for (int i = 0; i < 200; i++) assert_ok(kn_pool_snapshot(f.pool, "/dev/null"));
    assert_true(memory_in_use() < before + 4 * MiB);
    kn_pool_destroy(f.pool);
}

/* The program may read it through the descriptor with which it created the file. */
static void an_empty_file_is_written_in_place(void **state) {
    (void)state;
    char path[] = "/tmp/knet_stats_XXXXXX", text[1 << 15] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fixture f = make();
    assert_ok(kn_pool_print(f.pool, path));
    assert_true(read(fd, text, sizeof text - 1) > 100);
    assert_true(strncmp(text, "pool a ", 7) == 0);
    close(fd);
    remove(path);
    kn_pool_destroy(f.pool);
}

int main(void) {
    return RUN_TESTS(
        TEST(every_counter_is_read_by_its_name),
        TEST(json_has_every_counter_class_stream_rung_and_tag),
        TEST(names_send_no_control_characters_to_the_terminal), TEST(table_has_a_row_for_each),
        TEST(the_largest_owners_and_tags_are_listed),
        TEST(a_failed_allocation_names_the_eight_largest), TEST(streams_that_ended_are_not_listed),
        TEST(names_of_any_bytes_are_valid_json), TEST(allocation_returns_while_a_report_is_written),
        TEST(a_full_disk_leaves_the_older_report), TEST(a_report_replaces_an_older_one_atomically),
        TEST(a_report_releases_its_memory), TEST(an_empty_file_is_written_in_place));
}
