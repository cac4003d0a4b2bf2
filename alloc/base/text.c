#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "c_locale.h"
#include "utf8.h"

kn__text kn__text_in(char *buffer, size_t bytes) {
    buffer[0] = '\0';
    return (kn__text){.data = buffer, .size = bytes, .room = KN__TEXT_FIXED};
}

void kn__text_release(kn__text *text) {
    if (text->room == KN__TEXT_HEAP) free(text->data);
    if (text->room == KN__TEXT_PAGES && text->data) munmap(text->data, text->size);
    *text = (kn__text){.room = text->room};
}

/* Returns NULL, and keeps the old text, if there is no memory. */
static char *resize(const kn__text *text, size_t size) {
    if (text->room == KN__TEXT_HEAP) return realloc(text->data, size);
    void *data = text->data
                     ? mremap(text->data, text->size, size, MREMAP_MAYMOVE)
                     : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

/* Room for so many bytes more and the zero. */
static bool make_room(kn__text *text, size_t more) {
    if (text->failed) return false;
    if (more < text->size - text->length) return true;
    text->failed = text->room == KN__TEXT_FIXED;
    if (text->failed) return false;
    size_t size = text->size ? 2 * text->size : text->room == KN__TEXT_PAGES ? 1 << 16 : 1 << 12;
    while (size - text->length <= more) size *= 2;
    char *data = resize(text, size);
    text->failed = !data;
    if (!data) return false;
    text->data = data;
    text->size = size;
    return true;
}

void kn__text_add(kn__text *text, const char *bytes, size_t length) {
    if (text->failed) return;
    if (!make_room(text, length)) {
        if (text->room != KN__TEXT_FIXED || text->size == 0) return;
        length = text->size - text->length - 1;
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void kn__text_puts(kn__text *text, const char *string) {
    kn__text_add(text, string, strlen(string));
}

void kn__text_repeat(kn__text *text, const char *string, int times) {
    for (int i = 0; i < times; i++) kn__text_puts(text, string);
}

void kn__text_printf(kn__text *text, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    locale_t before = kn__c_locale_enter();
    size_t room = text->failed ? 0 : text->size - text->length;
    char *at = room ? text->data + text->length : NULL;
    int length = vsnprintf(at, room, fmt, args);
    va_end(args);
    if (length > 0 && make_room(text, (size_t)length)) {
        if ((size_t)length >= room) {
            vsnprintf(text->data + text->length, (size_t)length + 1, fmt, again);
        }
        text->length += (size_t)length;
    } else if (room && text->room == KN__TEXT_FIXED) {
        text->length += strlen(at); /* what fitted */
    }
    kn__c_locale_leave(before);
    va_end(again);
}

/* Adds the string's first character, or "\xE9" for an invalid byte; returns the start of the next
 * one. */
static const char *add_character(kn__text *text, const char *string) {
    size_t n = kn__utf8_bytes(string);
    if (n) {
        kn__text_add(text, string, n);
    } else {
        kn__text_printf(text, "\\x%02X", (unsigned)(unsigned char)*string);
    }
    return string + (n ? n : 1);
}

void kn__text_utf8(kn__text *text, const char *string) {
    while (*string) string = add_character(text, string);
}

void kn__text_xml(kn__text *text, const char *string) {
    while (*string) {
        const char *as = NULL;
        if (*string == '&') as = "&amp;";
        if (*string == '<') as = "&lt;";
        if (*string == '>') as = "&gt;";
        size_t n = kn__utf8_bytes(string);
        if (n && !kn__utf8_is_shown(string)) as = "?";
        if (as) kn__text_puts(text, as);
        string = as ? string + n : add_character(text, string);
    }
}

void kn__text_json(kn__text *text, const char *string) {
    kn__text_json_bytes(text, string, strlen(string));
}

void kn__text_json_bytes(kn__text *text, const char *string, size_t length) {
    const char *end = string + length;
    kn__text_puts(text, "\"");
    for (size_t n; string < end; string += n ? n : 1) {
        n = kn__utf8_bytes(string);
        if (n == 0) {
            kn__text_printf(text, "\\\\x%02X", (unsigned)(unsigned char)*string);
        } else if (*string == '"' || *string == '\\') {
            kn__text_printf(text, "\\%c", *string);
        } else if ((unsigned char)*string < 0x20 || *string == 0x7f) {
            kn__text_printf(text, "\\u%04x", (unsigned)*string);
        } else {
            kn__text_add(text, string, n);
        }
    }
    kn__text_puts(text, "\"");
}

int kn__text_shown(kn__text *text, const char *string, int columns) {
    int used = 0;
    for (size_t n; *string; string += n ? n : 1) {
        int wide = kn__utf8_columns(string);
        if (used + wide > columns) break;
        n = kn__utf8_bytes(string);
        bool shown = kn__utf8_is_shown(string);
        kn__text_add(text, shown ? string : "?", shown ? n : 1);
        used += wide;
    }
    if (!*string) return used;
    kn__text_puts(text, "...");
    return used + 3;
}

/* Adds one paragraph of n bytes. */
static void wrap_line(kn__text *text, const char *words, size_t n, int indent, int column,
                      int width) {
    for (const char *end = words + n; words < end;) {
        size_t length = strcspn(words, " \n");
        int columns = 0;
        for (const char *c = words; c < words + length;
             c += kn__utf8_bytes(c) ? kn__utf8_bytes(c) : 1)
            columns += kn__utf8_columns(c);
        bool is_first = column <= indent;
        if (!is_first && column + 1 + columns > width) {
            kn__text_puts(text, "\n");
            column = 0;
            is_first = true;
        }
        kn__text_repeat(text, " ", is_first ? indent - column : 1);
        column = (is_first ? indent : column + 1) + columns;
        kn__text_add(text, words, length);
        words += length;
        while (words < end && *words == ' ') words++;
    }
}

void kn__text_wrap(kn__text *text, const char *paragraphs, int indent, int column, int width) {
    for (const char *at = paragraphs; *at; column = 0) {
        size_t n = strcspn(at, "\n");
        wrap_line(text, at, n, indent, column, width);
        kn__text_puts(text, "\n");
        at += n + (at[n] != '\0');
    }
}

void kn__text_entry(kn__text *text, const char *left, const char *right, int indent, int width) {
    kn__text_printf(text, "  %s", left);
    int column = 2 + (int)strlen(left);
    if (column + 2 > indent) {
        kn__text_puts(text, "\n");
        column = 0;
    }
    kn__text_wrap(text, right, indent, column, width);
}
