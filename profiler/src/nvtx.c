#include "nvtx.h"

#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;

bool kn__nvtx_start(void) {
    if (!domain) domain = nvtxDomainCreateA("knet");
    return domain != NULL;
}

void kn__nvtx_push(kn__node *node) {
    if (!node->nvtx) node->nvtx = nvtxDomainRegisterStringA(domain, node->label);
    nvtxEventAttributes_t event = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
        .message.registered = node->nvtx,
    };
    if (!node->nvtx) { /* a tool that keeps no strings */
        event.messageType = NVTX_MESSAGE_TYPE_ASCII;
        event.message.ascii = node->label;
    }
    nvtxDomainRangePushEx(domain, &event);
}

void kn__nvtx_pop(void) { nvtxDomainRangePop(domain); }
