#include "cases.h"
#include "conv.h"

int main(int argc, char **argv) { return cases_main(argc, argv, PEER_SCRIPT, conv_rate); }
