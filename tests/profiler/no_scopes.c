/* Compiled, never run: with KN_NO_SCOPES a scope must leave no trace in the object. */
#define KN_NO_SCOPES
#include <knet/prof_call.h>

int work(int x);
int with_scopes(int x);

int with_scopes(int x) {
    KN_SCOPE("block");
    kn_scope scope = kn_scope_begin("text");
    int y = KN_PROF_FN(work, x);
    KN_PROF_DO("statement", y = work(y));
    kn_scope_end(&scope);
    return y;
}
