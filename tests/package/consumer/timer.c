/* The timer alone. */
#include <knet/prof.h>

int main(void) {
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("load batch");
        kn_step();
    }
    return 0;
}
