/* The table of one instruction set and real type. */
#include "host/base/loops.h"

const kn__loop_table KN_LOOP(loops) = {
#define KN_LOOP_DEF(result, name, arguments) .name = KN_LOOP(name),
#include "host/base/loops.def"
    .tile_rows = KN_TILE_ROWS,
    .tile_columns = KN_TILE_COLUMNS,
    .group = 32 / sizeof(real),
};
