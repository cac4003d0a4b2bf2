/* The timer alone, in any C program. Links libknet_profiler and nothing else of Knet.c.
 *
 *     KNET_TIMER=1 ./01_timer      prints the tree of scopes at exit
 *     ./01_timer                   costs one predictable branch per scope
 */
#include <knet/prof.h>
#include <math.h>
#include <stdio.h>

/* A scope is closed on every way out of its block, the early return included. */
static double parse(int request) {
    KN_SCOPE("parse");
    if (request % 10 == 0) return 0;
    return sqrt(request);
}

static double search(double query) {
    KN_SCOPE("search");
    double sum = 0;
    for (int i = 1; i < 2000; i++) {
        sum += sin(query / i);
    }
    return sum;
}

int main(void) {
    double total = 0;
    for (int request = 0; request < 200; request++) {
        {
            KN_SCOPE("request"); /* parse and search appear below it */
            kn_scope kind = kn_scope_begin(request % 2 ? "odd" : "even"); /* any string will do */
            total += search(parse(request));
            kn_scope_end(&kind);
        }
        kn_step(); /* one iteration done: the report gives the time of one */
    }
    printf("answer %.3f\n", total);
    return 0;
}
