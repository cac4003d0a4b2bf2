#include <knet/prof.h>

int kn_prof_on_;
