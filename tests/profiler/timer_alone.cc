// The timer in a C++ program that knows nothing else of Knet.c.
#include <knet/prof_call.h>

#include <cstdlib>
#include <string>

static int parse(const std::string &text) {
    KN_SCOPE("parse");
    if (text.empty()) return 0;
    KN_SCOPE("digits");
    return std::atoi(text.c_str());
}

static int fail(int with) { throw with; }
static void fail_without(int value) { throw value; }

static void leave_calls_by_exceptions() {
    for (int i = 0; i < 4; i++) {
        try {
            if (i % 2) KN_PROF_FN(fail, i);
            KN_PROF_DO("statement", fail_without(i));
        } catch (int) {
        }
        KN_SCOPE("behind");
    }
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
    leave_calls_by_exceptions();
    return sum == 40 ? 0 : 1;
}
