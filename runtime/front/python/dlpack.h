/// \file dlpack.h
/// What of DLPack's interface (https://dmlc.github.io/dlpack, version 0.8) a capsule named `dltensor` holds.
#pragma once

#include <cstdint>

namespace flx::python::dlpack {

struct Device {
    int32_t type;
    int32_t id;
};
/// Where memory is; others are not known to FLX.
enum : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

struct DataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};
enum : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Tensor {
    void *data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t *shape;
    int64_t *strides;  ///< in elements; null: dense
    uint64_t byte_offset;
};

struct ManagedTensor {
    Tensor tensor;
    void *manager;
    void (*deleter)(ManagedTensor *self);
};

}  // namespace flx::python::dlpack
