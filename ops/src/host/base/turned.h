/* A vector of WIDTH lanes of `real`, turned: for sums and the like of all its lanes. */
#ifndef KN_TURNED_H
#define KN_TURNED_H

/* The lanes l + by, from the first again after the last. Numbers of lanes must be constants. */
#define LANES_2(l, by) (l + by) % WIDTH, (l + by + 1) % WIDTH
#define LANES_4(l, by) LANES_2(l, by), LANES_2(l + 2, by)
#define LANES_8(l, by) LANES_4(l, by), LANES_4(l + 4, by)
#define LANES_16(l, by) LANES_8(l, by), LANES_8(l + 8, by)
#if defined __AVX512F__ && defined KN_REAL_IS_F32
#define TURNED(v, by) __builtin_shufflevector(v, v, LANES_16(0, by))
#elif defined __AVX512F__ || (defined __AVX2__ && defined KN_REAL_IS_F32)
#define TURNED(v, by) __builtin_shufflevector(v, v, LANES_8(0, by))
#elif defined __AVX2__ || defined KN_REAL_IS_F32
#define TURNED(v, by) __builtin_shufflevector(v, v, LANES_4(0, by))
#else
#define TURNED(v, by) __builtin_shufflevector(v, v, LANES_2(0, by))
#endif

#endif
