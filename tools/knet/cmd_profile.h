/* What the commands that show profiles share. */
#ifndef KN_CMD_PROFILE_H
#define KN_CMD_PROFILE_H

#include "cells.h"
#include "report.h"

/* Prints the text on standard output, or on standard error with the reason; returns the exit code.
 */
int kn__print_result(const char *command, const kn__text *text);

/* Reads a profile and says on standard error what is wrong with it; returns the exit code. Release
 * the report in any case. */
int kn__profile_read(kn__report *out, const char *command, const char *file);

#endif
