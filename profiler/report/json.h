/* The report as JSON: schema "knet.prof", version 1. Readers refuse another version and ignore keys
 * they don't know; keys are only ever added.
 */
#ifndef KN_REPORT_JSON_H
#define KN_REPORT_JSON_H

#include "cells.h"
#include "report.h"

enum { KN__JSON_VERSION = 1 };

void kn__json_add(kn__text *text, const kn__report *report);

#endif
