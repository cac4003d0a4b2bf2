// The timer in a C++ program that knows nothing else of Knet.c.
#include <knet/prof.h>

#include <cstdlib>
#include <string>

static int parse(const std::string &text) {
    KN_SCOPE("parse");
    if (text.empty()) return 0;
    KN_SCOPE("digits");
    return std::atoi(text.c_str());
}

int main() {
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        kn_scope scope = kn_scope_begin(("request " + std::to_string(i % 2)).c_str());
        sum += parse(i == 5 ? "" : std::to_string(i));
        kn_scope_end(&scope);
        kn_step();
    }
    try {
        KN_SCOPE("throws");
        throw sum;
    } catch (int) {
    }
    return sum == 40 ? 0 : 1;
}
