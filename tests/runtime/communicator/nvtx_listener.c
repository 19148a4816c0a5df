/// A library that stands in for a profiler: NVTX gives it the ranges of domains (NVTX_INJECTION64_PATH), and it counts
/// them and keeps the last one's name.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

int nvtx_opened;
int nvtx_closed;
unsigned long long nvtx_bytes;
char nvtx_name[128];
char nvtx_domain[128];

static nvtxDomainHandle_t create(const char *name) {
    snprintf(nvtx_domain, sizeof nvtx_domain, "%s", name);
    return (nvtxDomainHandle_t)(void *)nvtx_domain;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
    if ((void *)domain != (void *)nvtx_domain || range->messageType != NVTX_MESSAGE_TYPE_ASCII)
        return -1;
    snprintf(nvtx_name, sizeof nvtx_name, "%s", range->message.ascii);
    nvtx_bytes = range->payload.ullValue;
    return nvtx_opened++ - nvtx_closed;
}

static int pop(nvtxDomainHandle_t domain) {
    return (void *)domain == (void *)nvtx_domain ? nvtx_opened - ++nvtx_closed : -1;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    if (callbacks == NULL || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
