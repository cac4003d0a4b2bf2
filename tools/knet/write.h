/* What trained models make for people to look at. Needs the record's sizes. Errors: INVALID for
 * scores that are NaN, as those of a training that diverged. */
#ifndef KN_WRITE_H
#define KN_WRITE_H

#include <knet/models.h>
#include <stdio.h>

/* Gives n words or characters, one after the other, to put. heat: 1 draws them by their
 * probabilities, less prefers the likely ones, 0 takes the likeliest. */
kn_status kn__sample_text(const kn_model *model, const kn_vocab *vocab, int64_t n, double heat,
                          uint64_t seed, void (*put)(void *ctx, const char *word), void *ctx);

/* Grey pixels as PNG. */
kn_status kn__write_png(FILE *file, const uint8_t *pixels, int64_t width, int64_t height);
/* side x side images of a vae, as one PNG. */
kn_status kn__write_vae(const kn_model *model, FILE *file, int64_t side, uint64_t seed);

/* A game of connect-four. */
typedef struct kn__board {
    int cell[42];  /* from the lowest row up: 0 empty, else the player, 1 or 2 */
    int height[7]; /* stones in each column */
    int n_moves, winner;
    int move[42]; /* columns, from 1 */
} kn__board;
/* Drops the next player's stone; its cell, or -1 if the column is full. */
int64_t kn__board_drop(kn__board *board, int64_t column);
/* Whether the stone at the cell is one of four in a line. */
bool kn__board_won(const kn__board *board, int64_t cell);
/* connect4 plays a game against itself. */
kn_status kn__write_game(kn__board *out, const kn_model *model, double heat, uint64_t seed);

#endif
