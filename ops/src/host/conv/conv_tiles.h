/* Tiles of Winograd's way (conv_winograd.h): where one row of them lies, for its transforms. */
#ifndef KN_CONV_TILES_H
#define KN_CONV_TILES_H

#include <stdint.h>

enum { KN_WINOGRAD_TILE = 4, KN_WINOGRAD_BLOCK = 16 }; /* results a side; channels at once */

/* Elements a side of a window of so many taps a side, 2 or 3, and numbers of a tile. */
static inline int kn__winograd_side(int taps) { return KN_WINOGRAD_TILE - 1 + taps; }
static inline int kn__winograd_numbers(int taps) {
    return kn__winograd_side(taps) * kn__winograd_side(taps);
}

/* n tiles beside each other. Tile i begins at `row`, column + 4·stride·i of a block of channels
 * [rows][columns][16], takes every stride-th element of both, and may reach over its borders: there
 * are zeros. Number j of tile i lies at element j·step + i·tile_step. */
typedef struct kn__winograd_tiles {
    int64_t rows, columns, row, column, n, step, tile_step, stride;
    int taps, unused;
} kn__winograd_tiles;

/* Where the taps of a tile's window lie among weights; -1: nowhere, it is 0. */
typedef struct kn__winograd_taps {
    int n; /* a side */
    int place[9];
} kn__winograd_taps;

#endif
