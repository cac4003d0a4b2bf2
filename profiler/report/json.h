/* The report as JSON: schema "knet.prof", version 1. Readers refuse another version and ignore keys
 * they don't know; keys are only ever added.
 */
#ifndef KNET_JSON_H
#define KNET_JSON_H

#include "report.h"
#include "text.h"

enum { KN__JSON_VERSION = 1 };

/* A string with its quotes; what is no UTF-8 becomes U+FFFD. */
void kn__json_add_string(kn__text *text, const char *string);

void kn__json_add(kn__text *text, const kn__report *report);

#endif
