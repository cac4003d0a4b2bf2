/* Counters by name: the struct, the table and the JSON are made from one list. */
#include <cjson/cJSON.h>
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
    assert_fails(kn_pool_print(f.pool, "/none/such"), KN_ERR_IO,
                 "kn_pool_print: /none/such can't be written");
    kn_pool_destroy(f.pool);
}

/* Names are the program's, cut where they are too long: what is no UTF-8 is replaced. */
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
        assert_string_equal(read, "\xef\xbf\xbd\"\\\n\xef\xbf\xbd("); /* U+FFFD */
        assert_non_null(strstr(text, "\"\\ufffd\\ufffd\xe2\x82\xac\xe2"));
        assert_non_null(strstr(text, "\xac\\ufffd\""));
        cJSON_Delete(root);
    }
    kn_pool_destroy(f.pool);
}

int main(void) {
    return RUN_TESTS(TEST(every_counter_is_read_by_its_name),
                     TEST(json_has_every_counter_class_stream_rung_and_tag),
                     TEST(table_has_a_row_for_each), TEST(names_of_any_bytes_are_valid_json));
}
