/* The short names by which ops.def says what a derivative reads. For the files that expand those
 * columns, and only there. */
#ifndef KN_NEEDS_H
#define KN_NEEDS_H

enum {
    N = 0,
    A = 1,
    B = 2,
    C = 4,
    D = 8,
    E = 0x10,
    F = 0x20,
    G = 0x40,
    H = 0x80,
    Y0 = 0x100,
    Y1 = 0x200,
    Y2 = 0x400,
    Y3 = 0x800,
    Z = Y0,
    ZERO = 0x1000,
    SELF = 0x2000
};

#endif
