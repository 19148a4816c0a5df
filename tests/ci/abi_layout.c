/* Prints what a program's machine code takes from flx.h besides names: sizes, members' places. Enumerators are read in
   flx.h itself. */
#include <flx.h>
#include <stdio.h>

#define STRUCT(type) printf("struct %s size %zu align %zu\n", #type, sizeof(type), _Alignof(type))
#define MEMBER(type, name) \
    printf("member %s.%s at %zu size %zu\n", #type, #name, offsetof(type, name), sizeof(((type *)0)->name))

int main(void) {
    printf("version %d.%d.%d\n", FLX_VERSION_MAJOR, FLX_VERSION_MINOR, FLX_VERSION_PATCH);

    STRUCT(flx_config_t);
    MEMBER(flx_config_t, struct_size);
    MEMBER(flx_config_t, partition);
    MEMBER(flx_config_t, links);
    MEMBER(flx_config_t, algorithm);
    MEMBER(flx_config_t, deadline_s);
    MEMBER(flx_config_t, check);
    MEMBER(flx_config_t, strict);
    MEMBER(flx_config_t, late_gpus);
    MEMBER(flx_config_t, reserved);

    STRUCT(flx_link_stats_t);
    MEMBER(flx_link_stats_t, name);
    MEMBER(flx_link_stats_t, enabled);
    MEMBER(flx_link_stats_t, why);
    MEMBER(flx_link_stats_t, bytes_sent);
    MEMBER(flx_link_stats_t, chunks_sent);
    MEMBER(flx_link_stats_t, latency_us);
    MEMBER(flx_link_stats_t, bandwidth_GBps);
    MEMBER(flx_link_stats_t, share);

    STRUCT(flx_counters_t);
    MEMBER(flx_counters_t, struct_size);
    MEMBER(flx_counters_t, operations);
    MEMBER(flx_counters_t, allocations);
    MEMBER(flx_counters_t, registrations);
    MEMBER(flx_counters_t, locks);

    STRUCT(flx_comm_t);
    STRUCT(flx_request_t);
    STRUCT(flx_status_t);
    STRUCT(flx_dtype_t);
    STRUCT(flx_op_t);
    printf("constant FLX_IN_PLACE = %zu\n", (size_t)FLX_IN_PLACE);
    printf("constant FLX_REQUEST_NULL = %zu\n", (size_t)FLX_REQUEST_NULL);
    return 0;
}
