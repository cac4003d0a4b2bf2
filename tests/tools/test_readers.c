/* Tables, texts, reviews: files, good and bad. The argument is the folder of imdb.npz. */
#include <knet/data.h>
#include <locale.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comma_locale.h"
#include "files_dir.h"
#include "test.h"

static const char *data_folder;
static char path[2 * FILES_PATH_MAX];

static const char *file(const char *name, const char *text) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    files_write(dir, name, text, strlen(text), true);
    return path;
}

/* The samples of a set in order, as one batch. */
static kn_loader *all_of(kn_batch *b, kn_dataset *data) {
    kn_loader *loader = NULL;
    assert_ok(kn_loader_create_from(
        &loader, data, &(kn_loader_options){.batch = kn_dataset_size(data), .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, b));
    return loader;
}

static void assert_floats(kn_tensor *t, const float *want, int n) {
    assert_int_equal(kn_tensor_numel(t), n);
    assert_memory_equal(kn_data(t), want, (size_t)n * sizeof *want);
}
static void assert_integers(kn_tensor *t, const int64_t *want, int n) {
    assert_int_equal(kn_tensor_numel(t), n);
    assert_memory_equal(kn_data(t), want, (size_t)n * sizeof *want);
}

/* --- tables --- */

static void a_table_has_numbers_and_named_classes(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    assert_ok(kn_dataset_read_csv(
        &data, file("a.csv", "w, h,kind\r\n1.5,-2,cat\n\n\"3\",4e1, \"dog\"\n5, 6 ,cat"), NULL));
    assert_int_equal(kn_dataset_size(data), 3);
    assert_string_equal(kn_dataset_class_name(data, 1), "cat");
    kn_loader *loader = all_of(&b, data);
    assert_floats(b.x, (float[]){1.5f, -2, 3, 40, 5, 6}, 6);
    assert_integers(b.y, (int64_t[]){1, 0, 1}, 3);
    kn_loader_destroy(loader);
}

static void classes_that_are_numbers_are_in_their_order(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    const kn_csv_options o = {.delimiter = ';', .target = 1};
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", "10;1\n9;2\n-1;3\n9;4\n"), &o));
    assert_string_equal(kn_dataset_class_name(data, 0), "-1");
    assert_null(kn_dataset_class_name(data, 3));
    kn_loader *loader = all_of(&b, data);
    assert_floats(b.x, (float[]){1, 2, 3, 4}, 4);
    assert_integers(b.y, (int64_t[]){2, 1, 0, 1}, 4);
    kn_loader_destroy(loader);
}

static void spellings_of_one_class_are_one_class(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", "1,0\n2, 0\n3,00\n4,2.0\n5,2\n"), NULL));
    assert_int_equal(kn_dataset_classes(data), 2);
    assert_string_equal(kn_dataset_class_name(data, 0), "0");
    assert_string_equal(kn_dataset_class_name(data, 1), "2");
    kn_loader *loader = all_of(&b, data);
    assert_integers(b.y, (int64_t[]){0, 0, 0, 1, 1}, 5);
    kn_loader_destroy(loader);
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", "1,cat\n2, cat \n3,00\n4,0\n"), NULL));
    assert_int_equal(kn_dataset_classes(data), 3);
    assert_string_equal(kn_dataset_class_name(data, 2), "cat");
    kn_dataset_destroy(data);
}

/* Numbers of more digits than a double tells apart, beyond its range, and in other forms. */
static void classes_that_equal_doubles_would_merge_are_texts(void **state) {
    (void)state;
    static const char *const texts[] = {"1,9007199254740992\n2,9007199254740993\n",
                                        "1,12e400\n2,34e999\n",
                                        "1,0.1\n2,0.1000000000000000000001\n",
                                        "1,1e-400\n2,0\n",
                                        "1,inf\n2,INF\n",
                                        "1,0x10\n2,16\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kn_dataset *data = NULL;
        assert_ok(kn_dataset_read_csv(&data, file("a.csv", texts[i]), NULL));
        assert_int_equal(kn_dataset_classes(data), 2);
        kn_dataset_destroy(data);
    }
    kn_dataset *data = NULL;
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", "1,-1e3\n2,00.500\n3,1e20\n4,0.5\n"), NULL));
    assert_int_equal(kn_dataset_classes(data), 3);
    assert_string_equal(kn_dataset_class_name(data, 2), "1e20");
    kn_dataset_destroy(data);
}

static void a_byte_order_mark_hides_no_row(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    assert_ok(kn_dataset_read_csv(&data,
                                  file("a.csv",
                                       "\xef\xbb\xbf"
                                       "1,2,a\n3,4,b\n"),
                                  NULL));
    assert_int_equal(kn_dataset_size(data), 2);
    kn_dataset_destroy(data);
}

static void numbers_may_have_any_length(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    char text[256];
    snprintf(text, sizeof text, "0.5%080d,1\n-2,1\n", 0);
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", text), NULL));
    kn_loader *loader = all_of(&b, data);
    assert_floats(b.x, (float[]){0.5f, -2}, 2);
    kn_loader_destroy(loader);
}

static void assert_csv_fails(const char *text, const kn_csv_options *o, kn_status want,
                             const char *message) {
    kn_dataset *data = NULL;
    assert_fails(kn_dataset_read_csv(&data, file("bad.csv", text), o), want, message);
    assert_null(data);
}

/* Of a column of x. */
static void missing_values_are_errors_unless_they_are_wanted(void **state) {
    (void)state;
    kn_batch b;
    static const char *const texts[] = {"", "  ", "NA", " na ", "nan", "NaN", "-nan"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[64], message[128];
        kn_dataset *data = NULL;
        snprintf(text, sizeof text, "1,%s,a\n2,3,b\n", texts[i]); /* no header */
        snprintf(message, sizeof message,
                 "line 1, field 2: '%s' is a missing value: leave out its line, or set missing of "
                 "kn_csv_options",
                 texts[i]);
        assert_csv_fails(text, NULL, KN_ERR_FORMAT, message);
        assert_ok(kn_dataset_read_csv(&data, file("a.csv", text), &(kn_csv_options){.missing = 1}));
        kn_loader *loader = all_of(&b, data);
        const float *x = kn_data(b.x);
        assert_true(x && x[0] == 1 && isnan(x[1]) && x[2] == 2 && x[3] == 3);
        kn_loader_destroy(loader);
        snprintf(text, sizeof text, "1,2\n2,%s\n", texts[i]);
        assert_csv_fails(text, &(kn_csv_options){.missing = 1, .regression = 1}, KN_ERR_FORMAT,
                         "' is a missing value: leave out its line");
    }
    assert_csv_fails("1,2\nNAN1,3\n", &(kn_csv_options){.missing = 1}, KN_ERR_FORMAT,
                     "line 2, field 1: 'NAN1' is not a number");
}

/* Those that are written as infinite are. */
static void numbers_beyond_the_range_are_errors(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    const kn_csv_options numbers = {.regression = 1};
    assert_csv_fails("1,2,x\n3,-1e400,y\n", NULL, KN_ERR_FORMAT,
                     "line 2, field 2: '-1e400' is beyond the range of f32");
    assert_csv_fails("1e39,x\n", NULL, KN_ERR_FORMAT, "line 1, field 1: '1e39' is beyond");
    assert_csv_fails("1,2e38\n2,4e38\n", &numbers, KN_ERR_FORMAT,
                     "line 2, field 2: the target '4e38' is beyond the range of f32");
    assert_ok(
        kn_dataset_read_csv(&data, file("a.csv", "inf,x\n-INF,x\n3.4e38,x\n1e-60,x\n"), NULL));
    kn_loader *loader = all_of(&b, data);
    assert_floats(b.x, (float[]){INFINITY, -INFINITY, 3.4e38f, 0}, 4);
    kn_loader_destroy(loader);
}

static void numbers_have_a_point_in_every_locale(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const kn_csv_options o = {.delimiter = ';', .header = -1};
    kn_batch b;
    bool is_set = comma_locale_set();
    kn_status point = kn_dataset_read_csv(&data, file("a.csv", "1.5;a\n2;b\n"), &o);
    kn_loader *loader = point == KN_OK ? all_of(&b, data) : NULL;
    kn_status comma = kn_dataset_read_csv(&data, file("a.csv", "1,5;a\n2;b\n"), &o);
    kn_error error = *kn_last_error();
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(point, KN_OK);
    assert_floats(b.x, (float[]){1.5f, 2}, 2);
    kn_loader_destroy(loader);
    assert_int_equal(comma, KN_ERR_FORMAT);
    assert_non_null(strstr(error.message, "line 1, field 1: '1,5' is not a number"));
    if (!is_set) skip();
}

static void targets_may_be_numbers_or_missing(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    const kn_csv_options numbers = {.regression = 1, .target = -2}, none = {.no_target = 1};
    assert_ok(kn_dataset_read_csv(&data, file("a.csv", "1,2.5,3\n4,5,6\n"), &numbers));
    kn_loader *loader = all_of(&b, data);
    assert_floats(b.x, (float[]){1, 3, 4, 6}, 4);
    assert_floats(b.y, (float[]){2.5f, 5}, 2);
    kn_loader_destroy(loader);
    assert_ok(kn_dataset_read_csv(&data, path, &none));
    loader = all_of(&b, data);
    assert_int_equal(kn_tensor_numel(b.x), 6);
    assert_null(b.y);
    kn_loader_destroy(loader);
}

static void lines_end_in_any_way(void **state) {
    (void)state;
    static const char *const texts[] = {"1,2,a\r3,4,b\r", "1,2,a\r\n3,4,b\r\n", "1,2,a\n\r3,4,b",
                                        "\r\r\n1,2,a\r\r\r\n3,4,b\r"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kn_dataset *data = NULL;
        kn_batch b;
        assert_ok(kn_dataset_read_csv(&data, file("a.csv", texts[i]), NULL));
        assert_string_equal(kn_dataset_class_name(data, 0), "a");
        assert_string_equal(kn_dataset_class_name(data, 1), "b");
        kn_loader *loader = all_of(&b, data);
        assert_int_equal(kn_loader_images(loader), 2);
        assert_floats(b.x, (float[]){1, 2, 3, 4}, 4);
        kn_loader_destroy(loader);
    }
    assert_csv_fails("1,2,a\r\r3,x,b\r", NULL, KN_ERR_FORMAT,
                     "line 3, field 2: 'x' is not a number");
}

static void bad_tables_are_errors_with_the_line(void **state) {
    (void)state;
    assert_csv_fails("", NULL, KN_ERR_FORMAT, "bad.csv: the file has no rows");
    assert_csv_fails("a,b\n", &(kn_csv_options){.header = 1}, KN_ERR_FORMAT,
                     "bad.csv: the file has a header and no rows");
    assert_csv_fails("\n1,2x,b\n\n", NULL, KN_ERR_FORMAT,
                     "bad.csv: the file has a header and no rows: line 2 is one by its field 2, "
                     "'2x', which is not a number");
    assert_csv_fails("1,2,x\n3,4\n", NULL, KN_ERR_FORMAT, "line 2 has 2 fields, the first has 3");
    assert_csv_fails("1,2,x\n3\n", NULL, KN_ERR_FORMAT, "line 2 has 1 field, the first has 3");
    assert_csv_fails("1,2,x\n\n3,four,y\n", NULL, KN_ERR_FORMAT,
                     "line 3, field 2: 'four' is not a number");
    assert_csv_fails("1,\"2\n", NULL, KN_ERR_FORMAT, "line 1: a quote has no end");
    assert_csv_fails("\n1\n2\n", NULL, KN_ERR_FORMAT, "bad.csv: line 2 has no ','; fields are");
    assert_csv_fails("1;2;3\n", NULL, KN_ERR_FORMAT,
                     "line 1 has no ','; fields are separated by ',', and one besides the target");
    assert_csv_fails("1,2\n", &(kn_csv_options){.delimiter = '\t'}, KN_ERR_FORMAT,
                     "line 1 has no tab; fields are separated by tabs, and");
    assert_csv_fails("1,2\n", &(kn_csv_options){.target = 3}, KN_ERR_INVALID,
                     "column 3 is the target; the file has 2 columns");
    assert_csv_fails("1\n", &(kn_csv_options){.target = 2}, KN_ERR_INVALID,
                     "the file has 1 column");
    for (int i = 0; i < 3; i++)
        assert_csv_fails("1,2\n", &(kn_csv_options){.delimiter = "\n\r\""[i]}, KN_ERR_INVALID,
                         (const char *[]){"delimiter 10,", "delimiter 13,", "delimiter 34,"}[i]);
    assert_csv_fails("a,b\n1,2\n\n1,x\n", &(kn_csv_options){.regression = 1}, KN_ERR_FORMAT,
                     "line 4, field 2: the target 'x' is not a number");
    kn_dataset *data = NULL;
    assert_fails(kn_dataset_read_csv(&data, dir, NULL), KN_ERR_IO, "not a regular file");
    assert_fails(kn_dataset_read_csv(&data, "/nonexistent.csv", NULL), KN_ERR_IO,
                 "/nonexistent.csv");
}

/* An open that waits for a writer would never end. */
static void a_pipe_is_not_a_regular_file(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(kn_dataset_read_csv(&data, path, NULL), KN_ERR_IO, "pipe: not a regular file");
}

/* Files of the kernel: the size of one is more than it has, that of the other is zero. */
static void files_are_read_to_their_end(void **state) {
    (void)state;
    static const char shorter[] = "/sys/devices/system/cpu/online", unsized[] = "/proc/uptime";
    const kn_csv_options o = {.delimiter = ' ', .no_target = 1};
    kn_dataset *data = NULL;
    struct stat file;
    if (stat(shorter, &file) != 0 || file.st_size < 4096 || access(unsized, R_OK) != 0) skip();
    assert_fails(kn_dataset_read_csv(&data, shorter, NULL), KN_ERR_IO,
                 "/sys/devices/system/cpu/online: the file became shorter: ");
    assert_ok(kn_dataset_read_csv(&data, unsized, &o));
    assert_int_equal(kn_dataset_size(data), 1);
    kn_dataset_destroy(data);
}

/* --- vocabularies --- */

static void words_are_numbered_by_frequency(void **state) {
    (void)state;
    static const char text[] = "The cat's hat. The END,the dog?";
    kn_vocab *v = NULL;
    int64_t *index = NULL, n = 0;
    assert_ok(kn_vocab_create(&v, text, sizeof text - 1, &(kn_vocab_options){.unit = KN_WORDS}));
    assert_string_equal(kn_vocab_word(v, 0), "<pad>");
    assert_string_equal(kn_vocab_word(v, 1), "<unk>");
    assert_string_equal(kn_vocab_word(v, 2), "the");
    assert_int_equal(kn_vocab_size(v), 10);
    assert_int_equal(kn_vocab_find(v, "cat's", 5), 6);
    assert_null(kn_vocab_word(v, 10));
    assert_ok(kn_vocab_encode(&index, &n, v, "the The bird,", 13));
    assert_int_equal(n, 4);
    assert_memory_equal(index, ((int64_t[]){2, 2, 1, 3}), 4 * sizeof *index);
    free(index);
    kn_vocab_destroy(v);
}

static void words_may_have_any_length(void **state) {
    (void)state;
    char text[700];
    kn_vocab *v = NULL;
    memset(text, 'x', sizeof text);
    text[299] = ' ';
    text[599] = 'y';
    assert_ok(kn_vocab_create(&v, text, 600, &(kn_vocab_options){.unit = KN_WORDS}));
    assert_int_equal(kn_vocab_size(v), 4);
    assert_int_equal(kn_vocab_find(v, text, 299), 2);
    assert_int_equal(strlen(kn_vocab_word(v, 3)), 300);
    kn_vocab_destroy(v);
    v = NULL;
    assert_fails(kn_vocab_create(&v, text, 600, &(kn_vocab_options){.unit = 7}), KN_ERR_INVALID,
                 "unit 7: must be KN_CHARACTERS or KN_WORDS");
}

/* Bytes that a line of ASCII can't have, a zero among them. */
static void a_vocabulary_is_a_line_of_ascii_and_back(void **state) {
    (void)state;
    static const char text[] = "caf\xc3\xa9 caf\xc3\xa9 \n\0\xff%\"";
    kn_vocab *v = NULL, *again = NULL;
    int64_t *a = NULL, *b = NULL, n = 0, n_again = 0;
    assert_ok(kn_vocab_create(&v, text, sizeof text - 1, NULL));
    char *line = kn_vocab_text(v);
    assert_non_null(line);
    for (const char *c = line; *c; c++) assert_true(*c >= ' ' && *c < 0x7f);
    assert_ok(kn_vocab_parse(&again, line));
    assert_int_equal(kn_vocab_size(again), kn_vocab_size(v));
    assert_ok(kn_vocab_encode(&a, &n, v, text, sizeof text - 1));
    assert_ok(kn_vocab_encode(&b, &n_again, again, text, sizeof text - 1));
    assert_int_equal(n_again, n);
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    assert_int_equal(kn_vocab_find(again, "z", 1), 1);
    free(a);
    free(b);
    free(line);
    kn_vocab_destroy(v);
    kn_vocab_destroy(again);
    assert_fails(kn_vocab_parse(&v, "letters a b"), KN_ERR_FORMAT, "'letters' is not a unit");
    assert_fails(kn_vocab_parse(&v, "words a b a"), KN_ERR_FORMAT, "the word 'a' occurs twice");
    assert_fails(kn_vocab_parse(&v, "words a  b"), KN_ERR_FORMAT, "a word is empty");
    assert_fails(kn_vocab_parse(&v, "words a%5"), KN_ERR_FORMAT, "'%5' is not a byte");
    assert_fails(kn_vocab_parse(&v, "words a%g0 b"), KN_ERR_FORMAT, "'%g0' is not a byte");
    assert_fails(kn_vocab_parse(&v, "words a%+1 b"), KN_ERR_FORMAT, "'%+1' is not a byte");
}

/* Encoding a text could never find it. */
static void a_line_has_no_word_that_no_text_has(void **state) {
    (void)state;
    static const char *const words[] = {"words A", "words a%20b", "words a%00", "words ab,",
                                        "words 'a"};
    static const char *const characters[] = {"characters a%00b", "characters abc",
                                             "characters %C3%A9%C3"};
    kn_vocab *v = NULL;
    for (int i = 0; i < 5; i++)
        assert_fails(kn_vocab_parse(&v, words[i]), KN_ERR_FORMAT, "is not one of the words");
    for (int i = 0; i < 3; i++)
        assert_fails(kn_vocab_parse(&v, characters[i]), KN_ERR_FORMAT,
                     "is not one of the characters");
    assert_null(v);
    assert_ok(kn_vocab_parse(&v, "characters %00 %C3 %C3%A9 ' A"));
    assert_int_equal(kn_vocab_find(v, "\xc3\xa9", 2), 4);
    kn_vocab_destroy(v);
    assert_ok(kn_vocab_parse(&v, "words the cat's ' %C3%A9"));
    assert_int_equal(kn_vocab_find(v, "cat's", 5), 3);
    kn_vocab_destroy(v);
}

static void rare_words_are_left_out(void **state) {
    (void)state;
    static const char text[] = "a a a b b c c d";
    kn_vocab *v = NULL;
    assert_ok(kn_vocab_create(&v, text, 15, &(kn_vocab_options){.unit = KN_WORDS, .size = 4}));
    assert_int_equal(kn_vocab_size(v), 4);
    assert_int_equal(kn_vocab_find(v, "c", 1), 1);
    kn_vocab_destroy(v);
    assert_ok(kn_vocab_create(&v, text, 15, &(kn_vocab_options){.unit = KN_WORDS, .least = 2}));
    assert_int_equal(kn_vocab_size(v), 5);
    assert_int_equal(kn_vocab_find(v, "d", 1), 1);
    kn_vocab_destroy(v);
    assert_fails(kn_vocab_create(&v, text, 15, &(kn_vocab_options){.size = 2}), KN_ERR_INVALID,
                 "size 2 must be 3 or more");
}

static void characters_are_those_of_utf8(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa4\xff\0a"; /* a ä, a byte that isn't valid, zero, a */
    kn_vocab *v = NULL;
    int64_t *index = NULL, n = 0;
    assert_ok(kn_vocab_create(&v, text, 6, NULL));
    assert_int_equal(kn_vocab_size(v), 6);
    assert_string_equal(kn_vocab_word(v, 2), "a");
    assert_int_equal(kn_vocab_find(v, "\xc3\xa4", 2), 4);
    assert_ok(kn_vocab_encode(&index, &n, v, text, 6));
    assert_memory_equal(index, ((int64_t[]){2, 4, 5, 3, 2}), 5 * sizeof *index);
    free(index);
    kn_vocab_destroy(v);
    assert_ok(kn_vocab_create(&v, NULL, 0, NULL));
    assert_int_equal(kn_vocab_size(v), 2);
    assert_int_equal(kn_vocab_find(v, "a", 1), 1);
    kn_vocab_destroy(v);
}

static void a_text_is_cut_into_samples_and_what_follows(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *v = NULL;
    kn_batch b;
    assert_ok(kn_dataset_read_text(&data, &v, file("a.txt", "aababba"), 3, NULL));
    assert_int_equal(kn_vocab_size(v), 4);
    kn_loader *loader = all_of(&b, data);
    assert_integers(b.x, (int64_t[]){2, 2, 3, 2, 3, 3}, 6);
    assert_integers(b.y, (int64_t[]){2, 3, 2, 3, 3, 2}, 6);
    kn_loader_destroy(loader);
    assert_fails(kn_dataset_read_text(&data, &v, path, 7, NULL), KN_ERR_FORMAT,
                 "7 words or characters; samples of 7 take one more");
    kn_vocab_destroy(v);
}

static void a_byte_order_mark_is_no_part_of_a_text(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *v = NULL;
    kn_batch b;
    assert_fails(kn_dataset_read_text(&data, &v, file("a.txt", "\xef\xbb\xbfx"), 1, NULL),
                 KN_ERR_FORMAT, "a.txt: 1 words or characters");
    assert_ok(kn_dataset_read_text(&data, &v, file("a.txt", "\xef\xbb\xbfxxyz"), 3, NULL));
    assert_int_equal(kn_vocab_size(v), 5);
    kn_loader *loader = all_of(&b, data);
    assert_integers(b.x, (int64_t[]){2, 2, 3}, 3);
    kn_loader_destroy(loader);
    kn_vocab_destroy(v);
}

/* --- reviews --- */

static void kerass_file_has_words_from_three_on(void **state) {
    (void)state;
    char npz[1024];
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    snprintf(npz, sizeof npz, "%s/imdb.npz", data_folder);
    assert_ok(kn_dataset_read_imdb(&data, npz, KN_TRAIN, NULL));
    assert_int_equal(kn_dataset_size(data), 4);
    assert_ok(kn_loader_create_from(
        &loader, data, &(kn_loader_options){.batch = 4, .packed = 1, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, &b));
    assert_memory_equal(kn_loader_lengths(loader), ((int64_t[]){5, 2, 7, 1}), 4 * sizeof(int64_t));
    assert_integers(b.x, (int64_t[]){1, 4, 17, 25, 303, 1, 8, 1, 70003, 5, 5, 5, 12, 4, 1}, 15);
    assert_integers(b.y, (int64_t[]){1, 0, 1, 0}, 4);
    kn_loader_destroy(loader);
    const kn_imdb_options o = {.words = 12, .length = 3};
    assert_ok(kn_dataset_read_imdb(&data, npz, KN_TEST, &o));
    loader = all_of(&b, data);
    assert_integers(b.x, (int64_t[]){1, 10, 11, 2, 2, 2}, 6);
    assert_integers(b.y, (int64_t[]){0, 1}, 2);
    kn_loader_destroy(loader);
}

static void review_write(const char *split, const char *label, const char *name, const char *text) {
    char folder[2 * FILES_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/%s", dir, split);
    mkdir(folder, 0777);
    snprintf(folder, sizeof folder, "%s/%s/%s", dir, split, label);
    mkdir(folder, 0777);
    files_write(folder, name, text, strlen(text), true);
}

static void reviews_remove(const char *split) {
    char command[2 * FILES_PATH_MAX];
    snprintf(command, sizeof command, "rm -r '%.500s/%s'", dir, split);
    assert_int_equal(system(command), 0);
}

static void folders_of_reviews_are_read(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *v = NULL;
    kn_batch b;
    review_write("train", "neg", "0_1.txt", "bad bad film");
    review_write("train", "pos", "0_9.txt", "\xef\xbb\xbfgood film");
    review_write("test", "neg", "0_1.txt", "bad");
    const kn_imdb_options o = {.vocab = &v};
    assert_fails(kn_dataset_read_imdb(&data, dir, KN_TEST, &o), KN_ERR_IO,
                 "test/pos: No such file");
    test_assert_message("https://ai.stanford.edu", __FILE__, __LINE__);
    assert_null(v);
    review_write("test", "pos", "0_9.txt", "\xef\xbb\xbfgood, good actor");
    assert_ok(kn_dataset_read_imdb(&data, dir, KN_TEST, &o));
    assert_int_equal(kn_vocab_size(v), 5);
    kn_loader *loader = all_of(&b, data);
    assert_integers(b.x, (int64_t[]){2, 0, 0, 0, 4, 1, 4, 1}, 8);
    assert_integers(b.y, (int64_t[]){0, 1}, 2);
    kn_loader_destroy(loader);
    kn_vocab_destroy(v);
    reviews_remove("train");
    reviews_remove("test");
}

static void the_order_of_reviews_is_the_same_in_every_locale(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *v = NULL;
    kn_batch b;
    review_write("train", "neg", "B.txt", "bad bad");
    review_write("train", "neg", "a.txt", "good");
    review_write("train", "pos", "a.txt", "bad");
    const kn_imdb_options o = {.vocab = &v};
    bool is_set = files_locale_set(LC_COLLATE, "en_US");
    assert_ok(kn_dataset_read_imdb(&data, dir, KN_TRAIN, &o));
    setlocale(LC_COLLATE, "C");
    kn_loader *loader = all_of(&b, data);
    assert_integers(b.x, (int64_t[]){2, 2, 3, 0, 2, 0}, 6);
    kn_loader_destroy(loader);
    kn_vocab_destroy(v);
    reviews_remove("train");
    if (!is_set) skip();
}

static void a_missing_path_is_named(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *v = NULL;
    assert_fails(kn_dataset_read_csv(&data, NULL, NULL), KN_ERR_INVALID,
                 "kn_dataset_read_csv: path is NULL");
    assert_fails(kn_dataset_read_text(&data, &v, NULL, 3, NULL), KN_ERR_INVALID,
                 "kn_dataset_read_text: path is NULL");
    assert_fails(kn_dataset_read_text(&data, NULL, "a.txt", 3, NULL), KN_ERR_INVALID,
                 "kn_dataset_read_text: vocab is NULL");
    assert_fails(kn_dataset_read_text(&data, &v, "a.txt", 0, NULL), KN_ERR_INVALID,
                 "kn_dataset_read_text: length 0 must be 1 or more");
    assert_fails(kn_dataset_read_imdb(&data, NULL, KN_TRAIN, NULL), KN_ERR_INVALID,
                 "kn_dataset_read_imdb: path is NULL");
    assert_fails(kn_dataset_read_npz(&data, NULL, "x", NULL), KN_ERR_INVALID, "NULL");
}

static void a_missing_data_set_says_where_it_is(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    assert_fails(kn_dataset_read_imdb(&data, "/nonexistent.npz", KN_TRAIN, NULL), KN_ERR_IO,
                 "/nonexistent.npz: No such file");
    test_assert_message("https://storage.googleapis.com", __FILE__, __LINE__);
    assert_fails(kn_dataset_read_imdb(&data, file("x.npz", "no zip"), KN_TRAIN, NULL),
                 KN_ERR_FORMAT, "neither NPY, NPZ nor safetensors");
}

int main(int argc, char **argv) {
    if (argc > 1) data_folder = argv[1];
    return RUN_TESTS(
        IN_DIR(a_table_has_numbers_and_named_classes),
        IN_DIR(classes_that_are_numbers_are_in_their_order),
        IN_DIR(spellings_of_one_class_are_one_class),
        IN_DIR(classes_that_equal_doubles_would_merge_are_texts),
        IN_DIR(a_byte_order_mark_hides_no_row), IN_DIR(numbers_may_have_any_length),
        IN_DIR(numbers_beyond_the_range_are_errors), IN_DIR(numbers_have_a_point_in_every_locale),
        IN_DIR(targets_may_be_numbers_or_missing), IN_DIR(lines_end_in_any_way),
        IN_DIR(bad_tables_are_errors_with_the_line), IN_DIR(a_pipe_is_not_a_regular_file),
        IN_DIR(missing_values_are_errors_unless_they_are_wanted), TEST(files_are_read_to_their_end),
        TEST(words_are_numbered_by_frequency), TEST(words_may_have_any_length),
        TEST(a_vocabulary_is_a_line_of_ascii_and_back), TEST(a_line_has_no_word_that_no_text_has),
        TEST(rare_words_are_left_out), TEST(characters_are_those_of_utf8),
        IN_DIR(a_text_is_cut_into_samples_and_what_follows),
        IN_DIR(a_byte_order_mark_is_no_part_of_a_text), TEST(kerass_file_has_words_from_three_on),
        IN_DIR(folders_of_reviews_are_read),
        IN_DIR(the_order_of_reviews_is_the_same_in_every_locale), TEST(a_missing_path_is_named),
        IN_DIR(a_missing_data_set_says_where_it_is));
}
