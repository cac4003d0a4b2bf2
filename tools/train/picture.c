/* PNG and JPEG by libpng and libjpeg, where the build has them. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "dataset.h"

/* What a library decodes: rows of bytes [height,width,channels]. It fails by a jump, so all that
 * the jump may leave is kept here. */
typedef struct decoded {
    uint8_t *rows; /* malloc's */
    int64_t channels, height, width;
    int wanted; /* channels; 0: the file's */
    jmp_buf failed;
    kn_status why;
    char text[200];
} decoded;

/* Allocates the rows; false: *d says why not. */
static inline bool rows_alloc(decoded *d) {
    bool fits = d->width >= 1 && d->height >= 1 && d->width <= KN__PICTURE_SIDE_MAX &&
                d->height <= KN__PICTURE_SIDE_MAX;
    if (fits) d->rows = calloc((size_t)d->height, (size_t)(d->width * d->channels));
    if (fits && !d->rows) d->why = KN_ERR_OOM;
    if (!fits)
        snprintf(d->text, sizeof d->text, "%" PRId64 "x%" PRId64 " pixels; a side has 1 to %d",
                 d->width, d->height, KN__PICTURE_SIDE_MAX);
    return d->rows != NULL;
}

static inline uint8_t *row_at(const decoded *d, int64_t i) {
    return d->rows + i * d->width * d->channels;
}

/* As libjpeg's: 0.299 R + 0.587 G + 0.114 B. */
static uint8_t grey_of(const uint8_t rgb[3]) {
    return (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
}

/* [height,width,channels] → [wanted,height,width] */
static kn_status planes_make(kn__picture *out, const decoded *d, const char *name) {
    int64_t n = d->height * d->width, channels = d->wanted ? d->wanted : d->channels;
    uint8_t *planes = malloc((size_t)(n * channels));
    if (!planes) return KN_FAIL(KN_ERR_OOM, "%s: no memory for its pixels", name);
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *pixel = d->rows + i * d->channels;
            planes[c * n + i] = channels < d->channels ? grey_of(pixel) : pixel[c % d->channels];
        }
    }
    *out = (kn__picture){channels, d->height, d->width, planes};
    return KN_OK;
}

#ifdef KN_HAS_PNG
#include <png.h>

typedef struct png_input {
    const uint8_t *at;
    size_t left;
} png_input;

static void png_failed(png_structp png, png_const_charp text) {
    decoded *d = png_get_error_ptr(png);
    snprintf(d->text, sizeof d->text, "%s", text);
    longjmp(d->failed, 1);
}
static void png_quiet(png_structp png, png_const_charp text) { (void)png, (void)text; }

static void png_take(png_structp png, png_bytep out, size_t n) {
    png_input *in = png_get_io_ptr(png);
    if (n > in->left) png_error(png, "the file is truncated");
    memcpy(out, in->at, n);
    in->at += n;
    in->left -= n;
}

/* Grey or RGB, a byte each, as the file has them: no gamma, no transparency. */
static int png_transform(png_structp png, png_infop info) {
    png_set_expand(png); /* palettes, and fewer than 8 bits */
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return n_passes;
}

static bool png_rows(decoded *d, png_structp png, png_infop info) {
    if (setjmp(d->failed)) return false;
    png_read_info(png, info);
    d->width = png_get_image_width(png, info);
    d->height = png_get_image_height(png, info);
    int n_passes = png_transform(png, info);
    d->channels = png_get_channels(png, info);
    if (!rows_alloc(d)) return false;
    for (; n_passes; n_passes--)
        for (int64_t i = 0; i < d->height; i++) png_read_row(png, row_at(d, i), NULL);
    png_read_end(png, NULL);
    return true;
}

static bool png_decode(decoded *d, const uint8_t *bytes, size_t n_bytes) {
    png_input in = {bytes, n_bytes};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_failed, png_quiet);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (info) png_set_read_fn(png, &in, png_take);
    bool is_whole = info && png_rows(d, png, info);
    png_destroy_read_struct(&png, &info, NULL);
    return is_whole;
}
#else
#define png_decode NULL
#endif

#ifdef KN_HAS_JPEG
#include <jpeglib.h>

typedef struct jpeg_errors {
    struct jpeg_error_mgr base;
    decoded *d;
} jpeg_errors;

static void jpeg_failed(j_common_ptr c) {
    char text[JMSG_LENGTH_MAX];
    decoded *d = ((jpeg_errors *)c->err)->d;
    c->err->format_message(c, text);
    snprintf(d->text, sizeof d->text, "%s", text);
    longjmp(d->failed, 1);
}
static void jpeg_quiet(j_common_ptr c) { (void)c; }

/* Printers' files have the inks inverted: 255 is no ink. */
static void inks_to_rgb(decoded *d) {
    uint8_t *to = d->rows;
    for (const uint8_t *ink = d->rows, *end = row_at(d, d->height); ink < end; ink += 4)
        for (int c = 0; c < 3; c++) *to++ = (uint8_t)((ink[c] * ink[3] + 127) / 255);
    d->channels = 3;
}

static bool jpeg_rows(decoded *d, struct jpeg_decompress_struct *j) {
    if (setjmp(d->failed)) return false;
    jpeg_read_header(j, TRUE);
    d->width = j->image_width;
    d->height = j->image_height;
    d->channels = j->num_components == 4 ? 4 : d->wanted;
    if (!d->channels) d->channels = j->num_components == 1 ? 1 : 3;
    j->out_color_space = d->channels == 4 ? JCS_CMYK : d->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    if (!rows_alloc(d)) return false;
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = row_at(d, j->output_scanline);
        jpeg_read_scanlines(j, &row, 1);
    }
    jpeg_finish_decompress(j);
    if (d->channels == 4) inks_to_rgb(d);
    if (j->err->num_warnings) snprintf(d->text, sizeof d->text, "damaged data");
    return j->err->num_warnings == 0;
}

static bool jpeg_decode(decoded *d, const uint8_t *bytes, size_t n_bytes) {
    struct jpeg_decompress_struct j = {0};
    jpeg_errors errors = {.d = d};
    j.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jpeg_failed;
    errors.base.output_message = jpeg_quiet;
    if (setjmp(d->failed)) return false;
    jpeg_create_decompress(&j);
    jpeg_mem_src(&j, bytes, n_bytes);
    bool is_whole = jpeg_rows(d, &j);
    jpeg_destroy_decompress(&j);
    return is_whole;
}
#else
#define jpeg_decode NULL
#endif

/* --- formats --- */

typedef struct format {
    const char *name, *package, *magic;
    size_t magic_bytes;
    bool (*decode)(decoded *d, const uint8_t *bytes, size_t n_bytes); /* NULL: not in this build */
} format;

static const format formats[] = {
    {"PNG", "libpng-dev", "\x89PNG\r\n\x1a\n", 8, png_decode},
    {"JPEG", "libjpeg-dev", "\xff\xd8\xff", 3, jpeg_decode},
};

static const format *format_find(const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n_bytes >= formats[i].magic_bytes &&
            memcmp(bytes, formats[i].magic, formats[i].magic_bytes) == 0)
            return &formats[i];
    return NULL;
}

kn_status kn__picture_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                             const char *name, int channels) {
    KN_ASSERT(channels == 0 || channels == 1 || channels == 3);
    decoded d = {.wanted = channels, .why = KN_ERR_FORMAT, .text = "no memory"};
    const format *f = format_find(bytes, n_bytes);
    if (!f) return KN_FAIL(KN_ERR_FORMAT, "%s: neither PNG nor JPEG", name);
    if (!f->decode)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: this build reads no %s; install %s and build again",
                       name, f->name, f->package);
    kn_status status = f->decode(&d, bytes, n_bytes) ? planes_make(out, &d, name)
                                                     : KN_FAIL(d.why, "%s: %s", name, d.text);
    free(d.rows);
    return status;
}
