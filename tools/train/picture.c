/* PNG and JPEG by libpng and libjpeg, where the build has them. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "dataset.h"

/* [height,width,channels] → [channels,height,width] */
static kn_status planes_make(kn__picture *out, const uint8_t *rows, int64_t channels,
                             int64_t height, int64_t width, const char *name) {
    int64_t n = height * width;
    uint8_t *planes = malloc((size_t)(n * channels));
    if (!planes) return KN_FAIL(KN_ERR_OOM, "%s: no memory for its pixels", name);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < n; i++) planes[c * n + i] = rows[i * channels + c];
    *out = (kn__picture){channels, height, width, planes};
    return KN_OK;
}

static kn_status side_check(uint64_t width, uint64_t height, const char *name) {
    if (width >= 1 && height >= 1 && width <= KN__PICTURE_SIDE_MAX &&
        height <= KN__PICTURE_SIDE_MAX)
        return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT, "%s: %" PRIu64 "x%" PRIu64 " pixels; a side has 1 to %d", name,
                   width, height, KN__PICTURE_SIDE_MAX);
}

#ifdef KN_HAS_PNG
#include <png.h>

static kn_status png_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                            const char *name, int channels) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, n_bytes))
        return KN_FAIL(KN_ERR_FORMAT, "%s: %s", name, image.message);
    if (!channels) channels = image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
    image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    kn_status status = side_check(image.width, image.height, name);
    uint8_t *rows = status == KN_OK ? malloc(PNG_IMAGE_SIZE(image)) : NULL;
    if (status == KN_OK && !rows)
        status = KN_FAIL(KN_ERR_OOM, "%s: no memory for its pixels", name);
    png_color black = {0, 0, 0};
    if (status == KN_OK && !png_image_finish_read(&image, &black, rows, 0, NULL))
        status = KN_FAIL(KN_ERR_FORMAT, "%s: %s", name, image.message);
    if (status == KN_OK) status = planes_make(out, rows, channels, image.height, image.width, name);
    png_image_free(&image);
    free(rows);
    return status;
}
#else
static kn_status png_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                            const char *name, int channels) {
    (void)out, (void)bytes, (void)n_bytes, (void)channels;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "%s: this build reads no PNG; install libpng-dev and build again", name);
}
#endif

#ifdef KN_HAS_JPEG
#include <jpeglib.h>

typedef struct jpeg_errors {
    struct jpeg_error_mgr base;
    jmp_buf out;
    char text[JMSG_LENGTH_MAX];
} jpeg_errors;

static void jpeg_failed(j_common_ptr c) {
    jpeg_errors *e = (jpeg_errors *)c->err;
    e->base.format_message(c, e->text);
    longjmp(e->out, 1);
}
static void jpeg_quiet(j_common_ptr c) { (void)c; }

/* What the library's jump leaves through is kept here: *rows is the caller's. */
static bool jpeg_rows(struct jpeg_decompress_struct *j, uint8_t **rows, int channels,
                      jpeg_errors *errors) {
    if (setjmp(errors->out)) return false;
    jpeg_read_header(j, TRUE);
    if (!channels) channels = j->num_components == 1 ? 1 : 3;
    j->out_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    if (j->image_width > KN__PICTURE_SIDE_MAX || j->image_height > KN__PICTURE_SIDE_MAX) {
        snprintf(errors->text, sizeof errors->text, "%ux%u pixels; a side has 1 to %d",
                 j->image_width, j->image_height, KN__PICTURE_SIDE_MAX);
        return false;
    }
    jpeg_start_decompress(j);
    size_t row_bytes = (size_t)j->output_width * (size_t)j->output_components;
    *rows = calloc(j->output_height, row_bytes);
    if (!*rows) return false;
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = *rows + j->output_scanline * row_bytes;
        jpeg_read_scanlines(j, &row, 1);
    }
    jpeg_finish_decompress(j);
    if (j->err->num_warnings) snprintf(errors->text, sizeof errors->text, "damaged data");
    return j->err->num_warnings == 0;
}

static kn_status jpeg_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                             const char *name, int channels) {
    struct jpeg_decompress_struct j = {0};
    jpeg_errors errors = {.text = "no memory"};
    uint8_t *rows = NULL;
    kn_status status = KN_OK;
    j.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jpeg_failed;
    errors.base.output_message = jpeg_quiet;
    if (setjmp(errors.out)) return KN_FAIL(KN_ERR_OOM, "%s: %s", name, errors.text);
    jpeg_create_decompress(&j);
    jpeg_mem_src(&j, bytes, n_bytes);
    if (jpeg_rows(&j, &rows, channels, &errors))
        status = planes_make(out, rows, j.output_components, j.output_height, j.output_width, name);
    else
        status = KN_FAIL(KN_ERR_FORMAT, "%s: %s", name, errors.text);
    jpeg_destroy_decompress(&j);
    free(rows);
    return status;
}
#else
static kn_status jpeg_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                             const char *name, int channels) {
    (void)out, (void)bytes, (void)n_bytes, (void)channels;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "%s: this build reads no JPEG; install libjpeg-dev and build again", name);
}
#endif

kn_status kn__picture_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                             const char *name, int channels) {
    KN_ASSERT(channels == 0 || channels == 1 || channels == 3);
    if (n_bytes >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return png_decode(out, bytes, n_bytes, name, channels);
    if (n_bytes >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        return jpeg_decode(out, bytes, n_bytes, name, channels);
    return KN_FAIL(KN_ERR_FORMAT, "%s: neither PNG nor JPEG", name);
}
