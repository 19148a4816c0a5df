/// \file optional.h
/// Functions of flx.h that the libflx.so which is loaded may lack: where it does, their address is null, and calls that
/// need them go to MPI.
#pragma once

#include "flx.h"

#define FLX_OPTIONAL extern "C" __attribute__((weak, visibility("default")))

FLX_OPTIONAL flx_status_t flx_reduce_scatter(const void *, void *, const size_t *, flx_dtype_t, flx_op_t, flx_comm_t);
FLX_OPTIONAL flx_status_t flx_allgatherv(const void *, size_t, void *, const size_t *, const size_t *, flx_dtype_t,
                                         flx_comm_t);
FLX_OPTIONAL flx_status_t flx_gather(const void *, void *, size_t, flx_dtype_t, int, flx_comm_t);
FLX_OPTIONAL flx_status_t flx_gatherv(const void *, size_t, void *, const size_t *, const size_t *, flx_dtype_t, int,
                                      flx_comm_t);
FLX_OPTIONAL flx_status_t flx_scatter(const void *, void *, size_t, flx_dtype_t, int, flx_comm_t);
FLX_OPTIONAL flx_status_t flx_scatterv(const void *, const size_t *, const size_t *, void *, size_t, flx_dtype_t, int,
                                       flx_comm_t);
FLX_OPTIONAL flx_status_t flx_scan(const void *, void *, size_t, flx_dtype_t, flx_op_t, flx_comm_t);
FLX_OPTIONAL flx_status_t flx_exscan(const void *, void *, size_t, flx_dtype_t, flx_op_t, flx_comm_t);
