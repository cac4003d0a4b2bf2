/* Tiles of Winograd's way (conv_winograd.h): where one row of them lies, for its transforms. */
#ifndef KN_CONV_TILES_H
#define KN_CONV_TILES_H

#include <stdint.h>

enum { KN_WINOGRAD_NUMBERS = 36, KN_WINOGRAD_BLOCK = 16 }; /* of a tile; channels at once */

/* n tiles beside each other. Tile i begins at `row`, column + 4·i of a block of channels
 * [rows][columns][16], and may reach over its borders: there are zeros. Number j of tile i lies at
 * element j·step + i·tile_step. */
typedef struct kn__winograd_tiles {
    int64_t rows, columns, row, column, n, step, tile_step;
} kn__winograd_tiles;

#endif
