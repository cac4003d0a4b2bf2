/* Images in folders. Skipped where the build has no libpng and no libjpeg. */
#include <knet/data.h>
#include <locale.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "test.h"

#if defined(KN_HAS_PNG) && defined(KN_HAS_JPEG)
#include <jpeglib.h>
#include <png.h>

static char dir[FILES_PATH_MAX];

static int dir_setup(void **state) {
    (void)state;
    files_dir_make(dir);
    return 0;
}
static int dir_teardown(void **state) {
    (void)state;
    char command[FILES_PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

static const char *place(const char *class_name, const char *name) {
    static char path[3 * FILES_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, class_name);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", dir, class_name, name);
    return path;
}

/* Pixel (y,x) of channel c is 10·c + 40·y + 3·x. */
static void rows_fill(uint8_t *rows, int channels, int height, int width) {
    for (int i = 0; i < height * width * channels; i++) {
        int c = i % channels, x = i / channels % width, y = i / channels / width;
        rows[i] = (uint8_t)(10 * c + 40 * y + 3 * x);
    }
}

static void png_write(const char *path, int channels, int height, int width) {
    uint8_t rows[4096];
    rows_fill(rows, channels, height, width);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    assert_true(png_image_write_to_file(&image, path, 0, rows, 0, NULL));
}

/* All pixels are the same. */
static void jpeg_write_pixels(const char *path, J_COLOR_SPACE space, const uint8_t pixel[],
                              int height, int width) {
    struct jpeg_compress_struct j = {0};
    struct jpeg_error_mgr errors;
    uint8_t rows[4096];
    int channels = space == JCS_CMYK ? 4 : 3;
    for (int i = 0; i < width * channels; i++) rows[i] = pixel[i % channels];
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_stdio_dest(&j, out);
    j.image_width = (JDIMENSION)width, j.image_height = (JDIMENSION)height;
    j.input_components = channels, j.in_color_space = space;
    jpeg_set_defaults(&j);
    jpeg_start_compress(&j, TRUE);
    for (int i = 0; i < height; i++) jpeg_write_scanlines(&j, (JSAMPARRAY) & (JSAMPROW){rows}, 1);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    fclose(out);
}

static void jpeg_write(const char *path, int value, int height, int width) {
    uint8_t v = (uint8_t)value;
    jpeg_write_pixels(path, JCS_RGB, (const uint8_t[]){v, v, v}, height, width);
}

static void classes_are_folders_in_order(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    png_write(place("zebra", "b.png"), 3, 5, 4);
    jpeg_write(place("ant", "c.JPG"), 77, 5, 4);
    png_write(place("zebra", "a.png"), 3, 5, 4);
    assert_ok(kn_dataset_read_folder(&data, dir, &(kn_folder_options){.channels = 3}));
    assert_int_equal(kn_dataset_size(data), 3);
    assert_string_equal(kn_dataset_class_name(data, 0), "ant");
    assert_string_equal(kn_dataset_class_name(data, 1), "zebra");
    assert_ok(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 3, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, &b));
    kn_shape s = kn_tensor_shape(b.x);
    assert_true(s.dim[1] == 3 && s.dim[2] == 5 && s.dim[3] == 4);
    assert_memory_equal(kn_data(b.y), ((int64_t[]){0, 1, 1}), 3 * sizeof(int64_t));
    const float *x = kn_data(b.x);
    assert_close(x[0], 77 / 255.0, 0, 2 / 255.0);
    for (int i = 0; i < 60; i++) {
        int c = i / 20, y = i / 4 % 5, column = i % 4;
        assert_close(x[60 + i], (10 * c + 40 * y + 3 * column) / 255.0, 1e-6, 0);
    }
    kn_loader_destroy(loader);
}

/* In most locales letters come before their case. */
static void the_order_of_classes_is_the_same_in_every_locale(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    png_write(place("Zebra", "a.png"), 1, 4, 4);
    png_write(place("ant", "a.png"), 1, 4, 4);
    bool is_set = files_locale_set(LC_COLLATE, "en_US");
    if (is_set) assert_true(strcoll("ant", "Zebra") < 0);
    assert_ok(kn_dataset_read_folder(&data, dir, NULL));
    setlocale(LC_COLLATE, "C");
    assert_string_equal(kn_dataset_class_name(data, 0), "Zebra");
    kn_dataset_destroy(data);
    if (!is_set) skip();
}

static void images_are_scaled_and_turned_grey(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    png_write(place("a", "1.png"), 1, 4, 4);
    png_write(place("a", "2.png"), 3, 8, 2);
    assert_ok(kn_dataset_read_folder(&data, dir, &(kn_folder_options){.height = 2, .width = 2}));
    assert_ok(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 2, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_shape(b.x).dim[1], 1);
    const float *x = kn_data(b.x);
    /* the means of 2×2 pixels: 20 + 1.5 more for each step */
    static const double want[] = {21.5, 27.5, 101.5, 107.5};
    for (int i = 0; i < 4; i++) assert_close(255 * (double)x[i], want[i], 0, 0.6);
    kn_loader_destroy(loader);
}

/* The pixels of the only image of a folder, as bytes. */
static void pixels_read(uint8_t out[], int n, int64_t channels) {
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    assert_ok(kn_dataset_read_folder(&data, dir, &(kn_folder_options){.channels = channels}));
    assert_ok(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 1, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_numel(b.x), n);
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(255 * ((const float *)kn_data(b.x))[i] + 0.5f);
    kn_loader_destroy(loader);
}

/* One pixel; gamma 0: none in the file. */
static void pixel_write(const char *path, int color_type, int bits, double gamma,
                        const uint8_t pixel[]) {
    uint8_t row[8];
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    memcpy(row, pixel, sizeof row);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, out);
    png_set_IHDR(png, info, 1, 1, bits, color_type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    if (gamma > 0) png_set_gAMA(png, info, gamma);
    png_write_info(png, info);
    png_write_row(png, row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    fclose(out);
}

static void pixels_are_the_bytes_of_the_file(void **state) {
    (void)state;
    static const struct {
        int color_type, bits;
        double gamma;
        uint8_t pixel[8];
        int channels, n;
        uint8_t want[3];
    } cases[] = {
        {PNG_COLOR_TYPE_GRAY, 16, 0, {0x80, 0x00}, 0, 1, {128}},
        {PNG_COLOR_TYPE_GRAY, 8, 1.0, {128}, 0, 1, {128}},
        {PNG_COLOR_TYPE_GRAY, 4, 0, {0x70}, 3, 3, {119, 119, 119}},
        {PNG_COLOR_TYPE_RGB, 8, 0, {255, 0, 0}, 1, 1, {76}},
        {PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, {255, 0, 0, 128}, 0, 3, {255, 0, 0}},
        {PNG_COLOR_TYPE_GRAY_ALPHA, 8, 0, {200, 10}, 0, 1, {200}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t got[3];
        pixel_write(place("a", "1.png"), cases[i].color_type, cases[i].bits, cases[i].gamma,
                    cases[i].pixel);
        pixels_read(got, cases[i].n, cases[i].channels);
        assert_memory_equal(got, cases[i].want, (size_t)cases[i].n);
    }
}

/* Inverted, as printers' files are: (c·k, m·k, y·k) / 255. */
static void cmyk_becomes_rgb(void **state) {
    (void)state;
    uint8_t got[3 * 16 * 16];
    jpeg_write_pixels(place("a", "1.jpg"), JCS_CMYK, (const uint8_t[]){255, 100, 0, 200}, 16, 16);
    pixels_read(got, sizeof got, 0);
    for (int c = 0; c < 3; c++) {
        static const int want[] = {200, 78, 0};
        assert_close(got[c * 256], want[c], 0, 3);
    }
    pixels_read(got, 256, 1);
    assert_close(got[0], 0.299 * 200 + 0.587 * 78, 0, 3);
}

static void train_and_test_are_folders_of_classes(void **state) {
    (void)state;
    kn_loader *loader = NULL;
    kn_dataset *data = NULL;
    kn_batch batch;
    (void)place("train", "");
    (void)place("test", "");
    png_write(place("train/a", "1.png"), 1, 4, 4);
    png_write(place("train/b", "1.png"), 1, 4, 4);
    png_write(place("test/b", "1.png"), 3, 8, 8);
    assert_ok(kn_loader_create(&loader, dir, &(kn_loader_options){.batch = 1}));
    assert_int_equal(kn_loader_images(loader), 2);
    kn_loader_destroy(loader);
    /* the test has the classes, the sizes and the channels of the training */
    assert_ok(kn_dataset_read_images(&data, dir, KN_TEST));
    assert_int_equal(kn_dataset_classes(data), 2);
    kn_shape s = kn_dataset_shape(data);
    assert_true(s.dim[0] == 1 && s.dim[1] == 4 && s.dim[2] == 4);
    assert_ok(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 1, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(loader, &batch));
    assert_int_equal(*(const int64_t *)kn_data(batch.y), 1);
    kn_loader_destroy(loader);
    png_write(place("test/c", "1.png"), 1, 4, 4);
    assert_fails(kn_dataset_read_images(&data, dir, KN_TEST), KN_ERR_FORMAT,
                 "train has no class 'c'");
    test_assert_message("/test/c: ", __FILE__, __LINE__);
}

static void folders_beside_files_of_another_format_are_ignored(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    (void)place("train", "");
    files_dataset(dir, 10, false);
    assert_ok(kn_dataset_read_images(&data, dir, KN_TRAIN));
    assert_int_equal(kn_dataset_size(data), 10);
    kn_dataset_destroy(data);
}

/* Of root's own: another user is needed, whom rights concern. */
static void a_folder_that_may_not_be_entered_is_an_error(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    png_write(place("a", "1.png"), 1, 4, 4);
    assert_int_equal(chmod(dir, 0444), 0);
    bool is_root = geteuid() == 0;
    if (is_root) assert_int_equal(seteuid(65534), 0);
    kn_status status = kn_dataset_read_folder(&data, dir, NULL);
    kn_error error = *kn_last_error();
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(status, KN_ERR_IO);
    assert_non_null(strstr(error.message, "/a: Permission denied"));
}

static void bad_images_are_errors_that_name_the_file(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    assert_fails(kn_dataset_read_folder(&data, "/nonexistent", NULL), KN_ERR_IO,
                 "images lie in it as CLASS/IMAGE.png or .jpg");
    assert_fails(kn_dataset_read_folder(&data, NULL, NULL), KN_ERR_INVALID, "dir is NULL");
    assert_fails(kn_dataset_read_folder(&data, dir, NULL), KN_ERR_FORMAT, "no images");
    assert_fails(kn_dataset_read_folder(&data, dir, &(kn_folder_options){.channels = 2}),
                 KN_ERR_INVALID, "channels 2 (0, 1 or 3)");
    const char *path = place("a", "x.png");
    files_write(dir, "a/x.png", "GIF89a", 6, true);
    assert_fails(kn_dataset_read_folder(&data, dir, NULL), KN_ERR_FORMAT,
                 "x.png: neither PNG nor JPEG");
    png_write(path, 1, 4, 4);
    assert_int_equal(truncate(path, 40), 0);
    assert_fails(kn_dataset_read_folder(&data, dir, NULL), KN_ERR_FORMAT, "x.png: ");
    unlink(path);
    path = place("a", "y.jpg");
    jpeg_write(path, 9, 16, 16);
    assert_int_equal(truncate(path, 300), 0);
    assert_fails(kn_dataset_read_folder(&data, dir, NULL), KN_ERR_FORMAT, "y.jpg: ");
}

#define IN_DIR(fn) TEST_WITH(fn, dir_setup, dir_teardown)
int main(void) {
    return RUN_TESTS(IN_DIR(classes_are_folders_in_order),
                     IN_DIR(the_order_of_classes_is_the_same_in_every_locale),
                     IN_DIR(images_are_scaled_and_turned_grey),
                     IN_DIR(pixels_are_the_bytes_of_the_file), IN_DIR(cmyk_becomes_rgb),
                     IN_DIR(train_and_test_are_folders_of_classes),
                     IN_DIR(folders_beside_files_of_another_format_are_ignored),
                     IN_DIR(a_folder_that_may_not_be_entered_is_an_error),
                     IN_DIR(bad_images_are_errors_that_name_the_file));
}
#else
int main(void) { test_skip_all("no libpng or libjpeg"); }
#endif
